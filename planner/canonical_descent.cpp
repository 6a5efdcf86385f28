#include "canonical_descent.hpp"

#include <algorithm>
#include <functional>
#include <limits>

namespace et_replay::planner {

namespace {

constexpr Bytes endless = std::numeric_limits<Bytes>::max() / 4;
constexpr std::size_t raises_tried = 16;  // blocked items looked at for the least raise

}  // namespace

CanonicalDescent::CanonicalDescent(const Part& part)
    : part_(part), frontier_(part), look_ahead_(frontier_) {}

void CanonicalDescent::reset(const std::vector<std::uint32_t>& order, Bytes capacity) {
  order_.assign(order.begin(), order.end());
  ranks_.resize(order.size());
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    ranks_[order[rank]] = static_cast<std::int32_t>(rank);
  }
  frontier_.reset(ranks_);
  look_ahead_.reset();
  offsets_.assign(order.size(), 0);
  is_blocked_.assign(order.size(), false);
  blocked_.clear();
  lowest_blocked_top_ = endless;
  runs_.clear();
  left_ = order.size();
  capacity_ = capacity;
  if (left_ > 0) push(0);
}

bool CanonicalDescent::run(const std::vector<std::uint32_t>& order, const Aim& aim,
                           Budget& budget) {
  reset(order, aim.capacity);
  bool on = true;
  while (on && left_ > 0 && !budget.spent()) {
    const std::int64_t before = steps_ + look_ahead_.slots_seen() / slots_per_step;
    on = step() || raise_capacity(aim.limit);
    budget.steps -= steps_ + look_ahead_.slots_seen() / slots_per_step - before;
  }
  return left_ == 0;
}

// False where all that is left is refused.
bool CanonicalDescent::step() {
  ++steps_;
  const bool exhausted = runs_.empty();
  const Bytes height = exhausted ? endless : runs_.front().height;
  const std::int32_t twice = twice_below(height);
  if (twice != Unplaced::none) {
    attempt(twice, frontier_.offset_of(twice));
    return true;
  }
  if (exhausted || height >= lowest_blocked_top_) return false;
  const Run lowest = runs_.front();
  std::pop_heap(runs_.begin(), runs_.end(), std::greater<>());
  runs_.pop_back();
  if (frontier_.skyline.at(lowest.slot) == lowest.height) fill(lowest);
  return true;
}

void CanonicalDescent::fill(const Run& run) {
  const std::int32_t from = frontier_.skyline.reach_left(run.slot, run.height);
  const std::int32_t to = frontier_.skyline.reach_right(run.slot, run.height);
  const std::int32_t rank = frontier_.unplaced.best_within(from, to);
  if (rank != Unplaced::none) {
    const std::int32_t item = order_[rank];
    attempt(item, Frontier::aligned(run.height, part_.items[item].alignment));
    push(run.slot);
  } else if (!frontier_.unplaced.any_within(from, to)) {
    level(run, from, to);
  }
}

// Items that live twice lie within no run, but may yet come to rest in this one.
void CanonicalDescent::level(const Run& run, std::int32_t from, std::int32_t to) {
  Bytes height = endless;
  if (from > 0) height = frontier_.skyline.at(from - 1);
  if (to < part_.slots) height = std::min(height, frontier_.skyline.at(to));
  for (std::int32_t index : frontier_.twice) {
    const Item& item = part_.items[index];
    const bool here = (item.begin < to && from < item.end) ||
                      (item.begin_again < to && from < item.end_again);
    if (here) height = std::min(height, frontier_.offset_of(index));
  }
  if (height == endless || height <= run.height) return;
  frontier_.skyline.raise(from, to, height);
  push(from);
}

// The one that lives twice and can begin lowest, at `height` or below, if it is not blocked.
std::int32_t CanonicalDescent::twice_below(Bytes height) {
  std::int32_t lowest = Unplaced::none;
  for (std::int32_t index : frontier_.twice) {
    if (is_blocked_[index] || offsets_[index] > height) continue;
    offsets_[index] = frontier_.offset_of(index);  // until now the one of long ago, a lower bound
    if (offsets_[index] > height) continue;
    const bool first = lowest == Unplaced::none || offsets_[index] < offsets_[lowest] ||
                       (offsets_[index] == offsets_[lowest] && ranks_[index] < ranks_[lowest]);
    if (first) lowest = index;
  }
  return lowest;
}

bool CanonicalDescent::attempt(std::int32_t item, Bytes offset) {
  ++steps_;
  const bool allowed = look_ahead_.allows(item, offset, capacity_);
  allowed ? place(item, offset) : block(item, offset);
  return allowed;
}

void CanonicalDescent::place(std::int32_t item, Bytes offset) {
  offsets_[item] = offset;
  --left_;
  frontier_.place(item, offset);
  Frontier::each_span(part_.items[item], [&](std::int32_t begin, std::int32_t end) {
    if (begin > 0) push(begin - 1);
    push(begin);
    if (end < part_.slots) push(end);
  });
  release_above(item, offset + part_.items[item].size);
}

void CanonicalDescent::block(std::int32_t item, Bytes offset) {
  offsets_[item] = offset;
  is_blocked_[item] = true;
  blocked_.push_back(item);
  frontier_.unplaced.block(item);
  lowest_blocked_top_ = std::min(lowest_blocked_top_, offset + part_.items[item].size);
}

// Frees what the placed item lifts.
void CanonicalDescent::release_above(std::int32_t item, Bytes top) {
  std::size_t kept = 0;
  lowest_blocked_top_ = endless;
  for (std::int32_t other : blocked_) {
    if (offsets_[other] < top && part_.items[other].meets(part_.items[item])) {
      is_blocked_[other] = false;
      frontier_.unplaced.release(other);
    } else {
      blocked_[kept++] = other;
      lowest_blocked_top_ =
          std::min(lowest_blocked_top_, offsets_[other] + part_.items[other].size);
    }
  }
  blocked_.resize(kept);
}

// With a larger capacity all may be tried again, at the runs on which they lie.
void CanonicalDescent::release_all() {
  for (std::int32_t index : blocked_) {
    is_blocked_[index] = false;
    frontier_.unplaced.release(index);
    const Item& item = part_.items[index];
    const Bytes height = frontier_.skyline.highest(item.begin, item.end);
    const bool first = frontier_.skyline.at(item.begin) == height;
    push(first ? item.begin : frontier_.skyline.reach_right(item.begin, height - 1));
  }
  blocked_.clear();
  lowest_blocked_top_ = endless;
}

bool CanonicalDescent::raise_capacity(Bytes limit) {
  if (limit <= capacity_ + 1 || blocked_.empty()) return false;
  const auto lower = [&](std::int32_t one, std::int32_t other) {
    return offsets_[one] != offsets_[other] ? offsets_[one] < offsets_[other]
                                            : ranks_[one] < ranks_[other];
  };
  std::vector<std::int32_t> candidates = blocked_;
  const std::size_t count = std::min(raises_tried, candidates.size());
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count),
                    candidates.end(), lower);
  Bytes least = endless;
  std::int32_t chosen = Unplaced::none;
  for (std::size_t at = 0; at < count; ++at) {
    const std::int32_t item = candidates[at];
    const Bytes needed = look_ahead_.needs(item, offsets_[item], capacity_);
    if (needed >= least) continue;
    least = needed;
    chosen = item;
  }
  steps_ += static_cast<std::int64_t>(count);
  if (chosen == Unplaced::none || least >= limit) return false;
  capacity_ = least;
  release_all();
  return attempt(chosen, offsets_[chosen]);
}

void CanonicalDescent::push(std::int32_t slot) {
  runs_.push_back({frontier_.skyline.at(slot), slot});
  std::push_heap(runs_.begin(), runs_.end(), std::greater<>());
}

}  // namespace et_replay::planner
