// A part in; the small problem that its busiest slots pose, out.
//
//   load  |      ____             Above the threshold are the slots 4 to 6. Who lives there is
//   ......|...../....\....        the core, less those who live in all of these slots, the
//         |  __/      \___        residents: in whatever order they lie above the core, they are
//         +---------------        not in its way. What is left lives where there is more room,
//   slots   0 1 2 3 4 5 6 7       and is filled in by first fit.
//
// S_1 has 28,526 items; above 95 % of its bound are 350 slots, 787 items of core and 2,304
// residents. A descent over the core takes a millisecond and succeeds nine times as often as one
// over all.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "budget.hpp"
#include "normal.hpp"
#include "orders.hpp"

namespace et_replay::planner {

struct Core {
  Part part;                             // its items, in shorter time
  std::vector<std::uint32_t> items;      // which they are in the whole
  std::vector<std::uint32_t> residents;  // the longest-living first
  Bytes residents_size = 0;
  std::vector<bool> is_rest;             // of each item of the whole: it is in neither
};

// Of the slots with more than `threshold` alive.
Core core_of(const Part& whole, Bytes threshold);

// Offsets below `limit` for the whole in which the core's items have those given, if first fit in
// this order finds any for the rest.
std::optional<Offsets> fill_around(const Part& whole, const Core& core, const Offsets& offsets,
                                   const std::vector<std::uint32_t>& order, Bytes limit,
                                   Budget& budget);

}  // namespace et_replay::planner
