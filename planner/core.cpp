#include "core.hpp"

#include <algorithm>
#include <utility>

#include "first_fit.hpp"

namespace et_replay::planner {

namespace {

struct Busy {  // slots
  std::int32_t first = 0, last = 0;   // half-open; not all between are busy
  std::vector<std::int32_t> before;  // how many busy ones before each slot

  bool in(std::int32_t begin, std::int32_t end) const { return before[begin] < before[end]; }
};

Busy busy_slots(const Part& whole, Bytes threshold) {
  Busy busy;
  busy.before.push_back(0);
  for (std::int32_t slot = 0; slot < whole.slots; ++slot) {
    const bool is_busy = whole.load[slot] > threshold;
    if (is_busy && busy.before.back() == 0) busy.first = slot;
    if (is_busy) busy.last = slot + 1;
    busy.before.push_back(busy.before.back() + (is_busy ? 1 : 0));
  }
  return busy;
}

// Makes slots anew: a run of births and the run of deaths that follows it are one.
void shorten(Part& part) {
  const auto slots = static_cast<std::size_t>(part.slots) + 1;
  std::vector<bool> births(slots), deaths(slots);
  for (const Item& item : part.items) {
    births[item.begin] = true;
    deaths[item.end] = deaths[item.end_again] = true;
    if (item.lives_twice()) births[item.begin_again] = true;
  }
  std::vector<std::int32_t> begins(slots), ends(slots);  // the new slots
  std::int32_t count = 0;
  bool died = true;
  for (std::size_t slot = 0; slot < slots; ++slot) {
    ends[slot] = count;
    died = died || deaths[slot];
    if (births[slot] && died) {
      ++count;
      died = false;
    }
    begins[slot] = count - 1;
  }
  part.slots = count;
  part.load.assign(static_cast<std::size_t>(count), 0);
  for (Item& item : part.items) {
    const bool twice = item.lives_twice() && ends[item.end] < begins[item.begin_again];
    if (item.lives_twice() && !twice) item.end = item.end_again;
    item.begin = begins[item.begin];
    item.end = ends[item.end];
    item.begin_again = twice ? begins[item.begin_again] : item.end;
    item.end_again = twice ? ends[item.end_again] : item.end;
  }
}

void measure(Part& part) {
  std::vector<Bytes> change(static_cast<std::size_t>(part.slots) + 1);
  for (const Item& item : part.items) {
    change[item.begin] += item.size;
    change[item.end] -= item.size;
    change[item.begin_again] += item.lives_twice() ? item.size : 0;
    change[item.end_again] -= item.lives_twice() ? item.size : 0;
  }
  Bytes load = 0;
  for (std::int32_t slot = 0; slot < part.slots; ++slot) {
    part.load[slot] = load += change[slot];
    part.lower_bound = std::max(part.lower_bound, load);
  }
}

}  // namespace

Core core_of(const Part& whole, Bytes threshold) {
  const Busy busy = busy_slots(whole, threshold);
  Core core;
  core.is_rest.assign(whole.items.size(), true);
  for (std::size_t index = 0; index < whole.items.size(); ++index) {
    const Item& item = whole.items[index];
    if (!busy.in(item.begin, item.end) && !busy.in(item.begin_again, item.end_again)) continue;
    core.is_rest[index] = false;
    if (item.begin <= busy.first && item.end >= busy.last && item.alignment == 1) {
      core.residents.push_back(static_cast<std::uint32_t>(index));
      core.residents_size += item.size;
    } else {
      core.items.push_back(static_cast<std::uint32_t>(index));
      core.part.items.push_back(item);
    }
  }
  std::stable_sort(core.residents.begin(), core.residents.end(),
                   [&](std::uint32_t one, std::uint32_t other) {
                     return whole.items[one].slots() > whole.items[other].slots();
                   });
  core.part.slots = whole.slots;
  shorten(core.part);
  measure(core.part);
  core.part.target = std::max(whole.target - core.residents_size, core.part.lower_bound);
  return core;
}

std::optional<Offsets> fill_around(const Part& whole, const Core& core, const Offsets& offsets,
                                   const std::vector<std::uint32_t>& order, Bytes limit,
                                   Budget& budget) {
  FirstFit packing(whole.slots);
  Offsets result(whole.items.size());
  Bytes top = 0;
  const auto place = [&](std::uint32_t item, Bytes offset) {
    packing.place(whole.items[item], offset);
    result[item] = offset;
    top = std::max(top, offset + whole.items[item].size);
    --budget.steps;
  };
  for (std::size_t at = 0; at < core.items.size(); ++at) place(core.items[at], offsets[at]);
  for (std::uint32_t item : core.residents) place(item, top);
  for (std::uint32_t item : order) {
    if (top >= limit || budget.spent()) return std::nullopt;
    if (core.is_rest[item]) place(item, packing.find(whole.items[item]));
  }
  if (top >= limit) return std::nullopt;
  return result;
}

}  // namespace et_replay::planner
