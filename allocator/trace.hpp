// The trace of an allocator, in the words of torch's memory snapshots.
#pragma once

#include <vector>

#include "sizes.hpp"

namespace et_replay {

enum class TraceAction : std::uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  oom,
};

constexpr const char* trace_action_names[] = {
    "alloc",        "free_requested", "free_completed", "segment_alloc",
    "segment_free", "segment_map",    "segment_unmap",  "oom",
};

// `size` is what was asked for, for an oom rounded; of an oom `address` is the device's free bytes.
struct TraceEntry {
  TraceAction action;
  Address address;
  Bytes size;
  Stream stream;
  PoolId pool;
};

class Trace {
 public:
  bool enabled = false;
  std::vector<TraceEntry> entries;

  void record(TraceAction action, Address address, Bytes size, Stream stream, const PoolId& pool) {
    if (enabled) entries.push_back({action, address, size, stream, pool});
  }
};

}  // namespace et_replay
