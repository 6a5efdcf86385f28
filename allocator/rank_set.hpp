// A set of numbers below a limit, and of any number the nearest ones in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace et_replay {

// A tree of bits: a bit of one level says whether there are any in a word of the level below. A
// million numbers make four levels, and most searches end in the first two.
class RankSet {
 public:
  using Rank = std::int32_t;
  static constexpr Rank none = -1;

  explicit RankSet(std::size_t limit) {
    do {
      limit = limit / 64 + 1;
      levels_.emplace_back(limit);
    } while (limit > 1);
  }

  void insert(Rank rank) {
    auto index = static_cast<std::size_t>(rank);
    for (std::vector<std::uint64_t>& level : levels_) {
      level[index / 64] |= std::uint64_t{1} << index % 64;
      index /= 64;
    }
  }

  void erase(Rank rank) {
    auto index = static_cast<std::size_t>(rank);
    for (std::vector<std::uint64_t>& level : levels_) {
      level[index / 64] &= ~(std::uint64_t{1} << index % 64);
      if (level[index / 64] != 0) return;
      index /= 64;
    }
  }

  // The largest below `rank`.
  Rank below(Rank rank) const {
    auto index = static_cast<std::size_t>(rank);
    for (std::size_t level = 0; level < levels_.size(); ++level, index /= 64) {
      const std::uint64_t lower = (std::uint64_t{1} << index % 64) - 1;
      const std::uint64_t bits = levels_[level][index / 64] & lower;
      if (bits == 0) continue;
      index = index / 64 * 64 + highest(bits);
      while (level > 0) {
        --level;
        index = index * 64 + highest(levels_[level][index]);
      }
      return static_cast<Rank>(index);
    }
    return none;
  }

  // The smallest that is not below `rank`.
  Rank from(Rank rank) const {
    auto index = static_cast<std::size_t>(rank);
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      if (index / 64 >= levels_[level].size()) return none;
      const std::uint64_t bits = levels_[level][index / 64] >> index % 64;
      if (bits == 0) {
        index = index / 64 + 1;  // the words behind this one
        continue;
      }
      index += lowest(bits);
      while (level > 0) {
        --level;
        index = index * 64 + lowest(levels_[level][index]);
      }
      return static_cast<Rank>(index);
    }
    return none;
  }

 private:
  static std::size_t highest(std::uint64_t bits) {
    return static_cast<std::size_t>(63 - __builtin_clzll(bits));
  }
  static std::size_t lowest(std::uint64_t bits) {
    return static_cast<std::size_t>(__builtin_ctzll(bits));
  }

  std::vector<std::vector<std::uint64_t>> levels_;
};

}  // namespace et_replay
