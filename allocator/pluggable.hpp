// The allocator that serves this process' CUDA memory in place of PyTorch's: what torch calls, and
// what lies behind it, one state a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cuda_device.hpp"
#include "follower.hpp"
#include "handover.hpp"
#include "policies.hpp"
#include "storage_table.hpp"

namespace et_replay {

// What every device's allocator is made from.
struct PluggableSetup {
  std::string policy;
  Setup setup;
  std::optional<Bytes> limit;  // of the memory of each device
};

// Serves one device from any thread.
class PluggableAllocator {
 public:
  // Throws std::invalid_argument about the setup, std::runtime_error about the device.
  PluggableAllocator(int ordinal, const PluggableSetup& setup);

  // At least one byte. Throws OutOfMemory.
  Address allocate(Bytes requested, CudaStream stream);
  // Returns whether the address was one of this device's.
  bool free(Address address);
  bool record_stream(Address address, CudaStream stream);
  void empty_cache();
  void reset_peaks();
  void set_fraction(double fraction);
  // Starts the trace of the allocator anew, or ends it.
  void record_trace(bool on);

  // Serves another plan from here on, to the requests of this list that are expected. Throws
  // std::invalid_argument about the plan, while its arena is in use, or where none is served.
  void adopt(const PlanTable& plan, RequestList requests);
  // Of that list, the requests [begin, end) come next, in about this order.
  void expect(std::size_t begin, std::size_t end);
  // Ends the iteration before and returns its figures.
  IterationFigures begin_iteration(std::size_t iteration);

  // While the filter holds for a stream, its requests go to a private pool: those of a CUDA graph
  // that is captured. The pool lives until as many releases.
  void begin_pool(PoolId id, std::function<bool(CudaStream)> filter);
  void end_pool(PoolId id);
  void release_pool(PoolId id);

  // Calls `look` with the allocator, which nothing changes meanwhile. It must not run Python: that
  // may free tensors, which would wait for it.
  template <class Look>
  auto inspect(Look&& look) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return look(static_cast<const Allocator&>(*allocator_));
  }
  // A request that did not fit, and what was reserved when it came.
  struct Failure {
    OutOfMemory error;
    std::vector<SegmentView> segments;
  };
  std::optional<Failure> last_failure();

 private:
  struct Capture {
    PoolId id;
    std::function<bool(CudaStream)> filter;
    Stream routed;  // whose requests go to the pool now
  };
  // A free block that waits until streams have passed one event each.
  struct Wait {
    std::uint64_t ticket;
    CudaEvent event;
  };
  struct Deferred {
    std::uint64_t ticket;
    std::vector<CudaStream> users;
  };

  Stream number_of(CudaStream stream);
  bool is_stream_of(const Block& block, CudaStream stream) const;
  void route(CudaStream stream, Stream number);
  void wait_for(std::uint64_t ticket, const std::vector<CudaStream>& users);
  void take_over(const Block& block, CudaStream stream);
  void leave(const Block& block);
  void settle();
  void settle_queue(std::deque<Wait>& queue);
  CudaEvent take_event();

  std::mutex mutex_;
  CudaDevice device_;
  std::unique_ptr<Allocator> allocator_;
  Follower follower_;
  StorageTable<Block> live_;  // by address
  // By their handles: allocators rank streams by number. The default stream is 0.
  std::map<CudaStream, Stream> streams_{{nullptr, 0}};
  std::vector<CudaStream> handles_{nullptr};  // by number
  CudaStream last_stream_ = nullptr;
  Stream last_number_ = 0;

  std::map<Block*, std::vector<CudaStream>> users_;
  std::map<CudaStream, std::deque<Wait>> waits_;
  std::map<std::uint64_t, std::size_t> open_waits_;  // events to pass, by ticket
  std::vector<Deferred> deferred_;                   // freed within a capture
  std::vector<CudaEvent> spare_events_;
  Handover handover_;
  std::map<Handover::Moment, std::vector<std::pair<CudaStream, CudaEvent>>> moments_;

  std::vector<Capture> captures_;
  std::map<PoolId, std::int64_t> pool_uses_;
  std::optional<Failure> last_failure_;
};

namespace pluggable {

// Lets the functions below serve. Throws std::runtime_error without a driver or if it has been done
// before, std::invalid_argument about the setup.
void install(PluggableSetup setup);
// Takes that back, as long as nothing was served.
void uninstall();
bool is_installed();
// The state of a device; nullptr if it has not served yet.
PluggableAllocator* find(int ordinal);
// The same, made now if there is none.
PluggableAllocator& on_device(int ordinal);

// Serves a plan to the requests of a list that is followed: at once, or where the device has not
// served yet from its first request on. Throws std::invalid_argument as adopt() does.
void follow(int ordinal, PlanTable plan, RequestList requests);
// Ends an iteration of all devices. Returns the figures of those that have served, by number.
std::map<int, IterationFigures> begin_iteration(std::size_t iteration);

// Throws the error that torch knows as out of memory, with this text.
using Thrower = void (*)(const char* text);
void throw_out_of_memory_by(Thrower thrower);

}  // namespace pluggable

}  // namespace et_replay
