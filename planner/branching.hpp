// A partial packing in; the item to decide on, whether it comes next, out. Of the answers a rule
// may give none is wrong, but some lead to conflicts sooner: these are the rules that did.
#pragma once

#include <cstdint>
#include <vector>

#include "partial_packing.hpp"
#include "random.hpp"

namespace et_replay::planner {

enum class Rule : std::uint8_t {
  lowest_failing,  // the lowest offset; of these the item that crosses the slot most often too full
  lowest_loaded,   // the lowest offset; of these the item with most still to come in its slots
  lowest_high,     // the lowest offset; of these the item in the slot nearest to the capacity
  failing,         // the offset against how often the item's slots were too full
  tightest,        // in the slot where the fewest items can come first and that failed most often
};

// Which of two items comes first where a rule leaves that open: the larger of
enum class Rank : std::uint8_t { width, load_and_area, load_and_width, area, size };

// Of each item its place in the order. `noise` is how much keys vary, in hundredths of a power
// of e.
std::vector<PartialPacking::Index> ranks_of(const Part& part, Rank rank, std::int64_t noise,
                                            Random& random);

// One of the items; those that are placed are passed over. Something is left.
PartialPacking::Index choose(PartialPacking& packing, Rule rule,
                             const std::vector<PartialPacking::Index>& items,
                             const std::vector<PartialPacking::Index>& ranks);

}  // namespace et_replay::planner
