// The rules of the native allocator, one claim each, with the literal answers.
#include <stdexcept>
#include <string>

#include "caching.hpp"
#include "check.hpp"
#include "simulation.hpp"

namespace et_replay::test {
namespace {

constexpr Bytes MiB = mebibyte;

Settings settings_of(const std::string& text, Version version = {}) {
  Settings settings;
  settings.read(text, version);
  return settings;
}

std::string refusal_of(const std::string& text, Version version = {}) {
  try {
    settings_of(text, version);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

void rounds_to_512_bytes() {
  const Settings settings;
  CHECK(rounded_size(1, settings) == 512);
  CHECK(rounded_size(512, settings) == 512);
  CHECK(rounded_size(513, settings) == 1024);
  CHECK(rounded_size(MiB + 1, settings) == MiB + 512);
}

void rounds_to_divisions_of_a_power_of_two() {
  const Settings all = settings_of("roundup_power2_divisions:4");
  CHECK(rounded_size(2048, all) == 2048);
  CHECK(rounded_size(1025 * MiB, all) == 1280 * MiB);
  CHECK(rounded_size(1024 * MiB, all) == 1024 * MiB);
  const Settings some = settings_of("roundup_power2_divisions:[4:8,64:1,>:2]");
  CHECK(rounded_size(MiB + 1, some) == MiB + MiB / 8);
  CHECK(rounded_size(65 * MiB + 1, some) == 65 * MiB + 512);
  CHECK(rounded_size(129 * MiB, some) == 192 * MiB);
  const Settings older = settings_of("roundup_power2_divisions:[4:8,64:1,>:2]", Version{7});
  CHECK(rounded_size(65 * MiB, older) == 96 * MiB);
}

void names_the_option_and_its_versions_in_a_refusal() {
  CHECK(refusal_of("max_split_size_mb:19") ==
        "The allocator option max_split_size_mb: expected at least 20 (MiB, a packed segment), got"
        " 19; torch 2.7 to 2.14 have it.");
  CHECK(refusal_of("max_split_size_mb:20", Version{7}).find("more than 20") != std::string::npos);
  CHECK(refusal_of("throw_on_cudamalloc_oom:True", Version{11}) ==
        "The allocator option throw_on_cudamalloc_oom: torch 2.11 does not know it; torch 2.12 and"
        " later have it.");
  CHECK(refusal_of("expandable_segments:true").find("True or False") != std::string::npos);
  CHECK(refusal_of("fast:1").find("No torch from 2.7 to 2.14 has an allocator option 'fast'") == 0);
  CHECK(refusal_of("expandable_segments").find("':'") != std::string::npos);
  CHECK(refusal_of("roundup_power2_divisions:[4:4").find("the end") != std::string::npos);
  CHECK(refusal_of(" expandable_segments : True , max_split_size_mb:64 ,").empty());
}

void takes_segments_of_2_or_20_mebibytes_or_made_for_the_request() {
  const Settings settings;
  const auto size = [&](Bytes rounded) { return segment_size(rounded, settings); };
  CHECK(size(512) == 2 * MiB);
  CHECK(size(MiB) == 2 * MiB);
  CHECK(size(MiB + 512) == 20 * MiB);
  CHECK(size(10 * MiB - 512) == 20 * MiB);
  CHECK(size(10 * MiB) == 10 * MiB);
  CHECK(size(10 * MiB + 512) == 12 * MiB);
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
Address address_of_the_tie(int minor) {
  SimulatedDevice device(100 * MiB,
                         {Address{4} << 30, Address{3} << 30, Address{2} << 30, Address{1} << 30});
  CachingAllocator allocator(device, Settings{}, Version{minor});
  Block* blocks[4];
  for (Block*& block : blocks) block = allocator.allocate(12 * MiB, 0);
  allocator.free(blocks[1]);
  allocator.free(blocks[2]);
  return allocator.allocate(12 * MiB, 0)->address;
}

void takes_the_lowest_address_or_the_oldest_block_or_segment_of_equal_blocks() {
  CHECK(address_of_the_tie(11) == Address{2} << 30);
  CHECK(address_of_the_tie(12) == Address{3} << 30);
  CHECK(address_of_the_tie(13) == Address{3} << 30);
}

void keeps_a_block_that_another_stream_uses_until_its_event_is_complete() {
  SimulatedDevice device(100 * MiB);
  CachingAllocator allocator(device);
  allocator.stream_events().complete_at_once(false);
  Block* block = allocator.allocate(12 * MiB, 0);
  const Address address = block->address;
  allocator.record_stream(block, 16);
  allocator.free(block);
  CHECK(allocator.statistics().active.all.current == 1);
  CHECK(allocator.allocate(12 * MiB, 0)->address != address);
  allocator.stream_events().complete(16);
  CHECK(allocator.allocate(12 * MiB, 0)->address == address);
}

void grows_an_expandable_segment_page_by_page_and_unmaps_whole_pages() {
  SimulatedDevice device(200 * MiB);
  CachingAllocator allocator(device, settings_of("expandable_segments:True"));
  Block* first = allocator.allocate(30 * MiB, 0);
  Block* second = allocator.allocate(30 * MiB, 0);
  CHECK(second->address == first->end());
  CHECK(allocator.statistics().reserved_bytes.all.current == 60 * MiB);
  CHECK(allocator.statistics().segment.all.current == 0);
  allocator.free(first);
  allocator.empty_cache();
  CHECK(allocator.statistics().reserved_bytes.all.current == 40 * MiB);
  allocator.free(second);
  allocator.empty_cache();
  CHECK(allocator.segments().empty());
}

void serves_a_private_pool_from_segments_of_its_own() {
  SimulatedDevice device(200 * MiB);
  CachingAllocator allocator(device);
  allocator.free(allocator.allocate(12 * MiB, 0));
  allocator.begin_pool({0, 1}, std::nullopt);
  Block* block = allocator.allocate(12 * MiB, 0);
  allocator.end_pool({0, 1});
  CHECK(allocator.statistics().segment.all.current == 2);
  allocator.free(block);
  allocator.empty_cache();
  CHECK(allocator.statistics().segment.all.current == 1);
  allocator.release_pool({0, 1});
  allocator.empty_cache();
  CHECK(allocator.statistics().segment.all.current == 0);
}

void reports_what_is_undefined_in_torch() {
  SimulatedDevice device(200 * MiB);
  CachingAllocator allocator(device);
  allocator.begin_pool({0, 1}, Stream{16});
  allocator.private_pools().lend_when_out_of_memory({0, 1});
  std::string sentence;
  try {
    allocator.allocate(300 * MiB, 0);
  } catch (const UndefinedBehavior& error) {
    sentence = error.what();
  }
  CHECK(sentence.find("Undefined in torch 2.14: ") == 0);
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
  Simulation simulation(20 * MiB, "native", {}, {});
  std::int64_t event = -1;
  try {
    simulation.run({action, storage, size, stream}, 0, 3, false, {});
  } catch (const OutOfMemory& error) {
    event = error.event;
  }
  CHECK(event == 2);
}

}  // namespace

void run_caching_tests() {
  rounds_to_512_bytes();
  rounds_to_divisions_of_a_power_of_two();
  names_the_option_and_its_versions_in_a_refusal();
  takes_segments_of_2_or_20_mebibytes_or_made_for_the_request();
  hands_out_the_front_and_merges_both_ways();
  takes_the_lowest_address_or_the_oldest_block_or_segment_of_equal_blocks();
  keeps_a_block_that_another_stream_uses_until_its_event_is_complete();
  grows_an_expandable_segment_page_by_page_and_unmaps_whole_pages();
  serves_a_private_pool_from_segments_of_its_own();
  reports_what_is_undefined_in_torch();
  returns_cached_segments_before_it_gives_up();
  reports_the_figures_of_an_out_of_memory_failure();
  refuses_absurd_requests_without_counting_them();
  names_the_event_that_failed();
}

}  // namespace et_replay::test
