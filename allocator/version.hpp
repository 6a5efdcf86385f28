// The versions of torch that are imitated, and where they differ.
#pragma once

#include <stdexcept>
#include <string>

namespace et_replay {

// Which of several free blocks of one size is taken: the one at the lowest address, the one whose
// Block was made first, or the one in the oldest segment and there at the lowest address.
enum class TieOrder { address, block, segment };

struct Version {
  int minor = 14;  // of torch 2

  TieOrder tie_order() const {
    if (minor == 12) return TieOrder::block;
    return minor < 12 ? TieOrder::address : TieOrder::segment;
  }
  // A plain routing to a private pool counts as a capture: no event is polled meanwhile.
  bool routing_is_capture() const { return minor <= 12; }
  // With graph_capture_record_stream_reuse the end of a routing frees what waits in its pool.
  bool end_frees_deferred() const { return minor >= 12; }
  // In a list of roundup divisions `>` overwrites the last interval named before it.
  bool greater_sign_overwrites() const { return minor < 10; }
  bool max_split_size_must_exceed_segment() const { return minor < 10; }
  // A fraction of 1 limits to the whole device, which turns garbage collection on.
  bool full_fraction_limits() const { return minor < 10; }
  // The cache cannot be emptied while requests are routed to a private pool.
  bool capture_keeps_cache() const { return minor < 8; }
  // Settings that are read again keep max_non_split_rounding.
  bool keeps_non_split_rounding() const { return minor < 11; }
  // Of several routings that fit, the one that began first comes first.
  bool oldest_routing_first() const { return minor < 10; }
  // Pools that lend are the last resort.
  bool lends_last() const { return minor < 11; }
  bool lends_expandable() const { return minor < 10; }
  // A pool that is deleted is split again when it comes back.
  bool forgets_unsplit() const { return minor >= 13; }
  bool traces_pools() const { return minor >= 8; }
  std::string name() const { return "torch 2." + std::to_string(minor); }
};

constexpr int oldest_minor = 7;
constexpr int newest_minor = 14;

// Reads "2.14" and what may follow it, as in "2.14.1+cu130".
inline Version version_of(const std::string& text) {
  int minor = -1;
  if (text.rfind("2.", 0) == 0 && text.size() > 2 && text[2] >= '0' && text[2] <= '9') {
    minor = std::stoi(text.substr(2, 4));
  }
  if (minor < oldest_minor || minor > newest_minor) {
    throw std::invalid_argument("Expected a torch version from 2.7 to 2.14, got '" + text + "'.");
  }
  return Version{minor};
}

}  // namespace et_replay
