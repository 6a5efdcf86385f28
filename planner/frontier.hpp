// Items placed from the bottom upwards go in; where each of the others would come to rest on them,
// comes out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "normal.hpp"
#include "remaining.hpp"
#include "skyline.hpp"
#include "unplaced.hpp"

namespace et_replay::planner {

// What a descent knows of a packing: only its upper contour, as in a game of falling blocks. What
// lies in the shadow below is lost.
struct Frontier {
  explicit Frontier(const Part& whole)
      : part(whole), skyline(whole.slots), remaining(whole.load), unplaced(whole.items) {}

  void reset(const std::vector<std::int32_t>& ranks) {
    skyline = Skyline(part.slots);
    remaining = Remaining(part.load);
    unplaced.reset(ranks);
    twice.clear();
    for (std::size_t item = 0; item < part.items.size(); ++item) {
      if (part.items[item].lives_twice()) twice.push_back(static_cast<std::int32_t>(item));
    }
    highest = 0;
  }

  // Calls visit(begin, end) for each span of the item.
  template <class Visitor>
  static void each_span(const Item& item, const Visitor& visit) {
    visit(item.begin, item.end);
    if (item.lives_twice()) visit(item.begin_again, item.end_again);
  }

  Bytes offset_of(std::int32_t index) const {
    const Item& item = part.items[index];
    Bytes height = 0;
    each_span(item, [&](std::int32_t begin, std::int32_t end) {
      height = std::max(height, skyline.highest(begin, end));
    });
    return aligned(height, item.alignment);
  }

  static Bytes aligned(Bytes offset, Bytes alignment) {
    return alignment == 1 ? offset : (offset + alignment - 1) / alignment * alignment;
  }

  void place(std::int32_t index, Bytes offset) {
    const Item& item = part.items[index];
    const Bytes top = offset + item.size;
    each_span(item, [&](std::int32_t begin, std::int32_t end) {
      skyline.raise(begin, end, top);
      remaining.take(begin, end, item.size);
    });
    highest = std::max(highest, top);
    unplaced.remove(index);
    if (item.lives_twice()) twice.erase(std::find(twice.begin(), twice.end(), index));
  }

  const Part& part;
  Skyline skyline;
  Remaining remaining;
  Unplaced unplaced;
  std::vector<std::int32_t> twice;  // the unplaced items that live twice; few
  Bytes highest = 0;                // top of all that is placed
};

}  // namespace et_replay::planner
