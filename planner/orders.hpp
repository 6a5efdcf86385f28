// The items of a part in; the orders in which first fit may place them, out.
#pragma once

#include <cstdint>
#include <vector>

#include "normal.hpp"
#include "random.hpp"

namespace et_replay::planner {

// What orders sort by. Logarithms are integers, in units of 1 / `octave` of a doubling, so that no
// rounding of a machine changes an order.
constexpr std::int32_t octave = 256;

using ItemOrder = std::vector<std::uint32_t>;  // indices of all items of a part

struct Traits {
  explicit Traits(const Part& part);

  std::vector<std::int32_t> log_size;
  std::vector<std::int32_t> log_life;    // of the number of slots
  std::vector<std::int32_t> log_room;    // of lower bound / highest load met: 0 at the peak
  std::vector<std::uint32_t> size_rank;  // 0 for the largest; equal sizes have equal ranks
  std::vector<std::uint32_t> room_rank;  // 0 for those at the peak; equal loads have equal ranks
  std::vector<bool> tiny;                // below 1e-5 of the lower bound
  ItemOrder by_start;
  ItemOrder by_end;    // the last to die first, then by start
  ItemOrder by_epoch;  // by 16 slots of begin, then the largest first, then by start
};

// Items come in classes, largest first, and in a class by time. For equal sizes the order by start
// colours an interval graph, which is optimal; that is why classes beat exact sorting by anything.
struct Order {
  enum class Within : std::uint8_t { start, end, epoch };
  static constexpr std::int32_t exact = -1;

  // The class is (size_weight * log size + life_weight * log life) / width + phase, rounded down.
  std::int32_t size_weight = 64;  // in 1/64
  std::int32_t life_weight = 0;
  std::int32_t width = exact;     // in 1 / `octave` of a doubling; exact: by size alone
  std::int32_t phase = 0;         // in 1/64 of the width
  // Before those come classes of log room of this width, the fullest first.
  std::int32_t room_width = 0;    // 0: none; exact: by the load itself
  bool tiny_first = false;        // before all else
  Within within = Within::start;
};

ItemOrder arrange(const Traits& traits, const Order& order);

}  // namespace et_replay::planner
