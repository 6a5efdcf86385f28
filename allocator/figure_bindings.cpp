// Counters and segments of any allocator.
#include "figure_bindings.hpp"

#include <string>
#include <utility>

#include "caching.hpp"
#include "planned.hpp"

namespace nb = nanobind;

namespace et_replay {
namespace {

void add(nb::dict& stats, const std::string& prefix, const Counter& counter) {
  stats[(prefix + ".current").c_str()] = counter.current;
  stats[(prefix + ".peak").c_str()] = counter.peak;
  stats[(prefix + ".allocated").c_str()] = counter.allocated;
  stats[(prefix + ".freed").c_str()] = counter.freed;
}

}  // namespace

MemoryCounts count_memory(const Allocator& allocator) {
  const auto* planned = dynamic_cast<const PlannedAllocator*>(&allocator);
  const auto* caching = planned != nullptr ? &planned->fallback()
                                           : dynamic_cast<const CachingAllocator*>(&allocator);
  return {allocator.statistics(),
          caching == nullptr ? unlimited : caching->settings().max_split_size};
}

nb::list trace_entries(const std::vector<TraceEntry>& entries) {
  nb::list result;
  for (const TraceEntry& entry : entries) {
    result.append(nb::make_tuple(trace_action_names[static_cast<int>(entry.action)], entry.address,
                                 entry.size, entry.stream,
                                 nb::make_tuple(entry.pool.first, entry.pool.second)));
  }
  return result;
}

nb::dict memory_stats(const MemoryCounts& counts) {
  const Statistics& statistics = counts.statistics;
  nb::dict stats;
  for (const NamedCounter& named : named_counters) {
    const PoolCounter& counter = statistics.*named.counter;
    const std::string name = named.name;
    add(stats, name + ".all", counter.all);
    add(stats, name + ".small_pool", counter.small);
    add(stats, name + ".large_pool", counter.large);
  }
  for (const NamedOversize& named : named_oversizes) {
    add(stats, named.name, statistics.*named.counter);
  }
  for (const NamedTotal& named : named_totals) stats[named.name] = statistics.*named.total;
  stats["max_split_size"] = counts.max_split_size == unlimited ? -1 : counts.max_split_size;
  return stats;
}

std::vector<SegmentState> segment_states(const std::vector<SegmentView>& segments,
                                         const std::function<std::int64_t(Address)>& owner) {
  std::vector<SegmentState> states;
  for (const SegmentView& view : segments) {
    std::vector<BlockState> blocks;
    for (const Block& block : view.blocks) {
      const std::int64_t storage = block.is_active() ? owner(block.address) : -1;
      blocks.emplace_back(block.size, block.requested, storage,
                          block.is_active() && !block.allocated);
    }
    states.emplace_back(view.blocks.front().address, view.stream, view.kind == PoolKind::small,
                        view.expandable, view.pool, std::move(blocks));
  }
  return states;
}

}  // namespace et_replay
