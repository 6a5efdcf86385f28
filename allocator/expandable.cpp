// Expandable segments: mapping pages behind a block that is too small, and unmapping whole ones.
#include <algorithm>

#include "caching.hpp"

namespace et_replay {

namespace {

// What a block could grow to without moving.
Bytes growable_size(const Block& block) {
  const bool grows = block.next != nullptr && !block.next->mapped;
  return block.size + (grows ? block.next->size : 0);
}

// Whether this block and the idle ones behind it have room.
bool has_room(const Block* block, Bytes size) {
  Bytes room = 0;
  while (room < size && block != nullptr && !block->is_active()) {
    room += block->size;
    block = block->next;
  }
  return room >= size;
}

}  // namespace

// From the best fit, which lies in an expandable segment, goes on to the block that torch takes: by
// the size that blocks could grow to, so that the last of a segment, which could fill all of it, is
// taken last; or with expandable segments off to the first that lies in none.
FreeList::Cursor CachingAllocator::skip_growable(FreeList& free, FreeList::Cursor cursor,
                                                 bool expandable) const {
  const Block* block = free.at(cursor);
  while (block != nullptr && block->segment != nullptr) {
    const FreeList::Cursor behind = free.next(cursor);
    const Block* next = free.at(behind);
    if (expandable && (next == nullptr || growable_size(*next) >= growable_size(*block))) break;
    cursor = behind;
    block = next;
  }
  return cursor;
}

// Returns a block for the request, in no list, or nullptr. Parts that were mapped before the device
// refused stay mapped.
Block* CachingAllocator::expand(const Request& request) {
  Block* block = room_for(request);
  if (!block->mapped && !map(block, std::min(block->size, request.rounded))) return nullptr;
  while (block->size < request.rounded) {
    Block* next = block->next;
    if (!map(next, std::min(request.rounded - block->size, next->size))) return nullptr;
    block = next;
  }
  block->home->free.erase(block);
  return block;
}

// The first idle run of blocks with room for the request, by the address of an unmapped one in it.
Block* CachingAllocator::room_for(const Request& request) {
  Shelf& shelf = *request.shelf;
  for (const auto& [address, block] : shelf.unmapped) {
    Block* before = block->previous;
    Block* first = before != nullptr && !before->is_active() ? before : block;
    if (has_room(first, request.rounded)) return first;
  }
  return add_range(shelf, std::nullopt);
}

// Makes a range of addresses, at a given place or where the device wants it: one unmapped block.
Block* CachingAllocator::add_range(Shelf& shelf, std::optional<Address> place) {
  const Bytes page =
      shelf.kind == PoolKind::small ? small_segment : settings_.large_segment_size;
  const Bytes size = ExpandableSegment::range_size(device_.capacity(), page);
  const Address base = place ? *place : device_.reserve_addresses(size);
  if (place) device_.adopt(base, base + static_cast<Address>(size), 0);
  ranges_.push_back(std::make_unique<ExpandableSegment>(ExpandableSegment{base, size, page}));
  Block* block = arena_.create();
  block->address = base;
  block->size = size;
  block->home = &shelf;
  block->segment = ranges_.back().get();
  block->mapped = false;
  block->order = tie_order_ == TieOrder::address ? base : next_order_;
  next_order_ += tie_order_ == TieOrder::block ? 1 : static_cast<std::uint64_t>(size);
  shelf.unmapped.emplace(base, block);
  return block;
}

// Puts memory behind the front of an unmapped block, in whole pages; it becomes a free block and
// merges with its neighbours. Returns whether the device had the memory.
bool CachingAllocator::map(Block* block, Bytes size) {
  const Bytes mapped = round_up(size, block->segment->page);
  const std::optional<Address> address = device_.map(block->address, mapped);
  if (!address) return false;
  if (!block->segment->placed) move_range(block, *address);
  Shelf& shelf = *block->home;
  shelf.unmapped.erase(block->address);
  block->mapped = true;
  if (mapped < block->size) {
    Block* rest = insert_behind(block, mapped);
    rest->mapped = false;
    shelf.unmapped.emplace(rest->address, rest);
  }
  const Address begin = block->address;
  absorb(block, block->previous);
  absorb(block, block->next);
  list(block);
  count_reserved(shelf.kind, mapped);
  ++statistics_.num_device_alloc;
  trace_.record(TraceAction::segment_map, begin, mapped, shelf.stream, shelf.pool.id);
  return true;
}

// Cuts a block that is in no list down to `size` bytes; the rest becomes a new one behind it.
Block* CachingAllocator::insert_behind(Block* block, Bytes size) {
  Block* rest = part_of(*block, size, block->size - size);
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block->next = rest;
  block->size = size;
  return rest;
}

// A range of which nothing was mapped yet, one block, turns out to lie elsewhere.
void CachingAllocator::move_range(Block* block, Address base) {
  block->segment->placed = true;
  if (base == block->address) return;
  block->home->unmapped.erase(block->address);
  block->segment->base = base;
  block->address = base;
  if (tie_order_ == TieOrder::address) block->order = base;
  block->home->unmapped.emplace(base, block);
}

// Takes the memory from the whole pages inside a free block; what lies before and behind them stays
// free.
void CachingAllocator::unmap(Block* block) {
  const auto page = static_cast<Address>(block->segment->page);
  const Address base = block->segment->base;
  const Address begin = base + (block->address - base + page - 1) / page * page;
  const Address end = base + (block->end() - base) / page * page;
  if (begin >= end) return;
  Shelf& shelf = *block->home;
  pending_.events.complete(shelf.stream);
  shelf.free.erase(block);
  if (begin > block->address) {
    list(insert_before(block, static_cast<Bytes>(begin - block->address)));
  }
  if (end < block->end()) {
    list(insert_behind(block, static_cast<Bytes>(end - block->address)));
  }
  take_memory(block);
}

void CachingAllocator::take_memory(Block* block) {
  Shelf& shelf = *block->home;
  const Address begin = block->address;
  const Bytes size = block->size;
  device_.unmap(begin, size);
  block->mapped = false;
  absorb(block, block->previous);
  absorb(block, block->next);
  shelf.unmapped.emplace(block->address, block);
  count_reserved(shelf.kind, -size);
  if (PrivatePool* owner = shelf.pool.owner) {
    if (owner->device_allocations-- == 0) {
      throw UndefinedBehavior(version_, "a private pool with expandable segments unmaps more often"
                                        " than it mapped, which ends in an internal error");
    }
  }
  ++statistics_.num_device_free;
  trace_.record(TraceAction::segment_unmap, begin, size, shelf.stream, shelf.pool.id);
}

// A range that is one unmapped block again is forgotten.
void CachingAllocator::drop_range(Block* block) {
  const ExpandableSegment* range = block->segment;
  block->home->unmapped.erase(block->address);
  device_.free_addresses(range->base, range->size);
  ranges_.erase(std::find_if(ranges_.begin(), ranges_.end(),
                             [&](const auto& owned) { return owned.get() == range; }));
  arena_.destroy(block);
}

}  // namespace et_replay
