// Items and the offsets that they have been given go in; the lowest offset at which a further item
// fits, and the holes over a span of slots, come out.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "address_union.hpp"
#include "normal.hpp"

namespace et_replay::planner {

// A segment tree over the slots. An item is stored at the O(log slots) nodes that make up its
// spans. Each node knows two unions of addresses: `cover`, what is stored at it, which is taken in
// all of its slots, and `any`, what is taken in one of its slots or more.
//
//   slots     0    1    2    3        An item that lives in slots 1 to 3 is stored at the nodes 1
//           [        any        ]     and 2-3. What is in its way is `any` of these two, and
//           [   any  ] [ cover  ]     `cover` of the nodes above them. Tight packings have few
//           [   ][cov] [   ][   ]     holes, so these lists are short.
class FirstFit {
 public:
  explicit FirstFit(std::int32_t slots);

  // The lowest offset at which the item fits among what is placed and ends at `limit` or below; -1
  // if there is none. Its fixed offset is not looked at.
  Bytes find(const Item& item, Bytes limit = largest_arena);
  void place(const Item& item, Bytes offset);
  void clear();

  // What is free in all of the slots [begin, end) and below `arena`, from the bottom.
  std::vector<Range> holes(std::int32_t begin, std::int32_t end, Bytes arena);

 private:
  struct Cursor {
    Range range;  // beyond all addresses after the last
    const Range* next;
    const Range* end;

    void advance() { range = next == end ? Range{nowhere, nowhere} : *next++; }
  };
  static constexpr Bytes nowhere = std::numeric_limits<Bytes>::max();

  template <class Visitor>
  void visit_stored(std::int32_t begin, std::int32_t end, Visitor visit);
  template <class Visitor>
  void visit_above(std::int32_t begin, std::int32_t end, Visitor visit);
  void gather(std::int32_t begin, std::int32_t end);
  void place(std::int32_t begin, std::int32_t end, Range range);
  Bytes climb(Bytes offset, Bytes size, Bytes alignment, Bytes highest);

  std::size_t slots_;
  std::vector<AddressUnion> cover_;
  std::vector<AddressUnion> any_;
  std::vector<Cursor> cursors_;  // of the query in progress
};

}  // namespace et_replay::planner
