// Random requests on three streams of a small device; layout and counters stay consistent
// throughout.
#include <algorithm>
#include <random>
#include <vector>

#include "caching.hpp"
#include "check.hpp"

namespace et_replay::test {
namespace {

struct Totals {
  Bytes reserved = 0, allocated = 0, requested = 0, split = 0, largest_free = 0;
  std::int64_t segments = 0, blocks = 0, splits = 0;
};

void count(Totals& totals, const SegmentView& segment) {
  ++totals.segments;
  const bool whole = segment.blocks.size() == 1;
  for (const Block& block : segment.blocks) {
    totals.reserved += block.size;
    if (block.allocated) {
      ++totals.blocks;
      totals.allocated += block.size;
      totals.requested += block.requested;
      continue;
    }
    totals.largest_free = std::max(totals.largest_free, block.size);
    totals.splits += whole ? 0 : 1;
    totals.split += whole ? 0 : block.size;
  }
}

// Blocks fill their segment without a gap, are multiples of 512 bytes, and no two free ones touch.
bool is_well_formed(const SegmentView& segment) {
  const Block* before = nullptr;
  for (const Block& block : segment.blocks) {
    if (block.size <= 0 || block.size % smallest_block != 0) return false;
    if (block.allocated && block.requested > block.size) return false;
    if (before != nullptr && block.address != before->end()) return false;
    if (before != nullptr && !before->allocated && !block.allocated) return false;
    if (before != nullptr && before->order >= block.order) return false;
    before = &block;
  }
  return segment.blocks.front().address % static_cast<Address>(segment_granularity) == 0;
}

bool counters_match(const Statistics& statistics, const Totals& totals) {
  return statistics.reserved_bytes.all.current == totals.reserved &&
         statistics.segment.all.current == totals.segments &&
         statistics.allocated_bytes.all.current == totals.allocated &&
         statistics.active_bytes.all.current == totals.allocated &&
         statistics.requested_bytes.all.current == totals.requested &&
         statistics.allocation.all.current == totals.blocks &&
         statistics.active.all.current == totals.blocks &&
         statistics.inactive_split.all.current == totals.splits &&
         statistics.inactive_split_bytes.all.current == totals.split &&
         statistics.num_device_alloc - statistics.num_device_free == totals.segments;
}

bool counter_is_consistent(const PoolCounter& counter) {
  for (const Counter* part : {&counter.all, &counter.small, &counter.large}) {
    if (part->current != part->allocated - part->freed || part->current < 0 ||
        part->peak < part->current)
      return false;
  }
  return counter.all.current == counter.small.current + counter.large.current &&
         counter.all.allocated == counter.small.allocated + counter.large.allocated;
}

void validate(const CachingAllocator& allocator) {
  const std::vector<SegmentView> segments = allocator.segments();
  Totals totals;
  Address end = 0;
  for (const SegmentView& segment : segments) {
    CHECK(is_well_formed(segment));
    CHECK(segment.blocks.front().address >= end);
    end = segment.blocks.back().end();
    count(totals, segment);
  }
  CHECK(counters_match(allocator.statistics(), totals));
  CHECK(allocator.largest_free() == totals.largest_free);
  CHECK(totals.reserved <= allocator.device().capacity());
  for (const NamedCounter& named : named_counters)
    CHECK(counter_is_consistent(allocator.statistics().*named.counter));
}

Bytes random_size(std::mt19937_64& random) {
  const Bytes limit = Bytes{1} << (6 + random() % 20);
  return 1 + static_cast<Bytes>(random() % static_cast<std::uint64_t>(limit));
}

void survives_random_requests(unsigned seed, TieOrder tie_order) {
  std::mt19937_64 random(seed);
  SimulatedDevice device(512 * mebibyte);
  CachingAllocator allocator(device, tie_order);
  std::vector<Block*> live;
  std::int64_t ooms = 0;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 1000 == 0) allocator.empty_cache();
    // The odds swing, so that the device fills until it overflows and then drains.
    if (live.empty() || random() % 100 < (step / 4000 % 2 == 0 ? 60u : 40u)) {
      try {
        live.push_back(allocator.allocate(random_size(random), random() % 3));
      } catch (const OutOfMemory&) {
        ++ooms;
      }
    } else {
      const std::size_t choice = random() % live.size();
      std::swap(live[choice], live.back());
      allocator.free(live.back());
      live.pop_back();
    }
    if (step % 100 == 0) validate(allocator);
  }
  CHECK(ooms > 0);
  CHECK(allocator.statistics().num_ooms == ooms);
  for (Block* block : live) allocator.free(block);
  allocator.empty_cache();
  validate(allocator);
  CHECK(allocator.statistics().reserved_bytes.all.current == 0);
  CHECK(allocator.segments().empty());
}

}  // namespace

void run_stress_tests() {
  for (unsigned seed : {1u, 2u, 3u}) {
    survives_random_requests(seed, TieOrder::segment);
    survives_random_requests(seed, TieOrder::address);
  }
}

}  // namespace et_replay::test
