// Counts the blocks again, and compares.
#include "invariants.hpp"

#include <algorithm>

namespace et_replay::test {

namespace {

struct Totals {
  Bytes reserved = 0, allocated = 0, active = 0, requested = 0, split = 0, largest_free = 0;
  std::int64_t segments = 0, allocations = 0, actives = 0, splits = 0;
};

void count(Totals& totals, const SegmentView& segment) {
  const bool parts = segment.blocks.size() > 1 && !segment.expandable;
  totals.segments += segment.expandable ? 0 : 1;
  for (const Block& block : segment.blocks) {
    totals.reserved += block.size;
    totals.allocations += block.allocated ? 1 : 0;
    totals.allocated += block.allocated ? block.size : 0;
    if (block.is_active()) {
      ++totals.actives;
      totals.active += block.size;
      totals.requested += block.requested;
      continue;
    }
    totals.largest_free = std::max(totals.largest_free, block.size);
    totals.splits += parts ? 1 : 0;
    totals.split += parts ? block.size : 0;
  }
}

std::string complaint_about(const SegmentView& segment) {
  const Block* before = nullptr;
  for (const Block& block : segment.blocks) {
    if (block.size <= 0 || block.size % smallest_block != 0) return "A block has an odd size";
    if (block.is_active() && block.requested > block.size) return "A block is too small";
    if (before != nullptr && block.address != before->end()) return "Blocks leave a gap";
    if (before != nullptr && !before->is_active() && !block.is_active()) {
      return "Two free blocks touch";
    }
    before = &block;
  }
  return "";
}

std::string complaint_about(const PoolCounter& counter, std::int64_t expected, const char* name) {
  const Counter& all = counter.all;
  for (const Counter* part : {&all, &counter.small, &counter.large}) {
    if (part->current != part->allocated - part->freed || part->peak < part->current) {
      return std::string("The parts of a counter disagree: ") + name;
    }
  }
  if (all.current != counter.small.current + counter.large.current || all.current != expected) {
    return std::string("A counter is not what the blocks say: ") + name;
  }
  return "";
}

std::string complaint_about(const Statistics& stats, const Totals& totals) {
  const std::pair<const PoolCounter*, std::int64_t> counters[] = {
      {&stats.allocation, totals.allocations},
      {&stats.allocated_bytes, totals.allocated},
      {&stats.active, totals.actives},
      {&stats.active_bytes, totals.active},
      {&stats.requested_bytes, totals.requested},
      {&stats.segment, totals.segments},
      {&stats.reserved_bytes, totals.reserved},
      {&stats.inactive_split, totals.splits},
      {&stats.inactive_split_bytes, totals.split},
  };
  for (std::size_t index = 0; index < named_counters.size(); ++index) {
    const auto& [counter, expected] = counters[index];
    const std::string complaint = complaint_about(*counter, expected, named_counters[index].name);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

}  // namespace

std::string complaint_about(const Allocator& allocator) {
  Totals totals;
  Address end = 0;
  for (const SegmentView& segment : allocator.segments()) {
    const std::string complaint = complaint_about(segment);
    if (!complaint.empty()) return complaint;
    if (segment.blocks.front().address < end) return "Segments overlap";
    end = segment.blocks.back().end();
    count(totals, segment);
  }
  if (allocator.largest_free() != totals.largest_free) return "The largest free block is another";
  if (totals.reserved > allocator.device().capacity()) return "More is reserved than there is";
  return complaint_about(allocator.statistics(), totals);
}

}  // namespace et_replay::test
