// One queue of (event, block) a stream, popped from the front.
#include "pending_frees.hpp"

namespace et_replay {

void PendingFrees::add_user(Block* block, Stream stream, bool capturing) {
  if (stream == block->home->stream) return;
  users_[block].insert(stream);
  block->has_users = true;
  if (capturing) captured_users_[block].insert(stream);
}

void PendingFrees::forget_users(Block* block) {
  users_.erase(block);
  captured_users_.erase(block);
  block->has_users = false;
}

void PendingFrees::wait(Block* block) {
  for (const Stream stream : users_[block]) {
    queues_[stream].push_back({events.record(stream), block});
    ++block->pending;
  }
  users_.erase(block);
  block->has_users = false;
}

// What a stream did during a capture happens within the graph, and needs no event.
void PendingFrees::drop_captured_users(Block* block) {
  const auto captured = captured_users_.find(block);
  if (captured == captured_users_.end()) return;
  for (const Stream stream : captured->second) users_[block].erase(stream);
  captured_users_.erase(captured);
}

void PendingFrees::end_capture(PoolId pool, const Complete& complete) {
  std::vector<Block*> deferred;
  deferred.swap(deferred_);
  for (Block* block : deferred) {
    if (block->home->pool.id == pool) drop_captured_users(block);
    if (!users_[block].empty()) {
      deferred_.push_back(block);
      continue;
    }
    forget_users(block);
    complete(block);
  }
}

void PendingFrees::flush_deferred(const Complete& complete) {
  for (Block* block : deferred_) {
    drop_captured_users(block);
    wait(block);
    if (block->pending == 0) complete(block);
  }
  deferred_.clear();
}

void PendingFrees::poll(const Complete& complete) {
  for (auto queue = queues_.begin(); queue != queues_.end();) {
    auto& [stream, entries] = *queue;
    while (!entries.empty() && events.is_complete(stream, entries.front().event)) {
      Block* block = entries.front().block;
      entries.pop_front();
      if (--block->pending == 0) complete(block);
    }
    queue = entries.empty() ? queues_.erase(queue) : std::next(queue);
  }
}

void PendingFrees::synchronize(const PrivatePool* pool, const Complete& complete) {
  for (auto queue = queues_.begin(); queue != queues_.end();) {
    auto& [stream, entries] = *queue;
    std::deque<Entry> kept;
    for (const Entry& entry : entries) {
      if (pool != nullptr && entry.block->home->pool.owner != pool) {
        kept.push_back(entry);
        continue;
      }
      events.wait_for(stream, entry.event);
      if (--entry.block->pending == 0) complete(entry.block);
    }
    entries.swap(kept);
    queue = entries.empty() ? queues_.erase(queue) : std::next(queue);
  }
}

}  // namespace et_replay
