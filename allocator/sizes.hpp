// The units that all files share, and the sizes that no setting changes.
#pragma once

#include <cstdint>
#include <utility>

namespace et_replay {

using Bytes = std::int64_t;
using Address = std::uint64_t;
using Stream = std::uint64_t;  // a handle; streams are ordered by it as an unsigned number
using PoolId = std::pair<std::uint64_t, std::uint64_t>;  // {0, 0} is the default pool

constexpr Bytes mebibyte = Bytes{1} << 20;

constexpr Bytes smallest_block = 512;            // every block is a multiple of it
constexpr Bytes largest_small_size = mebibyte;   // rounded sizes up to it live in the small pool
constexpr Bytes small_segment = 2 * mebibyte;    // what the small pool takes from the device
constexpr Bytes packing_limit = 10 * mebibyte;   // below it large requests share a packed segment
constexpr Bytes segment_granularity = 2 * mebibyte;
constexpr Bytes absurd_request = Bytes{1} << 60;  // refused before anything is counted

enum class PoolKind { small, large };

constexpr Bytes round_up(Bytes size, Bytes multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

constexpr PoolKind pool_kind(Bytes rounded) {
  return rounded <= largest_small_size ? PoolKind::small : PoolKind::large;
}

}  // namespace et_replay
