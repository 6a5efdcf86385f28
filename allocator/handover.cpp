// Ranges by their begins; what is taken is cut out of them.
#include "handover.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace et_replay {

Handover::Moment Handover::leave(Address begin, Address end, Stream stream) {
  cut(begin, end);
  insert(begin, {end, stream, next_});
  return next_++;
}

std::vector<Handover::Moment> Handover::take(Address begin, Address end, Stream stream) {
  std::vector<Moment> moments;
  for (auto at = first_in(begin); at != left_.end() && at->first < end; ++at) {
    const Left& left = at->second;
    if (left.stream == stream) continue;
    if (std::find(moments.begin(), moments.end(), left.moment) == moments.end()) {
      moments.push_back(left.moment);
    }
  }
  cut(begin, end);
  return moments;
}

std::vector<Handover::Moment> Handover::forgotten() { return std::exchange(forgotten_, {}); }

// The first range that ends behind `begin`.
Handover::Ranges::iterator Handover::first_in(Address begin) {
  const auto after = left_.upper_bound(begin);
  if (after == left_.begin()) return after;
  const auto before = std::prev(after);
  return before->second.end > begin ? before : after;
}

void Handover::cut(Address begin, Address end) {
  for (auto at = first_in(begin); at != left_.end() && at->first < end;) {
    const Address first = at->first;
    const Left left = at->second;
    at = left_.erase(at);
    if (first < begin) insert(first, {begin, left.stream, left.moment});
    if (end < left.end) insert(end, left);
    drop(left.moment);
  }
}

void Handover::insert(Address begin, const Left& left) {
  left_.emplace(begin, left);
  ++ranges_of_[left.moment];
}

void Handover::drop(Moment moment) {
  const auto found = ranges_of_.find(moment);
  if (--found->second > 0) return;
  ranges_of_.erase(found);
  forgotten_.push_back(moment);
}

}  // namespace et_replay
