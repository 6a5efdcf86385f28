#include "rotation.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace et_replay::planner {

namespace {

bool crosses_end(const Item& item, const Part& part) {
  return item.lives_twice() && item.begin == 0 && item.end_again == part.slots;
}

// How many items live both in a slot and in the one before.
std::vector<std::int32_t> crossings(const Part& part) {
  std::vector<std::int32_t> change(static_cast<std::size_t>(part.slots) + 1);
  const auto add = [&](std::int32_t begin, std::int32_t end) {
    if (begin + 1 >= end) return;
    ++change[begin + 1];
    --change[end];
  };
  std::int32_t across_end = 0;
  for (const Item& item : part.items) {
    add(item.begin, item.end);
    add(item.begin_again, item.end_again);
    across_end += crosses_end(item, part) ? 1 : 0;
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  change.pop_back();
  if (!change.empty()) change[0] = across_end;
  return change;
}

Item rotated(Item item, std::int32_t cut, const Part& part) {
  const std::int32_t born = crosses_end(item, part) ? item.begin_again : item.begin;
  const std::int32_t slots = item.slots();
  item.begin = born >= cut ? born - cut : born - cut + part.slots;
  item.end = item.begin + slots;
  item.begin_again = item.end_again = item.end;
  if (item.end > part.slots) {
    item.begin_again = item.begin;
    item.end_again = part.slots;
    item.end -= part.slots;
    item.begin = 0;
  }
  return item;
}

// `start` is what orders sort by; what is born earlier in the new cycle must have a smaller one.
void renumber_starts(Part& part) {
  std::vector<std::size_t> order(part.items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
    const Item& left = part.items[one];
    const Item& right = part.items[other];
    return left.begin != right.begin ? left.begin < right.begin : left.start < right.start;
  });
  for (std::size_t at = 0; at < order.size(); ++at) {
    part.items[order[at]].start = static_cast<Time>(at);
  }
}

}  // namespace

Part rotated(const Part& part) {
  const bool is_cycle = std::all_of(part.items.begin(), part.items.end(), [&](const Item& item) {
    return !item.lives_twice() || crosses_end(item, part);
  });
  const std::vector<std::int32_t> crossing = crossings(part);
  const auto fewest = std::min_element(crossing.begin(), crossing.end());
  if (!is_cycle || fewest == crossing.end() || *fewest == crossing.front()) return part;
  const auto cut = static_cast<std::int32_t>(fewest - crossing.begin());
  Part result = part;
  for (Item& item : result.items) item = rotated(item, cut, part);
  std::rotate(result.load.begin(), result.load.begin() + cut, result.load.end());
  renumber_starts(result);
  return result;
}

}  // namespace et_replay::planner
