// The counters of torch.cuda.memory_stats(), under the names it gives them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "sizes.hpp"

namespace et_replay {

struct Counter {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;  // sum of all increases
  std::int64_t freed = 0;      // sum of all decreases

  void change(std::int64_t amount) {
    current += amount;
    peak = std::max(peak, current);
    (amount > 0 ? allocated : freed) += amount > 0 ? amount : -amount;
  }
};

struct PoolCounter {
  Counter all;
  Counter small;
  Counter large;
  std::int64_t peak_since_mark = 0;  // of all

  void change(PoolKind kind, std::int64_t amount) {
    all.change(amount);
    peak_since_mark = std::max(peak_since_mark, all.current);
    (kind == PoolKind::small ? small : large).change(amount);
  }
};

struct Statistics {
  PoolCounter allocation;       // blocks handed out
  PoolCounter allocated_bytes;  // their sizes, rounding and unsplit rest included
  PoolCounter active;           // blocks that cannot be used again yet
  PoolCounter active_bytes;
  PoolCounter requested_bytes;  // what the owners of the active blocks asked for
  PoolCounter segment;
  PoolCounter reserved_bytes;  // held from the device
  PoolCounter inactive_split;  // free blocks that share a segment
  PoolCounter inactive_split_bytes;
  std::int64_t num_alloc_retries = 0;
  std::int64_t num_ooms = 0;
  std::int64_t num_sync_all_streams = 0;
  std::int64_t num_device_alloc = 0;
  std::int64_t num_device_free = 0;
  std::int64_t num_oom_rejections = 0;
  Counter oversize_allocations;  // blocks of at least max_split_size
  Counter oversize_segments;     // segments of at least max_split_size

  void reset_peaks();
  // Begins the peaks since a mark, of which reset_peaks() knows nothing.
  void mark();
};

struct NamedCounter {
  const char* name;
  PoolCounter Statistics::* counter;
};

struct NamedTotal {
  const char* name;
  std::int64_t Statistics::* total;
};

constexpr std::array<NamedCounter, 9> named_counters{{
    {"allocation", &Statistics::allocation},
    {"allocated_bytes", &Statistics::allocated_bytes},
    {"active", &Statistics::active},
    {"active_bytes", &Statistics::active_bytes},
    {"requested_bytes", &Statistics::requested_bytes},
    {"segment", &Statistics::segment},
    {"reserved_bytes", &Statistics::reserved_bytes},
    {"inactive_split", &Statistics::inactive_split},
    {"inactive_split_bytes", &Statistics::inactive_split_bytes},
}};

constexpr std::array<NamedTotal, 6> named_totals{{
    {"num_alloc_retries", &Statistics::num_alloc_retries},
    {"num_ooms", &Statistics::num_ooms},
    {"num_sync_all_streams", &Statistics::num_sync_all_streams},
    {"num_device_alloc", &Statistics::num_device_alloc},
    {"num_device_free", &Statistics::num_device_free},
    {"num_oom_rejections", &Statistics::num_oom_rejections},
}};

struct NamedOversize {
  const char* name;
  Counter Statistics::* counter;
};

constexpr std::array<NamedOversize, 2> named_oversizes{{
    {"oversize_allocations", &Statistics::oversize_allocations},
    {"oversize_segments", &Statistics::oversize_segments},
}};

inline void Statistics::reset_peaks() {
  for (const NamedCounter& named : named_counters) {
    PoolCounter& counter = this->*named.counter;
    for (Counter* part : {&counter.all, &counter.small, &counter.large}) part->peak = part->current;
  }
  for (Counter* counter : {&oversize_allocations, &oversize_segments}) {
    counter->peak = counter->current;
  }
}

inline void Statistics::mark() {
  for (const NamedCounter& named : named_counters) {
    PoolCounter& counter = this->*named.counter;
    counter.peak_since_mark = counter.all.current;
  }
}

}  // namespace et_replay
