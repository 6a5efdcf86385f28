// The arena of a planned allocator: from the device and back, its blocks, and their counters.
#include <algorithm>

#include "planned.hpp"

namespace et_replay {

namespace {

// Giving memory back waits for the device: it must be worth it, and not be asked for again at once.
constexpr Bytes worth_releasing = 20 * mebibyte;
constexpr int idle_enough = 2;

}  // namespace

// Where it does not fit, it is the arena that was asked for, whatever the first request is.
void PlannedAllocator::reserve_arena(Stream stream) {
  std::optional<Address> address = take_arena();
  if (!address && !fallback_.capturing()) {
    fallback_.empty_cache();
    ++statistics_.num_alloc_retries;
    address = take_arena();
  }
  if (!address) {
    trace_.record(TraceAction::oom, static_cast<Address>(device_.available()), arena_, stream,
                  {0, 0});
    ++statistics_.num_ooms;
    OutOfMemory error = fallback_.out_of_memory(arena_);
    error.segment = arena_;
    throw error;
  }
  base_ = *address;
  reserved_ = arena_;
  stream_ = stream;
  statistics_.segment.change(pool_.kind, 1);
  statistics_.reserved_bytes.change(pool_.kind, arena_);
  ++statistics_.num_device_alloc;
  trace_.record(TraceAction::segment_alloc, base_, arena_, stream, {0, 0});
}

std::optional<Address> PlannedAllocator::take_arena() {
  const Bytes held = statistics_.reserved_bytes.all.current;
  if (fallback_.limit() && held + arena_ > *fallback_.limit()) return std::nullopt;
  return device_.reserve(arena_);
}

void PlannedAllocator::release_arena() {
  trace_.record(TraceAction::segment_free, base_, arena_, stream_, {0, 0});
  device_.release(base_, arena_);
  base_ = 0;
  reserved_ = 0;
  statistics_.segment.change(pool_.kind, -1);
  statistics_.reserved_bytes.change(pool_.kind, -arena_);
  ++statistics_.num_device_free;
}

// The place must be free, with a gap around it.
Block* PlannedAllocator::lease(RankSet::Rank rank, Bytes offset, const Range& gap,
                               const Request& request) {
  Lease* block = leases_.create();
  block->address = base_ + static_cast<Address>(offset);
  block->size = request.size();
  block->requested = request.requested;
  block->home = &pool_.shelf(request.stream);
  block->allocated = true;
  block->due = request.due;
  block->rank = rank;
  const Range range{offset, offset + block->size};
  in_use_->insert(rank, range);
  count_gaps(range, gap, 1);
  record(TraceAction::alloc, *block, block->requested);
  count(*block, 1);
  count_active(*block, 1);
  return block;
}

void PlannedAllocator::free(Block* block) {
  if (!owns(*block)) return fallback_.free(block);
  request_free(block);
  if (!block->has_users) {
    complete(block);
  } else if (fallback_.capturing()) {
    pending_.defer(block);
  } else {
    pending_.wait(block);
  }
}

void PlannedAllocator::record_stream(Block* block, Stream stream) {
  if (!owns(*block)) return fallback_.record_stream(block, stream);
  pending_.add_user(block, stream, fallback_.capturing());
}

// Tickets of the caching allocator are even, those of the arena odd.
std::uint64_t PlannedAllocator::hold(Block* block) {
  if (!owns(*block)) return 2 * fallback_.hold(block);
  request_free(block);
  if (block->has_users) pending_.forget_users(block);
  block->pending = 1;
  held_.emplace(next_ticket_, block);
  return 2 * next_ticket_++ + 1;
}

void PlannedAllocator::complete(std::uint64_t ticket) {
  if (ticket % 2 == 0) return fallback_.complete(ticket / 2);
  const auto found = held_.find(ticket / 2);
  if (found == held_.end()) return;
  Block* block = found->second;
  held_.erase(found);
  complete(block);
}

void PlannedAllocator::request_free(Block* block) {
  block->allocated = false;
  count(*block, -1);
  record(TraceAction::free_requested, *block, block->requested);
}

void PlannedAllocator::complete(Block* block) {
  record(TraceAction::free_completed, *block, block->requested);
  count_active(*block, -1);
  Lease* lease = static_cast<Lease*>(block);
  const auto offset = static_cast<Bytes>(block->address - base_);
  in_use_->erase(lease->rank, offset);
  count_gaps({offset, offset + block->size}, in_use_->gap(lease->rank, offset), -1);
  schedule_->end(lease->due);
  leases_.destroy(lease);
}

void PlannedAllocator::empty_cache() {
  fallback_.empty_cache();
  if (fallback_.capturing()) return;
  synchronize();
  if (reserved_ > 0 && in_use_->empty()) release_arena();
}

void PlannedAllocator::end_iteration(const Served& fallback) {
  if (fallback_.capturing()) return;
  const Bytes unused = fallback_.cached_bytes() - kept_back_ - fallback.bytes;
  idle_iterations_ = unused < worth_releasing ? 0 : idle_iterations_ + 1;
  if (idle_iterations_ < idle_enough) return;
  fallback_.empty_cache();
  kept_back_ = fallback_.cached_bytes();
  idle_iterations_ = 0;
}

// Waits for all streams that use freed blocks.
void PlannedAllocator::synchronize() {
  const auto complete_block = [this](Block* block) { complete(block); };
  if (!pending_.empty() || !held_.empty()) device_.synchronize();
  pending_.flush_deferred(complete_block);
  pending_.synchronize(nullptr, complete_block);
  for (const auto& [ticket, block] : held_) complete(block);
  held_.clear();
}

void PlannedAllocator::count(const Block& block, int sign) {
  statistics_.allocation.change(pool_.kind, sign);
  statistics_.allocated_bytes.change(pool_.kind, sign * block.size);
}

void PlannedAllocator::count_active(const Block& block, int sign) {
  statistics_.active.change(pool_.kind, sign);
  statistics_.active_bytes.change(pool_.kind, sign * block.size);
  statistics_.requested_bytes.change(pool_.kind, sign * block.requested);
}

// What is used takes a part of a gap, and leaves what is on its sides of it. The arena without a
// block is free as a whole, which is not counted as split.
void PlannedAllocator::count_gaps(const Range& used, const Range& gap, int sign) {
  const bool whole = gap.end - gap.begin == arena_;
  const int sides = (gap.begin < used.begin ? 1 : 0) + (used.end < gap.end ? 1 : 0);
  const Bytes size = used.end - used.begin;
  statistics_.inactive_split.change(pool_.kind, sign * (sides - (whole ? 0 : 1)));
  statistics_.inactive_split_bytes.change(pool_.kind, sign * ((whole ? arena_ : 0) - size));
}

Bytes PlannedAllocator::largest_free() const {
  Bytes largest = fallback_.largest_free();
  if (reserved_ == 0) return largest;
  for (const Block& block : arena_blocks()) {
    if (!block.is_active()) largest = std::max(largest, block.size);
  }
  return largest;
}

// What is in use, and between it what is free.
std::vector<Block> PlannedAllocator::arena_blocks() const {
  std::vector<Block> used;
  leases_.for_each([&](const Lease& lease) { used.push_back(lease); });
  std::sort(used.begin(), used.end(), [](const Block& left, const Block& right) {
    return left.address < right.address;
  });
  std::vector<Block> blocks;
  Block gap;
  gap.address = base_;
  const auto close_gap = [&](Address end) {
    gap.size = static_cast<Bytes>(end - gap.address);
    if (gap.size > 0) blocks.push_back(gap);
  };
  for (const Block& block : used) {
    close_gap(block.address);
    blocks.push_back(block);
    gap.address = block.end();
  }
  close_gap(base_ + static_cast<Address>(arena_));
  return blocks;
}

// The arena is one segment.
std::vector<SegmentView> PlannedAllocator::segments() const {
  std::vector<SegmentView> views = fallback_.segments();
  if (reserved_ == 0) return views;
  const auto place = std::find_if(views.begin(), views.end(), [&](const SegmentView& view) {
    return view.blocks.front().address > base_;
  });
  views.insert(place, {pool_.kind, stream_, pool_.id, false, arena_blocks()});
  return views;
}

}  // namespace et_replay
