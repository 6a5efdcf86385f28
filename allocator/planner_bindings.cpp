// Columns of buffers in, columns of offsets out.
#include "planner_bindings.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <chrono>
#include <future>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "planner/planner.hpp"
#include "planner/sweep.hpp"
#include "planner/validate.hpp"

namespace nb = nanobind;

namespace et_replay {
namespace {

using Column = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OffsetColumn = nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>>;

struct Buffers {
  Buffers(const Column& size, const Column& alignment, const Column& fixed, const Column& start,
          const Column& end, const Column& again_start, const Column& again_end) {
    const std::size_t rows = size.shape(0);
    for (const Column* column : {&alignment, &fixed, &start, &end, &again_start, &again_end}) {
      if (column->shape(0) != rows) {
        throw std::invalid_argument("The columns of the buffers differ in length.");
      }
    }
    problem.reserve(rows);
    for (std::size_t row = 0; row < rows; ++row) {
      problem.push_back({size(row), alignment(row), fixed(row), {start(row), end(row)},
                         {again_start(row), again_end(row)}});
    }
  }

  planner::Problem problem;
};

OffsetColumn column_of(planner::Offsets offsets) {
  auto* owned = new planner::Offsets(std::move(offsets));
  nb::capsule owner(owned,
                    [](void* held) noexcept { delete static_cast<planner::Offsets*>(held); });
  return OffsetColumn(owned->data(), {owned->size()}, owner);
}

// Plans on a thread of its own, so that this one can look for Ctrl-C. Other threads than Python's
// main one never see a signal.
planner::Answer plan_interruptibly(const planner::Problem& problem,
                                   const planner::Effort& effort) {
  planner::Stop stop;
  const nb::gil_scoped_release unlocked;
  auto answer = std::async(std::launch::async,
                           [&] { return planner::plan(problem, effort, stop); });
  while (answer.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
    const nb::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() == 0) continue;
    nb::python_error interrupt;
    const nb::gil_scoped_release waiting;
    stop.cancel();
    answer.wait();
    throw interrupt;
  }
  return answer.get();
}

using Planned = std::tuple<OffsetColumn, std::int64_t, std::int64_t, bool, std::string>;

Planned plan(const Buffers& buffers, bool best, double timeout) {
  planner::Effort effort;
  effort.level = best ? planner::Level::best : planner::Level::fast;
  effort.timeout = timeout;
  planner::Answer answer = plan_interruptibly(buffers.problem, effort);
  return {column_of(std::move(answer.offsets)), answer.arena, answer.lower_bound, answer.proven,
          answer.method};
}

std::string find_fault(const Buffers& buffers, const Column& offsets, std::int64_t arena) {
  return planner::find_fault(
      buffers.problem, {offsets.data(), offsets.data() + offsets.shape(0)}, arena);
}

}  // namespace

void define_planner(nb::module_& module) {
  nb::class_<Buffers>(module, "Buffers")
      .def(nb::init<const Column&, const Column&, const Column&, const Column&, const Column&,
                    const Column&, const Column&>(),
           nb::arg("size"), nb::arg("alignment"), nb::arg("offset"), nb::arg("start"),
           nb::arg("end"), nb::arg("again_start"), nb::arg("again_end"));
  module.def("plan", &plan, nb::arg("buffers"), nb::kw_only(), nb::arg("best") = false,
             nb::arg("timeout") = 0.0);
  module.def("lower_bound", [](const Buffers& b) { return planner::lower_bound(b.problem); },
             nb::arg("buffers"));
  module.def("find_fault", &find_fault, nb::arg("buffers"), nb::arg("offsets"), nb::arg("arena"));
}

}  // namespace et_replay
