// The rules of the native allocator, one claim each, with the literal answers.
#include <stdexcept>

#include "caching.hpp"
#include "check.hpp"
#include "simulation.hpp"

namespace et_replay::test {
namespace {

constexpr Bytes MiB = mebibyte;

void rounds_to_512_bytes() {
  CHECK(rounded_size(1) == 512);
  CHECK(rounded_size(512) == 512);
  CHECK(rounded_size(513) == 1024);
  CHECK(rounded_size(MiB + 1) == MiB + 512);
}

void takes_segments_of_2_or_20_mebibytes_or_made_for_the_request() {
  CHECK(segment_size(512) == 2 * MiB);
  CHECK(segment_size(MiB) == 2 * MiB);
  CHECK(segment_size(MiB + 512) == 20 * MiB);
  CHECK(segment_size(10 * MiB - 512) == 20 * MiB);
  CHECK(segment_size(10 * MiB) == 10 * MiB);
  CHECK(segment_size(10 * MiB + 512) == 12 * MiB);
}

void splits_small_rests_from_512_bytes_and_large_ones_above_1_mebibyte() {
  CHECK(is_worth_splitting(PoolKind::small, 512));
  CHECK(!is_worth_splitting(PoolKind::small, 0));
  CHECK(is_worth_splitting(PoolKind::large, MiB + 512));
  CHECK(!is_worth_splitting(PoolKind::large, MiB));
}

void hands_out_the_front_and_merges_both_ways() {
  SimulatedDevice device(100 * MiB);
  CachingAllocator allocator(device);
  Block* first = allocator.allocate(512, 0);
  Block* second = allocator.allocate(512, 0);
  Block* third = allocator.allocate(512, 0);
  CHECK(second->address == first->end());
  CHECK(third->address == second->end());
  CHECK(third->next->size == 2 * MiB - 3 * 512);
  allocator.free(first);
  allocator.free(third);
  CHECK(second->previous->size == 512);
  CHECK(second->next->size == 2 * MiB - 2 * 512);
  CHECK(allocator.statistics().inactive_split.all.current == 2);
  allocator.free(second);
  CHECK(allocator.segments().size() == 1);
  CHECK(allocator.segments()[0].blocks.size() == 1);
  CHECK(allocator.largest_free() == 2 * MiB);
  CHECK(allocator.statistics().inactive_split.all.current == 0);
}

// Four 12 MiB segments lie at falling addresses; the two in the middle become free.
Address address_of_the_tie(TieOrder tie_order) {
  SimulatedDevice device(100 * MiB,
                         {Address{4} << 30, Address{3} << 30, Address{2} << 30, Address{1} << 30});
  CachingAllocator allocator(device, tie_order);
  Block* blocks[4];
  for (Block*& block : blocks) block = allocator.allocate(12 * MiB, 0);
  allocator.free(blocks[1]);
  allocator.free(blocks[2]);
  return allocator.allocate(12 * MiB, 0)->address;
}

void takes_the_lowest_address_or_the_oldest_segment_of_equal_blocks() {
  CHECK(address_of_the_tie(TieOrder::address) == Address{2} << 30);
  CHECK(address_of_the_tie(TieOrder::segment) == Address{3} << 30);
}

void returns_cached_segments_before_it_gives_up() {
  SimulatedDevice device(40 * MiB);
  CachingAllocator allocator(device);
  allocator.free(allocator.allocate(30 * MiB, 0));
  Block* block = allocator.allocate(36 * MiB, 0);
  CHECK(block->size == 36 * MiB);
  CHECK(allocator.statistics().num_alloc_retries == 1);
  CHECK(allocator.statistics().num_sync_all_streams == 1);
  CHECK(allocator.statistics().num_device_free == 1);
  CHECK(allocator.statistics().num_ooms == 0);
}

void reports_the_figures_of_an_out_of_memory_failure() {
  SimulatedDevice device(40 * MiB);
  CachingAllocator allocator(device);
  allocator.allocate(2 * MiB, 0);
  try {
    allocator.allocate(20 * MiB + 1, 0);
    CHECK(!"reached");
  } catch (const OutOfMemory& error) {
    CHECK(error.requested == 20 * MiB + 1);
    CHECK(error.segment == 22 * MiB);
    CHECK(error.capacity == 40 * MiB);
    CHECK(error.allocated == 2 * MiB);
    CHECK(error.reserved == 20 * MiB);
    CHECK(error.largest_free == 18 * MiB);
  }
  CHECK(allocator.statistics().num_ooms == 1);
}

void refuses_absurd_requests_without_counting_them() {
  SimulatedDevice device(Bytes{1} << 62);
  CachingAllocator allocator(device);
  bool refused = false;
  try {
    allocator.allocate(absurd_request, 0);
  } catch (const OutOfMemory&) {
    refused = true;
  }
  CHECK(refused);
  CHECK(allocator.statistics().num_ooms == 0);
  CHECK(allocator.statistics().num_alloc_retries == 0);
}

void names_the_event_that_failed() {
  const std::int8_t action[] = {0, 1, 0};
  const std::int64_t storage[] = {7, 7, 8}, size[] = {1, 1, 30 * MiB}, stream[] = {0, 0, 0};
  Simulation simulation(20 * MiB);
  std::int64_t event = -1;
  try {
    simulation.run({action, storage, size, stream}, 0, 3);
  } catch (const OutOfMemory& error) {
    event = error.event;
  }
  CHECK(event == 2);
}

}  // namespace

void run_caching_tests() {
  rounds_to_512_bytes();
  takes_segments_of_2_or_20_mebibytes_or_made_for_the_request();
  splits_small_rests_from_512_bytes_and_large_ones_above_1_mebibyte();
  hands_out_the_front_and_merges_both_ways();
  takes_the_lowest_address_or_the_oldest_segment_of_equal_blocks();
  returns_cached_segments_before_it_gives_up();
  reports_the_figures_of_an_out_of_memory_failure();
  refuses_absurd_requests_without_counting_them();
  names_the_event_that_failed();
}

}  // namespace et_replay::test
