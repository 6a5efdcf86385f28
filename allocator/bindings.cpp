// The Python face of the native code: the module et_replay._core. No other file knows Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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

void run(Simulation& simulation, const Events& events, std::int64_t begin, std::int64_t end) {
  if (begin < 0 || end > events.rows()) {
    throw std::out_of_range("The events to run are outside the " + std::to_string(events.rows()) +
                            " events there are.");
  }
  simulation.run(events.columns(), begin, end);
}

template <PoolCounter Statistics::* counter>
std::int64_t current(const Simulation& simulation) {
  return (simulation.allocator().statistics().*counter).all.current;
}

void add(nb::dict& stats, const std::string& prefix, const Counter& counter) {
  stats[(prefix + ".current").c_str()] = counter.current;
  stats[(prefix + ".peak").c_str()] = counter.peak;
  stats[(prefix + ".allocated").c_str()] = counter.allocated;
  stats[(prefix + ".freed").c_str()] = counter.freed;
}

nb::dict memory_stats(const Simulation& simulation) {
  const Statistics& statistics = simulation.allocator().statistics();
  nb::dict stats;
  for (const NamedCounter& named : named_counters) {
    const PoolCounter& counter = statistics.*named.counter;
    const std::string name = named.name;
    add(stats, name + ".all", counter.all);
    add(stats, name + ".small_pool", counter.small);
    add(stats, name + ".large_pool", counter.large);
  }
  for (const NamedTotal& named : named_totals) stats[named.name] = statistics.*named.total;
  return stats;
}

// Segments and blocks with the keys of torch.cuda.memory_snapshot().
nb::list segments(const Simulation& simulation) {
  nb::list result;
  for (const SegmentView& view : simulation.allocator().segments()) {
    nb::list blocks;
    Bytes total = 0;
    for (const Block& block : view.blocks) {
      nb::dict entry;
      entry["address"] = block.address;
      entry["size"] = block.size;
      entry["requested_size"] = block.requested;
      entry["state"] = block.allocated ? "active_allocated" : "inactive";
      blocks.append(entry);
      total += block.size;
    }
    nb::dict segment;
    segment["address"] = view.blocks.front().address;
    segment["total_size"] = total;
    segment["stream"] = view.stream;
    segment["segment_type"] = view.kind == PoolKind::small ? "small" : "large";
    segment["blocks"] = blocks;
    result.append(segment);
  }
  return result;
}

// Python's OutOfMemoryError carries the figures of ours as attributes.
void translate_out_of_memory(const std::exception_ptr& pointer, void* type) {
  try {
    std::rethrow_exception(pointer);
  } catch (const OutOfMemory& error) {
    nb::object exception = nb::borrow(static_cast<PyObject*>(type))(error.what());
    exception.attr("requested") = error.requested;
    exception.attr("segment") = error.segment;
    exception.attr("capacity") = error.capacity;
    exception.attr("allocated") = error.allocated;
    exception.attr("reserved") = error.reserved;
    exception.attr("largest_free") = error.largest_free;
    exception.attr("event") = error.event;
    PyErr_SetObject(static_cast<PyObject*>(type), exception.ptr());
  }
}

}  // namespace

NB_MODULE(_core, module) {
  module.attr("__doc__") = "Native allocators over a simulated device.";

  nb::exception<OutOfMemory> out_of_memory(module, "OutOfMemoryError");
  nb::register_exception_translator(translate_out_of_memory, out_of_memory.ptr());

  nb::class_<Events>(module, "Events")
      .def(nb::init<Column<std::int8_t>, Column<std::int64_t>, Column<std::int64_t>,
                    Column<std::int64_t>>(),
           nb::arg("action"), nb::arg("storage"), nb::arg("size"), nb::arg("stream"));

  nb::class_<Simulation>(module, "Simulation")
      .def(
          "__init__",
          [](Simulation* self, Bytes capacity, bool tie_by_address, std::vector<Address> recorded) {
            const TieOrder tie_order = tie_by_address ? TieOrder::address : TieOrder::segment;
            new (self) Simulation(capacity, tie_order, std::move(recorded));
          },
          nb::arg("capacity"), nb::kw_only(), nb::arg("tie_by_address") = false,
          nb::arg("recorded_addresses") = std::vector<Address>{})
      .def(
          "allocate",
          [](Simulation& self, std::int64_t storage, Bytes size, std::int64_t stream) {
            self.allocate(storage, size, static_cast<Stream>(stream));
          },
          nb::arg("storage"), nb::arg("size"), nb::arg("stream") = 0)
      .def("free", &Simulation::free, nb::arg("storage"))
      .def("run", &run, nb::arg("events"), nb::arg("begin"), nb::arg("end"))
      .def("address", &Simulation::address, nb::arg("storage"))
      .def("empty_cache", [](Simulation& self) { self.allocator().empty_cache(); })
      .def("reset_peaks", [](Simulation& self) { self.allocator().reset_peaks(); })
      .def_prop_ro("allocated", &current<&Statistics::allocated_bytes>)
      .def_prop_ro("active", &current<&Statistics::active_bytes>)
      .def_prop_ro("reserved", &current<&Statistics::reserved_bytes>)
      .def_prop_ro("capacity",
                   [](const Simulation& self) { return self.allocator().device().capacity(); })
      .def("memory_stats", &memory_stats)
      .def("segments", &segments);
}

}  // namespace et_replay
