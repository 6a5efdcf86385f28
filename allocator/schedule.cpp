// Rows by their storage, and the clock that requests and frees set.
#include "schedule.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace et_replay {

namespace {

// Beyond it, sums of ticks could overflow.
constexpr Tick last_tick = Tick{1} << 60;
constexpr Bytes largest_plan = Bytes{1} << 62;  // as the planner's: no device has it

std::string complaint_about(const PlanRow& row, const PlanTable& table) {
  if (row.size < 0 || row.size >= largest_plan) {
    return "its size is " + std::to_string(row.size) + " bytes";
  }
  if (row.start >= row.end || row.start >= table.period || row.start < -last_tick ||
      row.end > last_tick) {
    return "it cannot live in [" + std::to_string(row.start) + ", " + std::to_string(row.end) +
           ") of a period of " + std::to_string(table.period);
  }
  if (row.offset == no_offset) return "";
  if (row.offset < 0 || row.offset % smallest_block != 0) {
    return "its offset " + std::to_string(row.offset) + " is no multiple of 512";
  }
  if (round_up(row.size, smallest_block) > round_up(table.arena, smallest_block) - row.offset) {
    return "it ends behind the arena of " + std::to_string(table.arena) + " bytes";
  }
  return "";
}

void check(const PlanTable& table) {
  const Tick least_period = table.rows.empty() ? 0 : 1;
  if (table.arena < 0 || table.arena >= largest_plan || table.period < least_period ||
      table.period > last_tick) {
    throw std::invalid_argument("The plan has an arena of " + std::to_string(table.arena) +
                                " bytes and a period of " + std::to_string(table.period) +
                                " ticks, which cannot be.");
  }
  for (std::size_t index = 0; index < table.rows.size(); ++index) {
    const std::string complaint = complaint_about(table.rows[index], table);
    if (complaint.empty()) continue;
    throw std::invalid_argument("Row " + std::to_string(index) + " of the plan, storage " +
                                std::to_string(table.rows[index].storage) + ": " + complaint + ".");
  }
}

}  // namespace

Schedule::Schedule(const PlanTable& table) : period_(table.period) {
  check(table);
  if (table.rows.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw std::invalid_argument("The plan has more than 2^31 rows.");
  }
  rows_.reserve(table.rows.size());
  for (const PlanRow& row : table.rows) {
    rows_.push_back({row});
    now_ = std::min(now_, row.start);
  }
  rank_places();
  // From the last to the first, so that siblings come in the order of the plan.
  for (auto row = rows_.rbegin(); row != rows_.rend(); ++row) {
    row->sibling = by_storage_.take(row->storage);
    if (row->sibling != nullptr) row->only = row->sibling->only = false;
    by_storage_.insert(row->storage, &*row);
  }
}

void Schedule::rank_places() {
  std::vector<Row*> sorted;
  for (Row& row : rows_) {
    if (row.offset != no_offset) sorted.push_back(&row);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Row* left, const Row* right) {
    return left->offset < right->offset;
  });
  for (Row* row : sorted) row->rank = static_cast<std::int32_t>(places_++);
}

const Schedule::Row* Schedule::look_up(std::int64_t storage) {
  const Row* row = by_storage_.find(storage);
  if (row != nullptr) expected_ = static_cast<std::size_t>(row - rows_.data()) + 1;
  return row;
}

Tick Schedule::wait(const Row& row) const {
  if (row.start >= now_) return row.start - now_;
  return row.start >= 0 ? row.start - now_ + period_ : std::numeric_limits<Tick>::max();
}

// One that goes early, late, or was not known, says nothing of the time.
void Schedule::end(const Due& due) {
  Tick end = due.end;
  if (const std::int64_t passed = iteration_ - due.iteration; passed != 0) {
    if (end <= 0 || passed > end / period_) return;
    end -= passed * period_;
  }
  if (end > now_ && end <= period_) now_ = end;
}

}  // namespace et_replay
