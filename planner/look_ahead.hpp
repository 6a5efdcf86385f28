// An item and where it would be placed go in; the capacity that everything then needs, comes out.
#pragma once

#include <cstdint>
#include <vector>

#include "frontier.hpp"

namespace et_replay::planner {

// What is left to place over a slot must begin somewhere: if `left` bytes are still to come, one of
// their items must begin at `capacity - left` or lower, or the slot is lost. So each slot has a
// witness, an unplaced item that still can; a placement is tried by looking for new ones where it
// lifts or places the old.
//
//    bytes 3 +---------- capacity    Left over slot 3 are b, 2 bytes in slots 1 to 3, and c, 1 byte
//            |                       in slot 3: one of them must begin at 0. Placed at 0, a lifts b
//          1 +------+                to 1, but c can still begin at 0: a is allowed. Were c as long
//            |  a   |                as b, it would be refused, for both would lie above 1 and end
//          0 +------+--------        at 4.
//    slots     0  1  2  3
class LookAhead {
 public:
  explicit LookAhead(const Frontier& frontier) : frontier_(frontier) {}
  void reset();

  // Whether all can still be placed below `capacity`, as far as can be seen.
  bool allows(std::int32_t index, Bytes offset, Bytes capacity);

  // A capacity that allows it.
  Bytes needs(std::int32_t index, Bytes offset, Bytes capacity);

  std::int64_t slots_seen() const { return slots_seen_; }

 private:
  struct Trial {
    std::int32_t index;
    const Item& item;
    Bytes offset, top;
    Bytes highest;   // top of all, with it
    Bytes capacity;  // grows if not strict
    bool strict;
    bool allowed = true;
  };

  void run(Trial& trial);
  bool run_within(Trial& trial, std::int32_t begin, std::int32_t end);
  bool run_beside(Trial& trial, std::int32_t begin, std::int32_t end);
  bool within(Trial& trial, std::int32_t slot, Bytes left);
  bool beside(Trial& trial, std::int32_t slot, Bytes left);
  bool find_witness(Trial& trial, std::int32_t slot, Bytes latest, Bytes left);
  std::int32_t starter(const Trial& trial, std::int32_t slot, Bytes latest) const;
  Bytes earliest_start(const Trial& trial, std::int32_t slot) const;
  static bool raise(Trial& trial, Bytes capacity);

  const Frontier& frontier_;
  std::vector<std::int32_t> witness_;  // of each slot; no witness where it is placed
  std::int64_t slots_seen_ = 0;
};

}  // namespace et_replay::planner
