#include "descent_orders.hpp"

#include <algorithm>
#include <array>

namespace et_replay::planner {

namespace {

// An item's worth is size * log size + life * log life - room * log room, weights in 1/64; the
// worthiest come first. With a width, in 1 / `octave` of a doubling, those of one class of that
// width come by start or end; without, the worth is disturbed.
struct Mixture {
  std::int64_t size, life, room, width;
  bool by_end;
  std::int64_t phase, deviation;
};

constexpr std::int64_t room_above_all = std::int64_t{1} << 20;

// Each solves some instance at once.
constexpr std::array<Mixture, 6> first_mixtures = {{
    {32, 32, room_above_all, 4 * octave, false, 0, 0},
    {32, 32, 0, 2 * octave, false, 0, 0},
    {32, 32, 32 * 24, 0, false, 0, 0},
    {0, 64, room_above_all, 2 * octave, true, 0, 0},
    {32, 32, 32 * 8, octave, true, 0, 0},
    {0, 64, 32 * 24, 0, false, 0, 0},
}};

// Of the cores of hard instances most are solved ten times as often with classes of 2 to 8
// doublings as without, by start as well as by end; a few only without. More want the long-living
// first than the large.
Mixture draw_mixture(Random& random) {
  constexpr std::array<std::int64_t, 5> rooms = {0, 32 * 8, 32 * 24, 32 * 64, room_above_all};
  constexpr std::array<std::int64_t, 8> widths = {
      0, 0, octave, 2 * octave, 2 * octave, 4 * octave, 4 * octave, 8 * octave};
  constexpr std::array<std::int64_t, 3> deviations = {10, 20, 40};
  const std::int64_t share = random.below(64);
  const std::int64_t size = share * share / 64;
  Mixture mixture{size, 64 - size, rooms[random.below(5)], widths[random.below(8)], false, 0, 0};
  if (mixture.width == 0) {
    mixture.deviation = 32 * deviations[random.below(3)];
  } else {
    mixture.by_end = random.below(2) == 0;
    mixture.phase = random.below(64 * mixture.width);
  }
  return mixture;
}

// Nearly normal.
std::int64_t disturbance(Random& random, std::int64_t deviation) {
  const std::uint64_t bits = random.next();
  std::int64_t sum = 0;
  for (int shift = 0; shift < 64; shift += 16) {
    sum += static_cast<std::int64_t>((bits >> shift) & 0xffff);
  }
  return (sum - 2 * 0xffff) * deviation / 37837;  // the deviation of the sum
}

std::int64_t worth_of(const Traits& traits, const Mixture& mixture, std::uint32_t item) {
  std::int64_t worth = mixture.size * traits.log_size[item] + mixture.life * traits.log_life[item];
  if (mixture.width == 0) return worth - mixture.room * traits.log_room[item];
  const std::int64_t width = 64 * mixture.width;
  const bool above_all = mixture.room == room_above_all;
  if (!above_all) worth -= mixture.room * traits.log_room[item];
  constexpr std::int64_t above_any = std::int64_t{1} << 40;  // so that the division rounds down
  worth = (worth + above_any + mixture.phase) / width;
  return above_all ? worth - mixture.room * traits.log_room[item] : worth;
}

}  // namespace

ItemOrder descent_order(const Traits& traits, std::uint32_t attempt) {
  Random random(attempt);
  const bool first = attempt < first_mixtures.size();
  const Mixture mixture = first ? first_mixtures[attempt] : draw_mixture(random);
  ItemOrder order = mixture.by_end ? traits.by_end : traits.by_start;
  std::vector<std::int64_t> worth(order.size());
  for (std::uint32_t item : order) {
    worth[item] = worth_of(traits, mixture, item);
    if (mixture.deviation > 0) worth[item] += disturbance(random, mixture.deviation);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t one, std::uint32_t other) {
    return worth[one] > worth[other];
  });
  return order;
}

}  // namespace et_replay::planner
