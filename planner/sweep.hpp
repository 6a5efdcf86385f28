// Buffers in; the most bytes that live at once, which no arena can go below, out.
#pragma once

#include "problem.hpp"

namespace et_replay::planner {

// Throws std::overflow_error where more than `largest_arena` / 2 live at once.
Bytes lower_bound(const Problem& problem);

}  // namespace et_replay::planner
