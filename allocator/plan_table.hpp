// A plan as it comes: where in one arena each storage has its place, and when.
//
// Ticks are those of one iteration, which lasts `period` of them and happens again and again.
// Before tick 0 is what happens once, ahead of the first iteration.
//
//   ticks  -3       0                    period
//          |  once  |     iteration      |     the next one   |
//     a    [-----)                                               once
//     b       [------------------------------------------------  for good: its end is past them all
//     c                 [-----)              [-----)             in every iteration
//     d          --)             [-----------------)             across the end: period < end
#pragma once

#include <vector>

#include "sizes.hpp"

namespace et_replay {

using Tick = std::int64_t;

constexpr Bytes no_offset = -1;

// A storage that lives longer than an iteration has a row for each of its instances that live at
// once; the first whose place is free is taken.
struct PlanRow {
  std::int64_t storage;
  Bytes offset;  // in the arena; no_offset: it has no place, but it is known when it lives
  Bytes size;
  Tick start;
  Tick end;
  Stream stream;
};

struct PlanTable {
  Bytes arena = 0;
  Tick period = 0;
  std::vector<PlanRow> rows;
};

// The ticks [start, end) of a life, folded into [.., period): one span, or two.
struct TickSpans {
  TickSpans(Tick start, Tick end, Tick period) : begin(start), stop(end) {
    if (end <= period) return;
    if (end - start < period) again = end - period;
    if (again == 0 && start > 0) begin = 0;
    stop = period;
  }

  Tick begin, stop;
  Tick again = 0;  // the second span is [0, again)
};

}  // namespace et_replay
