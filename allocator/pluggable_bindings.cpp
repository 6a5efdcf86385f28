// Functions, not a class: there is one allocator in a process.
#include "pluggable_bindings.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "figure_bindings.hpp"
#include "plan_bindings.hpp"
#include "pluggable.hpp"

namespace nb = nanobind;

namespace et_replay {
namespace {

void install(const std::string& allocator, const std::string& settings,
             const std::string& torch_version, std::optional<Bytes> device_memory) {
  pluggable::install({allocator, {settings, version_of(torch_version), {}}, device_memory});
}

// A device that has served nothing yet is not opened for being asked: that would cost its memory.
nb::dict stats(int device) {
  PluggableAllocator* state = pluggable::find(device);
  return state == nullptr ? nb::dict() : memory_stats(state->inspect(count_memory));
}

nb::object figures(int device) {
  PluggableAllocator* state = pluggable::find(device);
  return state == nullptr ? nb::none() : plan_figures(state->inspect(figures_of));
}

// Whose storage a block is, torch does not say.
std::vector<SegmentState> without_owners(const std::vector<SegmentView>& segments) {
  return segment_states(segments, [](Address) { return std::int64_t{0}; });
}

std::vector<SegmentState> segments(int device) {
  PluggableAllocator* state = pluggable::find(device);
  if (state == nullptr) return {};
  return without_owners(
      state->inspect([](const Allocator& allocator) { return allocator.segments(); }));
}

// The figures, and the segments of that moment.
nb::object last_failure(int device) {
  PluggableAllocator* state = pluggable::find(device);
  if (state == nullptr) return nb::none();
  const std::optional<PluggableAllocator::Failure> failure = state->last_failure();
  if (!failure) return nb::none();
  return nb::make_tuple(failure->error, without_owners(failure->segments));
}

// For an operation of a replay it is called once: a device that has served nothing expects nothing.
void expect(int device, std::size_t begin, std::size_t end) {
  if (PluggableAllocator* state = pluggable::find(device)) state->expect(begin, end);
}

void adopt(int device, const PlanTable& plan, const PlanColumn& storage, const PlanColumn& size,
           const PlanColumn& stream) {
  pluggable::on_device(device).adopt(plan, expected_list(storage, size, stream));
}

void follow(int device, const PlanTable& plan, const PlanColumn& storage, const PlanColumn& size,
            const PlanColumn& stream, const FlagColumn& varies,
            const std::vector<std::size_t>& begins, bool marked) {
  pluggable::follow(device, plan, followed_list(storage, size, stream, varies, begins, marked));
}

nb::dict begin_iteration(std::size_t iteration) {
  nb::dict result;
  for (const auto& [device, figures] : pluggable::begin_iteration(iteration)) {
    result[nb::int_(device)] = iteration_figures(figures);
  }
  return result;
}

std::size_t trace_length(int device) {
  PluggableAllocator* state = pluggable::find(device);
  if (state == nullptr) return 0;
  return state->inspect(
      [](const Allocator& allocator) { return allocator.trace().entries.size(); });
}

nb::list trace_of(int device) {
  PluggableAllocator* state = pluggable::find(device);
  if (state == nullptr) return {};
  return trace_entries(
      state->inspect([](const Allocator& allocator) { return allocator.trace().entries; }));
}

void reset_peaks(int device) {
  if (PluggableAllocator* state = pluggable::find(device)) state->reset_peaks();
}

void empty_cache(int device) {
  if (PluggableAllocator* state = pluggable::find(device)) state->empty_cache();
}

}  // namespace

void define_pluggable(nb::module_& module) {
  module.def("pluggable_install", &install, nb::arg("allocator"), nb::kw_only(),
             nb::arg("settings") = "", nb::arg("torch_version") = "2.14",
             nb::arg("device_memory") = nb::none());
  module.def("pluggable_uninstall", &pluggable::uninstall);
  module.def("pluggable_installed", &pluggable::is_installed);
  module.def("pluggable_stats", &stats, nb::arg("device"));
  module.def("pluggable_reset_peaks", &reset_peaks, nb::arg("device"));
  module.def("pluggable_segments", &segments, nb::arg("device"));
  module.def("pluggable_empty_cache", &empty_cache, nb::arg("device"),
             nb::call_guard<nb::gil_scoped_release>());
  module.def("pluggable_plan_figures", &figures, nb::arg("device"));
  module.def("pluggable_last_failure", &last_failure, nb::arg("device"));
  module.def("pluggable_adopt", &adopt, nb::arg("device"), nb::arg("plan"), nb::kw_only(),
             nb::arg("storage"), nb::arg("size"), nb::arg("stream"));
  module.def("pluggable_expect", &expect, nb::arg("device"), nb::arg("begin"), nb::arg("end"));
  module.def("pluggable_follow", &follow, nb::arg("device"), nb::arg("plan"), nb::kw_only(),
             nb::arg("storage"), nb::arg("size"), nb::arg("stream"), nb::arg("varies"),
             nb::arg("begins"), nb::arg("marked"));
  module.def("pluggable_begin_iteration", &begin_iteration, nb::arg("iteration"));
  module.def(
      "pluggable_record_trace",
      [](int device, bool on) { pluggable::on_device(device).record_trace(on); },
      nb::arg("device"), nb::arg("on"));
  module.def("pluggable_trace_length", &trace_length, nb::arg("device"));
  module.def("pluggable_trace", &trace_of, nb::arg("device"));
  module.def(
      "pluggable_throw_out_of_memory_by",
      [](std::uintptr_t function) {
        pluggable::throw_out_of_memory_by(reinterpret_cast<pluggable::Thrower>(function));
      },
      nb::arg("function"));
}

}  // namespace et_replay
