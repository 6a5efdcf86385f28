// A part in; the offsets that best fit gives in order of time, as an allocator would that does not
// know what comes, out.
#pragma once

#include <optional>

#include "normal.hpp"

namespace et_replay::planner {

// Far from the best, but there in O(n log n), a second for a million items. An item that lives
// twice keeps its place in between. Knows no alignment above 1 and no fixed offsets: a part that
// has any gets nothing.
std::optional<Offsets> online_fit(const Part& part);

}  // namespace et_replay::planner
