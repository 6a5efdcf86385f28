// A plan in; what is wrong with it, as a sentence, out. Slow and obvious, and independent of all
// that makes plans.
#pragma once

#include <optional>
#include <string>

#include "problem.hpp"

namespace et_replay::planner {

struct Overlap {
  std::size_t older, younger;
  Time time;
};

// The first two buffers that live together and share a byte; those with a negative offset are not
// looked at.
std::optional<Overlap> find_overlap(const Problem& problem, const Offsets& offsets);

// Returns the first fault: an overlap of two buffers that live together, an offset that is not
// aligned, not the fixed one, negative or beyond the arena. "" where there is none.
std::string find_fault(const Problem& problem, const Offsets& offsets, Bytes arena);

}  // namespace et_replay::planner
