// Sorts packed keys: the class above, the rank below.
#include "orders.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <utility>

namespace et_replay::planner {

namespace {

std::int32_t log2_of(Bytes value) {
  auto bits = static_cast<std::uint64_t>(value);
  std::int32_t whole = 0;
  while ((bits >> whole) > 1) ++whole;
  // The mantissa in [1, 2) with 32 fraction bits; squaring it yields one bit of the logarithm.
  std::uint64_t mantissa = whole >= 32 ? bits >> (whole - 32) : bits << (32 - whole);
  std::int32_t result = whole;
  for (std::int32_t bit = octave; bit > 1; bit /= 2) {
    const std::uint64_t half = mantissa >> 1;  // 32 bits: the square fits
    const std::uint64_t square = half * half >> 30;
    const bool carry = square >> 33 != 0;
    result = 2 * result + (carry ? 1 : 0);
    mantissa = carry ? square >> 1 : square;
  }
  return result;
}

// The highest load in a span, by a segment tree of maxima.
class Peaks {
 public:
  explicit Peaks(const std::vector<Bytes>& load) : leaves_(load.size()), highest_(2 * leaves_) {
    std::copy(load.begin(), load.end(), highest_.begin() + static_cast<std::ptrdiff_t>(leaves_));
    for (std::size_t node = leaves_ - 1; node >= 1; --node) {
      highest_[node] = std::max(highest_[2 * node], highest_[2 * node + 1]);
    }
  }

  Bytes over(std::int32_t begin, std::int32_t end) const {
    Bytes highest = 0;
    std::size_t left = static_cast<std::size_t>(begin) + leaves_;
    std::size_t right = static_cast<std::size_t>(end) + leaves_;
    for (; left < right; left /= 2, right /= 2) {
      if (left % 2 == 1) highest = std::max(highest, highest_[left++]);
      if (right % 2 == 1) highest = std::max(highest, highest_[--right]);
    }
    return highest;
  }

 private:
  std::size_t leaves_;
  std::vector<Bytes> highest_;
};

template <class Less>
ItemOrder sorted(std::size_t count, Less less) {
  ItemOrder order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), less);
  return order;
}

// The largest first; equals have equal ranks.
std::vector<std::uint32_t> ranks_of(const std::vector<Bytes>& values) {
  const ItemOrder order = sorted(values.size(), [&](std::uint32_t one, std::uint32_t other) {
    return values[one] > values[other];
  });
  std::vector<std::uint32_t> ranks(values.size());
  std::uint32_t rank = 0;
  for (std::size_t at = 0; at < ranks.size(); ++at) {
    if (at > 0 && values[order[at]] < values[order[at - 1]]) ++rank;
    ranks[order[at]] = rank;
  }
  return ranks;
}

// Sorts by class, the lowest first, and leaves the order in a class: 11 bits a pass, since mostly
// there are few classes.
void sort_by_class(ItemOrder& order, const std::vector<std::uint64_t>& classes) {
  constexpr int bits = 11;
  constexpr std::uint64_t mask = (1u << bits) - 1;
  const std::uint64_t highest = *std::max_element(classes.begin(), classes.end());
  ItemOrder next(order.size());
  for (int shift = 0; shift < 64 && highest >> shift != 0; shift += bits) {
    std::array<std::uint32_t, mask + 2> start{};
    for (const std::uint64_t its : classes) ++start[(its >> shift & mask) + 1];
    std::partial_sum(start.begin(), start.end(), start.begin());
    for (const std::uint32_t item : order) next[start[classes[item] >> shift & mask]++] = item;
    order.swap(next);
  }
}

std::uint64_t class_of(const Traits& traits, const Order& order, std::uint32_t item) {
  if (order.width == Order::exact) return traits.size_rank[item];
  constexpr std::int64_t highest = 1 << 15;  // logarithms are below 62 octaves
  const std::int64_t mixed = std::int64_t{order.size_weight} * traits.log_size[item] +
                             std::int64_t{order.life_weight} * traits.log_life[item];
  const std::int64_t width = order.width;
  return static_cast<std::uint64_t>(highest - (mixed + order.phase * width) / (64 * width));
}

std::uint64_t room_class_of(const Traits& traits, const Order& order, std::uint32_t item) {
  if (order.room_width == Order::exact) return traits.room_rank[item];
  return static_cast<std::uint64_t>(traits.log_room[item] / order.room_width);
}

}  // namespace

Traits::Traits(const Part& part) {
  const std::vector<Item>& items = part.items;
  const Peaks peaks(part.load);
  const std::int32_t log_bound = log2_of(std::max<Bytes>(part.lower_bound, 1));
  std::vector<Bytes> sizes, loads;
  for (const Item& item : items) {
    const Bytes met = std::max(peaks.over(item.begin, item.end),
                               peaks.over(item.begin_again, item.end_again));
    log_size.push_back(log2_of(item.size));
    log_life.push_back(log2_of(item.slots()));
    log_room.push_back(std::max(log_bound - log2_of(met), 0));
    tiny.push_back(item.size < part.lower_bound / 100000);
    sizes.push_back(item.size);
    loads.push_back(met);
  }
  size_rank = ranks_of(sizes);
  room_rank = ranks_of(loads);
  by_start = sorted(items.size(), [&](std::uint32_t one, std::uint32_t other) {
    return std::pair(items[one].start, one) < std::pair(items[other].start, other);
  });
  by_end = sorted(items.size(), [&](std::uint32_t one, std::uint32_t other) {
    return std::tuple(items[other].end_again, items[one].start, one) <
           std::tuple(items[one].end_again, items[other].start, other);
  });
  by_epoch = sorted(items.size(), [&](std::uint32_t one, std::uint32_t other) {
    return std::tuple(items[one].begin / 16, size_rank[one], items[one].start, one) <
           std::tuple(items[other].begin / 16, size_rank[other], items[other].start, other);
  });
}

ItemOrder arrange(const Traits& traits, const Order& order) {
  const std::size_t count = traits.by_start.size();
  std::vector<std::uint64_t> classes(count);
  std::uint64_t radix = 1;
  for (std::uint32_t item = 0; item < count; ++item) {
    classes[item] = class_of(traits, order, item);
    radix = std::max(radix, classes[item] + 1);
  }
  for (std::uint32_t item = 0; item < count && order.room_width != 0; ++item) {
    classes[item] += radix * room_class_of(traits, order, item);
  }
  if (order.tiny_first) radix = *std::max_element(classes.begin(), classes.end()) + 1;
  for (std::uint32_t item = 0; item < count && order.tiny_first; ++item) {
    if (!traits.tiny[item]) classes[item] += radix;
  }
  ItemOrder result = order.within == Order::Within::start  ? traits.by_start
                     : order.within == Order::Within::end ? traits.by_end
                                                          : traits.by_epoch;
  sort_by_class(result, classes);
  return result;
}

}  // namespace et_replay::planner
