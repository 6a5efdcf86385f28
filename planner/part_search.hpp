// A part in; the best offsets that the effort allows, out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "contest.hpp"
#include "descent.hpp"
#include "exact.hpp"
#include "normal.hpp"
#include "order_family.hpp"
#include "packing.hpp"

namespace et_replay::planner {

// Attempts are numbered; of those that need the same arena the first wins. What a round of attempts
// starts from is what the rounds before it have found, so that the number of threads changes
// nothing but the time.
class PartSearch {
 public:
  PartSearch(const Part& part, unsigned threads, const Stop& stop);

  // Finds some offsets, by the first of the fixed orders; in a hurry, any that are found quickly.
  void begin(bool hurried);

  // Goes on until the arena is at most `target`, no better one is possible or the effort is spent so
  // many `times`: about so many microseconds on each of two threads. What comes first is the same
  // however many times, so that more never finds less.
  void improve(Bytes target, std::int64_t effort, int times);

  bool found() const { return !offsets().empty(); }
  Bytes arena() const { return contest_.arena(); }
  const Offsets& offsets() const { return contest_.offsets(); }
  const std::string& method() const { return contest_.method(); }
  bool exhausted() const { return proven_bound_ >= arena(); }  // no smaller arena is possible

 private:
  struct Round {
    std::vector<Order> orders;
    std::int64_t descent_steps = 0;
    std::int64_t search_steps = 0;
  };

  bool done() const;
  std::vector<Order> varied_orders(std::size_t count);
  void run(const Round& round);
  void pack(const Order& order, std::uint64_t attempt, unsigned worker);
  void enter(std::uint64_t attempt, Offsets offsets, std::string method);
  void descend(std::uint64_t attempt, Bytes incumbent, std::int64_t steps);
  void search(std::uint64_t attempt, Bytes incumbent, std::int64_t steps);

  const Part& part_;
  const unsigned threads_;
  const Stop& stop_;
  std::unique_ptr<Traits> traits_;
  std::vector<std::unique_ptr<Packing>> packings_;  // of each worker
  std::unique_ptr<Descents> descents_;  // which go on from round to round,
  std::unique_ptr<ExactSearch> exact_;  // as this does
  Contest contest_;
  std::uint64_t attempts_ = 0;
  Order best_order_;
  Random random_{1};
  Bytes proven_bound_ = 0;
};

}  // namespace et_replay::planner
