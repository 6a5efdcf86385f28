// The rows of the plan in a segment tree over the times at which they begin and end.
#include "idle_space.hpp"

#include <algorithm>

namespace et_replay {

namespace {

using Range = IdleSpace::Range;
using Ranges = IdleSpace::Ranges;

Bytes size_in_arena(const PlanRow& row) { return round_up(row.size, smallest_block); }

bool has_place(const PlanRow& row) { return row.offset != no_offset && row.size > 0; }

std::vector<Tick> bounds_of(const Schedule& schedule) {
  std::vector<Tick> bounds{0, schedule.period()};
  for (const PlanRow& row : schedule.rows()) {
    if (!has_place(row)) continue;
    const TickSpans spans(row.start, row.end, schedule.period());
    bounds.insert(bounds.end(), {spans.begin, spans.stop, spans.again});
  }
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  return bounds;
}

Ranges both(const Ranges& left, const Ranges& right) {
  Ranges result;
  for (std::size_t i = 0, j = 0; i < left.size() && j < right.size();) {
    const Bytes begin = std::max(left[i].begin, right[j].begin);
    const Bytes end = std::min(left[i].end, right[j].end);
    if (begin < end) result.push_back({begin, end});
    ++(left[i].end < right[j].end ? i : j);
  }
  return result;
}

// What of [0, top) lies in none of the ranges.
Ranges outside(const planner::AddressUnion& ranges, Bytes top) {
  Ranges result;
  Bytes begin = 0;
  for (const Range& range : ranges) {
    if (begin < range.begin) result.push_back({begin, range.begin});
    begin = range.end;
  }
  if (begin < top) result.push_back({begin, top});
  return result;
}

}  // namespace

IdleSpace::IdleSpace(const Schedule& schedule)
    : period_(schedule.period()),
      bounds_(bounds_of(schedule)),
      taken_(static_cast<std::int32_t>(bounds_.size() - 1)) {
  std::map<Stream, planner::AddressUnion> rows;
  for (const Schedule::Row& row : schedule.rows()) {
    if (!has_place(row)) continue;
    const Range range{row.offset, row.offset + size_in_arena(row)};
    rows[row.stream].insert(range);
    top_ = std::max(top_, range.end);
    place(row);
  }
  for (const auto& [stream, own] : rows) {
    Ranges& places = places_[stream];
    places.assign(own.begin(), own.end());
    for (const auto& [other, taken] : rows) {
      if (other != stream) places = both(places, outside(taken, top_));
    }
  }
}

void IdleSpace::place(const Schedule::Row& row) {
  const TickSpans spans(row.start, row.end, period_);
  const Slots first = slots_of(spans.begin, spans.stop), again = slots_of(0, spans.again);
  planner::Item item;
  item.size = size_in_arena(row);
  item.begin = first.begin;
  item.end = first.end;
  item.begin_again = again.begin;
  item.end_again = again.end;
  taken_.place(item, row.offset);
}

IdleSpace::Slots IdleSpace::slots_of(Tick begin, Tick end) const {
  const auto index = [&](auto bound) { return static_cast<std::int32_t>(bound - bounds_.begin()); };
  const auto after = std::upper_bound(bounds_.begin(), bounds_.end(), begin);
  const auto stop = std::lower_bound(bounds_.begin(), bounds_.end(), end);
  const auto last = static_cast<std::int32_t>(bounds_.size() - 1);
  return {std::max(index(after) - 1, 0), std::min(index(stop), last)};
}

const IdleSpace::Ranges& IdleSpace::holes(Stream stream, Tick start, Tick end) {
  const Key key{stream, start, end};
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  Ranges ranges = work_out(stream, start, end);
  if (kept_ + ranges.size() > most_kept) {
    known_.clear();
    kept_ = 0;
  }
  kept_ += ranges.size();
  return known_.emplace(key, std::move(ranges)).first->second;
}

IdleSpace::Ranges IdleSpace::work_out(Stream stream, Tick start, Tick end) {
  const auto places = places_.find(stream);
  if (places == places_.end()) return {};
  const TickSpans spans(start, end, period_);
  Ranges free = both(places->second, holes(spans.begin, spans.stop));
  return spans.again > 0 ? both(free, holes(0, spans.again)) : free;
}

std::size_t IdleSpace::Hash::operator()(const Key& key) const {
  const auto [stream, start, end] = key;
  std::uint64_t hash = 0;
  for (const auto value : {static_cast<std::uint64_t>(stream), static_cast<std::uint64_t>(start),
                           static_cast<std::uint64_t>(end)}) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  return static_cast<std::size_t>(hash);
}

IdleSpace::Ranges IdleSpace::holes(Tick begin, Tick end) {
  const Slots slots = slots_of(begin, end);
  return slots.begin < slots.end ? taken_.holes(slots.begin, slots.end, top_)
                                 : Ranges{{0, top_}};
}

}  // namespace et_replay
