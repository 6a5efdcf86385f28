// PyTorch's native caching allocator under its default settings, over any Device.
#pragma once

#include <exception>
#include <map>
#include <vector>

#include "block.hpp"
#include "device.hpp"
#include "free_list.hpp"
#include "statistics.hpp"

namespace et_replay {

// Which of several free blocks of one size is taken: the one at the lowest address (torch up to
// 2.11), or the one in the oldest segment and there at the lowest address (torch from 2.13 on).
enum class TieOrder { address, segment };

// A request did not fit, even after all cached segments went back to the device.
struct OutOfMemory : std::exception {
  Bytes requested = 0;
  Bytes segment = 0;  // what the device would have had to give
  Bytes capacity = 0;
  Bytes allocated = 0;
  Bytes reserved = 0;
  Bytes largest_free = 0;   // the largest free block of any pool and stream
  std::int64_t event = -1;  // the row of the event, where events are run

  const char* what() const noexcept override { return "The request does not fit the device."; }
};

// One segment as it stands, with its blocks in order of address.
struct SegmentView {
  PoolKind kind;
  Stream stream;
  std::vector<Block> blocks;
};

class CachingAllocator {
 public:
  explicit CachingAllocator(Device& device, TieOrder tie_order = TieOrder::segment)
      : device_(device), tie_order_(tie_order) {}

  // Returns a block of at least `requested` bytes; nullptr if that is 0. Throws OutOfMemory.
  Block* allocate(Bytes requested, Stream stream);
  // Ends the use of a block that allocate() returned; its neighbours may grow over it.
  void free(Block* block);
  // Gives every segment without a block in use back to the device.
  void empty_cache();

  const Statistics& statistics() const { return statistics_; }
  void reset_peaks() { statistics_.reset_peaks(); }
  Bytes largest_free() const;
  std::vector<SegmentView> segments() const;  // in order of address
  const Device& device() const { return device_; }

 private:
  // The free lists of one kind, by stream: nothing is shared between streams.
  struct Pool {
    PoolKind kind;
    std::map<Stream, FreeList> lists;

    FreeList& list(Stream stream) { return lists.try_emplace(stream, kind, stream).first->second; }
  };

  Pool& pool(PoolKind kind) { return kind == PoolKind::small ? small_ : large_; }

  Block* grow(FreeList& home, Bytes rounded);
  Block* hand_out(Block* block, Bytes rounded, Bytes requested);
  Block* split(Block* block, Bytes size);
  void complete(Block* block);
  bool absorb(Block* block, Block* neighbour);
  void release_segments(Pool& pool);
  OutOfMemory out_of_memory(Bytes requested) const;

  Device& device_;
  TieOrder tie_order_;
  std::uint64_t ever_reserved_ = 0;  // bytes, never reduced
  BlockArena arena_;
  Pool small_{PoolKind::small, {}};
  Pool large_{PoolKind::large, {}};
  Statistics statistics_;
};

}  // namespace et_replay
