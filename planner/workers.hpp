// A task and the number of times that it is to be done in; done by several threads, out.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace et_replay::planner {

// Calls task(index, worker) for each index below `count`, in order of their beginning; worker is
// below `threads`. Rethrows the first exception when all have ended.
template <class Task>
void run_tasks(unsigned threads, std::size_t count, Task&& task) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&](unsigned worker) {
    try {
      for (std::size_t index = next++; index < count; index = next++) task(index, worker);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  const auto helpers = static_cast<unsigned>(std::min<std::size_t>(threads, count));
  std::vector<std::thread> others;
  for (unsigned worker = 1; worker < helpers; ++worker) others.emplace_back(work, worker);
  work(0);
  for (std::thread& other : others) other.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace et_replay::planner
