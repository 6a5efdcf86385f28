// Blocks that were freed while other streams still used them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "pool.hpp"
#include "stream_events.hpp"

namespace et_replay {

// A block waits for one event of each stream that used it. Streams are visited by their handle;
// torch visits them in the order of a hash table.
class PendingFrees {
 public:
  StreamEvents events;

  bool empty() const { return queues_.empty() && deferred_.empty(); }

  // The stream uses the block, which belongs to another.
  void add_user(Block* block, Stream stream, bool capturing);
  // The block is forgotten: as free as if no stream had used it.
  void forget_users(Block* block);
  // Records the events that a freed block waits for.
  void wait(Block* block);
  // Keeps a freed block as it is until the capture ends.
  void defer(Block* block) { deferred_.push_back(block); }

  // What follows calls `complete` for each block that waits for nothing more, as soon as it does:
  // the blocks after it still wait then, and must not merge with it.
  using Complete = std::function<void(Block*)>;
  // Takes deferred blocks of the pool that only streams of the capture used.
  void end_capture(PoolId pool, const Complete& complete);
  // Records the events of deferred blocks.
  void flush_deferred(const Complete& complete);
  // Takes the events that are complete.
  void poll(const Complete& complete);
  // Waits for all events, or those of one pool's blocks.
  void synchronize(const PrivatePool* pool, const Complete& complete);

 private:
  void drop_captured_users(Block* block);

  struct Entry {
    std::uint64_t event;
    Block* block;
  };

  std::map<Stream, std::deque<Entry>> queues_;
  std::map<Block*, std::set<Stream>> users_;
  // Those added during a capture. As in torch they outlive a block that is freed outside of it, and
  // belong to the next one in the same place of memory.
  std::map<Block*, std::set<Stream>> captured_users_;
  std::vector<Block*> deferred_;
};

}  // namespace et_replay
