#include "descent.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "descent_orders.hpp"
#include "rotation.hpp"

namespace et_replay::planner {

namespace {

constexpr std::array<Bytes, 5> busy_percents = {95, 90, 80, 70, 50};  // of the target
constexpr std::uint32_t most_tries = 64;                              // at a core in one turn

}  // namespace

Descents::Level::Level(Core busiest)
    : core(std::move(busiest)), traits(core.part), descent(core.part) {}

Descents::Descents(const Part& part)
    : solvable_(std::none_of(part.items.begin(), part.items.end(),
                             [](const Item& item) { return item.fixed >= 0; })),
      part_(rotated(part)),
      traits_(part_),
      descent_(part_) {
  if (!solvable_) return;
  for (std::int32_t width : {Order::exact, octave}) {  // exact sizes, and sizes of one octave
    Order order;
    order.width = width;
    fill_orders_.push_back(arrange(traits_, order));
  }
  make_levels();
}

void Descents::make_levels() {
  std::size_t largest = 0;
  for (Bytes percent : busy_percents) {
    Core core = core_of(part_, part_.target / 100 * percent);
    const bool fits = core.part.lower_bound + core.residents_size <= part_.target;
    // The core of the next level may be the same, or nearly the whole.
    if (!fits || core.items.size() <= largest) continue;
    if (core.items.size() > part_.items.size() * 9 / 10) break;
    largest = core.items.size();
    levels_.push_back(std::make_unique<Level>(std::move(core)));
  }
}

std::optional<Offsets> Descents::improve(Bytes target, Bytes incumbent, Budget& budget) {
  target_ = std::max(target, part_.target);
  limit_ = incumbent;
  best_.reset();
  if (!solvable_) return best_;
  while (!done(budget)) {
    if (turn_ < levels_.size()) {
      try_core(*levels_[turn_++], budget);
    } else {
      try_whole(budget);
      turn_ = 0;
      tries_ = std::min(2 * tries_, most_tries);
    }
  }
  return std::move(best_);
}

bool Descents::done(const Budget& budget) const { return limit_ <= target_ || budget.spent(); }

// Until one attempt succeeds.
void Descents::try_core(Level& level, Budget& budget) {
  const Bytes capacity = target_ - level.core.residents_size;
  for (std::uint32_t attempt = 0; attempt < tries_ && !done(budget); ++attempt) {
    const ItemOrder order = descent_order(level.traits, level.attempts++);
    if (!level.descent.run(order, {capacity, capacity + 1}, budget)) continue;
    for (const ItemOrder& fill_order : fill_orders_) {
      if (done(budget)) return;
      const auto offsets = fill_around(part_, level.core, level.descent.offsets(), fill_order,
                                       limit_, budget);
      if (offsets) consider(*offsets);
    }
    return;
  }
}

// Half as often, as it takes longer and succeeds less often.
void Descents::try_whole(Budget& budget) {
  for (std::uint32_t attempt = 0; attempt < tries_ / 2 && !done(budget); ++attempt) {
    const ItemOrder order = descent_order(traits_, attempts_++);
    if (descent_.run(order, {target_, limit_}, budget)) consider(descent_.offsets());
  }
}

void Descents::consider(const Offsets& offsets) {
  const Bytes arena = arena_of(part_, offsets);
  if (arena >= limit_) return;
  limit_ = arena;
  best_ = offsets;
}

std::optional<Offsets> descend(const Part& part, Bytes incumbent, Budget& budget) {
  return Descents(part).improve(part.target, incumbent, budget);
}

}  // namespace et_replay::planner
