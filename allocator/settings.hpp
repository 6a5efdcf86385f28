// What PYTORCH_ALLOC_CONF sets, and its syntax.
#pragma once

#include <array>
#include <limits>
#include <string>

#include "sizes.hpp"
#include "version.hpp"

namespace et_replay {

constexpr Bytes unlimited = std::numeric_limits<Bytes>::max();

struct Settings {
  Bytes max_split_size = unlimited;  // requests below it take and split no block of at least it
  Bytes max_non_split_rounding = 20 * mebibyte;  // how much too large an oversize block may be
  double garbage_collection_threshold = 0;       // of the memory limit; 0 is off
  std::array<Bytes, 16> roundup_divisions{};     // by interval, see rounding.hpp; 0 and 1 are off
  bool rounds_up = false;                        // some division is above 1
  bool expandable_segments = false;
  Bytes large_segment_size = 20 * mebibyte;  // packed segment and page of the large pool
  double memory_fraction = 1;                // of the device: start value of the memory limit
  bool throw_on_device_oom = false;
  bool capture_reuse = false;  // of blocks freed across streams within a capture

  // Reads "option:value,option:[a:b,c:d]". Every reading starts from the defaults of
  // max_split_size, max_non_split_rounding, roundup_divisions and garbage_collection_threshold;
  // all others keep their value. Throws std::invalid_argument with a sentence that names the option
  // and the versions that have it, and has changed nothing then.
  void read(const std::string& text, Version version);
};

}  // namespace et_replay
