// Ranges of addresses that are in use; none overlap.
#pragma once

#include <iterator>
#include <map>

#include "sizes.hpp"

namespace et_replay {

class HeldRanges {
 public:
  void hold(Address begin, Bytes size) { ends_[begin] = begin + static_cast<Address>(size); }

  // Gives back a part of one range, or of several.
  void drop(Address begin, Bytes size) {
    const Address end = begin + static_cast<Address>(size);
    for (auto range = first_that_may_reach(begin); range != ends_.end() && range->first < end;) {
      const auto [low, high] = *range;
      range = ends_.erase(range);
      if (high <= begin) {
        ends_[low] = high;
        continue;
      }
      if (low < begin) ends_[low] = begin;
      if (end < high) ends_[end] = high;
    }
  }

  // Where the first range that overlaps these bytes ends; 0 if none does.
  Address end_of_overlap(Address begin, Bytes size) const {
    const Address end = begin + static_cast<Address>(size);
    auto range = ends_.upper_bound(begin);
    if (range != ends_.begin() && std::prev(range)->second > begin) return std::prev(range)->second;
    return range != ends_.end() && range->first < end ? range->second : 0;
  }

 private:
  std::map<Address, Address>::iterator first_that_may_reach(Address begin) {
    const auto range = ends_.upper_bound(begin);
    return range == ends_.begin() ? range : std::prev(range);
  }

  std::map<Address, Address> ends_;  // by begin
};

}  // namespace et_replay
