// A seed in; the same numbers out on every machine and with every standard library.
#pragma once

#include <cstdint>

namespace et_replay::planner {

// SplitMix64: a counter and a mixing function, good enough to vary orders.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
  }

  // 0 <= result < bound. The bias of the remainder does not matter here.
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(bound));
  }
  // low <= result <= high.
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }

 private:
  std::uint64_t state_;
};

}  // namespace et_replay::planner
