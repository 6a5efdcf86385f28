// A part of `few` items in; the smallest arena that there is for it, by trying everything, out.
#pragma once

#include <optional>

#include "normal.hpp"

namespace et_replay::planner {

// Returns offsets with the smallest arena, if that is below `incumbent`; else nothing: then none is
// smaller than the incumbent.
std::optional<Offsets> search_all(const Part& part, Bytes incumbent);

}  // namespace et_replay::planner
