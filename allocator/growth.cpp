// What torch tries when no free block fits, in its order: a new segment, blocks of pools that lend,
// a new segment in place of cached oversize ones, and one in place of all that is cached.
#include <algorithm>

#include "caching.hpp"

namespace et_replay {

Block* CachingAllocator::obtain(Request& request) {
  if (ages()) collect_garbage();
  Block* block = grow(request);
  const bool lends_last = version_.lends_last();
  if (block == nullptr && !lends_last) block = borrow(request);
  if (block == nullptr && release_oversize(request)) block = grow(request);
  if (block == nullptr && !capturing()) {
    release_everything();
    ++statistics_.num_alloc_retries;
    block = grow(request);
  }
  if (block == nullptr && lends_last) block = borrow(request);
  if (block == nullptr) fail(request);
  return block;
}

// Takes memory from the device: one free block for the request, in no list, or nullptr.
Block* CachingAllocator::grow(const Request& request) {
  if (limit_ && total() + request.segment > *limit_) return nullptr;
  reject_beyond_fraction(request);
  Block* block = request.expandable ? expand(request) : reserve_segment(request);
  PrivatePool* owner = request.shelf->pool.owner;
  if (block != nullptr && owner != nullptr) ++owner->device_allocations;
  return block;
}

Block* CachingAllocator::reserve_segment(const Request& request) {
  const std::optional<Address> address = device_.reserve(request.segment);
  if (!address) return nullptr;
  Block* block = add_segment(*request.shelf, *address, request.segment);
  record(TraceAction::segment_alloc, *block, block->size);
  return block;
}

Block* CachingAllocator::add_segment(Shelf& shelf, Address address, Bytes size) {
  Block* block = arena_.create();
  block->address = address;
  block->size = size;
  block->home = &shelf;
  // The addresses reserved before this segment, plus the offset in it, rank blocks by (creation of
  // the segment, address) in one number.
  block->order = tie_order_ == TieOrder::address ? address : next_order_;
  next_order_ += tie_order_ == TieOrder::block ? 1 : static_cast<std::uint64_t>(size);
  statistics_.segment.change(shelf.kind, 1);
  count_reserved(shelf.kind, size);
  if (size >= settings_.max_split_size) statistics_.oversize_segments.change(1);
  ++statistics_.num_device_alloc;
  return block;
}

// Takes a free block of a private pool that lends to the default pool, as if the pool were routed
// to, and from torch 2.10 on without expandable segments. The block stays that pool's.
Block* CachingAllocator::borrow(Request& request) {
  if (request.shelf->pool.owner != nullptr) return nullptr;
  const PoolKind kind = request.shelf->kind;
  for (const PoolId& id : pools_.lending()) {
    const PrivatePool* lender = pools_.find(id);
    if (pools_.is_routed(id) || (lender != nullptr && lender->uses == 0)) {
      throw UndefinedBehavior(version_, "a pool with use_on_oom is borrowed from while it is routed"
                                        " to or after its last use, which is an internal error");
    }
    PrivatePool& pool = pools_.retain(id);
    Request borrowing = request;
    borrowing.shelf = &(kind == PoolKind::small ? pool.small : pool.large)
                           .shelf(request.shelf->stream);
    borrowing.expandable = request.expandable && version_.lends_expandable();
    Block* block = find(borrowing);
    pools_.release(id);
    if (block != nullptr) {
      request = borrowing;
      return block;
    }
  }
  return nullptr;
}

// With throw_on_cudamalloc_oom, what goes beyond the fraction that was configured fails at once,
// even where the limit has been raised since.
void CachingAllocator::reject_beyond_fraction(const Request& request) {
  if (!settings_.throw_on_device_oom) return;
  const double capacity = static_cast<double>(device_.capacity());
  if (total() + request.segment <= static_cast<Bytes>(settings_.memory_fraction * capacity)) return;
  ++statistics_.num_oom_rejections;
  OutOfMemory error = out_of_memory(request.requested);
  error.rejected = true;
  throw error;
}

void CachingAllocator::fail(const Request& request) {
  trace_.record(TraceAction::oom, static_cast<Address>(device_.available()), request.rounded,
                request.shelf->stream, request.shelf->pool.id);
  ++statistics_.num_ooms;
  throw out_of_memory(request.requested);
}

OutOfMemory CachingAllocator::out_of_memory(Bytes requested) const {
  OutOfMemory error;
  error.requested = requested;
  error.segment = requested >= absurd_request
                      ? requested
                      : segment_size(rounded_size(requested, settings_), settings_);
  error.capacity = device_.capacity();
  error.limit = limit_.value_or(error.capacity);
  error.limited = limit_.has_value();
  error.available = device_.available();
  error.allocated = statistics_.allocated_bytes.all.current;
  error.reserved = statistics_.reserved_bytes.all.current;
  error.largest_free = largest_free();
  error.expandable = settings_.expandable_segments;
  for (const PrivatePool* pool : pools_.all()) {
    for (const Pool* kind : {&pool->small, &pool->large}) {
      kind->for_each_free([&](Block* block) { error.cached_in_private_pools += block->size; });
    }
  }
  return error;
}

}  // namespace et_replay
