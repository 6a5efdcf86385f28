// An allocator over a simulated device, fed with storages one by one or with columns of events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "follower.hpp"
#include "policies.hpp"
#include "storage_table.hpp"

namespace et_replay {

// Borrowed columns of equal length; `action` has the values of et_replay.events.Action.
struct EventColumns {
  const std::int8_t* action;
  const std::int64_t* storage;
  const std::int64_t* size;
  const std::int64_t* stream;
};

// Where run() writes what came of each row; columns that are nullptr are left out.
struct Outcomes {
  std::int64_t* address = nullptr;    // of the event's block, or 0
  std::int64_t* allocated = nullptr;  // bytes after the event, and so below
  std::int64_t* reserved = nullptr;
  std::int64_t* entries = nullptr;    // of the trace so far
};

// The storage of a pool event names a private pool: first * 2^32 + second of its id.
constexpr PoolId pool_id(std::int64_t number) {
  const auto bits = static_cast<std::uint64_t>(number);
  return {bits >> 32, bits & 0xffffffff};
}

class Simulation {
 public:
  Simulation(Bytes capacity, const std::string& allocator, const Setup& setup,
             std::vector<Address> recorded)
      : device_(capacity, std::move(recorded)),
        allocator_(make_allocator(allocator, device_, setup)),
        version_(setup.version) {}
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // Starts from a segment; `storages` has one entry a block, read for live ones.
  void restore(const SegmentView& segment, const std::vector<std::int64_t>& storages);

  // From here on the names of storages tell the plan nothing: requests are those of this list.
  void follow(RequestList requests);
  // Ends the iteration before and returns its figures, where a list is followed.
  IterationFigures begin_iteration(std::size_t iteration);

  // A size of 0 takes no memory. Returns the address. Throws OutOfMemory; std::invalid_argument if
  // the storage is live.
  Address allocate(std::int64_t storage, Bytes size, Stream stream);
  // Returns the address that the storage had; one without memory is left alone, here and below.
  Address free(std::int64_t storage);
  void request_free(std::int64_t storage);
  void complete_free(std::int64_t storage);
  void record_stream(std::int64_t storage, Stream stream);

  // Runs the events [begin, end). A request that does not fit throws OutOfMemory after the rows
  // before it have happened, or with `keep_going` becomes one of failures().
  void run(const EventColumns& events, std::int64_t begin, std::int64_t end, bool keep_going,
           const Outcomes& outcomes);
  const std::vector<OutOfMemory>& failures() const { return failures_; }
  // The recorded failures that happened again.
  const std::vector<OutOfMemory>& reproduced() const { return reproduced_; }
  // The rows at which a recorded failure did not happen.
  const std::vector<std::int64_t>& unexpected() const { return unexpected_; }

  // The storages by the addresses of their blocks.
  std::map<Address, std::int64_t> owners() const;
  // Returns 0 for a storage without memory.
  Address address(std::int64_t storage) const;

  Allocator& allocator() { return *allocator_; }
  const Allocator& allocator() const { return *allocator_; }
  Version version() const { return version_; }

 private:
  struct Held {
    std::uint64_t ticket;
    Address address;
  };

  void note(const Outcomes& outcomes, std::int64_t at, Address address) const;
  Address run_row(const EventColumns& events, std::int64_t row);
  Address run_rare(const EventColumns& events, std::int64_t row);
  void expect_failure(Bytes size, Stream stream, std::int64_t row);

  SimulatedDevice device_;
  std::unique_ptr<Allocator> allocator_;
  std::optional<Follower> follower_;
  Version version_;
  StorageTable<Block> table_;
  std::map<std::int64_t, Held> held_;
  std::vector<OutOfMemory> failures_;
  std::vector<OutOfMemory> reproduced_;
  std::vector<std::int64_t> unexpected_;
};

}  // namespace et_replay
