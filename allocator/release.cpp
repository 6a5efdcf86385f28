// Gives cached memory back to the device: oversize segments in place of which a request may fit,
// one pool, or all.
#include <algorithm>
#include <stdexcept>

#include "caching.hpp"

namespace et_replay {

// Releases the smallest cached oversize segment that makes room for the request, or if there is
// none the largest ones until they do together. Returns whether they did.
bool CachingAllocator::release_oversize(const Request& request) {
  if (settings_.max_split_size == unlimited) return false;
  const Bytes wanted = std::max(request.rounded, settings_.max_split_size);
  FreeList& free = request.shelf->free;
  Block* best = free.at(free.best_fit(wanted));
  if (best != nullptr && best->segment == nullptr) {
    release_segment(best);
    return true;
  }
  std::vector<Block*> smaller;
  free.for_each([&](Block* block) {
    const bool oversize = block->size >= settings_.max_split_size && block->size < wanted;
    if (oversize && block->segment == nullptr) smaller.push_back(block);
  });
  Bytes released = 0;
  while (released < wanted && !smaller.empty()) {
    released += smaller.back()->size;
    release_segment(smaller.back());
    smaller.pop_back();
  }
  return released >= wanted;
}

void CachingAllocator::release_everything() {
  if (!capturing() || version_.capture_keeps_cache()) {
    synchronize(nullptr);
    release_pool_blocks(large_);
    release_pool_blocks(small_);
  }
  for (PrivatePool* pool : pools_.unused()) release_private(*pool);
}

Bytes CachingAllocator::cached_bytes() const {
  Bytes cached = 0;
  for (const Pool* pool : {&large_, &small_}) {
    pool->for_each_free([&](const Block* block) {
      if (block->segment != nullptr || !block->shares_segment()) cached += block->size;
    });
  }
  return cached;
}

void CachingAllocator::empty_cache(PoolId id) {
  PrivatePool* pool = pools_.find(id);
  if (pool == nullptr || pool->uses > 0) return;
  synchronize(pool);
  release_private(*pool);
}

void CachingAllocator::release_private(PrivatePool& pool) {
  release_pool_blocks(pool.small);
  release_pool_blocks(pool.large);
  if (pool.device_allocations == 0) erase_pool(pool);
}

void CachingAllocator::release_pool(PoolId id) {
  const PrivatePool* pool = pools_.find(id);
  while (pool != nullptr && pool->uses > 0) pools_.release(id);
}

void CachingAllocator::release_pool_blocks(Pool& pool) {
  std::vector<Block*> segments, mapped;
  pool.for_each_free([&](Block* block) {
    if (block->segment != nullptr) {
      mapped.push_back(block);
    } else if (!block->shares_segment()) {
      segments.push_back(block);
    }
  });
  for (Block* block : segments) release_segment(block);
  for (Block* block : mapped) {
    unmap(block);
    if (!block->shares_segment()) drop_range(block);
  }
}

void CachingAllocator::release_segment(Block* block) {
  if (block->shares_segment()) {
    throw UndefinedBehavior(version_, "max_split_size_mb was lowered after blocks of its new size"
                                      " were split, and a part of a segment is freed");
  }
  const PoolKind kind = block->home->kind;
  record(TraceAction::segment_free, *block, block->size);
  device_.release(block->address, block->size);
  if (PrivatePool* owner = block->home->pool.owner) --owner->device_allocations;
  statistics_.segment.change(kind, -1);
  count_reserved(kind, -block->size);
  if (block->size >= settings_.max_split_size) statistics_.oversize_segments.change(-1);
  ++statistics_.num_device_free;
  block->home->free.erase(block);
  arena_.destroy(block);
}

// Forgets a pool that has given all its memory back; ranges without memory go with it.
void CachingAllocator::erase_pool(PrivatePool& pool) {
  bool in_use = pools_.is_routed(pool.id);
  arena_.for_each([&](const Block& block) {
    in_use = in_use || (block.home->pool.owner == &pool && block.mapped);
  });
  if (in_use) {
    throw UndefinedBehavior(version_, "a private pool is deleted while it is in use");
  }
  for (Pool* kind : {&pool.small, &pool.large}) {
    for (auto& [stream, shelf] : kind->shelves) {
      while (!shelf.unmapped.empty()) drop_range(shelf.unmapped.begin()->second);
    }
  }
  pools_.erase(pool.id);
}

}  // namespace et_replay
