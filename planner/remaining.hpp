// Items that are placed go in; the slots in which much is still to be placed come out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace et_replay::planner {

// A segment tree over the bytes that are left in each slot.
class Remaining {
 public:
  explicit Remaining(const std::vector<Bytes>& load) {
    while (leaves_ < static_cast<std::int32_t>(load.size())) leaves_ *= 2;
    most_.assign(2 * static_cast<std::size_t>(leaves_), 0);
    taken_.assign(2 * static_cast<std::size_t>(leaves_), 0);
    std::copy(load.begin(), load.end(), most_.begin() + leaves_);
    for (std::int32_t node = leaves_ - 1; node >= 1; --node) {
      most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
    }
  }

  void take(std::int32_t begin, std::int32_t end, Bytes size) {
    std::int32_t left = begin + leaves_;
    std::int32_t right = end + leaves_;
    for (; left < right; left /= 2, right /= 2) {
      if (left % 2 == 1) subtract(left++, size);
      if (right % 2 == 1) subtract(--right, size);
    }
    refresh_above(begin + leaves_);
    refresh_above(end - 1 + leaves_);
  }

  // Calls visit(slot, bytes left) for the slots of [begin, end) with more than `limit`, in order,
  // until it returns false; says whether it never did.
  template <class Visitor>
  bool each_above(std::int32_t begin, std::int32_t end, Bytes limit, const Visitor& visit) const {
    return begin >= end || descend(1, 0, leaves_, {begin, end, limit}, 0, visit);
  }

 private:
  struct Query {
    std::int32_t begin, end;
    Bytes limit;
  };

  void subtract(std::int32_t node, Bytes size) {
    most_[node] -= size;
    taken_[node] += size;
  }

  void refresh_above(std::int32_t leaf) {
    for (std::int32_t node = leaf / 2; node >= 1; node /= 2) {
      most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) - taken_[node];
    }
  }

  // `above`: what nodes above this one have had taken from all of their slots.
  template <class Visitor>
  bool descend(std::int32_t node, std::int32_t first, std::int32_t last, const Query& query,
               Bytes above, const Visitor& visit) const {
    if (most_[node] - above <= query.limit) return true;
    if (node >= leaves_) return visit(first, most_[node] - above);
    const std::int32_t middle = (first + last) / 2;
    above += taken_[node];
    return (query.begin >= middle || descend(2 * node, first, middle, query, above, visit)) &&
           (query.end <= middle || descend(2 * node + 1, middle, last, query, above, visit));
  }

  std::int32_t leaves_ = 1;
  std::vector<Bytes> most_;   // the most that is left in one of the node's slots, not counting what
                              // has been taken from nodes above
  std::vector<Bytes> taken_;  // from all slots of the node
};

}  // namespace et_replay::planner
