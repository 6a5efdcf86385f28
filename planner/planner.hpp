// The front door: a problem in; offsets, checked, out.
#pragma once

#include <stdexcept>
#include <string>

#include "deadline.hpp"
#include "problem.hpp"

namespace et_replay::planner {

// How long to go on where the lower bound is not reached: `best` takes about ten times as many
// steps as `fast`.
enum class Level { fast, best };

struct Effort {
  Level level = Level::fast;
  double timeout = 0;    // seconds after which the best plan so far is returned; 0: none. Without
                         // it the answer depends on the problem and the level alone
  unsigned threads = 2;  // changes the time, never the answer
};

struct Answer {
  Offsets offsets;
  Bytes arena = 0;
  Bytes lower_bound = 0;
  bool proven = false;  // no smaller arena is possible: the bound is reached, or the search has
                        // been exhaustive
  std::string method;   // what made the part that needs the most
};

struct Cancelled : std::runtime_error {
  Cancelled() : std::runtime_error("The planner was cancelled.") {}
};

// Throws std::invalid_argument or std::overflow_error with a sentence where the problem is none,
// std::logic_error where the answer does not pass `find_fault`.
Answer plan(const Problem& problem, const Effort& effort);

// As above; `stop` may be set by another thread. Throws Cancelled once it is cancelled.
Answer plan(const Problem& problem, const Effort& effort, Stop& stop);

}  // namespace et_replay::planner
