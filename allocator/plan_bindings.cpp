// Columns of rows in, a PlanTable out.
#include "plan_bindings.hpp"

#include <stdexcept>
#include <utility>

#include "planned.hpp"

namespace nb = nanobind;

namespace et_replay {
namespace {

void make_plan(PlanTable* self, Bytes arena, Tick period, const PlanColumn& storage,
               const PlanColumn& offset, const PlanColumn& size, const PlanColumn& start,
               const PlanColumn& end, const PlanColumn& stream) {
  PlanTable plan{arena, period, {}};
  for (const PlanColumn* column : {&offset, &size, &start, &end, &stream}) {
    if (column->shape(0) != storage.shape(0)) {
      throw std::invalid_argument("The columns of the plan differ in length.");
    }
  }
  plan.rows.reserve(storage.shape(0));
  for (std::size_t row = 0; row < storage.shape(0); ++row) {
    plan.rows.push_back({storage(row), offset(row), size(row), start(row), end(row),
                         static_cast<Stream>(stream(row))});
  }
  new (self) PlanTable(std::move(plan));
}

std::vector<PlannedRequest> requests_of(const PlanColumn& storage, const PlanColumn& size,
                                        const PlanColumn& stream) {
  if (storage.shape(0) != size.shape(0) || storage.shape(0) != stream.shape(0)) {
    throw std::invalid_argument("The columns of the requests differ in length.");
  }
  std::vector<PlannedRequest> requests;
  requests.reserve(storage.shape(0));
  for (std::size_t row = 0; row < storage.shape(0); ++row) {
    requests.push_back({storage(row), size(row), static_cast<Stream>(stream(row))});
  }
  return requests;
}

nb::tuple pair(const Served& served) { return nb::make_tuple(served.requests, served.bytes); }

}  // namespace

RequestList expected_list(const PlanColumn& storage, const PlanColumn& size,
                          const PlanColumn& stream) {
  return RequestList(requests_of(storage, size, stream));
}

RequestList followed_list(const PlanColumn& storage, const PlanColumn& size,
                          const PlanColumn& stream, const FlagColumn& varies,
                          const std::vector<std::size_t>& begins, bool marked) {
  std::vector<PlannedRequest> requests = requests_of(storage, size, stream);
  if (varies.shape(0) != requests.size()) {
    throw std::invalid_argument("The columns of the requests differ in length.");
  }
  for (std::size_t row = 0; row < requests.size(); ++row) requests[row].varies = varies(row);
  return RequestList(std::move(requests), begins, marked);
}

void define_plan(nb::module_& module) {
  nb::class_<PlanTable>(module, "Plan")
      .def("__init__", &make_plan, nb::arg("arena"), nb::arg("period"), nb::arg("storage"),
           nb::arg("offset"), nb::arg("size"), nb::arg("start"), nb::arg("end"),
           nb::arg("stream"));
}

std::optional<PlannedFigures> figures_of(const Allocator& allocator) {
  const auto* planned = dynamic_cast<const PlannedAllocator*>(&allocator);
  if (planned == nullptr) return std::nullopt;
  return planned->figures();
}

nb::object plan_figures(const std::optional<PlannedFigures>& figures) {
  if (!figures) return nb::none();
  return nb::make_tuple(figures->arena, pair(figures->planned), pair(figures->reused),
                        pair(figures->displaced), pair(figures->fallback),
                        figures->fallback_peak_reserved);
}

nb::tuple iteration_figures(const IterationFigures& figures) {
  return nb::make_tuple(figures.peak_allocated, figures.peak_active, figures.peak_reserved,
                        figures.allocated, figures.reserved, pair(figures.planned),
                        pair(figures.reused), pair(figures.displaced), pair(figures.fallback),
                        pair(figures.unmatched), figures.expected, figures.resynchronisations);
}

}  // namespace et_replay
