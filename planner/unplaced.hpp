// Items that are blocked or placed go in; of the others, the best that fits into a run of slots and
// the ones that could be placed next over a slot come out.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "normal.hpp"

namespace et_replay::planner {

// A tree over the items as points (begin, end): whoever lies within a run of slots [from, to) has
// begin >= from and end <= to, a rectangle. Each node knows the box of its unplaced items. Items
// that live twice are no points; they are not in here.
class Unplaced {
 public:
  static constexpr std::int32_t none = std::numeric_limits<std::int32_t>::max();

  explicit Unplaced(const std::vector<Item>& items);

  // Frees all. `ranks` must live as long as they are asked for.
  void reset(const std::vector<std::int32_t>& ranks);
  bool placed(std::int32_t item) const { return state_[item] == State::placed; }
  void block(std::int32_t item) { set(item, State::blocked); }
  void release(std::int32_t item) { set(item, State::free); }
  void remove(std::int32_t item) { set(item, State::placed); }

  // The best rank of what is neither blocked nor placed and lies in [from, to), or `none`.
  std::int32_t best_within(std::int32_t from, std::int32_t to) const;
  bool any_within(std::int32_t from, std::int32_t to) const;

  // An item over `slot` that lies in [from, to) and that `accept` takes, or `none`.
  template <class Accept>
  std::int32_t find_over(std::int32_t slot, std::int32_t from, std::int32_t to,
                         const Accept& accept) const {
    return find(1, {from, to}, slot, accept);
  }

  // Widens [from, to) to all slots of the items that live in [begin, end).
  void spread(std::int32_t begin, std::int32_t end, std::int32_t& from, std::int32_t& to) const;

 private:
  enum class State : std::uint8_t { free, blocked, placed };
  struct Window {
    std::int32_t from, to;

    bool holds(const Item& item) const { return item.begin >= from && item.end <= to; }
  };
  struct Box {  // of the unplaced items of a node
    std::int32_t first_begin = none, last_begin = -1, first_end = none, last_end = -1;
    std::int32_t best = none;  // the best rank of its free items

    void add(const Box& other);
    bool reaches(const Window& window) const {
      return last_begin >= window.from && first_end <= window.to;
    }
    bool inside(const Window& window) const {
      return first_begin >= window.from && last_end <= window.to;
    }
  };

  void build(std::int32_t node, std::int32_t first_leaf, std::int32_t leaves);
  Box box_of(std::int32_t item) const;
  void set(std::int32_t item, State state);
  void refresh(std::int32_t node);
  void best(std::int32_t node, const Window& window, std::int32_t& rank) const;
  bool any(std::int32_t node, const Window& window) const;
  void spread(std::int32_t node, const Window& span, Window& window) const;

  // Where the items of a leaf begin in `order_`; those of the next leaf follow.
  std::int32_t first_of(std::int32_t leaf) const {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(order_.size()) * leaf / leaves_);
  }
  template <class Visitor>
  void each(std::int32_t leaf_node, const Visitor& visit) const {
    const std::int32_t leaf = leaf_node - leaves_;
    for (std::int32_t at = first_of(leaf); at < first_of(leaf + 1); ++at) {
      if (state_[order_[at]] != State::placed) visit(order_[at]);
    }
  }

  template <class Accept>
  std::int32_t find(std::int32_t node, const Window& window, std::int32_t slot,
                    const Accept& accept) const {
    const Box& box = boxes_[node];
    if (!box.reaches(window) || box.first_begin > slot || box.last_end <= slot) return none;
    if (node < leaves_) {
      // Late beginnings first: they are short for the most part, and others seldom in their way.
      const std::int32_t found = find(2 * node + 1, window, slot, accept);
      return found != none ? found : find(2 * node, window, slot, accept);
    }
    std::int32_t found = none;
    each(node, [&](std::int32_t index) {
      const Item& item = items_[index];
      const bool over = item.begin <= slot && slot < item.end;
      if (found == none && over && window.holds(item) && accept(index)) found = index;
    });
    return found;
  }

  const std::vector<Item>& items_;
  const std::vector<std::int32_t>* ranks_ = nullptr;
  std::vector<State> state_;
  std::vector<std::int32_t> order_;    // the items, those of a leaf side by side
  std::vector<std::int32_t> leaf_of_;  // of each item, as node
  std::int32_t leaves_ = 1;            // a power of two
  std::vector<Box> boxes_;
};

}  // namespace et_replay::planner
