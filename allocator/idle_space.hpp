// A plan in; what it leaves free of a stream's memory while something lives that it does not know,
// out.
#pragma once

#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "planner/first_fit.hpp"
#include "schedule.hpp"

namespace et_replay {

// Memory that was freed on one stream must not be used by another before the work on it is known to
// be done, so a stream has only the places that the plan gives to no other.
class IdleSpace {
 public:
  using Range = planner::Range;  // of offsets in the arena
  using Ranges = std::vector<Range>;

  explicit IdleSpace(const Schedule& schedule);

  // The ranges in which no row lives that meets the ticks [start, end), from the bottom; good until
  // the next call. The same few thousand are asked for in every iteration, so they are kept.
  const Ranges& holes(Stream stream, Tick start, Tick end);

 private:
  // Slot i is the time from bounds_[i] to the next; a row lives in all of its ticks or in none.
  struct Slots {
    std::int32_t begin, end;
  };

  using Key = std::tuple<Stream, Tick, Tick>;
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  static constexpr std::size_t most_kept = 1 << 20;

  Slots slots_of(Tick begin, Tick end) const;
  void place(const Schedule::Row& row);
  Ranges work_out(Stream stream, Tick start, Tick end);
  Ranges holes(Tick begin, Tick end);

  const Tick period_;
  std::vector<Tick> bounds_;
  std::map<Stream, Ranges> places_;
  Bytes top_ = 0;  // of the highest place
  planner::FirstFit taken_;
  std::unordered_map<Key, Ranges, Hash> known_;
  std::size_t kept_ = 0;  // ranges in it
};

}  // namespace et_replay
