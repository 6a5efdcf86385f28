// The Python face of the native code: the module et_replay._core. No other file knows Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "figure_bindings.hpp"
#include "plan_bindings.hpp"
#include "planner_bindings.hpp"
#include "pluggable_bindings.hpp"
#include "simulation.hpp"

namespace nb = nanobind;

namespace et_replay {
namespace {

template <class T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Holds the columns of events, so that running some of their rows checks and converts nothing.
class Events {
 public:
  Events(Column<std::int8_t> action, Column<std::int64_t> storage, Column<std::int64_t> size,
         Column<std::int64_t> stream)
      : action_(std::move(action)),
        storage_(std::move(storage)),
        size_(std::move(size)),
        stream_(std::move(stream)) {
    const std::size_t rows = action_.shape(0);
    if (storage_.shape(0) != rows || size_.shape(0) != rows || stream_.shape(0) != rows) {
      throw std::invalid_argument("The columns of the events differ in length.");
    }
  }

  std::int64_t rows() const { return static_cast<std::int64_t>(action_.shape(0)); }
  EventColumns columns() const {
    return {action_.data(), storage_.data(), size_.data(), stream_.data()};
  }

 private:
  Column<std::int8_t> action_;
  Column<std::int64_t> storage_, size_, stream_;
};

using OutcomeColumn = nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void run(Simulation& simulation, const Events& events, std::int64_t begin, std::int64_t end,
         bool keep_going, std::optional<OutcomeColumn> addresses,
         std::optional<OutcomeColumn> allocated, std::optional<OutcomeColumn> reserved,
         std::optional<OutcomeColumn> entries) {
  if (begin < 0 || end > events.rows()) {
    throw std::out_of_range("The events to run are outside the " + std::to_string(events.rows()) +
                            " events there are.");
  }
  const auto data = [&](std::optional<OutcomeColumn>& column) -> std::int64_t* {
    if (!column) return nullptr;
    if (static_cast<std::int64_t>(column->shape(0)) != end - begin) {
      throw std::invalid_argument("A column of outcomes differs in length from the events to run.");
    }
    return column->data();
  };
  simulation.run(events.columns(), begin, end, keep_going,
                 {data(addresses), data(allocated), data(reserved), data(entries)});
}

void restore(Simulation& simulation, Address address, std::int64_t stream, bool small,
             bool expandable, PoolId pool, const std::vector<BlockState>& states) {
  if (states.empty()) throw std::invalid_argument("A segment to start with has no blocks.");
  SegmentView segment{small ? PoolKind::small : PoolKind::large, static_cast<Stream>(stream), pool,
                      expandable, {}};
  std::vector<std::int64_t> storages;
  for (const auto& [size, requested, storage, only_active] : states) {
    Block& block = segment.blocks.emplace_back();
    block.address = address;
    block.size = size;
    block.requested = requested;
    block.allocated = storage >= 0 && !only_active;
    block.pending = storage >= 0 && only_active ? 1 : 0;
    storages.push_back(storage);
    address += static_cast<Address>(size);
  }
  simulation.restore(segment, storages);
}

template <PoolCounter Statistics::* counter>
std::int64_t current(const Simulation& simulation) {
  return (simulation.allocator().statistics().*counter).all.current;
}

std::vector<SegmentState> segments(const Simulation& simulation) {
  const std::map<Address, std::int64_t> owners = simulation.owners();
  return segment_states(simulation.allocator().segments(),
                        [&](Address address) { return owners.at(address); });
}

nb::list trace(Simulation& simulation) {
  return trace_entries(simulation.allocator().trace().entries);
}

nb::list policy_list() {
  nb::list result;
  for (const Policy& policy : policies()) {
    result.append(nb::make_tuple(policy.name, policy.help, policy.invents_addresses));
  }
  return result;
}

// Python's errors carry the figures of ours.
void translate(const std::exception_ptr& pointer, void* type) {
  try {
    std::rethrow_exception(pointer);
  } catch (const OutOfMemory& error) {
    nb::object exception = nb::borrow(static_cast<PyObject*>(type))(error.what());
    exception.attr("failure") = nb::cast(error);
    PyErr_SetObject(static_cast<PyObject*>(type), exception.ptr());
  }
}

void translate_undefined(const std::exception_ptr& pointer, void* type) {
  try {
    std::rethrow_exception(pointer);
  } catch (const UndefinedBehavior& error) {
    nb::object exception = nb::borrow(static_cast<PyObject*>(type))(error.what());
    exception.attr("event") = error.event;
    PyErr_SetObject(static_cast<PyObject*>(type), exception.ptr());
  }
}

void define_errors(nb::module_& module) {
  nb::class_<OutOfMemory>(module, "Failure")
      .def_ro("requested", &OutOfMemory::requested)
      .def_ro("segment", &OutOfMemory::segment)
      .def_ro("capacity", &OutOfMemory::capacity)
      .def_ro("limit", &OutOfMemory::limit)
      .def_ro("allocated", &OutOfMemory::allocated)
      .def_ro("reserved", &OutOfMemory::reserved)
      .def_ro("largest_free", &OutOfMemory::largest_free)
      .def_ro("event", &OutOfMemory::event);
  nb::exception<OutOfMemory> out_of_memory(module, "OutOfMemoryError");
  nb::register_exception_translator(translate, out_of_memory.ptr());
  nb::exception<UndefinedBehavior> undefined(module, "UndefinedBehaviorError");
  nb::register_exception_translator(translate_undefined, undefined.ptr());
}

void define_calls(nb::class_<Simulation>& simulation) {
  simulation
      .def(
          "__init__",
          [](Simulation* self, Bytes capacity, const std::string& allocator,
             const std::string& settings, const std::string& torch_version,
             std::vector<Address> device_addresses, const PlanTable* plan) {
            const Setup setup{settings, version_of(torch_version),
                              plan == nullptr ? PlanTable{} : *plan};
            new (self) Simulation(capacity, allocator, setup, std::move(device_addresses));
          },
          nb::arg("capacity"), nb::kw_only(), nb::arg("allocator") = "native",
          nb::arg("settings") = "", nb::arg("torch_version") = "2.14",
          nb::arg("device_addresses") = std::vector<Address>{}, nb::arg("plan") = nb::none())
      .def("restore", &restore, nb::arg("address"), nb::arg("stream"), nb::arg("small"),
           nb::arg("expandable"), nb::arg("pool"), nb::arg("blocks"))
      .def(
          "follow",
          [](Simulation& self, const PlanColumn& storage, const PlanColumn& size,
             const PlanColumn& stream, const FlagColumn& varies,
             const std::vector<std::size_t>& begins, bool marked) {
            self.follow(followed_list(storage, size, stream, varies, begins, marked));
          },
          nb::kw_only(), nb::arg("storage"), nb::arg("size"), nb::arg("stream"),
          nb::arg("varies"), nb::arg("begins"), nb::arg("marked"))
      .def(
          "begin_iteration",
          [](Simulation& self, std::size_t iteration) {
            return iteration_figures(self.begin_iteration(iteration));
          },
          nb::arg("iteration"))
      .def(
          "allocate",
          [](Simulation& self, std::int64_t storage, Bytes size, std::int64_t stream) {
            self.allocate(storage, size, static_cast<Stream>(stream));
          },
          nb::arg("storage"), nb::arg("size"), nb::arg("stream") = 0)
      .def(
          "free", [](Simulation& self, std::int64_t storage) { self.free(storage); },
          nb::arg("storage"))
      .def("run", &run, nb::arg("events"), nb::arg("begin"), nb::arg("end"), nb::kw_only(),
           nb::arg("keep_going") = false, nb::arg("addresses") = nb::none(),
           nb::arg("allocated") = nb::none(), nb::arg("reserved") = nb::none(),
           nb::arg("entries") = nb::none());
}

void define_figures(nb::class_<Simulation>& simulation) {
  simulation.def("failures", &Simulation::failures)
      .def("reproduced", &Simulation::reproduced)
      .def("unexpected", &Simulation::unexpected)
      .def("address", &Simulation::address, nb::arg("storage"))
      .def("empty_cache", [](Simulation& self) { self.allocator().empty_cache(); })
      .def("reset_peaks", [](Simulation& self) { self.allocator().reset_peaks(); })
      .def("set_fraction", [](Simulation& self, double f) { self.allocator().set_fraction(f); },
           nb::arg("fraction"))
      .def("record_trace", [](Simulation& self) { self.allocator().trace().enabled = true; })
      .def_prop_ro("allocated", &current<&Statistics::allocated_bytes>)
      .def_prop_ro("active", &current<&Statistics::active_bytes>)
      .def_prop_ro("reserved", &current<&Statistics::reserved_bytes>)
      .def_prop_ro("capacity",
                   [](const Simulation& self) { return self.allocator().device().capacity(); })
      .def("memory_stats",
           [](const Simulation& self) { return memory_stats(count_memory(self.allocator())); })
      .def("segments", &segments)
      .def("plan_figures", [](const Simulation& self) { return plan_figures(figures_of(self.allocator())); })
      .def("trace", &trace);
}

}  // namespace

NB_MODULE(_core, module) {
  module.attr("__doc__") = "Native allocators over a simulated device or a real one.";
  define_errors(module);
  module.def("policies", &policy_list);
  define_plan(module);
  define_planner(module);
  define_pluggable(module);

  nb::class_<Events>(module, "Events")
      .def(nb::init<Column<std::int8_t>, Column<std::int64_t>, Column<std::int64_t>,
                    Column<std::int64_t>>(),
           nb::arg("action"), nb::arg("storage"), nb::arg("size"), nb::arg("stream"));

  nb::class_<Simulation> simulation(module, "Simulation");
  define_calls(simulation);
  define_figures(simulation);
}

}  // namespace et_replay
