// A problem in; nothing out, or an exception that says why it is none.
#pragma once

#include "problem.hpp"

namespace et_replay::planner {

// Throws std::invalid_argument where a size is negative, an alignment not positive, a fixed offset
// no multiple of the alignment, or where the two spans of a buffer or two fixed buffers overlap;
// std::overflow_error where a buffer alone exceeds `largest_arena` / 2.
void check_problem(const Problem& problem);

}  // namespace et_replay::planner
