// Keys are whole numbers, so that every machine chooses alike.
#include "branching.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace et_replay::planner {

namespace {

using Index = PartialPacking::Index;

constexpr std::int64_t per_octave = 64;  // logarithms are in 64ths of a power of 2

std::int64_t logarithm(std::int64_t value) {
  std::int64_t octave = 0;
  while ((value >> octave) > 1) ++octave;
  const std::int64_t rest = value - (std::int64_t{1} << octave);
  return octave * per_octave + (octave > 6 ? rest >> (octave - 6) : rest << (6 - octave));
}

std::int64_t key_of(const Part& part, const Item& item, Rank rank) {
  const std::int64_t width = logarithm(item.slots());
  const std::int64_t size = logarithm(item.size);
  Bytes load = 0;
  for (std::int32_t slot = item.begin; slot < item.end; ++slot) {
    load = std::max(load, part.load[static_cast<std::size_t>(slot)]);
  }
  // Ten powers of e between an empty slot and a full one.
  const std::int64_t fullness = load / (part.lower_bound / 923 + 1);
  switch (rank) {
    case Rank::width: return 30 * width + size;
    case Rank::load_and_area: return 10 * fullness + 3 * width + 3 * size;
    case Rank::load_and_width: return 10 * fullness + 10 * width + size;
    case Rank::area: return 10 * width + 10 * size;
    case Rank::size: break;
  }
  return 30 * size + width;
}

bool is_open(const PartialPacking& packing, Index item) {
  return packing.is_left(item) && !packing.is_lifted(item);
}

// Of what can be placed on its support at an offset below every top. Nothing can lie below it.
template <typename Score>
Index best_of(const PartialPacking& packing, const std::vector<Index>& items,
              const std::vector<Index>& ranks, Bytes highest, Score score) {
  Index best = -1;
  std::int64_t best_score = 0;
  for (const Index item : items) {
    if (!is_open(packing, item) || packing.lowest(item) > highest) continue;
    const std::int64_t found = score(item);
    const bool ranks_before = best < 0 || ranks[static_cast<std::size_t>(item)] <
                                              ranks[static_cast<std::size_t>(best)];
    if (best < 0 || found > best_score || (found == best_score && ranks_before)) {
      best = item;
      best_score = found;
    }
  }
  return best;
}

Bytes lowest_of(const PartialPacking& packing, const std::vector<Index>& items) {
  Bytes lowest = largest_arena;
  for (const Index item : items) {
    if (is_open(packing, item)) lowest = std::min(lowest, packing.lowest(item));
  }
  return lowest;
}

Index lowest_failing(PartialPacking& packing, const std::vector<Index>& items,
                     const std::vector<Index>& ranks) {
  return best_of(packing, items, ranks, lowest_of(packing, items), [&](Index item) {
    std::int64_t most = 0;
    packing.for_each_slot(item, [&](Index slot) {
      most = std::max(most, packing.failures()[static_cast<std::size_t>(slot)]);
    });
    return most;
  });
}

Index lowest_loaded(const PartialPacking& packing, const std::vector<Index>& items,
                    const std::vector<Index>& ranks) {
  return best_of(packing, items, ranks, lowest_of(packing, items), [&](Index item) {
    // In 2^40ths of the capacity, so that sums over slots do not overflow.
    const int shift = static_cast<int>(logarithm(packing.capacity()) / per_octave) - 40;
    Bytes sum = 0;
    packing.for_each_slot(item, [&](Index slot) {
      sum += shift > 0 ? packing.remaining(slot) >> shift : packing.remaining(slot);
    });
    return sum;
  });
}

Index lowest_high(const PartialPacking& packing, const std::vector<Index>& items,
                  const std::vector<Index>& ranks) {
  return best_of(packing, items, ranks, lowest_of(packing, items), [&](Index item) {
    Bytes most = 0;
    packing.for_each_slot(item, [&](Index slot) {
      most = std::max(most, packing.height(slot) + packing.remaining(slot));
    });
    return most;
  });
}

// e times as many failures are worth 0.3 % of the capacity.
Index failing(PartialPacking& packing, const std::vector<Index>& items,
              const std::vector<Index>& ranks) {
  Bytes lowest_top = largest_arena;
  for (const Index item : items) {
    if (packing.is_left(item)) lowest_top = std::min(lowest_top, packing.lowest_top(item));
  }
  const Bytes capacity = packing.capacity();
  return best_of(packing, items, ranks, lowest_top - 1, [&](Index item) {
    std::int64_t sum = PartialPacking::failure;
    packing.for_each_slot(item, [&](Index slot) {
      sum += packing.failures()[static_cast<std::size_t>(slot)] + PartialPacking::failure;
    });
    const std::int64_t urgency = logarithm(sum);
    const Bytes worth = capacity < (Bytes{1} << 40) ? capacity * urgency / 30'720
                                                    : capacity / 30'720 * urgency;
    return worth - packing.lowest(item);
  });
}

// The slot with the fewest items that can come first, for as many failures; the lower of equals.
Index tightest_slot(PartialPacking& packing, const std::vector<Index>& items) {
  Index first = packing.slots();
  Index last = -1;
  for (const Index item : items) {
    if (!packing.is_left(item)) continue;
    packing.for_each_slot(item, [&](Index slot) {
      first = std::min(first, slot);
      last = std::max(last, slot);
    });
  }
  Index best = -1;
  std::int64_t best_count = 0;
  std::int64_t best_weight = 1;
  for (Index slot = first; slot <= last; ++slot) {
    if (packing.count_in(slot) < 2) continue;
    packing.add_work(packing.count_in(slot));
    std::int64_t count = 0;
    for (Index index = 0; index < packing.count_in(slot); ++index) {
      count += packing.lowest(packing.left_in(slot)[index]) <= packing.limit(slot) ? 1 : 0;
    }
    const std::int64_t weight =
        packing.failures()[static_cast<std::size_t>(slot)] + PartialPacking::failure;
    const std::int64_t left = count * best_weight;
    const std::int64_t right = best_count * weight;
    if (best < 0 || left < right ||
        (left == right && packing.height(slot) < packing.height(best))) {
      best = slot;
      best_count = count;
      best_weight = weight;
    }
  }
  return best;
}

// The one whose top is the lowest of what meets the item, or -1.
Index lowest_below(const PartialPacking& packing, Index item, const std::vector<Index>& ranks) {
  Index lowest = -1;
  packing.for_each_left_that_meets(item, [&](Index other) {
    if (lowest >= 0 && packing.lowest_top(other) > packing.lowest_top(lowest)) return;
    if (lowest < 0 || packing.lowest_top(other) < packing.lowest_top(lowest) ||
        ranks[static_cast<std::size_t>(other)] < ranks[static_cast<std::size_t>(lowest)]) {
      lowest = other;
    }
  });
  return lowest;
}

bool fits_below(const PartialPacking& packing, Index other, Index item) {
  return other >= 0 &&
         (packing.is_lifted(item) || packing.lowest_top(other) <= packing.lowest(item));
}

// The first of the slot's items that nothing fits below; else what fits below, and so on down.
Index tightest(PartialPacking& packing, const std::vector<Index>& items,
               const std::vector<Index>& ranks) {
  const Index slot = tightest_slot(packing, items);
  if (slot < 0) return lowest_failing(packing, items, ranks);
  const auto ranks_before = [&](Index left, Index right) {
    if (packing.lowest(left) != packing.lowest(right)) {
      return packing.lowest(left) < packing.lowest(right);
    }
    return ranks[static_cast<std::size_t>(left)] < ranks[static_cast<std::size_t>(right)];
  };
  Index best = -1;
  Index lowest = -1;
  for (Index index = 0; index < packing.count_in(slot); ++index) {
    const Index item = packing.left_in(slot)[index];
    if (lowest < 0 || ranks_before(item, lowest)) lowest = item;
    if (packing.lowest(item) > packing.limit(slot) || packing.is_lifted(item)) continue;
    if (best >= 0 && !ranks_before(item, best)) continue;
    if (!fits_below(packing, lowest_below(packing, item, ranks), item)) best = item;
  }
  if (best >= 0) return best;
  while (true) {
    const Index below = lowest_below(packing, lowest, ranks);
    if (!fits_below(packing, below, lowest)) return lowest;
    lowest = below;
  }
}

}  // namespace

std::vector<Index> ranks_of(const Part& part, Rank rank, std::int64_t noise, Random& random) {
  std::vector<std::int64_t> keys;
  keys.reserve(part.items.size());
  for (const Item& item : part.items) {
    keys.push_back(key_of(part, item, rank) + random.between(-noise, noise) * 9);
  }
  std::vector<Index> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](Index left, Index right) {
    return keys[static_cast<std::size_t>(left)] > keys[static_cast<std::size_t>(right)];
  });
  std::vector<Index> ranks(order.size());
  for (std::size_t place = 0; place < order.size(); ++place) {
    ranks[static_cast<std::size_t>(order[place])] = static_cast<Index>(place);
  }
  return ranks;
}

Index choose(PartialPacking& packing, Rule rule, const std::vector<Index>& items,
             const std::vector<Index>& ranks) {
  packing.add_work(static_cast<std::int64_t>(items.size()));
  switch (rule) {
    case Rule::lowest_failing: return lowest_failing(packing, items, ranks);
    case Rule::lowest_loaded: return lowest_loaded(packing, items, ranks);
    case Rule::lowest_high: return lowest_high(packing, items, ranks);
    case Rule::failing: return failing(packing, items, ranks);
    case Rule::tightest: break;
  }
  return tightest(packing, items, ranks);
}

}  // namespace et_replay::planner
