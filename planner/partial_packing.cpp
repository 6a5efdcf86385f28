// What is placed and taken back; the conclusions are in inference.cpp.
#include "partial_packing.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace et_replay::planner {

PartialPacking::PartialPacking(const Part& part)
    : words_((part.items.size() + 63) / 64),
      bounds_(part.items.size(), part.items.size()),
      cones_(part.items.size(), LevelSet(part.items.size())),
      conflict_(part.items.size()),
      reason_(part.items.size()),
      above_(part.items.size()) {
  for (const Item& item : part.items) {
    sizes_.push_back(item.size);
    alignments_.push_back(item.alignment);
    fixed_.push_back(item.fixed);
    first_.push_back(std::max<Bytes>(item.fixed, 0));
    const Range again{item.begin_again, item.end_again};
    ranges_.push_back({{{item.begin, item.end}, item.lives_twice() ? again : Range{0, 0}}});
    hulls_.push_back({item.begin, item.lives_twice() ? item.end_again : item.end});
  }
  loads_ = part.load;
  failures_.assign(loads_.size(), 0);
  note_slots(part);
  note_meetings(part);
  note_twins(part);
}

void PartialPacking::note_slots(const Part& part) {
  slots_.resize(loads_.size());
  for (Index item = 0; item < items(); ++item) {
    for_each_slot(item, [&](Index slot) { slots_[at(slot)].items.push_back(item); });
  }
  slot_is_queued_.assign(slots_.size(), 0);
  item_is_queued_.assign(part.items.size(), 0);
}

void PartialPacking::note_meetings(const Part& part) {
  meets_.assign(part.items.size() * words_, 0);
  for (std::size_t item = 0; item < part.items.size(); ++item) {
    for (std::size_t other = 0; other < part.items.size(); ++other) {
      if (item == other || !part.items[item].meets(part.items[other])) continue;
      meets_[item * words_ + other / 64] |= std::uint64_t{1} << (other % 64);
    }
  }
}

// Items that can be exchanged are stacked in the order of their numbers.
void PartialPacking::note_twins(const Part& part) {
  using Kind = std::tuple<Bytes, Bytes, Index, Index, Index, Index>;
  std::map<Kind, Index> last;
  twins_.assign(part.items.size(), -1);
  for (Index number = 0; number < items(); ++number) {
    const Item& item = part.items[at(number)];
    if (item.fixed >= 0) continue;
    const auto [place, is_new] =
        last.try_emplace({item.size, item.alignment, item.begin, item.end, item.begin_again,
                          item.lives_twice() ? item.end_again : item.begin_again},
                         number);
    if (is_new) continue;
    first_[at(number)] = rounded_up(number, first_[at(place->second)] + item.size);
    twins_[at(place->second)] = number;
    place->second = number;
  }
}

void PartialPacking::begin(Bytes capacity) {
  capacity_ = capacity;
  bytes_.clear();
  indices_.clear();
  bounds_.begin(first_);
  placed_.clear();
  heights_.assign(slots_.size(), 0);
  uppermost_.assign(slots_.size(), -1);
  remaining_.assign(slots_.size(), 0);
  limits_.assign(slots_.size(), capacity);
  crossing_.assign(slots_.size(), 0);
  left_.assign(words_, 0);
  once_lifted_.assign(words_, 0);
  for (Slot& slot : slots_) slot.left = 0;
  for (Index item = 0; item < items(); ++item) give_back(item);
  witness_.assign(sizes_.size(), -1);
  refutation_.assign(sizes_.size(), -1);
  offsets_.assign(sizes_.size(), 0);
  support_.assign(sizes_.size(), 0);
  clear_queues();
  conflict_.clear();
  for (Index slot = 0; slot < slots(); ++slot) queue_slot(slot);
  for (Index item = 0; item < items(); ++item) {
    if (fixed_[at(item)] >= 0) support_[at(item)] = fixed_[at(item)];
    if (is_lifted(item)) queue_item(item);
  }
}

Bytes PartialPacking::rounded_up(Index item, Bytes offset) const {
  const Bytes alignment = alignments_[at(item)];
  return alignment == 1 ? offset : (offset + alignment - 1) / alignment * alignment;
}

void PartialPacking::take(Index item) {
  left_[at(item) / 64] &= ~(std::uint64_t{1} << (item % 64));
  for_each_slot(item, [&](Index number) {
    remaining_[at(number)] -= size(item);
    limits_[at(number)] += size(item);
    Slot& slot = slots_[at(number)];
    --slot.left;
    const auto place = std::find(slot.items.begin(), slot.items.end(), item);
    std::swap(*place, slot.items[at(slot.left)]);
  });
  const Range& hull = hulls_[at(item)];
  for (Index slot = hull.begin; slot + 1 < hull.end; ++slot) --crossing_[at(slot)];
}

// In the reverse order of `take`, so that each slot lists what is left before what is not.
void PartialPacking::give_back(Index item) {
  left_[at(item) / 64] |= std::uint64_t{1} << (item % 64);
  for_each_slot(item, [&](Index number) {
    remaining_[at(number)] += size(item);
    limits_[at(number)] -= size(item);
    ++slots_[at(number)].left;
  });
  const Range& hull = hulls_[at(item)];
  for (Index slot = hull.begin; slot + 1 < hull.end; ++slot) ++crossing_[at(slot)];
}

void PartialPacking::place(Index item, const LevelSet& reason) {
  const Bytes top = lowest(item) + size(item);
  above_ = reason;  // why what is left and meets the item lies above it
  bounds_.explain(item, lowest(item), above_);
  LevelSet& cone = cones_[at(item)];
  cone = reason;
  add_cone(item, cone);
  take(item);
  placed_.push_back(item);
  offsets_[at(item)] = lowest(item);
  for_each_slot(item, [&](Index slot) {
    bytes_.set(heights_[at(slot)], top);
    indices_.set(uppermost_[at(slot)], item);
    queue_slot(slot);
  });
  const Index note = bounds_.note(above_);
  for_each_left_that_meets(item, [&](Index other) {
    ++work_;
    if (refutation_[at(other)] >= 0) indices_.set(refutation_[at(other)], -1);
    const Bytes support = rounded_up(other, top);
    if (support_[at(other)] < support) bytes_.set(support_[at(other)], support);
    if (lowest(other) < support) {
      rise(other, support, note);
    } else if (is_lifted(other) && witness_[at(other)] == item) {
      queue_item(other);
    }
  });
}

// Something that is left lies below the item, so the item lies on one such, if not higher.
bool PartialPacking::postpone(Index item, const LevelSet& reason) {
  Bytes lowest_support = largest_arena;
  Index lowest_one = -1;
  for_each_left_that_meets(item, [&](Index other) {
    if (lowest_top(other) >= lowest_support) return;
    lowest_support = lowest_top(other);
    lowest_one = other;
  });
  conflict_ = reason;
  if (lowest_one < 0) return false;
  indices_.set(refutation_[at(item)], bounds_.note(reason));
  indices_.set(witness_[at(item)], lowest_one);
  for_each_left_that_meets(item, [&](Index other) {
    bounds_.explain(other, lowest_support - size(other), conflict_);
  });
  rise(item, lowest_support, bounds_.note(conflict_));
  return true;
}

// What the exact offset of the item rests on, if it lies on its support.
void PartialPacking::add_cone(Index item, LevelSet& reason) const {
  Index last = -1;
  for_each_slot(item, [&](Index slot) {
    const Index below = uppermost_[at(slot)];
    if (below < 0 || below == last) return;
    last = below;
    reason.add(cones_[at(below)].words());
  });
}

PartialPacking::Mark PartialPacking::mark() const {
  return {bytes_.mark(), indices_.mark(), placed_.size(), bounds_.mark()};
}

void PartialPacking::undo(const Mark& mark) {
  clear_queues();
  for (; placed_.size() > mark.placed; placed_.pop_back()) give_back(placed_.back());
  bytes_.undo(mark.bytes);
  indices_.undo(mark.indices);
  bounds_.undo(mark.bounds);
}

}  // namespace et_replay::planner
