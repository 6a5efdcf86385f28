// A part that is a cycle in; the same cycle, begun where the fewest items live across, out.
//
//    slots   0  1  2  3              slots   2  3  0  1
//    a      [------)                 a             [------)
//    b      [--)  [--)               b         [-----)            lives once if begun at slot 2
//
// Who lives at the same time does not depend on where a cycle begins, so offsets of the one are
// offsets of the other; but all methods are better at items that live once.
#pragma once

#include "normal.hpp"

namespace et_replay::planner {

// The part itself where an item lives twice in another way than across the end.
Part rotated(const Part& part);

}  // namespace et_replay::planner
