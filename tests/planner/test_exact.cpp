// The exact search against every offset there is, against packings cut from a full rectangle, and
// against the validator.
#include <algorithm>
#include <atomic>
#include <random>
#include <vector>

#include "check.hpp"
#include "planner/exact.hpp"
#include "planner/normal.hpp"
#include "planner/sweep.hpp"
#include "planner/validate.hpp"

namespace et_replay::test {

namespace {

using namespace et_replay::planner;
using Generator = std::mt19937_64;

constexpr std::int64_t enough_steps = 2'000'000;

Bytes draw(Generator& random, Bytes low, Bytes high) {
  return low + static_cast<Bytes>(random() % static_cast<std::uint64_t>(high - low + 1));
}

enum class Kind { plain, twins, aligned, fixed, cycle, all };

Buffer draw_buffer(Generator& random, Kind kind, Time ticks) {
  Buffer buffer;
  buffer.size = draw(random, 1, kind == Kind::twins ? 2 : 5);
  buffer.span.start = draw(random, 0, ticks - 1);
  buffer.span.end = draw(random, buffer.span.start + 1, ticks);
  const bool varied = kind == Kind::all;
  if (varied || kind == Kind::aligned) buffer.alignment = Bytes{1} << draw(random, 0, 2);
  if ((varied || kind == Kind::fixed) && draw(random, 0, 3) == 0) {
    buffer.fixed = draw(random, 0, 6) / buffer.alignment * buffer.alignment;
  }
  if ((varied || kind == Kind::cycle) && draw(random, 0, 1) == 0 && buffer.span.end < ticks) {
    buffer.again.start = draw(random, buffer.span.end, ticks - 1);
    buffer.again.end = draw(random, buffer.again.start + 1, ticks);
  }
  return buffer;
}

bool meet(const Buffer& one, const Buffer& other) { return one.meets(other) || other.meets(one); }

bool fits(const Problem& problem, const Offsets& offsets, std::size_t buffer, Bytes offset) {
  for (std::size_t other = 0; other < offsets.size(); ++other) {
    if (meet(problem[buffer], problem[other]) && offset < offsets[other] + problem[other].size &&
        offsets[other] < offset + problem[buffer].size) {
      return false;
    }
  }
  return true;
}

// Tries every offset of every buffer.
bool can_be_packed(const Problem& problem, Offsets& offsets, Bytes arena) {
  const std::size_t buffer = offsets.size();
  if (buffer == problem.size()) return true;
  for (Bytes offset = 0; offset + problem[buffer].size <= arena;
       offset += problem[buffer].alignment) {
    if (problem[buffer].fixed >= 0 && offset != problem[buffer].fixed) continue;
    if (!fits(problem, offsets, buffer, offset)) continue;
    offsets.push_back(offset);
    if (can_be_packed(problem, offsets, arena)) return true;
    offsets.pop_back();
  }
  return false;
}

Bytes smallest_arena(const Problem& problem) {
  for (Bytes arena = lower_bound(problem);; ++arena) {
    Offsets offsets;
    if (can_be_packed(problem, offsets, arena)) return arena;
  }
}

bool fixed_ones_overlap(const Problem& problem) {
  for (std::size_t left = 0; left < problem.size(); ++left) {
    for (std::size_t right = 0; right < left; ++right) {
      const Buffer& one = problem[left];
      const Buffer& other = problem[right];
      if (one.fixed >= 0 && other.fixed >= 0 && meet(one, other) &&
          one.fixed < other.fixed + other.size && other.fixed < one.fixed + one.size) {
        return true;
      }
    }
  }
  return false;
}

// Each tick is a slot.
Part part_of(const Problem& problem) {
  Part part;
  for (const Buffer& buffer : problem) {
    const bool twice = !buffer.again.empty();
    Item item;
    item.size = buffer.size;
    item.alignment = buffer.alignment;
    item.fixed = buffer.fixed;
    item.begin = static_cast<std::int32_t>(buffer.span.start);
    item.end = static_cast<std::int32_t>(buffer.span.end);
    item.begin_again = twice ? static_cast<std::int32_t>(buffer.again.start) : item.end;
    item.end_again = twice ? static_cast<std::int32_t>(buffer.again.end) : item.end;
    part.slots = std::max({part.slots, item.end, item.end_again});
    part.items.push_back(item);
  }
  part.load.assign(static_cast<std::size_t>(part.slots), 0);
  for (const Buffer& buffer : problem) {
    for (const Span& span : {buffer.span, buffer.again}) {
      for (Time tick = span.start; tick < span.end; ++tick) {
        part.load[static_cast<std::size_t>(tick)] += buffer.size;
      }
    }
  }
  part.lower_bound = lower_bound(problem);
  part.target = part.lower_bound;
  return part;
}

struct Plan {
  Offsets offsets;
  Bytes arena = 0;
  bool found = false;
  bool proven = false;
};

Plan plan(const Problem& problem, std::int64_t steps) {
  const Part part = part_of(problem);
  Budget budget{steps, nullptr};
  SearchResult result = search(part, largest_arena, budget);
  if (!result.offsets) return {};
  const Bytes arena = arena_of(part, *result.offsets);
  return {std::move(*result.offsets), arena, true, result.proven_bound == arena};
}

void finds_the_smallest_arena_and_proves_it(unsigned seed, Kind kind, int problems) {
  Generator random(seed);
  for (int count = 0; count < problems; ++count) {
    Problem problem(static_cast<std::size_t>(draw(random, 1, 6)));
    for (Buffer& buffer : problem) buffer = draw_buffer(random, kind, 6);
    if (fixed_ones_overlap(problem)) continue;
    const Plan found = plan(problem, enough_steps);
    CHECK(found.found && found.proven);
    CHECK(find_fault(problem, found.offsets, found.arena) == "");
    CHECK(found.arena == smallest_arena(problem));
  }
}

void finds_nothing_below_the_smallest_arena(unsigned seed) {
  Generator random(seed);
  for (int count = 0; count < 200; ++count) {
    Problem problem(6);
    for (Buffer& buffer : problem) buffer = draw_buffer(random, Kind::plain, 6);
    const Part part = part_of(problem);
    const Bytes smallest = smallest_arena(problem);
    Budget budget{enough_steps, nullptr};
    const SearchResult none = search(part, smallest, budget);
    CHECK(!none.offsets && none.proven_bound == smallest);
    const SearchResult some = search(part, smallest + 1, budget);
    CHECK(some.offsets && arena_of(part, *some.offsets) == smallest);
  }
}

// Cuts a full rectangle into pieces, across time or across addresses; nothing can be left over.
Problem cut(Generator& random, std::size_t pieces, Bytes height) {
  struct Piece {
    Span span;
    Bytes size;
  };
  std::vector<Piece> made{{{0, 64}, height}};
  while (made.size() < pieces) {
    Piece& piece = made[random() % made.size()];
    Piece rest = piece;
    if (random() % 2 == 0 && piece.span.end - piece.span.start > 1) {
      piece.span.end = draw(random, piece.span.start + 1, piece.span.end - 1);
      rest.span.start = piece.span.end;
    } else if (piece.size > 1) {
      piece.size = draw(random, 1, piece.size - 1);
      rest.size -= piece.size;
    } else {
      continue;
    }
    made.push_back(rest);
  }
  std::shuffle(made.begin(), made.end(), random);
  Problem problem;
  for (const Piece& piece : made) {
    Buffer buffer;
    buffer.size = piece.size;
    buffer.span = piece.span;
    problem.push_back(buffer);
  }
  return problem;
}

void fills_a_rectangle_without_a_gap(unsigned seed) {
  Generator random(seed);
  for (int count = 0; count < 10; ++count) {
    const Problem problem = cut(random, 40, 1000);
    const Plan found = plan(problem, enough_steps);
    CHECK(found.found && found.arena == 1000);
    CHECK(find_fault(problem, found.offsets, found.arena) == "");
  }
}

void packs_what_is_nearly_too_large() {
  Generator random(5);
  Problem problem = cut(random, 12, 1000);
  for (Buffer& buffer : problem) buffer.size *= (Bytes{1} << 60) / 1000;
  problem[0].size -= 1;  // nothing divides all
  const Plan found = plan(problem, enough_steps);
  CHECK(found.found && found.arena <= (Bytes{1} << 60));
  CHECK(find_fault(problem, found.offsets, found.arena) == "");
}

void gives_the_same_answer_twice_and_a_better_one_for_more_steps() {
  Generator random(6);
  Problem problem(120);
  for (Buffer& buffer : problem) {
    buffer = draw_buffer(random, Kind::plain, 40);
    buffer.size = draw(random, 1, 1000);
  }
  const Plan little = plan(problem, 20'000);
  const Plan again = plan(problem, 20'000);
  const Plan more = plan(problem, 200'000);
  CHECK(little.offsets == again.offsets);
  CHECK(more.arena <= little.arena);
  CHECK(find_fault(problem, more.offsets, more.arena) == "");
}

void stops_when_told() {
  Generator random(7);
  const Problem problem = cut(random, 200, 100'000);
  std::atomic<bool> stop{true};
  const Part part = part_of(problem);
  Budget budget{enough_steps, &stop};
  CHECK(!search(part, largest_arena, budget).offsets);
  CHECK(budget.steps == enough_steps);
}

}  // namespace

void run_exact_tests() {
  finds_the_smallest_arena_and_proves_it(1, Kind::plain, 400);
  finds_the_smallest_arena_and_proves_it(2, Kind::twins, 400);
  finds_the_smallest_arena_and_proves_it(3, Kind::aligned, 300);
  finds_the_smallest_arena_and_proves_it(4, Kind::fixed, 400);
  finds_the_smallest_arena_and_proves_it(5, Kind::cycle, 400);
  finds_the_smallest_arena_and_proves_it(6, Kind::all, 400);
  finds_nothing_below_the_smallest_arena(1);
  fills_a_rectangle_without_a_gap(1);
  packs_what_is_nearly_too_large();
  gives_the_same_answer_twice_and_a_better_one_for_more_steps();
  stops_when_told();
}

}  // namespace et_replay::test
