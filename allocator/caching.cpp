// Handing blocks out and taking them back: search, split, merge, and waiting for other streams.
#include "caching.hpp"

#include <cmath>
#include <stdexcept>

namespace et_replay {

CachingAllocator::CachingAllocator(Device& device, Settings settings, Version version,
                                   Records* shared)
    : Allocator(device, shared),
      version_(version),
      tie_order_(version.tie_order()),
      settings_(settings) {
  if (settings.memory_fraction < 1) set_fraction(settings.memory_fraction);
}

void CachingAllocator::set_fraction(double fraction) {
  if (!(fraction >= 0 && fraction <= 1)) {
    throw std::invalid_argument("The memory fraction must lie between 0 and 1.");
  }
  limit_.reset();
  if (fraction == 1 && !version_.full_fraction_limits()) return;
  limit_ = static_cast<Bytes>(fraction * static_cast<double>(device_.capacity()));
}

void CachingAllocator::reset_peaks() {
  Allocator::reset_peaks();
  held_bytes_.peak = held_bytes_.current;
}

CachingAllocator::Request CachingAllocator::request_for(Bytes requested, Stream stream) {
  const Bytes rounded = rounded_size(requested, settings_);
  PrivatePool* owner = pools_.is_routed() ? pools_.route(stream) : nullptr;
  const bool small = pool_kind(rounded) == PoolKind::small;
  Pool& pool = owner == nullptr ? (small ? small_ : large_) : (small ? owner->small : owner->large);
  return {requested, rounded, segment_size(rounded, settings_), &pool.shelf(stream),
          settings_.expandable_segments};
}

Block* CachingAllocator::allocate(Bytes requested, Stream stream) {
  if (requested == 0) return nullptr;
  if (requested < 0) throw std::invalid_argument("A request must not be negative.");
  if (requested >= absurd_request) throw out_of_memory(requested);
  if (!pending_.empty() && !capturing()) settle_events();
  Request request = request_for(requested, stream);
  Block* block = find(request);
  if (block == nullptr) block = obtain(request);
  return hand_out(block, request);
}

// Takes the best fit out of its list, or returns nullptr.
Block* CachingAllocator::find(const Request& request) {
  if (ages()) ++request.shelf->pool.searches;
  FreeList& free = request.shelf->free;
  FreeList::Cursor cursor = free.best_fit(request.rounded);
  Block* block = free.at(cursor);
  if (block == nullptr) return nullptr;
  if (block->segment != nullptr) {
    cursor = skip_growable(free, cursor, request.expandable);
    block = free.at(cursor);
    if (block == nullptr) return nullptr;
  }
  // Only the best fit is held against the oversize rules: torch tries no later block.
  const Bytes limit = settings_.max_split_size;
  if (request.rounded < limit ? block->size >= limit
                              : block->size >= request.rounded + settings_.max_non_split_rounding) {
    return nullptr;
  }
  free.erase(cursor);
  return block;
}

bool CachingAllocator::is_worth_splitting(const Block& block, const Request& request) const {
  const Bytes rest = block.size - request.rounded;
  const Pool& pool = block.home->pool;
  if (pool.owner != nullptr && !pool.owner->splits) return false;
  if (pool.kind == PoolKind::small || request.expandable) return rest >= smallest_block;
  // The large pool tolerates up to 1 MiB of waste in a block before it splits one.
  return request.rounded < settings_.max_split_size && rest > largest_small_size;
}

Block* CachingAllocator::hand_out(Block* block, const Request& request) {
  const PoolKind kind = block->home->kind;
  if (is_worth_splitting(*block, request)) {
    block = split(block, request.rounded);
  } else if (block->shares_segment() && block->segment == nullptr) {
    statistics_.inactive_split.change(kind, -1);
    statistics_.inactive_split_bytes.change(kind, -block->size);
  }
  block->requested = request.requested;
  record(TraceAction::alloc, *block, request.requested);
  mark_allocated(block);
  return block;
}

void CachingAllocator::mark_allocated(Block* block) {
  const PoolKind kind = block->home->kind;
  block->allocated = true;
  statistics_.allocation.change(kind, 1);
  statistics_.allocated_bytes.change(kind, block->size);
  statistics_.active.change(kind, 1);
  statistics_.active_bytes.change(kind, block->size);
  statistics_.requested_bytes.change(kind, block->requested);
  if (block->size >= settings_.max_split_size) statistics_.oversize_allocations.change(1);
}

// Cuts `size` bytes off the front of a free block and returns them as a new one; `block` becomes
// the rest and goes back to its list.
Block* CachingAllocator::split(Block* block, Bytes size) {
  const PoolKind kind = block->home->kind;
  if (block->segment == nullptr) {
    if (block->shares_segment()) {
      statistics_.inactive_split_bytes.change(kind, -size);
    } else {
      statistics_.inactive_split.change(kind, 1);
      statistics_.inactive_split_bytes.change(kind, block->size - size);
    }
  }
  Block* front = insert_before(block, size);
  list(block);
  return front;
}

// Cuts `size` bytes off the front of a block that is in no list, as a new one before it.
Block* CachingAllocator::insert_before(Block* block, Bytes size) {
  Block* front = part_of(*block, 0, size);
  front->previous = block->previous;
  front->next = block;
  if (front->previous != nullptr) front->previous->next = front;
  block->previous = front;
  cut_front(block, size);
  return front;
}

// Makes a block of a part of another; the links are the caller's.
Block* CachingAllocator::part_of(const Block& block, Bytes offset, Bytes size) {
  Block* part = arena_.create();
  part->address = block.address + static_cast<Address>(offset);
  part->size = size;
  part->order = tie_order_ == TieOrder::block ? next_order_++
                                              : block.order + static_cast<std::uint64_t>(offset);
  part->home = block.home;
  part->segment = block.segment;
  return part;
}

void CachingAllocator::cut_front(Block* block, Bytes size) {
  block->address += static_cast<Address>(size);
  block->size -= size;
  if (tie_order_ != TieOrder::block) block->order += static_cast<std::uint64_t>(size);
}

void CachingAllocator::list(Block* block) {
  block->age_base = block->home->pool.searches;
  block->home->free.insert(block);
}

void CachingAllocator::request_free(Block* block) {
  const PoolKind kind = block->home->kind;
  block->allocated = false;
  statistics_.allocation.change(kind, -1);
  statistics_.allocated_bytes.change(kind, -block->size);
  if (block->size >= settings_.max_split_size) statistics_.oversize_allocations.change(-1);
  record(TraceAction::free_requested, *block, block->requested);
}

void CachingAllocator::free(Block* block) {
  request_free(block);
  if (!block->has_users) {
    complete(block);
  } else if (capturing()) {
    pending_.defer(block);
  } else {
    pending_.wait(block);
  }
}

void CachingAllocator::record_stream(Block* block, Stream stream) {
  pending_.add_user(block, stream, capturing());
}

std::uint64_t CachingAllocator::hold(Block* block) {
  request_free(block);
  if (block->has_users) pending_.forget_users(block);
  block->pending = 1;
  held_.emplace(next_ticket_, block);
  return next_ticket_++;
}

void CachingAllocator::complete(std::uint64_t ticket) {
  const auto found = held_.find(ticket);
  if (found == held_.end()) return;
  Block* block = found->second;
  held_.erase(found);
  block->pending = 0;
  complete(block);
}

// Ends the time in which a block could not be used again: it merges with free neighbours and is
// listed.
void CachingAllocator::complete(Block* block) {
  const PoolKind kind = block->home->kind;
  record(TraceAction::free_completed, *block, block->requested);
  statistics_.active.change(kind, -1);
  statistics_.active_bytes.change(kind, -block->size);
  statistics_.requested_bytes.change(kind, -block->requested);
  const Bytes own_size = block->size;
  std::int64_t absorbed = 0;
  absorbed += absorb(block, block->previous);
  absorbed += absorb(block, block->next);
  if (block->segment == nullptr) {
    const Bytes absorbed_size = block->size - own_size;
    const bool is_part = block->shares_segment();
    statistics_.inactive_split.change(kind, (is_part ? 1 : 0) - absorbed);
    statistics_.inactive_split_bytes.change(kind, (is_part ? block->size : 0) - absorbed_size);
  }
  list(block);
}

// Lets a block that is in no list grow over a neighbour that is as free, or as unmapped, as it is.
bool CachingAllocator::absorb(Block* block, Block* neighbour) {
  if (neighbour == nullptr || neighbour->is_active() || neighbour->mapped != block->mapped) {
    return false;
  }
  if (neighbour->mapped) {
    neighbour->home->free.erase(neighbour);
  } else {
    neighbour->home->unmapped.erase(neighbour->address);
  }
  if (neighbour == block->previous) {
    block->address = neighbour->address;
    if (tie_order_ != TieOrder::block) block->order = neighbour->order;
    block->previous = neighbour->previous;
    if (block->previous != nullptr) block->previous->next = block;
  } else {
    block->next = neighbour->next;
    if (block->next != nullptr) block->next->previous = block;
  }
  block->size += neighbour->size;
  arena_.destroy(neighbour);
  return true;
}

bool CachingAllocator::capturing() const {
  if (version_.routing_is_capture()) return pools_.is_routed();
  return announced_captures_ > 0 && stream_captures_;
}

void CachingAllocator::announce_capture(bool begins) {
  if (!begins && announced_captures_ == 0) {
    throw std::invalid_argument("A capture ends that has not begun.");
  }
  announced_captures_ += begins ? 1 : -1;
}

void CachingAllocator::settle_events() {
  const auto complete_block = [this](Block* block) { complete(block); };
  pending_.flush_deferred(complete_block);
  pending_.poll(complete_block);
}

void CachingAllocator::end_pool(PoolId id) {
  pools_.end(id);
  if (!settings_.capture_reuse || !version_.end_frees_deferred()) return;
  pending_.end_capture(id, [this](Block* block) { complete(block); });
}

// Waits for all events, or those of one pool's blocks.
void CachingAllocator::synchronize(const PrivatePool* pool) {
  const auto complete_block = [this](Block* block) { complete(block); };
  ++statistics_.num_sync_all_streams;
  if (capturing()) throw std::invalid_argument("The cache cannot be emptied within a capture.");
  if (!pending_.empty() || !held_.empty()) device_.synchronize();
  pending_.flush_deferred(complete_block);
  pending_.synchronize(pool, complete_block);
  for (auto held = held_.begin(); held != held_.end();) {
    Block* block = held->second;
    if (pool != nullptr && block->home->pool.owner != pool) {
      ++held;
      continue;
    }
    held = held_.erase(held);
    block->pending = 0;
    complete(block);
  }
}

}  // namespace et_replay
