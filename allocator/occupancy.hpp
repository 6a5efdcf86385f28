// Which ranges of the arena are in use: the places of rows of the plan, and others.
#pragma once

#include <map>
#include <vector>

#include "planner/address_union.hpp"
#include "rank_set.hpp"
#include "schedule.hpp"

namespace et_replay {

// Most of what is in use are places of the plan. Sorted once by offset they have ranks, and finding
// their neighbours in use means looking at bits: a sorted array of what lives would cost twice as
// much with 1,000 blocks, and more with 100,000.
class Occupancy {
 public:
  using Range = planner::Range;  // of offsets
  static constexpr RankSet::Rank no_rank = RankSet::none;  // not the place of a row

  Occupancy(const Schedule& schedule, Bytes arena);

  bool empty() const { return count_ == 0; }

  // The gap at an offset: from the end of what begins below it to the begin of what does not.
  Range gap(RankSet::Rank rank, Bytes offset) const;
  void insert(RankSet::Rank rank, const Range& range);
  void erase(RankSet::Rank rank, Bytes offset);

  // Makes `best` the smallest range in `hole` that is not in use and has `size` bytes, unless it is
  // smaller already.
  void look_for_best_fit(const Range& hole, Bytes size, Range& best) const;

 private:
  RankSet::Rank rank_at(Bytes offset) const;

  const Bytes arena_;
  std::size_t count_ = 0;
  RankSet ranks_;
  std::vector<Range> places_;      // by rank; the end is that of the last use
  std::map<Bytes, Bytes> others_;  // ends by begins
};

}  // namespace et_replay
