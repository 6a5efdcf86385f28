// A plan in; what is wrong with it, as a sentence, out. Slow and obvious, and independent of all
// that makes plans.
#pragma once

#include <string>

#include "problem.hpp"

namespace et_replay::planner {

// Returns the first fault: an overlap of two buffers that live together, an offset that is not
// aligned, not the fixed one, negative or beyond the arena. "" where there is none.
std::string find_fault(const Problem& problem, const Offsets& offsets, Bytes arena);

}  // namespace et_replay::planner
