// Looks at each buffer, then walks through time with a map of the fixed ones.
#include "checks.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>

namespace et_replay::planner {

namespace {

std::string name(std::size_t index) { return "buffer " + std::to_string(index); }

void check_buffer(const Buffer& buffer, std::size_t index) {
  const auto who = [index] { return "Buffer " + std::to_string(index); };
  if (buffer.size < 0) {
    throw std::invalid_argument(who() + " has the negative size " + std::to_string(buffer.size) +
                                ".");
  }
  if (buffer.alignment <= 0) {
    throw std::invalid_argument(who() + " has the alignment " + std::to_string(buffer.alignment) +
                                ", expected a positive one.");
  }
  if (!buffer.takes_memory()) return;
  const Bytes fixed = std::max<Bytes>(buffer.fixed, 0);
  for (const Bytes bytes : {buffer.size, buffer.alignment, fixed}) {
    if (bytes > largest_arena / 2) throw std::overflow_error(who() + " is too large.");
  }
  if (fixed % buffer.alignment != 0) {
    throw std::invalid_argument(who() + " has the fixed offset " + std::to_string(fixed) +
                                ", which is no multiple of its alignment " +
                                std::to_string(buffer.alignment) + ".");
  }
  if (!buffer.again.empty() && !buffer.span.empty() && buffer.span.overlaps(buffer.again)) {
    throw std::invalid_argument(who() + " has two spans that overlap.");
  }
}

struct Event {
  Time time;
  bool begins;  // ends come first: spans are half-open
  std::size_t buffer;

  bool operator<(const Event& other) const {
    return std::tie(time, begins, buffer) < std::tie(other.time, other.begins, other.buffer);
  }
};

std::vector<Event> events_of_fixed(const Problem& problem) {
  std::vector<Event> events;
  for (std::size_t index = 0; index < problem.size(); ++index) {
    const Buffer& buffer = problem[index];
    if (buffer.fixed < 0 || !buffer.takes_memory()) continue;
    for (const Span& span : {buffer.span, buffer.again}) {
      if (span.empty()) continue;
      events.push_back({span.start, true, index});
      events.push_back({span.end, false, index});
    }
  }
  std::sort(events.begin(), events.end());
  return events;
}

void check_fixed(const Problem& problem) {
  std::map<Bytes, std::size_t> live;  // by offset
  for (const Event& event : events_of_fixed(problem)) {
    const Buffer& buffer = problem[event.buffer];
    if (!event.begins) {
      live.erase(buffer.fixed);
      continue;
    }
    const auto above = live.upper_bound(buffer.fixed);
    auto other = live.end();
    if (above != live.end() && above->first < buffer.fixed + buffer.size) other = above;
    if (above != live.begin()) {
      const auto below = std::prev(above);
      if (below->first + problem[below->second].size > buffer.fixed) other = below;
    }
    if (other != live.end()) {
      throw std::invalid_argument("The fixed offsets of " + name(other->second) + " and " +
                                  name(event.buffer) + " overlap at time " +
                                  std::to_string(event.time) + ".");
    }
    live.emplace(buffer.fixed, event.buffer);
  }
}

}  // namespace

void check_problem(const Problem& problem) {
  bool any_fixed = false;
  for (std::size_t index = 0; index < problem.size(); ++index) {
    check_buffer(problem[index], index);
    any_fixed |= problem[index].fixed >= 0;
  }
  if (any_fixed) check_fixed(problem);
}

}  // namespace et_replay::planner
