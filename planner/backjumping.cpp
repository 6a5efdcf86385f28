// Levels number the decisions "comes next" on the current path; the others follow from conflicts.
#include "backjumping.hpp"

#include <algorithm>

namespace et_replay::planner {

Outcome Backjumping::run(Bytes capacity, std::int64_t nodes, std::int64_t work) {
  const auto items = static_cast<std::size_t>(packing_.items());
  decision_ = LevelSet(items);
  conflict_ = LevelSet(items);
  nodes_ = nodes;
  level_ = 0;
  last_work_ = packing_.work() + work;
  packing_.begin(capacity);
  if (!packing_.infer()) return Outcome::impossible;
  return solve({0, packing_.slots()});
}

bool Backjumping::spent() {
  if (--nodes_ < 0 || packing_.work() > last_work_) return true;
  return stop_ != nullptr && nodes_ % 256 == 0 && stop_->load(std::memory_order_relaxed);
}

std::vector<Backjumping::Index> Backjumping::left_in(const Stretch& stretch) const {
  std::vector<Index> items;
  for (Index slot = stretch.begin; slot < stretch.end; ++slot) {
    const Index* left = packing_.left_in(slot);
    items.insert(items.end(), left, left + packing_.count_in(slot));
  }
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  return items;
}

// The slots in which something is left, cut wherever nothing that is left goes on.
std::vector<Backjumping::Stretch> Backjumping::stretches_left(const Stretch& stretch) const {
  std::vector<Stretch> stretches;
  Index begin = -1;
  for (Index slot = stretch.begin; slot < stretch.end; ++slot) {
    if (packing_.count_in(slot) > 0 && begin < 0) begin = slot;
    if (begin < 0 || (slot + 1 < stretch.end && !packing_.is_cut(slot))) continue;
    stretches.push_back({begin, slot + 1});
    begin = -1;
  }
  return stretches;
}

Outcome Backjumping::solve(const Stretch& stretch) { return solve(stretch, left_in(stretch)); }

// Short ones first: they are the quickest to fail.
Outcome Backjumping::solve_each(std::vector<Stretch> stretches) {
  const auto shorter = [](const Stretch& left, const Stretch& right) {
    return left.end - left.begin < right.end - right.begin;
  };
  std::stable_sort(stretches.begin(), stretches.end(), shorter);
  for (const Stretch& stretch : stretches) {
    const Outcome outcome = solve(stretch);
    if (outcome != Outcome::found) return outcome;
  }
  return Outcome::found;
}

// At `impossible` conflict_ is the set of decisions that it rests on, all of lower levels.
Outcome Backjumping::solve(Stretch stretch, const std::vector<Index>& items) {
  while (true) {
    std::vector<Stretch> stretches = stretches_left(stretch);
    if (stretches.empty()) return Outcome::found;
    if (stretches.size() > 1) return solve_each(std::move(stretches));
    stretch = stretches.front();
    if (spent()) return Outcome::spent;
    const Index item = choose(packing_, rule_, items, ranks_);
    const std::size_t level = level_;
    const Outcome outcome = decide(stretch, item, items);
    if (outcome != Outcome::impossible) return outcome;
    if (!conflict_.contains(level)) return outcome;
    conflict_.remove(level);
    if (packing_.postpone(item, conflict_) && packing_.infer()) continue;
    conflict_ = packing_.conflict();
    return Outcome::impossible;
  }
}

Outcome Backjumping::decide(const Stretch& stretch, Index item, const std::vector<Index>& items) {
  const PartialPacking::Mark mark = packing_.mark();
  const std::size_t level = level_++;
  decision_.clear();
  decision_.add(level);
  packing_.place(item, decision_);
  Outcome outcome = Outcome::impossible;
  if (packing_.infer()) {
    outcome = solve(stretch, items);
  } else {
    conflict_ = packing_.conflict();
  }
  if (outcome != Outcome::impossible) return outcome;
  packing_.undo(mark);
  level_ = level;
  return outcome;
}

}  // namespace et_replay::planner
