// Gives cached segments that nobody asked for in a long time back before the limit is reached.
#include "caching.hpp"

namespace et_replay {

// Of the default large pool, every segment that is one free block and at least as old as their
// average goes; again, until enough has gone or none is left.
void CachingAllocator::collect_garbage() {
  const auto threshold = static_cast<Bytes>(settings_.garbage_collection_threshold *
                                            static_cast<double>(*limit_));
  if (total() <= threshold) return;
  const Bytes target = total() - threshold;
  const auto age = [&](const Block* block) {
    return static_cast<double>(large_.searches - block->age_base);
  };
  std::vector<Block*> candidates;
  double total_age = 0;
  large_.for_each_free([&](Block* block) {
    if (block->shares_segment()) return;
    candidates.push_back(block);
    total_age += age(block);
  });
  Bytes reclaimed = 0;
  bool released = true;
  std::size_t count = candidates.size();
  while (reclaimed < target && released && count > 0) {
    const double least_age = total_age / static_cast<double>(count);
    released = false;
    std::vector<Block*> kept;
    for (Block* block : candidates) {
      if (block->segment != nullptr || age(block) < least_age) {
        kept.push_back(block);
        continue;
      }
      released = true;
      reclaimed += block->size;
      total_age -= age(block);
      --count;
      release_segment(block);
    }
    candidates.swap(kept);
  }
}

}  // namespace et_replay
