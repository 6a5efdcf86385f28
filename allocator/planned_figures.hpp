// How the requests of a planned allocator were served.
#pragma once

#include "sizes.hpp"

namespace et_replay {

struct Served {
  std::int64_t requests = 0;
  Bytes bytes = 0;  // asked for

  void count(Bytes requested) {
    ++requests;
    bytes += requested;
  }
  Served since(const Served& before) const {
    return {requests - before.requests, bytes - before.bytes};
  }
};

// Every request that got memory is one of planned, reused and fallback.
struct PlannedFigures {
  Bytes arena = 0;  // what it takes from the device
  Served planned;   // at the address that the plan has for it
  Served reused;    // in space of the arena that was idle
  Served fallback;  // from the caching allocator
  // The plan has an address, but it was in use, of another stream or too small. Such a request is
  // counted as reused or fallback, too, unless it failed.
  Served displaced;
  // What was reserved was never more than this and the arena.
  Bytes fallback_peak_reserved = 0;
};

// What happened from one mark to the next.
struct IterationFigures {
  Bytes peak_allocated = 0, peak_active = 0, peak_reserved = 0;  // whatever resets other peaks
  Bytes allocated = 0, reserved = 0;                             // at its end
  // As in PlannedFigures; without a plan all are of the fallback.
  Served planned, reused, displaced, fallback;
  Served unmatched;            // that the list of requests does not have
  std::int64_t expected = 0;   // how many it has
  std::int64_t resynchronisations = 0;
};

}  // namespace et_replay
