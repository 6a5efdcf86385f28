// A sweep over the ticks at which something begins or ends.
#include "sweep.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace et_replay::planner {

namespace {

using Change = std::pair<Time, Bytes>;

void add(std::vector<Change>& changes, const Span& span, Bytes size) {
  if (span.empty()) return;
  changes.emplace_back(span.start, size);
  changes.emplace_back(span.end, -size);
}

// What is pinned counts from the bottom of the arena to its end.
Bytes highest_fixed_end(const Problem& problem) {
  Bytes highest = 0;
  for (const Buffer& buffer : problem) {
    if (buffer.takes_memory() && buffer.fixed >= 0) {
      highest = std::max(highest, buffer.fixed + buffer.size);
    }
  }
  return highest;
}

}  // namespace

Bytes lower_bound(const Problem& problem) {
  std::vector<Change> changes;
  changes.reserve(2 * problem.size());
  for (const Buffer& buffer : problem) {
    if (!buffer.takes_memory()) continue;
    if (buffer.size > largest_arena / 2) throw std::overflow_error("A buffer is too large.");
    add(changes, buffer.span, buffer.size);
    add(changes, buffer.again, buffer.size);
  }
  // At one tick ends come before beginnings: their changes are negative.
  std::sort(changes.begin(), changes.end());
  Bytes load = 0;
  Bytes highest = 0;
  for (const auto& [time, change] : changes) {
    load += change;
    highest = std::max(highest, load);
    if (highest > largest_arena / 2) {
      throw std::overflow_error("More than 2^61 bytes live at the same time.");
    }
  }
  return std::max(highest, highest_fixed_end(problem));
}

}  // namespace et_replay::planner
