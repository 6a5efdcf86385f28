// Only slots with much left to place are looked at: in all others everything can begin in time.
#include "look_ahead.hpp"

#include <limits>

namespace et_replay::planner {

namespace {

constexpr Bytes endless = std::numeric_limits<Bytes>::max() / 4;
constexpr int starts_looked_at = 200;  // by `earliest_start`, which may be higher than needed

bool lives(const Item& item, std::int32_t slot) {
  return (item.begin <= slot && slot < item.end) ||
         (item.begin_again <= slot && slot < item.end_again);
}

}  // namespace

void LookAhead::reset() {
  witness_.assign(static_cast<std::size_t>(frontier_.part.slots), Unplaced::none);
}

bool LookAhead::allows(std::int32_t index, Bytes offset, Bytes capacity) {
  const Item& item = frontier_.part.items[index];
  const Bytes top = offset + item.size;
  Trial trial{index, item, offset, top, std::max(frontier_.highest, top), capacity, true};
  run(trial);
  return trial.allowed;
}

Bytes LookAhead::needs(std::int32_t index, Bytes offset, Bytes capacity) {
  const Item& item = frontier_.part.items[index];
  const Bytes top = offset + item.size;
  Trial trial{index, item, offset, top, std::max(frontier_.highest, top), capacity, false};
  run(trial);
  return trial.capacity;
}

bool LookAhead::raise(Trial& trial, Bytes capacity) {
  if (capacity <= trial.capacity) return true;
  trial.capacity = capacity;
  trial.allowed = false;
  return !trial.strict;
}

void LookAhead::run(Trial& trial) {
  const Item& item = trial.item;
  std::int32_t from = item.begin;  // all slots of the items that it lifts
  std::int32_t to = item.lives_twice() ? item.end_again : item.end;
  bool on = true;
  Frontier::each_span(item, [&](std::int32_t begin, std::int32_t end) {
    on = on && run_within(trial, begin, end);
    if (on) frontier_.unplaced.spread(begin, end, from, to);
  });
  if (!on) return;
  for (std::int32_t index : frontier_.twice) {
    const Item& other = frontier_.part.items[index];
    if (!other.meets(item)) continue;
    from = std::min(from, other.begin);
    to = std::max(to, other.end_again);
  }
  on = run_beside(trial, from, item.begin);
  if (item.lives_twice()) on = on && run_beside(trial, item.end, item.begin_again);
  if (on) run_beside(trial, item.lives_twice() ? item.end_again : item.end, to);
}

bool LookAhead::run_within(Trial& trial, std::int32_t begin, std::int32_t end) {
  const Bytes latest = std::max(trial.offset, trial.highest - trial.item.size);
  return frontier_.remaining.each_above(
      begin, end, trial.capacity - latest,
      [&](std::int32_t slot, Bytes left) { return within(trial, slot, left); });
}

bool LookAhead::run_beside(Trial& trial, std::int32_t begin, std::int32_t end) {
  return frontier_.remaining.each_above(
      begin, end, trial.capacity - trial.top,
      [&](std::int32_t slot, Bytes left) { return beside(trial, slot, left); });
}

// A slot of the item. All that is left there will lie above it.
bool LookAhead::within(Trial& trial, std::int32_t slot, Bytes left) {
  ++slots_seen_;
  if (!raise(trial, left + trial.offset)) return false;
  left -= trial.item.size;
  if (left == 0) return true;
  const std::int32_t witness = witness_[slot];
  const bool stands = witness != Unplaced::none && !frontier_.unplaced.placed(witness);
  if (stands && witness != trial.index) return true;
  const Bytes latest = trial.capacity - left;
  return latest >= trial.highest || find_witness(trial, slot, latest, left);
}

// Another slot. What is left there and shares no slot with the item is not lifted.
bool LookAhead::beside(Trial& trial, std::int32_t slot, Bytes left) {
  ++slots_seen_;
  const Bytes latest = trial.capacity - left;
  if (latest >= trial.top) return true;
  const std::int32_t witness = witness_[slot];
  const bool stands = witness != Unplaced::none && !frontier_.unplaced.placed(witness);
  if (stands && !frontier_.part.items[witness].meets(trial.item)) return true;
  return find_witness(trial, slot, latest, left);
}

// Witnesses for a larger capacity than there is are none.
bool LookAhead::find_witness(Trial& trial, std::int32_t slot, Bytes latest, Bytes left) {
  const std::int32_t found = starter(trial, slot, latest);
  if (found == Unplaced::none) {
    return raise(trial, trial.strict ? endless : left + earliest_start(trial, slot));
  }
  if (trial.strict) witness_[slot] = found;
  return true;
}

// Who can begin at `latest` or lower lies between the places where the skyline, with the item, is
// higher.
std::int32_t LookAhead::starter(const Trial& trial, std::int32_t slot, Bytes latest) const {
  const Frontier& frontier = frontier_;
  if (frontier.skyline.at(slot) > latest) return Unplaced::none;
  const bool inside = lives(trial.item, slot);
  std::int32_t from = frontier.skyline.reach_left(slot, latest);
  std::int32_t to = frontier.skyline.reach_right(slot, latest);
  if (!inside) {
    Frontier::each_span(trial.item, [&](std::int32_t begin, std::int32_t end) {
      if (end <= slot) from = std::max(from, end);
      if (begin > slot) to = std::min(to, begin);
    });
  }
  const auto in_time = [&](std::int32_t index) {
    return index != trial.index && frontier.offset_of(index) <= latest;
  };
  const std::int32_t found = frontier.unplaced.find_over(slot, from, to, [&](std::int32_t index) {
    return index != trial.index && (frontier.part.items[index].alignment == 1 || in_time(index));
  });
  if (found != Unplaced::none) return found;
  for (std::int32_t index : frontier.twice) {
    const Item& item = frontier.part.items[index];
    if (lives(item, slot) && in_time(index) && (inside || !item.meets(trial.item))) return index;
  }
  return Unplaced::none;
}

Bytes LookAhead::earliest_start(const Trial& trial, std::int32_t slot) const {
  const Frontier& frontier = frontier_;
  Bytes earliest = endless;
  int seen = 0;
  const auto look_at = [&](std::int32_t index) {
    if (index == trial.index) return false;
    const Item& item = frontier.part.items[index];
    Bytes offset = frontier.offset_of(index);
    if (item.meets(trial.item)) offset = std::max(offset, trial.top);
    earliest = std::min(earliest, Frontier::aligned(offset, item.alignment));
    return ++seen >= starts_looked_at;
  };
  frontier.unplaced.find_over(slot, 0, frontier.part.slots, look_at);
  for (std::int32_t index : frontier.twice) {
    if (lives(frontier.part.items[index], slot)) look_at(index);
  }
  return earliest;
}

}  // namespace et_replay::planner
