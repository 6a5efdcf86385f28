// What the planner is asked: buffers with lifetimes and sizes, to be put into one arena so that no
// two that live at the same time share a byte. What it answers: their offsets.
//
//   bytes
//   3        +-----------------+     a: 2 bytes in [0, 4), b: 1 byte in [2, 8), c: 2 bytes in
//   2  +-----+-----+-----b-----+     [4, 8). At most 3 bytes live at once, which no arena can go
//   1  |     a     |     c     |     below. a and c share no tick, so c can lie where a was, and
//   0  +-----------+-----------+     the arena be 3 bytes.
//      0     2     4     6     8  ticks
//
// Sizes and offsets are bytes, times are ticks of any length, spans are half-open [start, end).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace et_replay::planner {

using Bytes = std::int64_t;
using Time = std::int64_t;

// The largest load and the largest offset that the planner works with; sums of two do not overflow.
constexpr Bytes largest_arena = Bytes{1} << 62;

struct Span {
  Time start = 0;
  Time end = 0;

  bool empty() const { return end <= start; }
  bool overlaps(const Span& other) const { return start < other.end && other.start < end; }
};

struct Buffer {
  Bytes size = 0;
  Bytes alignment = 1;
  Bytes fixed = -1;  // the offset that it must have; -1: any
  Span span;
  Span again;  // a second time at which it lives, at the same offset: the head of a cycle whose end
               // it crosses. Empty for most. Disjoint from `span`.

  bool takes_memory() const { return size > 0 && !(span.empty() && again.empty()); }
  bool meets(const Buffer& other) const {
    return meets(other.span) || (!again.empty() && meets(other.again));
  }

 private:
  bool meets(const Span& other) const {
    return !other.empty() && ((!span.empty() && span.overlaps(other)) ||
                              (!again.empty() && again.overlaps(other)));
  }
};

using Problem = std::vector<Buffer>;
using Offsets = std::vector<Bytes>;  // of each buffer; 0 for one that takes no memory

}  // namespace et_replay::planner
