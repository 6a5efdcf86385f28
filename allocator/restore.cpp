// The segments as they stand, out as a snapshot and in again as a start.
#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "caching.hpp"

namespace et_replay {

Bytes CachingAllocator::largest_free() const {
  Bytes largest = 0;
  const auto look_through = [&](const Pool& pool) {
    for (const auto& [stream, shelf] : pool.shelves) {
      largest = std::max(largest, shelf.free.largest());
    }
  };
  look_through(small_);
  look_through(large_);
  for (const PrivatePool* pool : pools_.all()) {
    look_through(pool->small);
    look_through(pool->large);
  }
  return largest;
}

std::vector<SegmentView> CachingAllocator::segments() const {
  std::vector<SegmentView> views;
  arena_.for_each([&](const Block& first) {
    if (!first.mapped || (first.previous != nullptr && first.previous->mapped)) return;
    const Shelf& shelf = *first.home;
    SegmentView& view = views.emplace_back(
        SegmentView{shelf.kind, shelf.stream, shelf.pool.id, first.segment != nullptr, {}});
    for (const Block* block = &first; block != nullptr && block->mapped; block = block->next) {
      view.blocks.push_back(*block);
    }
  });
  std::sort(views.begin(), views.end(), [](const SegmentView& left, const SegmentView& right) {
    return left.blocks.front().address < right.blocks.front().address;
  });
  return views;
}

std::vector<Block*> CachingAllocator::restore(const SegmentView& segment) {
  PrivatePool* owner = nullptr;
  if (segment.pool != PoolId{0, 0}) {
    owner = pools_.find(segment.pool);
    if (owner == nullptr) owner = &pools_.retain(segment.pool);
    ++owner->device_allocations;
  }
  const bool small = segment.kind == PoolKind::small;
  Pool& pool = owner == nullptr ? (small ? small_ : large_) : (small ? owner->small : owner->large);
  Shelf& shelf = pool.shelf(segment.stream);
  const Address begin = segment.blocks.front().address;
  const auto size = static_cast<Bytes>(segment.blocks.back().end() - begin);
  const Bytes cost = segment.expandable ? size : round_up(size, segment_granularity);
  if (!device_.adopt(begin, begin + static_cast<Address>(size), cost)) {
    throw std::invalid_argument("The segments to start with do not fit the device memory.");
  }
  Block* rest = segment.expandable ? restore_mapped(shelf, begin, size)
                                   : add_segment(shelf, begin, size);
  std::vector<Block*> live;
  for (const Block& block : segment.blocks) {
    if (block.address != rest->address || block.size > rest->size || block.size <= 0) {
      throw std::invalid_argument("The blocks of a segment to start with have gaps or overlap.");
    }
    Block* part = block.size == rest->size ? rest : insert_before(rest, block.size);
    part->requested = block.requested;
    restore_block(part, block.is_active(), part == rest);
    if (block.is_active()) live.push_back(part);
  }
  return live;
}

// Cuts a mapped block out of an unmapped one, whose range is made if no other holds the addresses.
Block* CachingAllocator::restore_mapped(Shelf& shelf, Address begin, Bytes size) {
  auto found = shelf.unmapped.upper_bound(begin);
  if (found == shelf.unmapped.begin() || std::prev(found)->second->end() < begin + size) {
    add_range(shelf, begin)->segment->placed = true;
    found = shelf.unmapped.upper_bound(begin);
  }
  Block* rest = std::prev(found)->second;
  if (rest->address < begin) {
    Block* before = insert_before(rest, static_cast<Bytes>(begin - rest->address));
    before->mapped = false;
    shelf.unmapped[before->address] = before;
  } else {
    shelf.unmapped.erase(begin);
  }
  Block* mapped = insert_before(rest, size);
  shelf.unmapped.emplace(rest->address, rest);
  count_reserved(shelf.kind, size);
  ++statistics_.num_device_alloc;
  return mapped;
}

// The `last` one of a segment is next to what is there, and not to what is still to be restored.
void CachingAllocator::restore_block(Block* block, bool active, bool last) {
  // Of blocks made in the past all that is known is where they are: the lowest was first.
  if (tie_order_ == TieOrder::block) block->order = next_order_++;
  if (!active) {
    if (block->segment == nullptr && block->shares_segment()) {
      statistics_.inactive_split.change(block->home->kind, 1);
      statistics_.inactive_split_bytes.change(block->home->kind, block->size);
    }
    // Free memory that lies side by side in a range is one block, also where two segments tell it.
    if (block->segment != nullptr) {
      absorb(block, block->previous);
      if (last) absorb(block, block->next);
    }
    list(block);
    return;
  }
  mark_allocated(block);
}

}  // namespace et_replay
