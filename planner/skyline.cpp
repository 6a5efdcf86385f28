// Node 1 is the root, node leaves_ + slot a leaf. Marks are never pushed down: a slot is as high as
// the highest mark on its way to the root.
#include "skyline.hpp"

#include <algorithm>

namespace et_replay::planner {

Skyline::Skyline(std::int32_t slots) : slots_(slots) {
  while (leaves_ < slots) leaves_ *= 2;
  top_.assign(2 * static_cast<std::size_t>(leaves_), 0);
  mark_.assign(2 * static_cast<std::size_t>(leaves_), 0);
}

void Skyline::cover(std::int32_t node, Bytes top) {
  top_[node] = std::max(top_[node], top);
  mark_[node] = std::max(mark_[node], top);
}

void Skyline::refresh_above(std::int32_t leaf) {
  for (std::int32_t node = leaf / 2; node >= 1; node /= 2) {
    top_[node] = std::max({mark_[node], top_[2 * node], top_[2 * node + 1]});
  }
}

void Skyline::raise(std::int32_t begin, std::int32_t end, Bytes top) {
  std::int32_t left = begin + leaves_;
  std::int32_t right = end + leaves_;
  for (; left < right; left /= 2, right /= 2) {
    if (left % 2 == 1) cover(left++, top);
    if (right % 2 == 1) cover(--right, top);
  }
  refresh_above(begin + leaves_);
  refresh_above(end - 1 + leaves_);
}

Bytes Skyline::highest_mark(std::int32_t node) const {
  Bytes height = 0;
  for (; node >= 1; node /= 2) height = std::max(height, mark_[node]);
  return height;
}

Bytes Skyline::at(std::int32_t slot) const { return highest_mark(slot + leaves_); }

Bytes Skyline::highest(std::int32_t begin, std::int32_t end) const {
  Bytes height = std::max(highest_mark(begin + leaves_), highest_mark(end - 1 + leaves_));
  std::int32_t left = begin + leaves_;
  std::int32_t right = end + leaves_;
  for (; left < right; left /= 2, right /= 2) {
    if (left % 2 == 1) height = std::max(height, top_[left++]);
    if (right % 2 == 1) height = std::max(height, top_[--right]);
  }
  return height;
}

// Up to the first neighbour that holds something higher, then down to its nearest such slot. Marks
// above a neighbour cover `slot` too, so they are not higher than the limit.
std::int32_t Skyline::reach_left(std::int32_t slot, Bytes limit) const {
  std::int32_t node = slot + leaves_;
  while (node > 1 && (node % 2 == 0 || top_[node - 1] <= limit)) node /= 2;
  if (node <= 1) return 0;
  --node;
  bool all = false;  // slots of the node are higher
  while (node < leaves_) {
    all = all || mark_[node] > limit;
    node = 2 * node + (all || top_[2 * node + 1] > limit ? 1 : 0);
  }
  return node - leaves_ + 1;
}

std::int32_t Skyline::reach_right(std::int32_t slot, Bytes limit) const {
  std::int32_t node = slot + leaves_;
  while (node > 1 && (node % 2 == 1 || top_[node + 1] <= limit)) node /= 2;
  if (node <= 1) return slots_;
  ++node;
  bool all = false;  // slots of the node are higher
  while (node < leaves_) {
    all = all || mark_[node] > limit;
    node = 2 * node + (all || top_[2 * node] > limit ? 0 : 1);
  }
  return node - leaves_;
}

}  // namespace et_replay::planner
