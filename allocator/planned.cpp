// Serving requests from the arena: at the planned address, or else where the plan leaves room.
#include "planned.hpp"

#include <algorithm>
#include <limits>
#include <map>

namespace et_replay {

namespace {

bool is_empty(const Occupancy::Range& range) { return range.begin >= range.end; }

// The ranges of the arena that places of more than one stream cover.
std::vector<Occupancy::Range> of_several_streams(const Schedule& schedule) {
  struct Edge {
    Bytes at;
    Stream stream;
    int sign;
  };
  std::vector<Edge> edges;
  for (const PlanRow& row : schedule.rows()) {
    if (row.offset == no_offset || row.size == 0) continue;
    edges.push_back({row.offset, row.stream, 1});
    edges.push_back({row.offset + round_up(row.size, smallest_block), row.stream, -1});
  }
  std::sort(edges.begin(), edges.end(),
            [](const Edge& left, const Edge& right) { return left.at < right.at; });
  std::map<Stream, int> covering;  // places of each stream
  std::vector<Occupancy::Range> ranges;
  for (std::size_t k = 0; k < edges.size();) {
    const Bytes at = edges[k].at;
    for (; k < edges.size() && edges[k].at == at; ++k) {
      const auto place = covering.emplace(edges[k].stream, 0).first;
      place->second += edges[k].sign;
      if (place->second == 0) covering.erase(place);
    }
    if (covering.size() < 2) continue;
    if (!ranges.empty() && ranges.back().end == at) {
      ranges.back().end = edges[k].at;
    } else {
      ranges.push_back({at, edges[k].at});
    }
  }
  return ranges;
}

}  // namespace

PlannedAllocator::PlannedAllocator(Device& device, const PlanTable& plan, Settings settings,
                                   Version version)
    : Allocator(device),
      fallback_(device, settings, version, own_.get()) {
  serve(plan);
}

void PlannedAllocator::serve(const PlanTable& plan) {
  idle_.reset();
  in_use_.reset();
  schedule_.emplace(plan);
  arena_ = round_up(plan.arena, segment_granularity);
  in_use_.emplace(*schedule_, arena_);
  handed_over_ = of_several_streams(*schedule_);
  figures_ = {};
}

void PlannedAllocator::adopt(const PlanTable& plan) {
  if (!in_use_->empty()) {
    throw std::invalid_argument("A plan cannot be replaced while something lives in its arena.");
  }
  const Schedule possible(plan);  // or it throws, before anything has changed
  if (reserved_ > 0) release_arena();
  serve(plan);
}

Block* PlannedAllocator::allocate(Bytes requested, Stream stream) {
  settle_events();
  if (!is_for_arena(requested, stream)) return fall_back(requested, stream);
  if (reserved_ == 0) reserve_arena(stream);
  // It is taken to live to the end of the iteration; between two, of the next one.
  const Tick period = schedule_->period();
  const Tick start = schedule_->now() < period ? schedule_->now() : 0;
  return serve_elsewhere({requested, stream, start, period, {}});
}

Block* PlannedAllocator::allocate_for(std::int64_t storage, Bytes requested, Stream stream) {
  const Schedule::Row* row = schedule_->find(storage);
  if (row == nullptr || !is_for_arena(requested, stream)) return allocate(requested, stream);
  settle_events();
  if (reserved_ == 0) reserve_arena(stream);
  if (!row->only) row = choose(row, requested, stream);
  schedule_->begin(*row);
  const Request request{requested, stream, row->start, row->end, schedule_->due(row->end)};
  const Range gap = gap_for(*row, requested, stream);
  if (!is_empty(gap)) {
    figures_.planned.count(requested);
    return lease(row->rank, row->offset, gap, request);
  }
  if (row->offset != no_offset) figures_.displaced.count(requested);
  return serve_elsewhere(request);
}

bool PlannedAllocator::is_for_arena(Bytes requested, Stream stream) const {
  if (arena_ == 0 || requested <= 0 || requested >= absurd_request) return false;
  return !leaves_to_pool(stream);
}

bool PlannedAllocator::leaves_to_pool(Stream stream) const {
  const PrivatePools& pools = fallback_.private_pools();
  return pools.is_routed() && pools.route(stream) != nullptr;
}

// To when the storage comes, if the plan knows it.
void PlannedAllocator::turn_to_storage(std::int64_t storage) {
  if (const Schedule::Row* row = schedule_->find(storage)) schedule_->turn_to(row->start);
}

void PlannedAllocator::settle_events() {
  if (pending_.empty() || fallback_.capturing()) return;
  const auto complete_block = [this](Block* block) { complete(block); };
  pending_.flush_deferred(complete_block);
  pending_.poll(complete_block);
}

// The gap around the place of a row, if the request may have it; else an empty one.
PlannedAllocator::Range PlannedAllocator::gap_for(const Schedule::Row& row, Bytes requested,
                                                  Stream stream) const {
  const Bytes size = round_up(requested, smallest_block);
  if (row.offset == no_offset || row.stream != stream) return {};
  if (size > round_up(row.size, smallest_block)) return {};
  const Range gap = in_use_->gap(row.rank, row.offset);
  return gap.begin <= row.offset && row.offset + size <= gap.end ? gap : Range{};
}

// Of the rows of a storage, beginning with `row`, the one that begins next, if there are any of
// those whose place is free.
const Schedule::Row* PlannedAllocator::choose(const Schedule::Row* row, Bytes requested,
                                              Stream stream) const {
  const Schedule::Row* next = row;
  const Schedule::Row* served = nullptr;
  for (; row != nullptr; row = row->sibling) {
    if (schedule_->wait(*row) < schedule_->wait(*next)) next = row;
    if (is_empty(gap_for(*row, requested, stream))) continue;
    if (served == nullptr || schedule_->wait(*row) < schedule_->wait(*served)) served = row;
  }
  return served != nullptr ? served : next;
}

Block* PlannedAllocator::serve_elsewhere(const Request& request) {
  const std::optional<Bytes> offset = find_idle(request);
  if (!offset) return fall_back(request.requested, request.stream);
  figures_.reused.count(request.requested);
  return lease(Occupancy::no_rank, *offset, in_use_->gap(Occupancy::no_rank, *offset), request);
}

// The front of the smallest range that the plan leaves free for as long and that nobody uses.
std::optional<Bytes> PlannedAllocator::find_idle(const Request& request) {
  if (!idle_) idle_.emplace(*schedule_);
  Range best{0, std::numeric_limits<Bytes>::max()};
  for (const Range& hole : idle_->holes(request.stream, request.start, request.end)) {
    if (hole.end - hole.begin < request.size()) continue;
    in_use_->look_for_best_fit(hole, request.size(), best);
  }
  if (best.end == std::numeric_limits<Bytes>::max()) return std::nullopt;
  return best.begin;
}

Block* PlannedAllocator::fall_back(Bytes requested, Stream stream) {
  try {
    Block* block = fallback_.allocate(requested, stream);
    if (block != nullptr) figures_.fallback.count(requested);
    return block;
  } catch (OutOfMemory& error) {
    if (Block* block = serve_at_any_cost(requested, stream, error)) return block;
    error.largest_free = largest_free();
    throw;
  }
}

// Takes what nobody uses now, though the plan will need it: it then serves that elsewhere. The
// failure of the caching allocator is none then.
Block* PlannedAllocator::serve_at_any_cost(Bytes requested, Stream stream,
                                           const OutOfMemory& error) {
  if (reserved_ == 0 || error.rejected || !is_for_arena(requested, stream)) return nullptr;
  const Tick now = schedule_->now();
  const Request request{requested, stream, now, now, {}};
  const std::optional<Bytes> offset = find_idle(request);
  if (!offset) return nullptr;
  --statistics_.num_ooms;
  if (trace_.enabled) trace_.entries.pop_back();
  figures_.reused.count(requested);
  return lease(Occupancy::no_rank, *offset, in_use_->gap(Occupancy::no_rank, *offset), request);
}

bool PlannedAllocator::is_handed_over(const Block& block) const {
  if (handed_over_.empty() || !owns(block)) return false;
  const auto begin = static_cast<Bytes>(block.address - base_);
  const auto after = std::upper_bound(
      handed_over_.begin(), handed_over_.end(), begin,
      [](Bytes offset, const Range& range) { return offset < range.end; });
  return after != handed_over_.end() && after->begin < begin + block.size;
}

PlannedFigures PlannedAllocator::figures() const {
  PlannedFigures figures = figures_;
  figures.arena = arena_;
  figures.fallback_peak_reserved = fallback_.held_bytes().peak;
  return figures;
}

}  // namespace et_replay
