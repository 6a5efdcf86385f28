// Built by halving along the wider side of the box; node 1 is the root, node leaves_ + n leaf n.
#include "unplaced.hpp"

#include <algorithm>
#include <tuple>

namespace et_replay::planner {

namespace {

constexpr std::int32_t items_per_leaf = 4;  // 2 to 8 are equally fast

}  // namespace

Unplaced::Unplaced(const std::vector<Item>& items)
    : items_(items), state_(items.size(), State::free), leaf_of_(items.size(), -1) {
  const auto count = static_cast<std::int32_t>(items.size());
  for (std::int32_t item = 0; item < count; ++item) {
    if (!items[item].lives_twice()) order_.push_back(item);
  }
  while (leaves_ * items_per_leaf < static_cast<std::int32_t>(order_.size())) leaves_ *= 2;
  boxes_.resize(2 * static_cast<std::size_t>(leaves_));
  build(1, 0, leaves_);
}

void Unplaced::build(std::int32_t node, std::int32_t first_leaf, std::int32_t leaves) {
  const auto first = order_.begin() + first_of(first_leaf);
  const auto last = order_.begin() + first_of(first_leaf + leaves);
  if (node >= leaves_) {
    for (auto item = first; item != last; ++item) leaf_of_[*item] = node;
    return;
  }
  Box box;
  for (auto item = first; item != last; ++item) box.add(box_of(*item));
  const bool by_begin = box.last_begin - box.first_begin >= box.last_end - box.first_end;
  const auto key = [&](std::int32_t index) {
    const Item& item = items_[index];
    return by_begin ? std::make_tuple(item.begin, item.end, index)
                    : std::make_tuple(item.end, item.begin, index);
  };
  const auto middle = order_.begin() + first_of(first_leaf + leaves / 2);
  if (middle != last) {
    std::nth_element(first, middle, last, [&](std::int32_t one, std::int32_t other) {
      return key(one) < key(other);
    });
  }
  build(2 * node, first_leaf, leaves / 2);
  build(2 * node + 1, first_leaf + leaves / 2, leaves / 2);
}

void Unplaced::reset(const std::vector<std::int32_t>& ranks) {
  ranks_ = &ranks;
  std::fill(state_.begin(), state_.end(), State::free);
  for (std::int32_t node = 2 * leaves_ - 1; node >= 1; --node) refresh(node);
}

Unplaced::Box Unplaced::box_of(std::int32_t index) const {
  const Item& item = items_[index];
  const bool ranked = ranks_ != nullptr && state_[index] == State::free;
  return {item.begin, item.begin, item.end, item.end, ranked ? (*ranks_)[index] : none};
}

void Unplaced::Box::add(const Box& other) {
  first_begin = std::min(first_begin, other.first_begin);
  last_begin = std::max(last_begin, other.last_begin);
  first_end = std::min(first_end, other.first_end);
  last_end = std::max(last_end, other.last_end);
  best = std::min(best, other.best);
}

void Unplaced::refresh(std::int32_t node) {
  Box box;
  if (node < leaves_) {
    box = boxes_[2 * node];
    box.add(boxes_[2 * node + 1]);
  } else {
    each(node, [&](std::int32_t item) { box.add(box_of(item)); });
  }
  boxes_[node] = box;
}

void Unplaced::set(std::int32_t item, State state) {
  state_[item] = state;
  for (std::int32_t node = leaf_of_[item]; node >= 1; node /= 2) refresh(node);
}

std::int32_t Unplaced::best_within(std::int32_t from, std::int32_t to) const {
  std::int32_t rank = none;
  best(1, {from, to}, rank);
  return rank;
}

void Unplaced::best(std::int32_t node, const Window& window, std::int32_t& rank) const {
  const Box& box = boxes_[node];
  if (box.best >= rank || !box.reaches(window)) return;
  if (box.inside(window)) {
    rank = box.best;
  } else if (node < leaves_) {
    const bool left_first = boxes_[2 * node].best <= boxes_[2 * node + 1].best;
    best(2 * node + (left_first ? 0 : 1), window, rank);
    best(2 * node + (left_first ? 1 : 0), window, rank);
  } else {
    each(node, [&](std::int32_t item) {
      if (window.holds(items_[item])) rank = std::min(rank, box_of(item).best);
    });
  }
}

bool Unplaced::any_within(std::int32_t from, std::int32_t to) const { return any(1, {from, to}); }

bool Unplaced::any(std::int32_t node, const Window& window) const {
  const Box& box = boxes_[node];
  if (!box.reaches(window)) return false;
  if (box.inside(window)) return true;
  if (node < leaves_) return any(2 * node, window) || any(2 * node + 1, window);
  bool found = false;
  each(node, [&](std::int32_t item) { found |= window.holds(items_[item]); });
  return found;
}

void Unplaced::spread(std::int32_t begin, std::int32_t end, std::int32_t& from,
                      std::int32_t& to) const {
  Window window{from, to};
  spread(1, {begin, end}, window);
  from = window.from;
  to = window.to;
}

void Unplaced::spread(std::int32_t node, const Window& span, Window& window) const {
  const Box& box = boxes_[node];
  if (box.first_begin >= span.to || box.last_end <= span.from || box.inside(window)) return;
  if (box.last_begin < span.to && box.first_end > span.from) {
    window.from = std::min(window.from, box.first_begin);
    window.to = std::max(window.to, box.last_end);
  } else if (node < leaves_) {
    spread(2 * node, span, window);
    spread(2 * node + 1, span, window);
  } else {
    each(node, [&](std::int32_t index) {
      const Item& item = items_[index];
      if (item.begin >= span.to || item.end <= span.from) return;
      window.from = std::min(window.from, item.begin);
      window.to = std::max(window.to, item.end);
    });
  }
}

}  // namespace et_replay::planner
