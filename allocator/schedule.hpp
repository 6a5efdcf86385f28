// A plan in; which of its rows a request is, and what time of the plan it is, out.
#pragma once

#include <vector>

#include "plan_table.hpp"
#include "storage_table.hpp"

namespace et_replay {

class Schedule {
 public:
  struct Row : PlanRow {
    Row* sibling = nullptr;  // the next row of the same storage
    std::int32_t rank = -1;  // among the places, by offset; -1: it has none
    bool only = true;        // no other row has the storage
  };
  static constexpr Tick no_tick = -(Tick{1} << 62);
  // When a block that is served now is expected to go; no_tick: the plan does not know.
  struct Due {
    std::int64_t iteration = 0;
    Tick end = no_tick;
  };

  // Throws std::invalid_argument with a sentence about the first row that cannot be.
  explicit Schedule(const PlanTable& table);
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  // The first row of a storage; nullptr if the plan does not know it.
  const Row* find(std::int64_t storage) {
    const std::size_t index = expected_;
    if (index < rows_.size() && rows_[index].storage == storage && rows_[index].only) {
      ++expected_;
      return &rows_[index];
    }
    return look_up(storage);
  }
  // How long after now a row begins. What happens once and is over will not begin any more.
  Tick wait(const Row& row) const;

  // The row's request has come. Time that goes backward means that the next iteration has begun, or
  // where that is told, that requests came in another order.
  void begin(const Row& row) {
    if (row.start < now_) {
      if (turns_are_told_) return;
      ++iteration_;
    }
    now_ = row.start;
  }
  // From here on only this lets time go backward.
  void turn_to(Tick tick) {
    turns_are_told_ = true;
    if (tick < now_) ++iteration_;
    now_ = tick;
  }
  void expect_turns() { turns_are_told_ = true; }
  Due due(Tick end) const { return {iteration_, end}; }
  // A block has gone.
  void end(const Due& due);

  Tick now() const { return now_; }
  Tick period() const { return period_; }
  const std::vector<Row>& rows() const { return rows_; }
  std::size_t places() const { return places_; }

 private:
  void rank_places();
  const Row* look_up(std::int64_t storage);

  const Tick period_;
  std::vector<Row> rows_;
  std::size_t places_ = 0;
  StorageTable<Row> by_storage_;
  // Rows come in the order of their requests, mostly: the one after the last is tried before the
  // table, which with 100,000 rows misses the caches.
  std::size_t expected_ = 0;
  Tick now_ = 0;
  std::int64_t iteration_ = 0;
  bool turns_are_told_ = false;
};

}  // namespace et_replay
