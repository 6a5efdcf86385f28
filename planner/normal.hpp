// A problem in; the independent parts that are left to solve, in whole units and short time, out.
//
// What is taken away loses nothing: the best arena stays the same.
// 1. Buffers of no size or no time are dropped.
// 2. Every offset is a multiple of the common divisor of the alignments, so sizes are rounded up
//    to it; then sizes, alignments and fixed offsets are divided by the common unit. Mostly that
//    leaves alignment 1.
// 3. Time becomes slots: a run of births and the run of deaths that follows it are one slot.
//
//      ticks   0   1   2   3   4   5   6       slots  0  1
//      a       [---------------)               a      [--)
//      b           [-------)                   b      [--)
//      c                       [-------)       c         [--)     born after a death: a new slot
//
//    Two items live at the same time exactly if they share a slot.
// 4. Items that live in all slots (weights) are laid at the bottom, one after another.
// 5. Where no item crosses from one slot to the next the time is cut; parts that no item joins
//    share the addresses above the residents. In each part 4 and 5 are repeated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace et_replay::planner {

// So many buffers can be tried in every order (9! are 362,880). Their sizes are not rounded up, as
// the last one's padding would count.
constexpr std::size_t few = 9;

// A buffer of a part. Its spans are slots, half-open; the first is never empty, the second is
// empty for most and then begins and ends where the first ends. Else it is later, with a gap
// between the two.
struct Item {
  Bytes size = 0;       // in units, as all bytes of a part; never 0
  Bytes alignment = 1;  // in units
  Bytes fixed = -1;     // the offset that it must have; -1: any
  std::int32_t begin = 0, end = 0;
  std::int32_t begin_again = 0, end_again = 0;
  Time start = 0;  // the first tick, the last key of every order: slots forget who came first

  bool lives_twice() const { return begin_again < end_again; }
  std::int32_t slots() const { return end - begin + end_again - begin_again; }
  bool meets(const Item& other) const {
    return (begin < other.end && other.begin < end) ||
           (begin_again < other.end && other.begin < end_again) ||
           (begin < other.end_again && other.begin_again < end) ||
           (begin_again < other.end_again && other.begin_again < end_again);
  }
};

struct Part {
  std::vector<Item> items;
  std::int32_t slots = 0;
  std::vector<Bytes> load;  // what lives in each slot
  Bytes lower_bound = 0;    // no arena of this part is smaller: the highest load or fixed end
  Bytes target = 0;         // >= lower_bound; a smaller arena helps nobody, since another part
                            // needs as much. Solvers stop here
};

// The parts and how they lie in the problem that they were made from.
struct Normal {
  std::vector<Part> parts;
  std::vector<std::vector<std::uint32_t>> buffers;  // of each part: the buffer of each item
  std::vector<Bytes> bases;                         // of each part: where it begins, in units
  std::vector<std::uint32_t> residents;             // the buffers laid below the parts
  std::vector<Bytes> resident_offsets;              // their offsets, in units
  Bytes unit = 1;                                   // bytes
  Bytes lower_bound = 0;                            // bytes; no arena of the problem is smaller
};

// Throws std::invalid_argument, with a sentence that names the buffers by index, where a size is
// negative, an alignment not positive, a fixed offset misaligned, or where the two spans of a
// buffer or two fixed buffers overlap; std::overflow_error as `lower_bound` does.
Normal make_normal(const Problem& problem);

// The offsets in a problem of `buffers` buffers, from the offsets of the items of each part.
Offsets denormalise(const Normal& normal, const std::vector<Offsets>& parts, std::size_t buffers);

// The arena that the offsets of a part need.
Bytes arena_of(const Part& part, const Offsets& offsets);

}  // namespace et_replay::planner
