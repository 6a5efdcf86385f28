// Ranges of addresses go in; their union, as sorted ranges that do not touch, comes out.
#pragma once

#include <algorithm>
#include <vector>

#include "problem.hpp"

namespace et_replay::planner {

struct Range {
  Bytes begin = 0;
  Bytes end = 0;
};

class AddressUnion {
 public:
  bool empty() const { return ranges_.empty(); }
  const Range* begin() const { return ranges_.data(); }
  const Range* end() const { return ranges_.data() + ranges_.size(); }
  void clear() { ranges_.clear(); }

  void insert(Range range) {
    // Most ranges are put on top of or beside what is there: the union stays short.
    auto first = std::lower_bound(ranges_.begin(), ranges_.end(), range.begin,
                                  [](const Range& at, Bytes begin) { return at.end < begin; });
    if (first == ranges_.end() || range.end < first->begin) {
      ranges_.insert(first, range);
      return;
    }
    auto last = first;
    while (last + 1 != ranges_.end() && last[1].begin <= range.end) ++last;
    first->begin = std::min(first->begin, range.begin);
    first->end = std::max(last->end, range.end);
    ranges_.erase(first + 1, last + 1);
  }

 private:
  std::vector<Range> ranges_;
};

}  // namespace et_replay::planner
