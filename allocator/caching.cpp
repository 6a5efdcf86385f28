// What PyTorch's allocator tries, in its order: a cached block, a new segment, and a new segment
// once more after all cached ones went back to the device.
#include "caching.hpp"

#include <algorithm>
#include <stdexcept>

namespace et_replay {

Block* CachingAllocator::allocate(Bytes requested, Stream stream) {
  if (requested == 0) return nullptr;
  if (requested < 0) throw std::invalid_argument("A request must not be negative.");
  if (requested >= absurd_request) throw out_of_memory(requested);
  const Bytes rounded = rounded_size(requested);
  FreeList& home = pool(pool_kind(rounded)).list(stream);
  Block* block = home.take_fit(rounded);
  if (block == nullptr) block = grow(home, rounded);
  if (block == nullptr) {
    empty_cache();
    ++statistics_.num_alloc_retries;
    block = grow(home, rounded);
  }
  if (block == nullptr) {
    ++statistics_.num_ooms;
    throw out_of_memory(requested);
  }
  return hand_out(block, rounded, requested);
}

// Takes a segment for `rounded` bytes from the device: one free block, in no list yet, or nullptr.
Block* CachingAllocator::grow(FreeList& home, Bytes rounded) {
  const Bytes size = segment_size(rounded);
  const std::optional<Address> address = device_.reserve(size);
  if (!address) return nullptr;
  Block* block = arena_.create();
  block->address = *address;
  block->size = size;
  block->home = &home;
  // The bytes reserved before this segment, plus the offset in it, rank blocks by (creation of the
  // segment, address) in one number.
  block->order = tie_order_ == TieOrder::address ? *address : ever_reserved_;
  ever_reserved_ += static_cast<std::uint64_t>(size);
  statistics_.segment.change(home.kind(), 1);
  statistics_.reserved_bytes.change(home.kind(), size);
  ++statistics_.num_device_alloc;
  return block;
}

Block* CachingAllocator::hand_out(Block* block, Bytes rounded, Bytes requested) {
  const PoolKind kind = block->home->kind();
  if (is_worth_splitting(kind, block->size - rounded)) {
    block = split(block, rounded);
  } else if (block->shares_segment()) {
    statistics_.inactive_split.change(kind, -1);
    statistics_.inactive_split_bytes.change(kind, -block->size);
  }
  block->allocated = true;
  block->requested = requested;
  statistics_.allocation.change(kind, 1);
  statistics_.allocated_bytes.change(kind, block->size);
  statistics_.active.change(kind, 1);
  statistics_.active_bytes.change(kind, block->size);
  statistics_.requested_bytes.change(kind, requested);
  return block;
}

// Cuts `size` bytes off the front of a free block and returns them as a new one; `block` becomes
// the rest and goes back to its list.
Block* CachingAllocator::split(Block* block, Bytes size) {
  const PoolKind kind = block->home->kind();
  if (block->shares_segment()) {
    statistics_.inactive_split_bytes.change(kind, -size);
  } else {
    statistics_.inactive_split.change(kind, 1);
    statistics_.inactive_split_bytes.change(kind, block->size - size);
  }
  Block* front = arena_.create();
  front->address = block->address;
  front->size = size;
  front->order = block->order;
  front->home = block->home;
  front->previous = block->previous;
  front->next = block;
  if (front->previous != nullptr) front->previous->next = front;
  block->previous = front;
  block->address += static_cast<Address>(size);
  block->order += static_cast<std::uint64_t>(size);
  block->size -= size;
  block->home->insert(block);
  return front;
}

void CachingAllocator::free(Block* block) {
  const PoolKind kind = block->home->kind();
  block->allocated = false;
  statistics_.allocation.change(kind, -1);
  statistics_.allocated_bytes.change(kind, -block->size);
  complete(block);
}

// Ends the time in which a block could not be used again: it merges with free neighbours and is
// listed.
void CachingAllocator::complete(Block* block) {
  const PoolKind kind = block->home->kind();
  statistics_.active.change(kind, -1);
  statistics_.active_bytes.change(kind, -block->size);
  statistics_.requested_bytes.change(kind, -block->requested);
  const Bytes own_size = block->size;
  std::int64_t absorbed = 0;
  absorbed += absorb(block, block->previous);
  absorbed += absorb(block, block->next);
  const Bytes absorbed_size = block->size - own_size;
  const bool is_part = block->shares_segment();
  statistics_.inactive_split.change(kind, (is_part ? 1 : 0) - absorbed);
  statistics_.inactive_split_bytes.change(kind, (is_part ? block->size : 0) - absorbed_size);
  block->home->insert(block);
}

// Lets a block that is in no list grow over a free neighbour.
bool CachingAllocator::absorb(Block* block, Block* neighbour) {
  if (neighbour == nullptr || neighbour->allocated) return false;
  neighbour->home->erase(neighbour);
  if (neighbour == block->previous) {
    block->address = neighbour->address;
    block->order = neighbour->order;
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

void CachingAllocator::empty_cache() {
  ++statistics_.num_sync_all_streams;
  release_segments(large_);
  release_segments(small_);
}

void CachingAllocator::release_segments(Pool& pool) {
  std::vector<Block*> whole;
  for (auto& [stream, list] : pool.lists) {
    list.for_each([&](Block* block) {
      if (!block->shares_segment()) whole.push_back(block);
    });
  }
  for (Block* block : whole) {
    block->home->erase(block);
    device_.release(block->address, block->size);
    statistics_.segment.change(pool.kind, -1);
    statistics_.reserved_bytes.change(pool.kind, -block->size);
    ++statistics_.num_device_free;
    arena_.destroy(block);
  }
}

Bytes CachingAllocator::largest_free() const {
  Bytes largest = 0;
  for (const Pool* pool : {&small_, &large_}) {
    for (const auto& [stream, list] : pool->lists) largest = std::max(largest, list.largest());
  }
  return largest;
}

std::vector<SegmentView> CachingAllocator::segments() const {
  std::vector<SegmentView> views;
  arena_.for_each([&](const Block& first) {
    if (first.previous != nullptr) return;
    SegmentView& view =
        views.emplace_back(SegmentView{first.home->kind(), first.home->stream(), {}});
    for (const Block* block = &first; block != nullptr; block = block->next) {
      view.blocks.push_back(*block);
    }
  });
  std::sort(views.begin(), views.end(), [](const SegmentView& left, const SegmentView& right) {
    return left.blocks.front().address < right.blocks.front().address;
  });
  return views;
}

OutOfMemory CachingAllocator::out_of_memory(Bytes requested) const {
  OutOfMemory error;
  error.requested = requested;
  error.segment = requested >= absurd_request ? requested : segment_size(rounded_size(requested));
  error.capacity = device_.capacity();
  error.allocated = statistics_.allocated_bytes.all.current;
  error.reserved = statistics_.reserved_bytes.all.current;
  error.largest_free = largest_free();
  return error;
}

}  // namespace et_replay
