// Rounds to units, then cuts the time recursively.
#include "normal.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "checks.hpp"

namespace et_replay::planner {

namespace {

// Each strips residents from the parts that the one before it has cut. Nested lifetimes could go
// on for n rounds of O(n); real jobs need three: weights, one iteration's, one layer's.
constexpr int most_rounds = 6;

enum class Kind : std::uint8_t { end, end_again, begin, begin_again };  // ends come first

struct Event {
  Time time;
  std::uint32_t item;
  Kind kind;

  bool begins() const { return kind >= Kind::begin; }
  bool operator<(const Event& other) const {
    return time != other.time ? time < other.time
                              : std::pair(kind, item) < std::pair(other.kind, other.item);
  }
};
using Events = std::vector<Event>;

Bytes rounded_up(Bytes size, Bytes alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

struct Units {
  Bytes grain = 0;  // divides all alignments, so all offsets
  Bytes unit = 0;   // divides all sizes and offsets as well
  bool aligned = true;  // whatever lies on a unit is aligned
};

Units units_of(const Problem& problem) {
  Units units;
  std::size_t count = 0;
  for (const Buffer& buffer : problem) {
    if (!buffer.takes_memory()) continue;
    units.grain = std::gcd(units.grain, buffer.alignment);
    ++count;
  }
  if (count <= few) units.grain = 1;
  for (const Buffer& buffer : problem) {
    if (!buffer.takes_memory()) continue;
    units.unit = std::gcd(units.unit, rounded_up(buffer.size, units.grain));
    units.unit = std::gcd(units.unit, std::max<Bytes>(buffer.fixed, 0));
  }
  for (const Buffer& buffer : problem) {
    if (buffer.takes_memory() && units.unit % buffer.alignment != 0) units.aligned = false;
  }
  if (!units.aligned) units.unit = units.grain;
  return units;
}

class Cutter {
 public:
  explicit Cutter(const Problem& problem);

  Normal cut();

 private:
  void add(std::uint32_t index, const Buffer& buffer);
  void add_events(std::uint32_t item, const Span& span, bool again);
  std::int32_t assign_slots(const Events& events);
  bool may_strip(const Events& events) const;
  Bytes strip(Events& events, std::int32_t slots, Bytes base);
  std::vector<std::size_t> runs_of(const Events& events, std::int32_t slots) const;
  std::vector<Events> split(const Events& events, std::int32_t slots) const;
  void cut(Events events, Bytes base, int round);
  void emit(const Events& events, std::int32_t slots, Bytes base);

  Units units_;
  Bytes padding_ = 0;  // the most that rounding up has added to a buffer
  std::vector<Item> items_;
  std::vector<std::uint32_t> buffers_;  // of each item
  Events events_;
  Bytes lower_bound_ = 0;  // in units
  Normal normal_;
};

Cutter::Cutter(const Problem& problem) : units_(units_of(problem)) {
  for (std::uint32_t index = 0; index < problem.size(); ++index) {
    if (problem[index].takes_memory()) add(index, problem[index]);
  }
  std::sort(events_.begin(), events_.end());
  if (!items_.empty()) normal_.unit = units_.unit;
}

void Cutter::add(std::uint32_t index, const Buffer& buffer) {
  const auto number = static_cast<std::uint32_t>(items_.size());
  const Bytes rounded = rounded_up(buffer.size, units_.grain);
  padding_ = std::max(padding_, rounded - buffer.size);
  Item item;
  item.size = rounded / units_.unit;
  item.alignment = units_.aligned ? 1 : buffer.alignment / units_.unit;
  item.fixed = buffer.fixed < 0 ? -1 : buffer.fixed / units_.unit;
  const bool swapped =
      buffer.span.empty() || (!buffer.again.empty() && buffer.again.start < buffer.span.start);
  add_events(number, swapped ? buffer.again : buffer.span, false);
  add_events(number, swapped ? buffer.span : buffer.again, true);
  item.start = swapped ? buffer.again.start : buffer.span.start;
  items_.push_back(item);
  buffers_.push_back(index);
}

void Cutter::add_events(std::uint32_t item, const Span& span, bool again) {
  if (span.empty()) return;
  events_.push_back({span.start, item, again ? Kind::begin_again : Kind::begin});
  events_.push_back({span.end, item, again ? Kind::end_again : Kind::end});
}

// Returns the number of slots.
std::int32_t Cutter::assign_slots(const Events& events) {
  std::int32_t slot = -1;
  bool dying = true;
  for (const Event& event : events) {
    Item& item = items_[event.item];
    if (event.begins() && dying) ++slot;
    dying = !event.begins();
    switch (event.kind) {
      case Kind::begin: item.begin = slot; break;
      case Kind::begin_again: item.begin_again = slot; break;
      case Kind::end: item.end = item.begin_again = item.end_again = slot + 1; break;
      case Kind::end_again: item.end_again = slot + 1; break;
    }
  }
  for (const Event& event : events) {
    Item& item = items_[event.item];
    if (item.begin_again == item.end) item.end = item.begin_again = item.end_again;
  }
  return slot + 1;
}

// Below fixed offsets nothing may be pushed in; below other alignments it would not always fit.
bool Cutter::may_strip(const Events& events) const {
  return units_.aligned && std::all_of(events.begin(), events.end(), [&](const Event& event) {
    return items_[event.item].fixed < 0;
  });
}

// Lays what lives in all slots on `base`; returns what lies on top of it.
Bytes Cutter::strip(Events& events, std::int32_t slots, Bytes base) {
  const auto fills = [&](const Event& event) { return items_[event.item].slots() == slots; };
  for (const Event& event : events) {
    if (event.kind != Kind::begin || !fills(event)) continue;
    normal_.residents.push_back(buffers_[event.item]);
    normal_.resident_offsets.push_back(base);
    base += items_[event.item].size;
  }
  events.erase(std::remove_if(events.begin(), events.end(), fills), events.end());
  return base;
}

// Of each slot the number of the run of slots it is in. No item crosses from one run to the next,
// but it may live twice, in two of them.
std::vector<std::size_t> Cutter::runs_of(const Events& events, std::int32_t slots) const {
  std::vector<std::int32_t> crossing(static_cast<std::size_t>(slots) + 1, 0);
  for (const Event& event : events) {
    if (event.kind != Kind::begin) continue;
    const Item& item = items_[event.item];
    ++crossing[static_cast<std::size_t>(item.begin) + 1];
    --crossing[static_cast<std::size_t>(item.end)];
    if (!item.lives_twice()) continue;
    ++crossing[static_cast<std::size_t>(item.begin_again) + 1];
    --crossing[static_cast<std::size_t>(item.end_again)];
  }
  std::vector<std::size_t> run(static_cast<std::size_t>(slots), 0);
  std::int32_t across = 0;
  for (std::size_t slot = 1; slot < run.size(); ++slot) {
    across += crossing[slot];
    run[slot] = run[slot - 1] + (across == 0 ? 1 : 0);
  }
  return run;
}

// The events of the parts that share no item, by their first slot.
std::vector<Events> Cutter::split(const Events& events, std::int32_t slots) const {
  const std::vector<std::size_t> run = runs_of(events, slots);
  std::vector<std::size_t> root(run.empty() ? 0 : run.back() + 1);  // by the lowest one
  std::iota(root.begin(), root.end(), std::size_t{0});
  const auto find = [&](std::size_t at) {
    while (root[at] != at) at = root[at] = root[root[at]];
    return at;
  };
  for (const Event& event : events) {
    const Item& item = items_[event.item];
    if (event.kind != Kind::begin_again || !item.lives_twice()) continue;
    const std::size_t one = find(run[static_cast<std::size_t>(item.begin)]);
    const std::size_t other = find(run[static_cast<std::size_t>(item.begin_again)]);
    root[std::max(one, other)] = std::min(one, other);
  }
  std::vector<Events> parts(root.size());
  for (const Event& event : events) {
    parts[find(run[static_cast<std::size_t>(items_[event.item].begin)])].push_back(event);
  }
  parts.erase(std::remove_if(parts.begin(), parts.end(), [](const Events& part) {
    return part.empty();
  }), parts.end());
  return parts;
}

void Cutter::cut(Events events, Bytes base, int round) {
  std::int32_t slots = assign_slots(events);
  if (round < most_rounds && may_strip(events)) {
    const std::size_t before = events.size();
    base = strip(events, slots, base);
    lower_bound_ = std::max(lower_bound_, base);
    if (events.empty()) return;
    if (events.size() < before) slots = assign_slots(events);
  }
  std::vector<Events> parts = split(events, slots);
  if (parts.size() == 1) return emit(events, slots, base);
  Events().swap(events);
  for (Events& part : parts) cut(std::exchange(part, {}), base, round + 1);
}

void Cutter::emit(const Events& events, std::int32_t slots, Bytes base) {
  Part part;
  part.slots = slots;
  part.load.assign(static_cast<std::size_t>(slots), 0);
  std::vector<std::uint32_t> members;
  for (const Event& event : events) {
    if (event.kind == Kind::begin) members.push_back(event.item);
  }
  std::sort(members.begin(), members.end());
  std::vector<std::uint32_t>& buffers = normal_.buffers.emplace_back();
  for (const std::uint32_t member : members) {
    const Item& item = items_[member];
    part.items.push_back(item);
    buffers.push_back(buffers_[member]);
    part.lower_bound = std::max(part.lower_bound, item.fixed < 0 ? 0 : item.fixed + item.size);
  }
  Bytes load = 0;
  std::size_t slot = 0;
  bool dying = false;
  for (const Event& event : events) {
    if (event.begins() && dying) ++slot;
    dying = !event.begins();
    load += event.begins() ? items_[event.item].size : -items_[event.item].size;
    part.load[slot] = std::max(part.load[slot], load);
  }
  part.lower_bound =
      std::max(part.lower_bound, *std::max_element(part.load.begin(), part.load.end()));
  lower_bound_ = std::max(lower_bound_, base + part.lower_bound);
  normal_.parts.push_back(std::move(part));
  normal_.bases.push_back(base);
}

Normal Cutter::cut() {
  Bytes load = 0;
  for (const Event& event : events_) {
    const Bytes size = items_[event.item].size;
    load += event.begins() ? size : -size;
    if (load > largest_arena / 2 / units_.unit) {
      throw std::overflow_error("More than 2^61 bytes live at the same time.");
    }
  }
  if (!events_.empty()) cut(std::move(events_), 0, 0);
  for (std::size_t part = 0; part < normal_.parts.size(); ++part) {
    normal_.parts[part].target = lower_bound_ - normal_.bases[part];
  }
  normal_.lower_bound = lower_bound_ * normal_.unit - padding_;
  return std::move(normal_);
}

}  // namespace

Normal make_normal(const Problem& problem) {
  check_problem(problem);
  return Cutter(problem).cut();
}

Offsets denormalise(const Normal& normal, const std::vector<Offsets>& parts, std::size_t buffers) {
  Offsets offsets(buffers, 0);
  for (std::size_t index = 0; index < normal.residents.size(); ++index) {
    offsets[normal.residents[index]] = normal.resident_offsets[index] * normal.unit;
  }
  for (std::size_t part = 0; part < parts.size(); ++part) {
    for (std::size_t item = 0; item < parts[part].size(); ++item) {
      offsets[normal.buffers[part][item]] = (normal.bases[part] + parts[part][item]) * normal.unit;
    }
  }
  return offsets;
}

Bytes arena_of(const Part& part, const Offsets& offsets) {
  Bytes arena = 0;
  for (std::size_t item = 0; item < offsets.size(); ++item) {
    arena = std::max(arena, offsets[item] + part.items[item].size);
  }
  return arena;
}

}  // namespace et_replay::planner
