// A walk through the slots with a list of what is free.
#include "online_fit.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace et_replay::planner {

namespace {

// Free ranges below the top; what is above it is free, too.
class FreeRanges {
 public:
  Bytes take(Bytes size) {
    const auto fitting = by_size_.lower_bound({size, 0});
    if (fitting == by_size_.end()) return take_from_top(size);
    const auto [found, offset] = *fitting;
    remove(offset, found);
    if (found > size) add(offset + size, found - size);
    return offset;
  }

  void give_back(Bytes offset, Bytes size) {
    const auto behind = by_offset_.lower_bound(offset);
    if (behind != by_offset_.begin()) {
      const auto [before, length] = *std::prev(behind);
      if (before + length == offset) {
        remove(before, length);
        offset = before;
        size += length;
      }
    }
    const auto next = by_offset_.find(offset + size);
    if (next != by_offset_.end()) {
      const Bytes length = next->second;
      remove(offset + size, length);
      size += length;
    }
    if (offset + size == top_) {
      top_ = offset;
    } else {
      add(offset, size);
    }
  }

 private:
  Bytes take_from_top(Bytes size) {
    const Bytes offset = top_;
    top_ += size;
    return offset;
  }

  void add(Bytes offset, Bytes size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }

  void remove(Bytes offset, Bytes size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  std::map<Bytes, Bytes> by_offset_;
  std::set<std::pair<Bytes, Bytes>> by_size_;
  Bytes top_ = 0;
};

std::int32_t last_slot(const Item& item) {
  return item.lives_twice() ? std::max(item.end, item.end_again) : item.end;
}

template <class Key>
std::vector<std::uint32_t> sorted_by(std::size_t count, Key key) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t left, std::uint32_t right) {
    return key(left) < key(right);
  });
  return order;
}

}  // namespace

std::optional<Offsets> online_fit(const Part& part) {
  const std::vector<Item>& items = part.items;
  const auto is_plain = [](const Item& item) { return item.alignment == 1 && item.fixed < 0; };
  if (!std::all_of(items.begin(), items.end(), is_plain)) return std::nullopt;
  const auto births = sorted_by(items.size(), [&](std::uint32_t item) {
    return std::make_tuple(items[item].begin, items[item].start, item);
  });
  const auto deaths = sorted_by(items.size(), [&](std::uint32_t item) {
    return std::make_pair(last_slot(items[item]), item);
  });
  FreeRanges free;
  Offsets offsets(items.size());
  auto dead = deaths.begin();
  for (const std::uint32_t item : births) {
    for (; last_slot(items[*dead]) <= items[item].begin; ++dead) {
      free.give_back(offsets[*dead], items[*dead].size);
    }
    offsets[item] = free.take(items[item].size);
  }
  return offsets;
}

}  // namespace et_replay::planner
