// Decisions of a depth-first search, by level: what a conclusion rests on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace et_replay::planner {

class LevelSet {
 public:
  explicit LevelSet(std::size_t levels = 0) : words_((levels + 63) / 64, 0) {}

  std::size_t size() const { return words_.size(); }
  const std::uint64_t* words() const { return words_.data(); }

  bool contains(std::size_t level) const { return (words_[level / 64] >> (level % 64) & 1) != 0; }
  void add(std::size_t level) { words_[level / 64] |= std::uint64_t{1} << (level % 64); }
  void remove(std::size_t level) { words_[level / 64] &= ~(std::uint64_t{1} << (level % 64)); }
  void add(const std::uint64_t* words) {
    for (std::size_t word = 0; word < words_.size(); ++word) words_[word] |= words[word];
  }
  void clear() { std::fill(words_.begin(), words_.end(), 0); }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace et_replay::planner
