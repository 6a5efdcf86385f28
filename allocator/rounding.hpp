// From a request to its rounded size, and on to the size of the segment that would be made for it.
#pragma once

#include "settings.hpp"

namespace et_replay {

constexpr int floor_of_log2(Bytes size) {
  return 63 - __builtin_clzll(static_cast<unsigned long long>(size));
}

// Powers of two from 1 MiB to 32 GiB have an interval of divisions each; the first one is also for
// all below it, the last one for all above.
inline Bytes divisions_for(Bytes request, const Settings& settings) {
  const int above_mebibyte = floor_of_log2(request) - 20;
  const int interval = above_mebibyte < 0 ? 0 : above_mebibyte > 15 ? 15 : above_mebibyte;
  return settings.roundup_divisions[static_cast<std::size_t>(interval)];
}

inline Bytes rounded_size(Bytes request, const Settings& settings) {
  if (request < smallest_block) return smallest_block;
  if (settings.rounds_up) {
    const Bytes divisions = divisions_for(request, settings);
    if (divisions > 1 && request > smallest_block * divisions) {
      const Bytes power = Bytes{1} << floor_of_log2(request);
      return power == request ? request : round_up(request, power / divisions);
    }
  }
  return round_up(request, smallest_block);
}

inline Bytes segment_size(Bytes rounded, const Settings& settings) {
  if (rounded <= largest_small_size) return small_segment;
  return rounded < packing_limit ? settings.large_segment_size
                                 : round_up(rounded, segment_granularity);
}

}  // namespace et_replay
