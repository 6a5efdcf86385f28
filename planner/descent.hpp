// A part in; offsets with an arena below the best known, found by descents from the bottom upwards
// under a capacity, out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "budget.hpp"
#include "canonical_descent.hpp"
#include "core.hpp"
#include "normal.hpp"
#include "orders.hpp"

namespace et_replay::planner {

// Attempts at a part, each with another order. In turn come the cores of its busiest slots, with
// first fit around them, and the whole. Knows no fixed offsets: a part that has any gets nothing.
class Descents {
 public:
  // The part must live as long.
  explicit Descents(const Part& part);

  // Returns the best offsets found with an arena below `incumbent`, or nothing; stops when an arena
  // of `target` is reached or the budget spent. Another call goes on with further attempts. What
  // is found depends on the part and the arguments alone.
  std::optional<Offsets> improve(Bytes target, Bytes incumbent, Budget& budget);

 private:
  struct Level {  // a core, and the attempts at it
    explicit Level(Core busiest);

    Core core;
    Traits traits;
    CanonicalDescent descent;
    std::uint32_t attempts = 0;
  };

  void make_levels();
  bool done(const Budget& budget) const;
  void try_core(Level& level, Budget& budget);
  void try_whole(Budget& budget);
  void consider(const Offsets& offsets);

  const bool solvable_;
  const Part part_;
  Traits traits_;
  CanonicalDescent descent_;
  std::vector<ItemOrder> fill_orders_;
  std::vector<std::unique_ptr<Level>> levels_;
  std::size_t turn_ = 0;            // the level to try next; that after the last is the whole
  std::uint32_t tries_ = 4;         // at a level
  std::uint32_t attempts_ = 0;      // at the whole, if it is not
  Bytes target_ = 0, limit_ = 0;    // of the call in progress
  std::optional<Offsets> best_;     // in it
};

// The same in one call, until the part's target.
std::optional<Offsets> descend(const Part& part, Bytes incumbent, Budget& budget);

}  // namespace et_replay::planner
