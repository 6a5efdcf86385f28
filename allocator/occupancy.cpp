// Neighbours by rank among the places of the plan, by offset among the others.
#include "occupancy.hpp"

#include <algorithm>
#include <iterator>

namespace et_replay {

Occupancy::Occupancy(const Schedule& schedule, Bytes arena)
    : arena_(arena), ranks_(schedule.places()), places_(schedule.places()) {
  for (const Schedule::Row& row : schedule.rows()) {
    if (row.rank != no_rank) places_[static_cast<std::size_t>(row.rank)].begin = row.offset;
  }
}

// The rank that a place at the offset would have.
RankSet::Rank Occupancy::rank_at(Bytes offset) const {
  const auto found =
      std::lower_bound(places_.begin(), places_.end(), offset,
                       [](const Range& place, Bytes wanted) { return place.begin < wanted; });
  return static_cast<RankSet::Rank>(found - places_.begin());
}

Occupancy::Range Occupancy::gap(RankSet::Rank rank, Bytes offset) const {
  if (rank == no_rank) rank = rank_at(offset);
  Range gap{0, arena_};
  const RankSet::Rank before = ranks_.below(rank), after = ranks_.from(rank);
  if (before != RankSet::none) gap.begin = places_[static_cast<std::size_t>(before)].end;
  if (after != RankSet::none) gap.end = places_[static_cast<std::size_t>(after)].begin;
  if (others_.empty()) return gap;
  const auto next = others_.lower_bound(offset);
  if (next != others_.end()) gap.end = std::min(gap.end, next->first);
  if (next != others_.begin()) gap.begin = std::max(gap.begin, std::prev(next)->second);
  return gap;
}

void Occupancy::insert(RankSet::Rank rank, const Range& range) {
  ++count_;
  if (rank == no_rank) {
    others_.emplace(range.begin, range.end);
    return;
  }
  places_[static_cast<std::size_t>(rank)].end = range.end;
  ranks_.insert(rank);
}

void Occupancy::erase(RankSet::Rank rank, Bytes offset) {
  --count_;
  if (rank == no_rank) {
    others_.erase(offset);
  } else {
    ranks_.erase(rank);
  }
}

void Occupancy::look_for_best_fit(const Range& hole, Bytes size, Range& best) const {
  RankSet::Rank rank = ranks_.from(rank_at(hole.begin));
  auto other = others_.lower_bound(hole.begin);
  Bytes begin = std::max(hole.begin, gap(rank, hole.begin).begin);
  while (begin < hole.end) {
    Range next{arena_, arena_};  // what is in use above it
    if (rank != no_rank) next = places_[static_cast<std::size_t>(rank)];
    if (other != others_.end() && other->first < next.begin) {
      next = {other->first, other->second};
      ++other;
    } else if (rank != no_rank) {
      rank = ranks_.from(rank + 1);
    }
    const Bytes end = std::min(next.begin, hole.end);
    if (end - begin >= size && end - begin < best.end - best.begin) best = {begin, end};
    begin = next.end;
  }
}

}  // namespace et_replay
