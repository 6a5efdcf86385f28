// How much of a search is left to do.
#pragma once

#include <atomic>
#include <cstdint>

namespace et_replay::planner {

struct Budget {
  std::int64_t steps = 0;  // placements tried or nodes seen; counted, not timed, so that an answer
                           // does not depend on the machine
  const std::atomic<bool>* stop = nullptr;  // set from outside when the time is over

  bool spent() const {
    return steps <= 0 || (stop != nullptr && stop->load(std::memory_order_relaxed));
  }
};

}  // namespace et_replay::planner
