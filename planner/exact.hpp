// A part of up to some 1500 items in; offsets with a smaller arena than the one that is known, or
// the proof that there are none, out.
#pragma once

#include <memory>
#include <optional>

#include "budget.hpp"
#include "normal.hpp"

namespace et_replay::planner {

struct SearchResult {
  std::optional<Offsets> offsets;  // need less than the incumbent; nothing if none were found
  Bytes proven_bound = 0;          // no arena is smaller
};

class ExactSearch {
 public:
  // The part must live as long.
  explicit ExactSearch(const Part& part);
  ~ExactSearch();

  // Stops at the part's target. `incumbent` is the smallest arena known, or anything larger than
  // any. Another call goes on where this one stopped. A step of the budget is about a microsecond;
  // the answer depends on the numbers of steps alone.
  SearchResult improve(Bytes incumbent, Budget& budget);

 private:
  class Attempts;
  std::unique_ptr<Attempts> attempts_;
};

// The same in one call.
SearchResult search(const Part& part, Bytes incumbent, Budget& budget);

}  // namespace et_replay::planner
