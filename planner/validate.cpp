// Walks through time with a map of the live ranges.
#include "validate.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

namespace et_replay::planner {

namespace {

std::string name(std::size_t index) { return "buffer " + std::to_string(index); }

std::string misplaced(const Buffer& buffer, Bytes offset, Bytes arena) {
  if (offset < 0) return "has the negative offset " + std::to_string(offset);
  if (offset % buffer.alignment != 0) {
    return "has offset " + std::to_string(offset) + ", which is no multiple of its alignment " +
           std::to_string(buffer.alignment);
  }
  if (buffer.fixed >= 0 && offset != buffer.fixed) {
    return "has offset " + std::to_string(offset) + ", expected " + std::to_string(buffer.fixed);
  }
  if (buffer.size > arena || offset > arena - buffer.size) {
    return "ends beyond the arena of " + std::to_string(arena) + " bytes";
  }
  return "";
}

struct Event {
  Time time;
  bool begins;  // ends come first: spans are half-open
  std::size_t buffer;

  bool operator<(const Event& other) const {
    return std::tie(time, begins, buffer) < std::tie(other.time, other.begins, other.buffer);
  }
};

std::vector<Event> events_of(const Problem& problem, const Offsets& offsets) {
  std::vector<Event> events;
  for (std::size_t index = 0; index < problem.size(); ++index) {
    if (!problem[index].takes_memory() || offsets[index] < 0) continue;
    for (const Span& span : {problem[index].span, problem[index].again}) {
      if (span.empty()) continue;
      events.push_back({span.start, true, index});
      events.push_back({span.end, false, index});
    }
  }
  std::sort(events.begin(), events.end());
  return events;
}

}  // namespace

std::optional<Overlap> find_overlap(const Problem& problem, const Offsets& offsets) {
  std::map<Bytes, std::size_t> live;  // by offset
  for (const Event& event : events_of(problem, offsets)) {
    const Bytes offset = offsets[event.buffer];
    if (!event.begins) {
      live.erase(offset);
      continue;
    }
    const auto behind = live.lower_bound(offset);
    const Bytes end = offset + problem[event.buffer].size;
    if (behind != live.end() && behind->first < end) {
      return Overlap{behind->second, event.buffer, event.time};
    }
    if (behind != live.begin()) {
      const auto before = std::prev(behind);
      if (before->first + problem[before->second].size > offset) {
        return Overlap{before->second, event.buffer, event.time};
      }
    }
    live.emplace(offset, event.buffer);
  }
  return std::nullopt;
}

std::string find_fault(const Problem& problem, const Offsets& offsets, Bytes arena) {
  if (offsets.size() != problem.size()) return "The plan has another number of buffers.";
  for (std::size_t index = 0; index < problem.size(); ++index) {
    if (!problem[index].takes_memory()) continue;
    const std::string fault = misplaced(problem[index], offsets[index], arena);
    if (!fault.empty()) return "In the plan " + name(index) + " " + fault + ".";
  }
  const auto overlap = find_overlap(problem, offsets);
  if (!overlap) return "";
  return "In the plan " + name(overlap->older) + " and " + name(overlap->younger) +
         " overlap at time " + std::to_string(overlap->time) + ".";
}

}  // namespace et_replay::planner
