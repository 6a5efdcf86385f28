// A number of seconds in; a flag that is set when they are over, out.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace et_replay::planner {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  // No seconds: never.
  Deadline(Clock::time_point begin, double seconds) {
    if (seconds <= 0) return;
    const std::chrono::duration<double> length(seconds);
    const auto end = begin + std::chrono::duration_cast<Clock::duration>(length);
    watcher_ = std::thread([this, end] {
      std::unique_lock lock(mutex_);
      if (!woken_.wait_until(lock, end, [this] { return closed_; })) over_ = true;
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

  const std::atomic<bool>& over() const { return over_; }

 private:
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  std::condition_variable woken_;
  bool closed_ = false;
  std::thread watcher_;
};

}  // namespace et_replay::planner
