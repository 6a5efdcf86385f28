// An allocator that serves a plan: each storage that the plan knows from its place in one arena,
// the rest from what is idle in it, and what fits nowhere there from PyTorch's caching allocator.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "caching.hpp"
#include "idle_space.hpp"
#include "occupancy.hpp"
#include "planned_figures.hpp"
#include "schedule.hpp"

namespace et_replay {

// No address is given out twice, whatever the plan says and whatever is asked for: a place that is
// in use is not served. Private pools are left to the caching allocator. The arena is taken from
// the device at the first request that it may serve, and given back by empty_cache() when nothing
// lives in it. An empty plan makes this the caching allocator.
class PlannedAllocator final : public Allocator {
 public:
  // Throws std::invalid_argument with a sentence about a plan that cannot be.
  PlannedAllocator(Device& device, const PlanTable& plan, Settings settings = {},
                   Version version = {});

  Block* allocate(Bytes requested, Stream stream) override;
  Block* allocate_for(std::int64_t storage, Bytes requested, Stream stream) override;
  void free(Block* block) override;
  void record_stream(Block* block, Stream stream) override;
  std::uint64_t hold(Block* block) override;
  void complete(std::uint64_t ticket) override;
  void empty_cache() override;

  void begin_pool(PoolId id, std::optional<Stream> stream) override {
    fallback_.begin_pool(id, stream);
  }
  void end_pool(PoolId id) override { fallback_.end_pool(id); }
  void release_pool(PoolId id) override { fallback_.release_pool(id); }
  void set_fraction(double fraction) override { fallback_.set_fraction(fraction); }
  std::vector<Block*> restore(const SegmentView& segment) override {
    return fallback_.restore(segment);
  }

  bool is_handed_over(const Block& block) const override;
  Bytes largest_free() const override;
  std::vector<SegmentView> segments() const override;
  void reset_peaks() override { fallback_.reset_peaks(); }

  // Serves another plan from here on, and counts anew. Throws std::invalid_argument about the plan,
  // or while something lives in the arena.
  void adopt(const PlanTable& plan);

  // Whether requests of the stream go to a private pool, which is none of the plan.
  bool leaves_to_pool(Stream stream) const;
  // From here on time goes backward only where one of these says so.
  void expect_turns() { schedule_->expect_turns(); }
  void turn_to(Tick tick) { schedule_->turn_to(tick); }
  void turn_to_storage(std::int64_t storage);

  // Ends an iteration, in which the caching allocator served `fallback`. What it has had no use for
  // in two of them, as after one that was not as planned, goes back to the device.
  void end_iteration(const Served& fallback);

  PlannedFigures figures() const;
  const CachingAllocator& fallback() const { return fallback_; }
  StreamEvents& stream_events() { return pending_.events; }

 private:
  using Range = Occupancy::Range;  // of offsets in the arena

  // A block of the arena.
  struct Lease : Block {
    Schedule::Due due;
    RankSet::Rank rank = Occupancy::no_rank;
  };
  // What the arena is asked for.
  struct Request {
    Bytes requested;
    Stream stream;
    Tick start, end;  // its known or assumed life
    Schedule::Due due;

    Bytes size() const { return round_up(requested, smallest_block); }
  };

  void serve(const PlanTable& plan);
  bool is_for_arena(Bytes requested, Stream stream) const;
  void settle_events();
  void reserve_arena(Stream stream);
  std::optional<Address> take_arena();
  void release_arena();
  Range gap_for(const Schedule::Row& row, Bytes requested, Stream stream) const;
  const Schedule::Row* choose(const Schedule::Row* row, Bytes requested, Stream stream) const;
  Block* serve_elsewhere(const Request& request);
  std::optional<Bytes> find_idle(const Request& request);
  Block* fall_back(Bytes requested, Stream stream);
  Block* serve_at_any_cost(Bytes requested, Stream stream, const OutOfMemory& error);
  Block* lease(RankSet::Rank rank, Bytes offset, const Range& gap, const Request& request);
  std::vector<Block> arena_blocks() const;
  void request_free(Block* block);
  void complete(Block* block);
  void synchronize();
  void count(const Block& block, int sign);
  void count_active(const Block& block, int sign);
  void count_gaps(const Range& used, const Range& gap, int sign);
  bool owns(const Block& block) const { return &block.home->pool == &pool_; }
  void record(TraceAction action, const Block& block, Bytes size) {
    trace_.record(action, block.address, size, block.home->stream, {0, 0});
  }

  std::optional<Schedule> schedule_;  // never nothing
  Bytes arena_ = 0;                   // as the device gives it
  std::vector<Range> handed_over_;    // what the plan gives to several streams, by address
  std::optional<IdleSpace> idle_;     // made when it is needed first
  CachingAllocator fallback_;
  Bytes kept_back_ = 0;  // of what it cached, what it did not give back
  int idle_iterations_ = 0;
  PlannedFigures figures_;

  Address base_ = 0;
  Bytes reserved_ = 0;  // 0 or arena_
  Stream stream_ = 0;   // whose request it was reserved for
  Pool pool_{PoolKind::large, {0, 0}, nullptr};
  BlockArena<Lease> leases_;
  std::optional<Occupancy> in_use_;   // never nothing
  PendingFrees pending_;
  std::map<std::uint64_t, Block*> held_;
  std::uint64_t next_ticket_ = 0;
};

}  // namespace et_replay
