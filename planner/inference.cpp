// What follows from the lowest offsets in a partial packing: until nothing more does, or a slot is
// too full.
#include <algorithm>

#include "partial_packing.hpp"

namespace et_replay::planner {

bool PartialPacking::infer() {
  while (true) {
    if (broken_ >= 0) {
      conflict_.clear();
      bounds_.explain(broken_, fixed_[at(broken_)] + 1, conflict_);
      clear_queues();
      return false;
    }
    bool holds = true;
    if (!queued_slots_.empty()) {
      const Index slot = queued_slots_.back();
      queued_slots_.pop_back();
      slot_is_queued_[at(slot)] = 0;
      holds = check(slot);
    } else if (!queued_items_.empty()) {
      const Index item = queued_items_.back();
      queued_items_.pop_back();
      item_is_queued_[at(item)] = 0;
      holds = lift(item);
    } else if (!forced_.empty()) {
      const Forced forced = forced_.back();
      forced_.pop_back();
      place_forced(forced);
    } else {
      return true;
    }
    if (!holds) {
      clear_queues();
      return false;
    }
  }
}

// Late is what cannot start at or below the slot's limit, so what cannot come first in it.
bool PartialPacking::check(Index number) {
  const Slot& slot = slots_[at(number)];
  const Bytes limit = limits_[at(number)];
  work_ += slot.left;
  late_.clear();
  Bytes highest = 0;
  Bytes sum = 0;
  for (Index index = 0; index < slot.left; ++index) {
    const Index item = slot.items[at(index)];
    if (lowest(item) <= limit) continue;
    late_.push_back({lowest(item), item});
    highest = std::max(highest, lowest(item));
    sum += size(item);
  }
  if (late_.empty()) return true;
  // Mostly this shows that all is well, without sorting.
  if (highest + sum > capacity_ && is_too_full()) {
    failures_[at(number)] += failure;
    return false;
  }
  lift_late(slot, number);
  return true;
}

// Whether what starts late does not fit between its lowest offset and the capacity.
bool PartialPacking::is_too_full() {
  work_ += static_cast<std::int64_t>(late_.size()) * 4;
  std::sort(late_.begin(), late_.end(), [](const Late& left, const Late& right) {
    return left.lowest != right.lowest ? left.lowest > right.lowest : left.item < right.item;
  });
  Bytes sum = 0;
  for (std::size_t count = 0; count < late_.size(); ++count) {
    sum += size(late_[count].item);
    if (late_[count].lowest + sum <= capacity_) continue;
    conflict_.clear();
    for (std::size_t index = 0; index <= count; ++index) {
      bounds_.explain(late_[index].item, capacity_ - sum + 1, conflict_);
    }
    return true;
  }
  return false;
}

// One of the others comes first in the slot, so the late ones start above the lowest of their
// tops. If there is only one and it has no room to move, it comes next.
void PartialPacking::lift_late(const Slot& slot, Index number) {
  const Bytes limit = limits_[at(number)];
  Bytes lowest_first_top = largest_arena;
  Index first = -1;
  for (Index index = 0; index < slot.left; ++index) {
    const Index item = slot.items[at(index)];
    if (lowest(item) > limit || lowest_top(item) >= lowest_first_top) continue;
    lowest_first_top = lowest_top(item);
    first = item;
  }
  if (first < 0) return;
  const bool lifts = std::any_of(late_.begin(), late_.end(), [&](const Late& late) {
    return late.lowest < lowest_first_top;
  });
  if (lifts) {
    const Index note = bounds_.note(why_first_top(slot, limit, lowest_first_top));
    for (const Late& late : late_) {
      if (late.lowest < lowest_first_top) rise(late.item, lowest_first_top, note);
    }
  }
  const bool alone = late_.size() + 1 == at(slot.left);
  if (alone && lowest(first) == limit && !is_lifted(first)) forced_.push_back({first, number});
}

// Why what comes first in the slot has no lower top.
const LevelSet& PartialPacking::why_first_top(const Slot& slot, Bytes limit, Bytes top) {
  reason_.clear();
  for (Index index = 0; index < slot.left; ++index) {
    const Index item = slot.items[at(index)];
    bounds_.explain(item, lowest(item) > limit ? limit + 1 : top - size(item), reason_);
  }
  return reason_;
}

// A lifted item lies on something that is left and meets it.
bool PartialPacking::lift(Index item) {
  if (!is_left(item) || !is_lifted(item)) return true;
  Bytes lowest_support = largest_arena;
  Index lowest_one = -1;
  for_each_left_that_meets(item, [&](Index other) {
    ++work_;
    if (lowest_top(other) >= lowest_support) return;
    lowest_support = lowest_top(other);
    lowest_one = other;
  });
  if (lowest_one >= 0 && witness_[at(item)] != lowest_one) {
    indices_.set(witness_[at(item)], lowest_one);
  }
  if (lowest_one >= 0 && rounded_up(item, lowest_support) <= lowest(item)) return true;
  conflict_.clear();
  if (refutation_[at(item)] >= 0) {
    conflict_.add(bounds_.noted(refutation_[at(item)]));
  } else {
    bounds_.explain(item, support_[at(item)] + 1, conflict_);
    add_cone(item, conflict_);
  }
  if (lowest_one < 0) return false;
  for_each_left_that_meets(item, [&](Index other) {
    bounds_.explain(other, lowest_support - size(other), conflict_);
  });
  rise(item, lowest_support, bounds_.note(conflict_));
  return true;
}

void PartialPacking::place_forced(const Forced& forced) {
  if (!is_left(forced.item) || is_lifted(forced.item)) return;
  reason_.clear();
  if (is_next_by_force(forced, reason_)) place(forced.item, reason_);
}

// Whether all else that is left lies above the item: in the slot, where the item alone can come
// first and only at its lowest offset, and elsewhere because nothing fits below it.
bool PartialPacking::is_next_by_force(const Forced& forced, LevelSet& reason) const {
  const Bytes limit = limits_[at(forced.slot)];
  const Slot& slot = slots_[at(forced.slot)];
  if (lowest(forced.item) != limit) return false;
  for (Index index = 0; index < slot.left; ++index) {
    const Index item = slot.items[at(index)];
    if (item == forced.item) continue;
    if (lowest(item) <= limit) return false;
    bounds_.explain(item, limit + 1, reason);
  }
  bool fits_below = false;
  for_each_left_that_meets(forced.item, [&](Index other) {
    fits_below |= lowest_top(other) <= limit;
    bounds_.explain(other, limit - size(other) + 1, reason);
  });
  return !fits_below;
}

void PartialPacking::rise(Index item, Bytes bound, Index note) {
  bound = rounded_up(item, bound);
  if (bound <= lowest(item)) return;
  bounds_.raise(item, bound, note);
  if (fixed_[at(item)] >= 0 && broken_ < 0) broken_ = item;
  for_each_slot(item, [&](Index slot) {
    if (bound > limits_[at(slot)]) queue_slot(slot);
  });
  work_ += hulls_[at(item)].end - hulls_[at(item)].begin;
  if (is_lifted(item)) queue_item(item);
  for_each_in(once_lifted_, item, [&](Index other) {
    if (witness_[at(other)] == item && is_lifted(other)) queue_item(other);
  });
  const Index twin = twins_[at(item)];
  if (twin >= 0 && is_left(twin)) rise(twin, bound + size(item), note);
}

void PartialPacking::queue_slot(Index slot) {
  if (slot_is_queued_[at(slot)] != 0) return;
  slot_is_queued_[at(slot)] = 1;
  queued_slots_.push_back(slot);
}

void PartialPacking::queue_item(Index item) {
  once_lifted_[at(item) / 64] |= std::uint64_t{1} << (item % 64);
  if (item_is_queued_[at(item)] != 0) return;
  item_is_queued_[at(item)] = 1;
  queued_items_.push_back(item);
}

void PartialPacking::clear_queues() {
  for (const Index slot : queued_slots_) slot_is_queued_[at(slot)] = 0;
  for (const Index item : queued_items_) item_is_queued_[at(item)] = 0;
  queued_slots_.clear();
  queued_items_.clear();
  forced_.clear();
  broken_ = -1;
}

}  // namespace et_replay::planner
