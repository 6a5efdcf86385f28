// Items of any packing, taken from the bottom upwards, can each sink until it rests on one taken
// before that it meets, or on the floor; an item with a fixed offset stays where it is. So it is
// enough to try every order, and in it to put each item right above those before it.
#include "exhaustive.hpp"

#include <algorithm>
#include <vector>

namespace et_replay::planner {

namespace {

class Orders {
 public:
  Orders(const Part& part, Bytes incumbent)
      : items_(part.items),
        goal_(part.target),
        arena_(incumbent),
        offsets_(items_.size()),
        placed_(items_.size(), false) {}

  std::optional<Offsets> best() {
    extend(0, 0, 0);
    return best_;
  }

 private:
  // Offsets do not sink in an order: items are taken from the bottom upwards.
  void extend(std::size_t count, Bytes lowest, Bytes top) {
    if (count == items_.size()) {
      arena_ = top;
      best_ = offsets_;
      return;
    }
    for (std::size_t next = 0; next < items_.size() && arena_ > goal_; ++next) {
      if (placed_[next]) continue;
      const Bytes offset = resting_place(next);
      if (offset < lowest || offset + items_[next].size >= arena_) continue;
      placed_[next] = true;
      offsets_[next] = offset;
      extend(count + 1, offset, std::max(top, offset + items_[next].size));
      placed_[next] = false;
    }
  }

  // -1: what is below reaches higher than the fixed offset.
  Bytes resting_place(std::size_t next) const {
    const Item& item = items_[next];
    Bytes offset = 0;
    for (std::size_t other = 0; other < items_.size(); ++other) {
      if (placed_[other] && items_[other].meets(item)) {
        offset = std::max(offset, offsets_[other] + items_[other].size);
      }
    }
    if (item.fixed >= 0) return item.fixed >= offset ? item.fixed : -1;
    return (offset + item.alignment - 1) / item.alignment * item.alignment;
  }

  const std::vector<Item>& items_;
  const Bytes goal_;
  Bytes arena_;
  Offsets offsets_;
  std::vector<bool> placed_;
  std::optional<Offsets> best_;
};

}  // namespace

std::optional<Offsets> search_all(const Part& part, Bytes incumbent) {
  return Orders(part, incumbent).best();
}

}  // namespace et_replay::planner
