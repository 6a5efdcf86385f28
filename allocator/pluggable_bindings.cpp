// Functions, not a class: there is one allocator in a process.
#include "pluggable_bindings.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>

#include "figure_bindings.hpp"
#include "plan_bindings.hpp"
#include "pluggable.hpp"

namespace nb = nanobind;

namespace et_replay {
namespace {

void install(const std::string& allocator, const std::string& settings,
             const std::string& torch_version, std::optional<Bytes> device_memory,
             const PlanTable* plan) {
  pluggable::install({allocator,
                      {settings, version_of(torch_version),
                       plan == nullptr ? PlanTable{} : *plan},
                      device_memory});
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
std::vector<SegmentState> segments(int device) {
  PluggableAllocator* state = pluggable::find(device);
  if (state == nullptr) return {};
  return state->inspect([](const Allocator& allocator) {
    return segment_states(allocator, [](Address) { return std::int64_t{0}; });
  });
}

nb::object last_failure(int device) {
  PluggableAllocator* state = pluggable::find(device);
  const std::optional<OutOfMemory> failure =
      state == nullptr ? std::nullopt : state->last_failure();
  return failure ? nb::cast(*failure) : nb::none();
}

Bytes capacity(int device) {
  return pluggable::on_device(device).inspect(
      [](const Allocator& allocator) { return allocator.device().capacity(); });
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
             nb::arg("device_memory") = nb::none(), nb::arg("plan") = nb::none());
  module.def("pluggable_uninstall", &pluggable::uninstall);
  module.def("pluggable_installed", &pluggable::is_installed);
  module.def("pluggable_stats", &stats, nb::arg("device"));
  module.def("pluggable_capacity", &capacity, nb::arg("device"));
  module.def("pluggable_reset_peaks", &reset_peaks, nb::arg("device"));
  module.def("pluggable_segments", &segments, nb::arg("device"));
  module.def("pluggable_empty_cache", &empty_cache, nb::arg("device"),
             nb::call_guard<nb::gil_scoped_release>());
  module.def("pluggable_plan_figures", &figures, nb::arg("device"));
  module.def("pluggable_last_failure", &last_failure, nb::arg("device"));
  module.def("pluggable_expect", &pluggable::expect, nb::arg("storage"), nb::arg("size") = -1);
  module.def("pluggable_expect_nothing", &pluggable::expect_nothing);
  module.def(
      "pluggable_throw_out_of_memory_by",
      [](std::uintptr_t function) {
        pluggable::throw_out_of_memory_by(reinterpret_cast<pluggable::Thrower>(function));
      },
      nb::arg("function"));
}

}  // namespace et_replay
