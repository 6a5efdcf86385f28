// Placed items go in; how high they reach over each slot, and how far it stays that low, come out.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace et_replay::planner {

// A segment tree over the slots whose tops only rise.
//
//   bytes  3 |    +--+
//          2 | +--+  +-----+      highest(0, 4) = 3, reach of slot 0 below 2 is [0, 2)
//          1 | |           |
//          0 +-+--+--+--+--+--
//       slots    0  1  2  3
class Skyline {
 public:
  explicit Skyline(std::int32_t slots);

  void raise(std::int32_t begin, std::int32_t end, Bytes top);
  Bytes at(std::int32_t slot) const;
  Bytes highest(std::int32_t begin, std::int32_t end) const;

  // The furthest slots from `slot`, itself not higher than `limit`, with nothing higher between:
  // the first one and the one after the last.
  std::int32_t reach_left(std::int32_t slot, Bytes limit) const;
  std::int32_t reach_right(std::int32_t slot, Bytes limit) const;

 private:
  void cover(std::int32_t node, Bytes top);
  void refresh_above(std::int32_t leaf);
  Bytes highest_mark(std::int32_t node) const;

  std::int32_t slots_;
  std::int32_t leaves_ = 1;    // a power of two
  std::vector<Bytes> top_;     // the highest of the node's slots, as far as the node and those
                               // below it know
  std::vector<Bytes> mark_;    // what all slots of the node have been raised to
};

}  // namespace et_replay::planner
