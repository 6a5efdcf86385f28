// Plans of one part come in from several threads; the smallest stays, and of equal ones that of
// the lowest attempt, so that the winner does not depend on who is done first.
#pragma once

#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <utility>

#include "deadline.hpp"
#include "normal.hpp"

namespace et_replay::planner {

class Contest {
 public:
  // When the time is over, no attempt goes on, but for want of any plan; when cancelled, none.
  explicit Contest(const Stop& stop) : stop_(stop) {}

  // To be called when no attempt is running: below the target nothing is looked for.
  void aim(Bytes target) { target_ = target; }

  // The largest arena with which `attempt` would still win; -1 where it cannot.
  Bytes limit(std::uint64_t attempt) const {
    const std::lock_guard lock(mutex_);
    const bool over = stop_.over.load(std::memory_order_relaxed);
    if (over && (arena_ <= largest_arena || stop_.cancelled)) return -1;
    const Bytes highest = attempt < attempt_ ? arena_ : arena_ - 1;
    return highest < target_ ? -1 : highest;
  }

  // Takes the offsets if they win.
  void enter(std::uint64_t attempt, Bytes arena, Offsets offsets, std::string method) {
    const std::lock_guard lock(mutex_);
    if (arena > arena_ || (arena == arena_ && attempt >= attempt_)) return;
    arena_ = arena;
    attempt_ = attempt;
    offsets_ = std::move(offsets);
    method_ = std::move(method);
  }

  // To be read when no attempt is running.
  Bytes arena() const { return arena_; }
  std::uint64_t attempt() const { return attempt_; }
  const Offsets& offsets() const { return offsets_; }
  const std::string& method() const { return method_; }
  bool decided() const { return arena_ <= target_; }

 private:
  Bytes target_ = 0;
  const Stop& stop_;
  mutable std::mutex mutex_;
  Bytes arena_ = largest_arena + 1;
  std::uint64_t attempt_ = std::numeric_limits<std::uint64_t>::max();
  Offsets offsets_;
  std::string method_;
};

}  // namespace et_replay::planner
