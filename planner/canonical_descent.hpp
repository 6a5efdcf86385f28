// An order in; offsets, given from the bottom upwards as long as a capacity allows, out.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "budget.hpp"
#include "frontier.hpp"
#include "look_ahead.hpp"

namespace et_replay::planner {

// Of the lowest run of slots of the skyline, the first item in the order that lies within it is
// placed there, unless the look-ahead refuses it; then it stays blocked until something is placed
// below it. A run in which nothing lies any more is raised to its lower neighbour. Where all are
// refused, the capacity is raised by the least amount needed.
//
//    bytes 2 |        +--+     The lowest run is slots 1 and 2. An item of slot 1 lies within it,
//          1 |--+     |  |     one of slots 0 to 2 does not. When nothing lies within it any more,
//          0 |  +-----+  |     it is raised to 1; then the lowest run is slots 0 to 2, and the
//     slots   0  1  2  3       other item lies within.
class CanonicalDescent {
 public:
  explicit CanonicalDescent(const Part& part);

  struct Aim {
    Bytes capacity;  // at first
    Bytes limit;     // it may be raised to less than this
  };

  // Places all items, or gives up: the limit is reached or the budget spent.
  bool run(const std::vector<std::uint32_t>& order, const Aim& aim, Budget& budget);

  const Offsets& offsets() const { return offsets_; }
  Bytes arena() const { return frontier_.highest; }

 private:
  struct Run {  // of equally high slots, found by one of them
    Bytes height;
    std::int32_t slot;

    bool operator>(const Run& other) const {
      return height != other.height ? height > other.height : slot > other.slot;
    }
  };
  static constexpr std::int64_t slots_per_step = 32;  // of the look-ahead: as much work as a step

  void reset(const std::vector<std::uint32_t>& order, Bytes capacity);
  bool step();
  void fill(const Run& run);
  void level(const Run& run, std::int32_t from, std::int32_t to);
  bool attempt(std::int32_t item, Bytes offset);
  void place(std::int32_t item, Bytes offset);
  void block(std::int32_t item, Bytes offset);
  void release_above(std::int32_t item, Bytes top);
  void release_all();
  bool raise_capacity(Bytes limit);
  std::int32_t twice_below(Bytes height);
  void push(std::int32_t slot);

  const Part& part_;
  Frontier frontier_;
  LookAhead look_ahead_;
  std::vector<std::int32_t> order_;
  std::vector<std::int32_t> ranks_;
  Offsets offsets_;
  std::vector<bool> is_blocked_;
  std::vector<std::int32_t> blocked_;
  Bytes lowest_blocked_top_ = 0;  // nothing else may begin here: a blocked item would fit below
  std::vector<Run> runs_;         // a heap, the lowest first; some are out of date
  std::size_t left_ = 0;
  Bytes capacity_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace et_replay::planner
