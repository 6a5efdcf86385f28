// Descents against the validator, their parts against slow and obvious ones.
#include <algorithm>
#include <atomic>
#include <random>
#include <vector>

#include "check.hpp"
#include "planner/core.hpp"
#include "planner/descent.hpp"
#include "planner/normal.hpp"
#include "planner/remaining.hpp"
#include "planner/rotation.hpp"
#include "planner/skyline.hpp"
#include "planner/unplaced.hpp"
#include "planner/validate.hpp"

namespace et_replay::test {

namespace {

using namespace et_replay::planner;
using Generator = std::mt19937_64;

constexpr std::int64_t enough_steps = 20000;

std::int32_t draw(Generator& random, std::int32_t low, std::int32_t high) {
  return low + static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

Span draw_span(Generator& random, std::int32_t from, std::int32_t to) {
  const std::int32_t start = draw(random, from, to - 1);
  return {start, draw(random, start + 1, std::min(to, start + draw(random, 1, to - from)))};
}

enum class Kind { intervals, aligned, cycle, gaps };

Buffer draw_buffer(Generator& random, Kind kind, std::int32_t ticks) {
  Buffer buffer;
  buffer.size = draw(random, 1, draw(random, 1, 40));
  buffer.span = draw_span(random, 0, ticks);
  if (kind == Kind::aligned) buffer.alignment = std::int64_t{1} << draw(random, 0, 4);
  if (kind == Kind::cycle && draw(random, 0, 2) == 0) {
    const std::int32_t end = draw(random, 1, ticks - 1);
    buffer.span = {0, end};
    buffer.again = {draw(random, end, ticks - 1), ticks};
  }
  if (kind == Kind::gaps && buffer.span.end < ticks && draw(random, 0, 2) == 0) {
    buffer.again = draw_span(random, static_cast<std::int32_t>(buffer.span.end), ticks);
  }
  return buffer;
}

Problem draw_problem(Generator& random, Kind kind) {
  const std::int32_t ticks = draw(random, 2, 40);
  Problem problem(static_cast<std::size_t>(draw(random, 1, draw(random, 1, 120))));
  for (Buffer& buffer : problem) buffer = draw_buffer(random, kind, ticks);
  return problem;
}

Problem problem_of(const Part& part) {
  Problem problem;
  for (const Item& item : part.items) {
    Buffer buffer;
    buffer.size = item.size;
    buffer.alignment = item.alignment;
    buffer.span = {item.begin, item.end};
    if (item.lives_twice()) buffer.again = {item.begin_again, item.end_again};
    problem.push_back(buffer);
  }
  return problem;
}

void keeps_to_the_capacity_and_makes_valid_plans(unsigned seed, Kind kind) {
  Generator random(seed);
  for (int round = 0; round < 150; ++round) {
    const Normal normal = make_normal(draw_problem(random, kind));
    for (const Part& part : normal.parts) {
      Budget budget{enough_steps};
      const Bytes incumbent = part.target * draw(random, 1, 3) + draw(random, 0, 20);
      const auto offsets = descend(part, incumbent, budget);
      if (!offsets) continue;
      const Bytes arena = arena_of(part, *offsets);
      CHECK(arena < incumbent);
      CHECK(find_fault(problem_of(part), *offsets, arena) == "");
      CHECK(arena <= part.target || budget.steps <= 0);
    }
  }
}

void finds_some_plan_where_any_is_better(unsigned seed, Kind kind) {
  Generator random(seed);
  for (int round = 0; round < 50; ++round) {
    const Normal normal = make_normal(draw_problem(random, kind));
    for (const Part& part : normal.parts) {
      Budget budget{enough_steps};
      CHECK(descend(part, largest_arena, budget).has_value());
    }
  }
}

Buffer buffer_of(Bytes size, Time start, Time end) { return {size, 1, -1, {start, end}, {}}; }

//   bytes 4 |  +--+--------+       Only with the long one of size 1 between the others are 4
//           |  |  |   c    |       bytes enough: a at the bottom, then c on top of it or the
//         2 |  |a +---+----+--+    other way round would leave d no place.
//           |  |  |  b    | d |
void packs_what_first_fit_by_size_does_not() {
  const Problem problem = {buffer_of(4, 0, 1), buffer_of(1, 0, 2), buffer_of(3, 2, 4),
                           buffer_of(2, 1, 3), buffer_of(2, 1, 5), buffer_of(3, 4, 6),
                           buffer_of(1, 3, 5), buffer_of(2, 5, 7)};
  const Normal normal = make_normal(problem);
  CHECK(!normal.parts.empty());
  for (const Part& part : normal.parts) {
    Budget budget{enough_steps};
    const auto offsets = descend(part, 2 * part.target + 2, budget);
    CHECK(offsets && arena_of(part, *offsets) == part.target);
  }
}

void goes_on_where_it_stopped_and_repeats_itself() {
  Generator random(5);
  const Normal normal = make_normal(draw_problem(random, Kind::intervals));
  for (const Part& part : normal.parts) {
    std::vector<std::optional<Offsets>> answers;
    for (int repetition = 0; repetition < 2; ++repetition) {
      Descents descents(part);
      Bytes incumbent = largest_arena;
      for (int call = 0; call < 3; ++call) {
        Budget budget{enough_steps / 10};
        answers.push_back(descents.improve(part.target, incumbent, budget));
        if (answers.back()) incumbent = arena_of(part, *answers.back());
      }
    }
    for (int call = 0; call < 3; ++call) CHECK(answers[call] == answers[call + 3]);
  }
}

void leaves_fixed_offsets_alone_and_stops_when_told() {
  Problem chain = {buffer_of(2, 0, 2), buffer_of(2, 1, 4), buffer_of(2, 3, 6), buffer_of(2, 5, 7)};
  const Part part = make_normal(chain).parts.front();
  Budget budget{enough_steps};
  CHECK(descend(part, largest_arena, budget).has_value());
  std::atomic<bool> stop{true};
  Budget stopped{enough_steps, &stop};
  CHECK(!descend(part, largest_arena, stopped));
  chain[2].fixed = 8;
  CHECK(!descend(make_normal(chain).parts.front(), largest_arena, budget));
}

// The busy slots of a part, with what does not live there, are a part again.
void a_core_has_the_items_of_the_busy_slots(unsigned seed) {
  Generator random(seed);
  for (int round = 0; round < 100; ++round) {
    const Normal normal = make_normal(draw_problem(random, static_cast<Kind>(round % 4)));
    for (const Part& part : normal.parts) {
      const Bytes threshold = part.target * draw(random, 0, 9) / 10;
      const Core core = core_of(part, threshold);
      Bytes residents = 0;
      for (std::uint32_t item : core.residents) residents += part.items[item].size;
      CHECK(residents == core.residents_size);
      CHECK(core.items.size() == core.part.items.size());
      for (std::size_t one = 0; one < core.items.size(); ++one) {
        for (std::size_t other = 0; other < one; ++other) {
          CHECK(core.part.items[one].meets(core.part.items[other]) ==
                part.items[core.items[one]].meets(part.items[core.items[other]]));
        }
      }
    }
  }
}

void a_rotated_cycle_has_the_same_neighbours(unsigned seed) {
  Generator random(seed);
  for (int round = 0; round < 100; ++round) {
    const Normal normal = make_normal(draw_problem(random, Kind::cycle));
    for (const Part& part : normal.parts) {
      const Part other = rotated(part);
      for (std::size_t one = 0; one < part.items.size(); ++one) {
        CHECK(other.items[one].slots() == part.items[one].slots());
        for (std::size_t two = 0; two < one; ++two) {
          CHECK(other.items[one].meets(other.items[two]) ==
                part.items[one].meets(part.items[two]));
        }
      }
    }
  }
}

void a_skyline_agrees_with_a_list_of_heights(unsigned seed) {
  Generator random(seed);
  for (int round = 0; round < 200; ++round) {
    const std::int32_t slots = draw(random, 1, 40);
    Skyline skyline(slots);
    std::vector<Bytes> heights(static_cast<std::size_t>(slots));
    for (int step = 0; step < 30; ++step) {
      const std::int32_t begin = draw(random, 0, slots - 1);
      const std::int32_t end = draw(random, begin + 1, slots);
      const Bytes highest = *std::max_element(heights.begin() + begin, heights.begin() + end);
      CHECK(skyline.highest(begin, end) == highest);
      skyline.raise(begin, end, highest + step % 3);
      std::fill(heights.begin() + begin, heights.begin() + end, highest + step % 3);
      const std::int32_t slot = draw(random, 0, slots - 1);
      const Bytes limit = heights[slot] + draw(random, 0, 3);
      std::int32_t from = slot, to = slot + 1;
      while (from > 0 && heights[from - 1] <= limit) --from;
      while (to < slots && heights[to] <= limit) ++to;
      CHECK(skyline.at(slot) == heights[slot]);
      CHECK(skyline.reach_left(slot, limit) == from);
      CHECK(skyline.reach_right(slot, limit) == to);
    }
  }
}

void remaining_loads_agree_with_a_list(unsigned seed) {
  Generator random(seed);
  for (int round = 0; round < 100; ++round) {
    const std::int32_t slots = draw(random, 1, 40);
    std::vector<Bytes> load(static_cast<std::size_t>(slots));
    for (Bytes& bytes : load) bytes = draw(random, 50, 90);
    Remaining remaining(load);
    for (int step = 0; step < 30; ++step) {
      const std::int32_t begin = draw(random, 0, slots - 1);
      const std::int32_t end = draw(random, begin + 1, slots);
      const Bytes limit = draw(random, 20, 90);
      std::vector<std::int32_t> expected, seen;
      for (std::int32_t slot = begin; slot < end; ++slot) {
        if (load[slot] > limit) expected.push_back(slot);
      }
      remaining.each_above(begin, end, limit, [&](std::int32_t slot, Bytes left) {
        CHECK(left == load[slot]);
        seen.push_back(slot);
        return true;
      });
      CHECK(seen == expected);
      remaining.take(begin, end, 1);
      for (std::int32_t slot = begin; slot < end; ++slot) --load[slot];
    }
  }
}

struct Listed {
  std::vector<Item> items;
  std::vector<std::int32_t> ranks;
  std::vector<int> states;  // 0 free, 1 blocked, 2 placed
};

Listed draw_items(Generator& random, std::int32_t slots) {
  Listed listed;
  const std::int32_t count = draw(random, 1, 60);
  for (std::int32_t item = 0; item < count; ++item) {
    const Span span = draw_span(random, 0, slots);
    const auto end = static_cast<std::int32_t>(span.end);
    listed.items.push_back({1, 1, -1, static_cast<std::int32_t>(span.start), end, end, end, 0});
    listed.ranks.push_back(item);
    listed.states.push_back(0);
  }
  std::shuffle(listed.ranks.begin(), listed.ranks.end(), random);
  return listed;
}

void agree(const Unplaced& unplaced, const Listed& listed, std::int32_t from, std::int32_t to) {
  std::int32_t best = Unplaced::none;
  bool any = false, over = false;
  std::int32_t first = from, last = to;
  for (std::size_t at = 0; at < listed.items.size(); ++at) {
    const Item& item = listed.items[at];
    if (listed.states[at] == 2) continue;
    const bool within = item.begin >= from && item.end <= to;
    any = any || within;
    over = over || (within && item.begin <= from && from < item.end);
    if (within && listed.states[at] == 0) best = std::min(best, listed.ranks[at]);
    if (item.begin >= to || item.end <= from) continue;
    first = std::min(first, item.begin);
    last = std::max(last, item.end);
  }
  CHECK(unplaced.best_within(from, to) == best);
  CHECK(unplaced.any_within(from, to) == any);
  const auto found = unplaced.find_over(from, from, to, [](std::int32_t) { return true; });
  CHECK((found != Unplaced::none) == over);
  std::int32_t spread_first = from, spread_last = to;
  unplaced.spread(from, to, spread_first, spread_last);
  CHECK(spread_first == first && spread_last == last);
}

void unplaced_items_agree_with_a_list(unsigned seed) {
  Generator random(seed);
  for (int round = 0; round < 100; ++round) {
    const std::int32_t slots = draw(random, 1, 40);
    Listed listed = draw_items(random, slots);
    Unplaced unplaced(listed.items);
    unplaced.reset(listed.ranks);
    for (int step = 0; step < 60; ++step) {
      const auto item = draw(random, 0, static_cast<std::int32_t>(listed.items.size()) - 1);
      int& state = listed.states[item];
      state = state == 2 ? 2 : draw(random, 0, 2);
      if (state == 0) unplaced.release(item);
      if (state == 1) unplaced.block(item);
      if (state == 2) unplaced.remove(item);
      const std::int32_t from = draw(random, 0, slots - 1);
      agree(unplaced, listed, from, draw(random, from + 1, slots));
    }
  }
}

}  // namespace

void run_descent_tests() {
  unsigned seed = 1;
  for (Kind kind : {Kind::intervals, Kind::aligned, Kind::cycle, Kind::gaps}) {
    keeps_to_the_capacity_and_makes_valid_plans(seed++, kind);
    finds_some_plan_where_any_is_better(seed++, kind);
  }
  packs_what_first_fit_by_size_does_not();
  goes_on_where_it_stopped_and_repeats_itself();
  leaves_fixed_offsets_alone_and_stops_when_told();
  a_core_has_the_items_of_the_busy_slots(seed++);
  a_rotated_cycle_has_the_same_neighbours(seed++);
  a_skyline_agrees_with_a_list_of_heights(seed++);
  remaining_loads_agree_with_a_list(seed++);
  unplaced_items_agree_with_a_list(seed++);
}

}  // namespace et_replay::test
