// The allocator that serves a plan: literal addresses, and random requests under random plans.
#include <iterator>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "invariants.hpp"
#include "planned.hpp"
#include "simulation.hpp"

namespace et_replay::test {
namespace {

constexpr Bytes MiB = mebibyte;

// Two storages one above the other, and a third in the place of the first when that has gone.
PlanTable three_rows() {
  return {3 * MiB, 4, {{1, 0, MiB, 0, 2, 0}, {2, MiB, 2 * MiB, 1, 4, 0}, {3, 0, MiB, 2, 3, 0}}};
}

void puts_storages_where_the_plan_wants_them() {
  SimulatedDevice device(100 * MiB);
  PlannedAllocator allocator(device, three_rows());
  CHECK(allocator.statistics().reserved_bytes.all.current == 0);
  for (int iteration = 0; iteration < 3; ++iteration) {
    Block* first = allocator.allocate_for(1, MiB, 0);
    Block* second = allocator.allocate_for(2, 2 * MiB, 0);
    CHECK(second->address == first->end());
    const Address address = first->address;
    allocator.free(first);
    Block* third = allocator.allocate_for(3, MiB - 100, 0);
    CHECK(third->address == address);
    CHECK(complaint_about(allocator).empty());
    allocator.free(third);
    allocator.free(second);
  }
  CHECK(allocator.figures().planned.requests == 9);
  CHECK(allocator.figures().displaced.requests == 0);
  CHECK(allocator.statistics().segment.all.peak == 1);
  CHECK(allocator.statistics().reserved_bytes.all.peak == 4 * MiB);
  allocator.empty_cache();
  CHECK(allocator.statistics().reserved_bytes.all.current == 0);
  CHECK(device.available() == device.capacity());
}

void never_serves_a_place_in_use() {
  SimulatedDevice device(100 * MiB);
  PlannedAllocator allocator(device, three_rows());
  Block* late = allocator.allocate_for(1, MiB, 0);
  Block* second = allocator.allocate_for(2, 2 * MiB, 0);
  Block* displaced = allocator.allocate_for(3, MiB, 0);
  const Address place = late->address;
  CHECK(displaced->address != place);
  CHECK(allocator.figures().displaced.requests == 1);
  CHECK(allocator.figures().fallback.requests == 1);
  for (Block* block : {late, second, displaced}) allocator.free(block);
  CHECK(allocator.allocate_for(1, MiB, 0)->address == place);
}

void keeps_a_place_that_another_stream_uses_until_its_event_is_complete() {
  SimulatedDevice device(100 * MiB);
  PlannedAllocator allocator(device, three_rows());
  allocator.stream_events().complete_at_once(false);
  Block* first = allocator.allocate_for(1, MiB, 0);
  const Address address = first->address;
  allocator.record_stream(first, 16);
  allocator.free(first);
  CHECK(allocator.statistics().active.all.current == 1);
  CHECK(allocator.allocate_for(3, MiB, 0)->address != address);
  allocator.stream_events().complete(16);
  CHECK(allocator.allocate_for(1, MiB, 0)->address == address);
}

void holds_blocks_of_both_parts_until_their_tickets_are_complete() {
  SimulatedDevice device(100 * MiB);
  PlannedAllocator allocator(device, three_rows());
  Block* planned = allocator.allocate_for(1, MiB, 0);
  Block* other = allocator.allocate(30 * MiB, 0);
  const std::uint64_t first = allocator.hold(planned), second = allocator.hold(other);
  CHECK(allocator.statistics().allocated_bytes.all.current == 0);
  CHECK(allocator.statistics().active_bytes.all.current == 31 * MiB);
  allocator.complete(second);
  CHECK(allocator.statistics().active_bytes.all.current == MiB);
  allocator.complete(first);
  allocator.complete(first);
  CHECK(allocator.statistics().active_bytes.all.current == 0);
  allocator.hold(allocator.allocate_for(1, MiB, 0));
  allocator.empty_cache();
  CHECK(allocator.statistics().reserved_bytes.all.current == 0);
}

std::string refusal_of(const PlanTable& plan) {
  SimulatedDevice device(100 * MiB);
  try {
    PlannedAllocator allocator(device, plan);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

void refuses_a_plan_that_cannot_be() {
  CHECK(refusal_of({512, 9, {{5, 0, 512, 0, 1, 0}, {6, 512, 1, 0, 1, 0}}}) ==
        "Row 1 of the plan, storage 6: it ends behind the arena of 512 bytes.");
  CHECK(refusal_of({512, 9, {{5, 100, 1, 0, 1, 0}}}).find("no multiple of 512") !=
        std::string::npos);
  CHECK(refusal_of({512, 9, {{5, 0, 1, 9, 10, 0}}}).find("cannot live in [9, 10)") !=
        std::string::npos);
  CHECK(refusal_of({512, 9, {{5, 0, -1, 0, 1, 0}}}).find("size is -1") != std::string::npos);
  CHECK(refusal_of({-512, 9, {}}).find("arena of -512 bytes") != std::string::npos);
  CHECK(refusal_of({512, 0, {{5, 0, 1, -2, -1, 0}}}).find("period of 0") != std::string::npos);
  CHECK(refusal_of({absurd_request - 1, 1, {}}).empty());
}

void finds_the_nearest_ranks(std::size_t limit) {
  std::mt19937_64 random(limit);
  RankSet ranks(limit);
  std::set<RankSet::Rank> oracle;
  for (int step = 0; step < 20000; ++step) {
    const auto rank = static_cast<RankSet::Rank>(random() % limit);
    if (random() % 100 < (step < 10000 ? 60u : 20u)) {
      ranks.insert(rank);
      oracle.insert(rank);
    } else {
      ranks.erase(rank);
      oracle.erase(rank);
    }
    const auto asked = static_cast<RankSet::Rank>(random() % (limit + 1));
    const auto next = oracle.lower_bound(asked);
    CHECK(ranks.from(asked) == (next == oracle.end() ? RankSet::none : *next));
    CHECK(ranks.below(asked) == (next == oracle.begin() ? RankSet::none : *std::prev(next)));
  }
}

PlanTable random_plan(std::mt19937_64& random) {
  PlanTable plan{static_cast<Bytes>(random() % 16) * MiB, 50, {}};
  const auto cells = static_cast<std::uint64_t>(plan.arena / smallest_block);
  for (int row = 0; row < 100 && cells > 0; ++row) {
    const auto offset = static_cast<Bytes>(random() % cells);
    const auto space = cells - static_cast<std::uint64_t>(offset);
    const auto size = static_cast<Bytes>(1 + random() % space / (1 + random() % 50));
    const auto start = static_cast<Tick>(random() % 60) - 10;
    plan.rows.push_back({static_cast<std::int64_t>(random() % 80),
                         random() % 8 == 0 ? no_offset : offset * smallest_block,
                         size * smallest_block, start,
                         start + 1 + static_cast<Tick>(random() % 70), random() % 2});
  }
  return plan;
}

void survives_random_requests_under_a_random_plan(unsigned seed) {
  std::mt19937_64 random(seed);
  const PlanTable plan = random_plan(random);
  SimulatedDevice device(64 * MiB);
  PlannedAllocator allocator(device, plan);
  std::vector<Block*> live;
  std::vector<std::uint64_t> tickets;
  for (int step = 0; step < 3000; ++step) {
    const std::uint64_t dice = random() % 100;
    if (dice == 0) allocator.empty_cache();
    if (dice == 1) allocator.set_fraction(random() % 2 == 0 ? 0.7 : 1.0);
    if (dice < 60) {
      try {
        const auto storage = static_cast<std::int64_t>(random() % 100);
        const auto limit = std::uint64_t{1} << (9 + random() % 15);
        live.push_back(allocator.allocate_for(storage, 1 + static_cast<Bytes>(random() % limit),
                                              random() % 2));
      } catch (const OutOfMemory&) {
      }
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      Block* block = live.back();
      live.pop_back();
      if (dice < 70) allocator.record_stream(block, 5);
      if (dice < 80) {
        tickets.push_back(allocator.hold(block));
      } else {
        allocator.free(block);
      }
    }
    if (dice < 10) {
      for (const std::uint64_t ticket : tickets) allocator.complete(ticket);
      tickets.clear();
    }
    if (step % 10 == 0) CHECK(complaint_about(allocator).empty());
  }
  for (Block* block : live) allocator.free(block);
  allocator.set_fraction(1);
  allocator.empty_cache();
  CHECK(allocator.statistics().reserved_bytes.all.current == 0);
  CHECK(device.available() == device.capacity());
}

}  // namespace

void run_planned_tests() {
  puts_storages_where_the_plan_wants_them();
  never_serves_a_place_in_use();
  keeps_a_place_that_another_stream_uses_until_its_event_is_complete();
  holds_blocks_of_both_parts_until_their_tickets_are_complete();
  refuses_a_plan_that_cannot_be();
  for (const std::size_t limit : {1u, 63u, 64u, 65u, 4095u, 4096u, 4097u, 300000u}) {
    finds_the_nearest_ranks(limit);
  }
  for (unsigned seed = 0; seed < 30; ++seed) survives_random_requests_under_a_random_plan(seed);
}

}  // namespace et_replay::test
