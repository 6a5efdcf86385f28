// Sizes of PyTorch's native allocator under default settings: a request in, and out come its
// rounded size, its pool and the size of the segment that would be made for it.
#pragma once

#include <cstdint>

namespace et_replay {

using Bytes = std::int64_t;
using Address = std::uint64_t;
using Stream = std::uint64_t;  // a handle; streams are ordered by it as an unsigned number

constexpr Bytes mebibyte = Bytes{1} << 20;

constexpr Bytes smallest_block = 512;            // every block is a multiple of it
constexpr Bytes largest_small_size = mebibyte;   // rounded sizes up to it live in the small pool
constexpr Bytes small_segment = 2 * mebibyte;    // what the small pool takes from the device
constexpr Bytes packed_segment = 20 * mebibyte;  // what the large pool takes ...
constexpr Bytes packing_limit = 10 * mebibyte;   // ... below this size; above, what the size needs
constexpr Bytes segment_granularity = 2 * mebibyte;
constexpr Bytes absurd_request = Bytes{1} << 60;  // refused before anything is counted

enum class PoolKind { small, large };

constexpr Bytes round_up(Bytes size, Bytes multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

constexpr Bytes rounded_size(Bytes request) {
  return request < smallest_block ? smallest_block : round_up(request, smallest_block);
}

constexpr PoolKind pool_kind(Bytes rounded) {
  return rounded <= largest_small_size ? PoolKind::small : PoolKind::large;
}

constexpr Bytes segment_size(Bytes rounded) {
  if (rounded <= largest_small_size) return small_segment;
  return rounded < packing_limit ? packed_segment : round_up(rounded, segment_granularity);
}

// The large pool tolerates up to 1 MiB of waste in a block before it splits one.
constexpr bool is_worth_splitting(PoolKind kind, Bytes rest) {
  return kind == PoolKind::small ? rest >= smallest_block : rest > largest_small_size;
}

}  // namespace et_replay
