// What an allocator counts and holds, as Python gets it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <tuple>
#include <vector>

#include "allocator.hpp"

namespace et_replay {

// A block: size, requested size, storage (-1: inactive), only active.
using BlockState = std::tuple<Bytes, Bytes, std::int64_t, bool>;

// Address, stream, whether small and expandable, pool and blocks: what restore() takes.
using SegmentState = std::tuple<Address, Stream, bool, bool, PoolId, std::vector<BlockState>>;

// Taken while nothing changes the allocator; what makes objects of Python comes later, as that may
// free tensors.
struct MemoryCounts {
  Statistics statistics;
  Bytes max_split_size;
};
MemoryCounts count_memory(const Allocator& allocator);

// Action, address, size, stream and pool of each.
nanobind::list trace_entries(const std::vector<TraceEntry>& entries);

// Under the names of torch.cuda.memory_stats().
nanobind::dict memory_stats(const MemoryCounts& counts);

// `owner` tells the storage of an active block by its address.
std::vector<SegmentState> segment_states(const std::vector<SegmentView>& segments,
                                         const std::function<std::int64_t(Address)>& owner);

}  // namespace et_replay
