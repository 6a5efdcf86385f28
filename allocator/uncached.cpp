// One segment a request: counted as torch counts segments and blocks.
#include "uncached.hpp"

#include <algorithm>
#include <stdexcept>

namespace et_replay {

Block* UncachedAllocator::allocate(Bytes requested, Stream stream) {
  if (requested == 0) return nullptr;
  if (requested < 0) throw std::invalid_argument("A request must not be negative.");
  if (requested >= absurd_request) throw out_of_memory(requested);
  const Bytes size = round_up(requested, granularity_);
  Shelf& shelf = shelf_of(requested, stream);
  const bool allowed = statistics_.reserved_bytes.all.current + size <= limit_;
  if (!allowed || !device_.map(next_address_, size)) fail(requested, shelf);
  Block* block = add(shelf, next_address_, requested, size);
  next_address_ += static_cast<Address>(size);
  ++statistics_.num_device_alloc;
  trace_.record(TraceAction::segment_alloc, block->address, size, stream, shelf.pool.id);
  trace_.record(TraceAction::alloc, block->address, requested, stream, shelf.pool.id);
  return block;
}

Shelf& UncachedAllocator::shelf_of(Bytes requested, Stream stream) {
  const Bytes rounded = round_up(requested, smallest_block);
  return (pool_kind(rounded) == PoolKind::small ? small_ : large_).shelf(stream);
}

Block* UncachedAllocator::add(Shelf& shelf, Address address, Bytes requested, Bytes size) {
  Block* block = arena_.create();
  block->address = address;
  block->size = size;
  block->requested = requested;
  block->home = &shelf;
  block->allocated = true;
  count(*block, 1);
  count_active(*block, 1);
  statistics_.segment.change(shelf.kind, 1);
  statistics_.reserved_bytes.change(shelf.kind, size);
  return block;
}

void UncachedAllocator::count(const Block& block, int sign) {
  statistics_.allocation.change(block.home->kind, sign);
  statistics_.allocated_bytes.change(block.home->kind, sign * block.size);
}

void UncachedAllocator::count_active(const Block& block, int sign) {
  statistics_.active.change(block.home->kind, sign);
  statistics_.active_bytes.change(block.home->kind, sign * block.size);
  statistics_.requested_bytes.change(block.home->kind, sign * block.requested);
}

void UncachedAllocator::free(Block* block) { complete(hold(block)); }

std::uint64_t UncachedAllocator::hold(Block* block) {
  block->allocated = false;
  block->pending = 1;
  count(*block, -1);
  trace_.record(TraceAction::free_requested, block->address, block->requested, block->home->stream,
                block->home->pool.id);
  held_.emplace(next_ticket_, block);
  return next_ticket_++;
}

void UncachedAllocator::complete(std::uint64_t ticket) {
  const auto found = held_.find(ticket);
  if (found == held_.end()) return;
  Block* block = found->second;
  const Shelf& shelf = *block->home;
  held_.erase(found);
  trace_.record(TraceAction::free_completed, block->address, block->requested, shelf.stream,
                shelf.pool.id);
  trace_.record(TraceAction::segment_free, block->address, block->size, shelf.stream,
                shelf.pool.id);
  count_active(*block, -1);
  statistics_.segment.change(shelf.kind, -1);
  statistics_.reserved_bytes.change(shelf.kind, -block->size);
  ++statistics_.num_device_free;
  device_.unmap(block->address, block->size);
  arena_.destroy(block);
}

void UncachedAllocator::set_fraction(double fraction) {
  if (!(fraction >= 0 && fraction <= 1)) {
    throw std::invalid_argument("The memory fraction must lie between 0 and 1.");
  }
  limit_ = static_cast<Bytes>(fraction * static_cast<double>(device_.capacity()));
}

// Of a segment only the live blocks are taken over, where they are; each becomes a segment.
std::vector<Block*> UncachedAllocator::restore(const SegmentView& segment) {
  std::vector<Block*> live;
  for (const Block& block : segment.blocks) {
    if (!block.is_active()) continue;
    const Bytes size = round_up(block.requested, granularity_);
    const Address end = block.address + static_cast<Address>(size);
    if (!device_.adopt(block.address, end, size)) {
      throw std::invalid_argument("The segments to start with do not fit the device memory.");
    }
    Shelf& shelf = shelf_of(block.requested, segment.stream);
    live.push_back(add(shelf, block.address, block.requested, size));
    next_address_ = std::max(next_address_, end);
  }
  return live;
}

std::vector<SegmentView> UncachedAllocator::segments() const {
  std::vector<SegmentView> views;
  arena_.for_each([&](const Block& block) {
    const Shelf& shelf = *block.home;
    views.push_back({shelf.kind, shelf.stream, shelf.pool.id, false, {block}});
  });
  std::sort(views.begin(), views.end(), [](const SegmentView& left, const SegmentView& right) {
    return left.blocks.front().address < right.blocks.front().address;
  });
  return views;
}

void UncachedAllocator::fail(Bytes requested, const Shelf& shelf) {
  trace_.record(TraceAction::oom, static_cast<Address>(device_.available()),
                round_up(requested, granularity_), shelf.stream, shelf.pool.id);
  ++statistics_.num_ooms;
  throw out_of_memory(requested);
}

OutOfMemory UncachedAllocator::out_of_memory(Bytes requested) const {
  OutOfMemory error;
  error.requested = requested;
  error.segment = requested >= absurd_request ? requested : round_up(requested, granularity_);
  error.capacity = device_.capacity();
  error.limit = limit_;
  error.available = device_.available();
  error.allocated = statistics_.allocated_bytes.all.current;
  error.reserved = statistics_.reserved_bytes.all.current;
  return error;
}

}  // namespace et_replay
