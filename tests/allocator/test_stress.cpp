// Random requests on three streams of a small device; layout and counters stay consistent
// throughout.
#include <random>
#include <vector>

#include "caching.hpp"
#include "check.hpp"
#include "invariants.hpp"

namespace et_replay::test {
namespace {

void validate(const CachingAllocator& allocator) { CHECK(complaint_about(allocator).empty()); }

Bytes random_size(std::mt19937_64& random) {
  const Bytes limit = Bytes{1} << (6 + random() % 20);
  return 1 + static_cast<Bytes>(random() % static_cast<std::uint64_t>(limit));
}

void survives_random_requests(unsigned seed, const char* text, int minor) {
  std::mt19937_64 random(seed);
  SimulatedDevice device(512 * mebibyte);
  Settings settings;
  settings.read(text, Version{minor});
  CachingAllocator allocator(device, settings, Version{minor});
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
    for (const int minor : {7, 12, 14}) {
      survives_random_requests(seed, "", minor);
      survives_random_requests(seed, "expandable_segments:True", minor);
      survives_random_requests(seed, "max_split_size_mb:21", minor);
    }
  }
}

}  // namespace et_replay::test
