// A number of seconds in; a flag that is set when they are over, out.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace et_replay::planner {

// Whether a time is ever over: no seconds are none, and more are beyond the clock's nanoseconds.
inline bool ends(double seconds) { return seconds > 0 && seconds < 1e9; }

// Why a search should end: what is found by then is wanted if the time is `over`, and not if it is
// `cancelled`, which takes precedence and implies `over`.
struct Stop {
  std::atomic<bool> over{false};
  std::atomic<bool> cancelled{false};

  void cancel() {
    cancelled = true;
    over = true;
  }
};

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  Deadline(Clock::time_point begin, double seconds, Stop& stop) {
    if (!ends(seconds)) return;
    const std::chrono::duration<double> length(seconds);
    const auto end = begin + std::chrono::duration_cast<Clock::duration>(length);
    watcher_ = std::thread([this, end, &stop] {
      std::unique_lock lock(mutex_);
      if (!woken_.wait_until(lock, end, [this] { return closed_; })) stop.over = true;
    });
  }
  ~Deadline() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    woken_.notify_all();
    if (watcher_.joinable()) watcher_.join();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable woken_;
  bool closed_ = false;
  std::thread watcher_;
};

}  // namespace et_replay::planner
