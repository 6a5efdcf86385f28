// For each item the lowest offset that it can have, how that grew, and why: which decisions of the
// search each rise rests on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "level_set.hpp"
#include "problem.hpp"

namespace et_replay::planner {

class BoundHistory {
 public:
  BoundHistory(std::size_t items, std::size_t levels)
      : words_(LevelSet(levels).size()),
        first_(items, 0),
        bounds_(items, 0),
        latest_(items, none) {}

  // Forgets everything; `first` are bounds that need no reason.
  void begin(const std::vector<Bytes>& first) {
    first_ = first;
    bounds_ = first;
    latest_.assign(first.size(), none);
    rises_.clear();
    notes_.clear();
  }

  Bytes of(std::int32_t item) const { return bounds_[static_cast<std::size_t>(item)]; }

  // Keeps a reason; the number returned stands for it until it is undone.
  std::int32_t note(const LevelSet& reason) {
    notes_.insert(notes_.end(), reason.words(), reason.words() + words_);
    return static_cast<std::int32_t>(notes_.size() / words_) - 1;
  }
  const std::uint64_t* noted(std::int32_t note) const {
    return notes_.data() + static_cast<std::size_t>(note) * words_;
  }

  void raise(std::int32_t item, Bytes bound, std::int32_t note) {
    const auto at = static_cast<std::size_t>(item);
    rises_.push_back({bound, item, latest_[at], note});
    latest_[at] = static_cast<std::int32_t>(rises_.size()) - 1;
    bounds_[at] = bound;
  }

  // Adds why the item cannot be below `bound`. The oldest rise that suffices rests on the fewest
  // decisions.
  void explain(std::int32_t item, Bytes bound, LevelSet& reason) const {
    const auto at = static_cast<std::size_t>(item);
    if (bound <= first_[at] || latest_[at] == none) return;
    const Rise* rise = &rises_[static_cast<std::size_t>(latest_[at])];
    while (rise->before != none) {
      const Rise* before = &rises_[static_cast<std::size_t>(rise->before)];
      if (before->bound < bound) break;
      rise = before;
    }
    reason.add(noted(rise->note));
  }

  struct Mark {
    std::size_t rises, notes;
  };
  Mark mark() const { return {rises_.size(), notes_.size()}; }
  void undo(const Mark& mark) {
    for (; rises_.size() > mark.rises; rises_.pop_back()) {
      const Rise& rise = rises_.back();
      const auto at = static_cast<std::size_t>(rise.item);
      latest_[at] = rise.before;
      bounds_[at] = rise.before == none ? first_[at]
                                        : rises_[static_cast<std::size_t>(rise.before)].bound;
    }
    notes_.resize(mark.notes);
  }

 private:
  static constexpr std::int32_t none = -1;

  struct Rise {
    Bytes bound;
    std::int32_t item;
    std::int32_t before;  // the item's rise before this one
    std::int32_t note;
  };

  std::size_t words_;  // of a reason
  std::vector<Bytes> first_, bounds_;
  std::vector<std::int32_t> latest_;  // the last rise of each item
  std::vector<Rise> rises_;
  std::vector<std::uint64_t> notes_;
};

}  // namespace et_replay::planner
