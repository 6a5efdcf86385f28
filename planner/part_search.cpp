// Rounds of attempts, each as long as all before it.
#include "part_search.hpp"

#include <algorithm>

#include "exhaustive.hpp"
#include "online_fit.hpp"
#include "workers.hpp"

namespace et_replay::planner {

namespace {

constexpr std::size_t most_searched = 1500;  // items; beyond that the exact search never ends
constexpr std::size_t most_at_once = 100'000;

}  // namespace

PartSearch::PartSearch(const Part& part, unsigned threads, const Stop& stop)
    : part_(part), threads_(std::max(threads, 1u)), stop_(stop), contest_(stop) {}

// So many items are packed by first fit in half a second; more get a quicker plan first.
void PartSearch::begin(bool hurried) {
  if (hurried && part_.items.size() > most_at_once) {
    auto offsets = online_fit(part_);
    if (offsets) enter(attempts_++, std::move(*offsets), "online best fit");
  }
  Round round;
  round.orders.push_back(fixed_orders().front());
  run(round);
}

bool PartSearch::done() const {
  return contest_.decided() || exhausted() || stop_.over.load(std::memory_order_relaxed);
}

void PartSearch::improve(Bytes target, std::int64_t effort, int times) {
  contest_.aim(target);
  if (done()) return;
  if (part_.items.size() <= few) {
    if (auto offsets = search_all(part_, arena())) {
      enter(attempts_++, std::move(*offsets), "trial of all orders");
    }
    proven_bound_ = arena();
    return;
  }
  const auto count = static_cast<std::int64_t>(part_.items.size());
  Round round;
  round.orders.assign(fixed_orders().begin() + 1, fixed_orders().end());
  run(round);
  std::int64_t share = std::max<std::int64_t>(effort / 32, 16 * count);
  for (effort *= times; !done() && effort > 0; share *= 2) {
    share = std::min(share, effort);
    effort -= share;
    const auto orders = std::max<std::int64_t>(share / count, 2);
    round.orders = varied_orders(static_cast<std::size_t>(orders));
    round.descent_steps = share;
    round.search_steps = part_.items.size() <= most_searched ? share : 0;
    run(round);
  }
}

std::vector<Order> PartSearch::varied_orders(std::size_t count) {
  std::vector<Order> orders;
  while (orders.size() < count) {
    orders.push_back(random_order(random_));
    orders.push_back(varied_order(best_order_, random_));
  }
  return orders;
}

// The long attempts come first, lest one of them be alone in the end.
void PartSearch::run(const Round& round) {
  const Bytes incumbent = contest_.arena();
  const std::uint64_t first = attempts_;
  const std::size_t others = (round.descent_steps > 0 ? 1 : 0) + (round.search_steps > 0 ? 1 : 0);
  if (!traits_) traits_ = std::make_unique<Traits>(part_);
  packings_.resize(threads_);
  run_tasks(threads_, others + round.orders.size(), [&](std::size_t task, unsigned worker) {
    if (task >= others) {
      pack(round.orders[task - others], first + task, worker);
    } else if (task == 0) {
      descend(first, incumbent, round.descent_steps);
    } else {
      search(first + task, incumbent, round.search_steps);
    }
  });
  attempts_ += others + round.orders.size();
  const std::uint64_t winner = contest_.attempt();
  if (winner >= first + others && winner < attempts_) {
    best_order_ = round.orders[winner - first - others];
  }
}

void PartSearch::enter(std::uint64_t attempt, Offsets offsets, std::string method) {
  const Bytes arena = arena_of(part_, offsets);
  contest_.enter(attempt, arena, std::move(offsets), std::move(method));
}

void PartSearch::pack(const Order& order, std::uint64_t attempt, unsigned worker) {
  if (contest_.limit(attempt) < 0) return;
  if (!packings_[worker]) packings_[worker] = std::make_unique<Packing>(part_);
  Packing& packing = *packings_[worker];
  const auto limit = [&] { return contest_.limit(attempt); };
  const auto arena = packing.pack(arrange(*traits_, order), limit);
  if (arena) contest_.enter(attempt, *arena, packing.offsets(), describe(order));
}

void PartSearch::descend(std::uint64_t attempt, Bytes incumbent, std::int64_t steps) {
  Budget budget{steps, &stop_.over};
  if (!descents_) descents_ = std::make_unique<Descents>(part_);
  auto offsets = descents_->improve(part_.target, incumbent, budget);
  if (offsets) enter(attempt, std::move(*offsets), "descent");
}

void PartSearch::search(std::uint64_t attempt, Bytes incumbent, std::int64_t steps) {
  Budget budget{steps, &stop_.over};
  if (!exact_) exact_ = std::make_unique<ExactSearch>(part_);
  auto result = exact_->improve(incumbent, budget);
  proven_bound_ = std::max(proven_bound_, result.proven_bound);
  if (result.offsets) enter(attempt, std::move(*result.offsets), "exact search");
}

}  // namespace et_replay::planner
