// The verbs of every allocator, and what goes in and out by them.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "block.hpp"
#include "device.hpp"
#include "statistics.hpp"
#include "trace.hpp"
#include "version.hpp"

namespace et_replay {

// A request did not fit, even after all cached segments went back to the device.
struct OutOfMemory : std::exception {
  Bytes requested = 0;
  Bytes segment = 0;  // what the device would have had to give
  Bytes capacity = 0;
  Bytes limit = 0;      // what the allocator may hold of it
  bool limited = false;
  Bytes available = 0;  // of the device
  Bytes allocated = 0;
  Bytes reserved = 0;
  Bytes cached_in_private_pools = 0;
  Bytes largest_free = 0;   // the largest free block of any pool and stream
  bool rejected = false;    // before the device was asked: throw_on_cudamalloc_oom
  bool expandable = false;  // expandable segments were on
  std::int64_t event = -1;  // the row of the event, where events are run

  const char* what() const noexcept override { return "The request does not fit the device."; }
  // The first line of what torch raises.
  std::string torch_sentence(Version version) const;
};

// Torch itself crashes or corrupts its state here.
struct UndefinedBehavior : std::runtime_error {
  UndefinedBehavior(Version version, const std::string& what)
      : std::runtime_error("Undefined in " + version.name() + ": " + what + ".") {}
  std::int64_t event = -1;  // the row of the event, where events are run
};

// One segment, or one mapped part of an expandable one, with its blocks in order of address.
struct SegmentView {
  PoolKind kind;
  Stream stream;
  PoolId pool;
  bool expandable;
  std::vector<Block> blocks;
};

// What an allocator counts and tells of what it did.
struct Records {
  Statistics statistics;
  Trace trace;
};

class Allocator {
 public:
  // An allocator that works for another, over the same device, shares its records.
  explicit Allocator(Device& device, Records* shared = nullptr)
      : device_(device),
        own_(shared == nullptr ? std::make_unique<Records>() : nullptr),
        statistics_((shared == nullptr ? *own_ : *shared).statistics),
        trace_((shared == nullptr ? *own_ : *shared).trace) {}
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  virtual ~Allocator() = default;

  // Returns a block of at least `requested` bytes; nullptr if that is 0. Throws OutOfMemory.
  virtual Block* allocate(Bytes requested, Stream stream) = 0;
  // The same for a storage that a plan may know.
  virtual Block* allocate_for(std::int64_t storage, Bytes requested, Stream stream);
  // Ends the use of a block that allocate() returned.
  virtual void free(Block* block) = 0;
  // Says that a stream uses the block, which belongs to another.
  virtual void record_stream(Block* block, Stream stream) = 0;
  // Ends the owner's use of a block that other streams use until complete() of the ticket returned,
  // or until the allocator waits for all streams.
  virtual std::uint64_t hold(Block* block) = 0;
  virtual void complete(std::uint64_t ticket) = 0;
  virtual void empty_cache() = 0;

  virtual void begin_pool(PoolId id, std::optional<Stream> stream) = 0;
  virtual void end_pool(PoolId id) = 0;
  // The pool is used no more.
  virtual void release_pool(PoolId id) = 0;
  // Of the device, how much the allocator may hold.
  virtual void set_fraction(double fraction) = 0;
  // Takes a segment over as it stands and returns its live blocks, in order; events of free blocks
  // and of time before are not counted.
  virtual std::vector<Block*> restore(const SegmentView& segment) = 0;

  // Whether other streams may have the block's memory before or after it: what uses it then must
  // wait for what did.
  virtual bool is_handed_over(const Block&) const { return false; }

  virtual Bytes largest_free() const = 0;
  virtual std::vector<SegmentView> segments() const = 0;  // in order of address

  const Statistics& statistics() const { return statistics_; }
  virtual void reset_peaks() { statistics_.reset_peaks(); }
  void mark() { statistics_.mark(); }
  const Device& device() const { return device_; }
  Trace& trace() { return trace_; }
  const Trace& trace() const { return trace_; }

 protected:
  Device& device_;
  std::unique_ptr<Records> own_;  // nullptr: another's are shared
  Statistics& statistics_;
  Trace& trace_;
};

inline Block* Allocator::allocate_for(std::int64_t, Bytes requested, Stream stream) {
  return allocate(requested, stream);
}

}  // namespace et_replay
