// An allocator over a simulated device, fed with storages one by one or with columns of events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "caching.hpp"
#include "storage_table.hpp"

namespace et_replay {

// Borrowed columns of equal length; `action` has the values of et_replay.events.Action.
struct EventColumns {
  const std::int8_t* action;
  const std::int64_t* storage;
  const std::int64_t* size;
  const std::int64_t* stream;
};

class Simulation {
 public:
  explicit Simulation(Bytes capacity, TieOrder tie_order = TieOrder::segment,
                      std::vector<Address> recorded = {})
      : device_(capacity, std::move(recorded)), allocator_(device_, tie_order) {}
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // A size of 0 takes no memory. Throws OutOfMemory; std::invalid_argument if the storage is live.
  void allocate(std::int64_t storage, Bytes size, Stream stream);
  // A storage without memory is left alone.
  void free(std::int64_t storage);
  // Runs the events [begin, end). After an exception the rows before the failing one have happened.
  void run(const EventColumns& events, std::int64_t begin, std::int64_t end);
  // Returns 0 for a storage without memory.
  Address address(std::int64_t storage) const;

  CachingAllocator& allocator() { return allocator_; }
  const CachingAllocator& allocator() const { return allocator_; }

 private:
  SimulatedDevice device_;
  CachingAllocator allocator_;
  StorageTable table_;
};

}  // namespace et_replay
