// The fixed list is a greedy cover: each order is the one that lowers the mean ratio of 70
// instances (the public ones, and 60 generated training jobs) the most, given those before it.
#include "order_family.hpp"

#include <algorithm>
#include <array>

namespace et_replay::planner {

namespace {

struct Weights {
  std::int32_t size, life;  // a unit vector times 64
};
// At 0, 9, 17, 26, 34, 43, 51, 60, 69, 80 and 90 degrees.
constexpr std::array<Weights, 11> directions = {
    {{64, 0}, {63, 10}, {61, 19}, {57, 28}, {53, 36}, {47, 44}, {40, 50}, {32, 55}, {23, 60},
     {11, 63}, {0, 64}}};

// Each about 1.26 times the one before it.
constexpr std::array<std::int32_t, 17> widths = {
    Order::exact, 96, 128, 160, 202, 256, 320, 404, 512,
    640, 808, 1024, 1280, 1616, 2048, 2560, 3232};
constexpr std::array<std::int32_t, 9> room_widths = {Order::exact, 2, 4, 8, 16, 32, 64, 128, 256};
// The start is the best of them most often.
constexpr std::array<Order::Within, 5> withins = {
    Order::Within::start, Order::Within::start, Order::Within::start, Order::Within::end,
    Order::Within::epoch};

template <class Table>
std::int64_t any_of(const Table& table, Random& random) {
  return random.below(static_cast<std::int64_t>(table.size()));
}

template <class Table>
typename Table::value_type any(const Table& table, Random& random) {
  return table[static_cast<std::size_t>(any_of(table, random))];
}

void point(Order& order, std::size_t direction) {
  order.size_weight = directions[direction].size;
  order.life_weight = directions[direction].life;
}

std::size_t direction_of(const Order& order) {
  std::size_t at = 0;
  while (at + 1 < directions.size() && directions[at].life < order.life_weight) ++at;
  return at;
}

template <class Table>
std::int32_t neighbour(const Table& table, std::int32_t value, Random& random) {
  const auto found = std::lower_bound(table.begin(), table.end(), value) - table.begin();
  const auto last = static_cast<std::int64_t>(table.size()) - 1;
  const std::int64_t moved = found + random.between(-1, 1);
  return table[static_cast<std::size_t>(std::clamp<std::int64_t>(moved, 0, last))];
}

Order made(Weights weights, std::int32_t width, std::int32_t phase, std::int32_t room_width) {
  Order order;
  order.size_weight = weights.size;
  order.life_weight = weights.life;
  order.width = width;
  order.phase = phase;
  order.room_width = room_width;
  return order;
}

Order tiny_first(Order order) {
  order.tiny_first = true;
  return order;
}

Order within(Order::Within within, Order order) {
  order.within = within;
  return order;
}

}  // namespace

const std::vector<Order>& fixed_orders() {
  static const std::vector<Order> orders = {
      tiny_first(made({0, 64}, 1536, 0, 16)),
      made({64, 0}, Order::exact, 0, 0),
      made({64, 0}, 768, 32, 4),
      made({64, 0}, 768, 0, 64),
      made({64, 0}, 1536, 0, 16),
      made({0, 64}, 768, 32, 4),
      made({64, 0}, 512, 0, 4),
      made({40, 50}, 768, 32, 0),
      made({61, 19}, 1536, 0, 16),
      made({53, 36}, 1536, 32, 0),
      tiny_first(made({0, 64}, 768, 0, 0)),
      made({53, 36}, 768, 32, 0),
      made({61, 19}, 128, 0, 64),
      made({23, 60}, 1536, 0, 4),
      made({61, 19}, 256, 32, 0),
      made({40, 50}, 1536, 0, 0),
      made({53, 36}, 512, 0, 0),
      within(Order::Within::end, made({0, 64}, 512, 0, 4)),
      made({0, 64}, 1536, 32, 0),
      // Half a million buffers of a mixture of experts: 1.00005 of the bound.
      tiny_first(within(Order::Within::end, made({30, 56}, 2145, 1, 0))),
  };
  return orders;
}

Order random_order(Random& random) {
  Order order;
  point(order, static_cast<std::size_t>(any_of(directions, random)));
  order.width = any(widths, random);
  order.phase = static_cast<std::int32_t>(random.below(64));
  if (random.below(2) == 0) order.room_width = any(room_widths, random);
  order.tiny_first = random.below(6) == 0;
  order.within = any(withins, random);
  return order;
}

Order varied_order(Order order, Random& random) {
  if (random.below(2) == 0) {
    const auto moved = static_cast<std::int64_t>(direction_of(order)) + random.between(-1, 1);
    const auto last = static_cast<std::int64_t>(directions.size()) - 1;
    point(order, static_cast<std::size_t>(std::clamp<std::int64_t>(moved, 0, last)));
  }
  if (random.below(2) == 0) order.width = neighbour(widths, order.width, random);
  if (random.below(2) == 0) order.phase = static_cast<std::int32_t>(random.below(64));
  if (order.room_width != 0 && random.below(2) == 0) {
    order.room_width = neighbour(room_widths, order.room_width, random);
  }
  if (random.below(10) == 0) {
    order.room_width = order.room_width != 0 ? 0 : any(room_widths, random);
  }
  if (random.below(10) == 0) order.tiny_first = !order.tiny_first;
  if (random.below(10) == 0) order.within = any(withins, random);
  return order;
}

std::string describe(const Order& order) {
  std::string text = "first fit by ";
  if (order.tiny_first) text += "tininess, ";
  if (order.room_width != 0) text += "load, ";
  if (order.width == Order::exact || order.life_weight == 0) {
    text += "size";
  } else {
    text += order.size_weight == 0 ? "lifetime" : "size and lifetime";
  }
  if (order.width != Order::exact) {
    // In tenths of an octave: 2.5 for classes of a factor of 2^2.5.
    const std::int32_t tenths = (10 * order.width + octave / 2) / octave;
    text += " class of " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
    text += " octaves";
  }
  switch (order.within) {
    case Order::Within::start: return text + " and start";
    case Order::Within::end: return text + " and end";
    case Order::Within::epoch: return text + " and epoch";
  }
  return text;
}

}  // namespace et_replay::planner
