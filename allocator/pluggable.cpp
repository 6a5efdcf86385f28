// One device's allocator: a lock, live blocks by address, and blocks that wait for streams.
#include "pluggable.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "pool.hpp"

namespace et_replay {

namespace {

constexpr Stream no_stream = ~Stream{0};
constexpr unsigned without_timing = 2;

}  // namespace

PluggableAllocator::PluggableAllocator(int ordinal, const PluggableSetup& setup)
    : device_(ordinal, setup.limit),
      allocator_(make_allocator(setup.policy, device_, setup.setup)),
      follower_(*allocator_) {}

Address PluggableAllocator::allocate(Bytes requested, CudaStream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!waits_.empty() || !deferred_.empty()) settle();
  const Stream number = number_of(stream);
  if (!captures_.empty()) route(stream, number);
  try {
    Block* block = follower_.allocate(requested, number);
    if (allocator_->is_handed_over(*block)) take_over(*block, stream);
    live_.insert(static_cast<std::int64_t>(block->address), block);
    return block->address;
  } catch (const OutOfMemory& error) {
    last_failure_ = Failure{error, allocator_->segments()};
    throw;
  }
}

bool PluggableAllocator::free(Address address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Block* block = live_.take(static_cast<std::int64_t>(address));
  if (block == nullptr) return false;
  const auto used = users_.empty() ? users_.end() : users_.find(block);
  const bool is_handed_over = allocator_->is_handed_over(*block);
  if (used == users_.end() && !(is_handed_over && !captures_.empty())) {
    if (is_handed_over) leave(*block);
    allocator_->free(block);
    return true;
  }
  std::vector<CudaStream> users;
  if (used != users_.end()) {
    users = std::move(used->second);
    users_.erase(used);
  }
  if (is_handed_over) {  // once all streams have passed an event, the memory is idle for any
    for (const CudaStream stream : handles_) {
      if (std::find(users.begin(), users.end(), stream) == users.end()) users.push_back(stream);
    }
  }
  const std::uint64_t ticket = allocator_->hold(block);
  if (captures_.empty()) {
    wait_for(ticket, users);
  } else {
    deferred_.push_back({ticket, users});
  }
  return true;
}

bool PluggableAllocator::record_stream(Address address, CudaStream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Block* block = live_.find(static_cast<std::int64_t>(address));
  if (block == nullptr) return false;
  if (is_stream_of(*block, stream)) return true;
  std::vector<CudaStream>& users = users_[block];
  if (std::find(users.begin(), users.end(), stream) == users.end()) users.push_back(stream);
  return true;
}

void PluggableAllocator::empty_cache() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (captures_.empty()) settle();
  allocator_->empty_cache();
}

void PluggableAllocator::reset_peaks() {
  const std::lock_guard<std::mutex> lock(mutex_);
  allocator_->reset_peaks();
}

void PluggableAllocator::set_fraction(double fraction) {
  const std::lock_guard<std::mutex> lock(mutex_);
  allocator_->set_fraction(fraction);
}

void PluggableAllocator::record_trace(bool on) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Trace& trace = allocator_->trace();
  trace.enabled = on;
  if (on) trace.entries.clear();
}

void PluggableAllocator::adopt(const PlanTable& plan, RequestList requests) {
  const std::lock_guard<std::mutex> lock(mutex_);
  follower_.adopt(plan, std::move(requests));
}

void PluggableAllocator::expect(std::size_t begin, std::size_t end) {
  const std::lock_guard<std::mutex> lock(mutex_);
  follower_.expect(begin, end);
}

IterationFigures PluggableAllocator::begin_iteration(std::size_t iteration) {
  const std::lock_guard<std::mutex> lock(mutex_);
  settle();
  return follower_.begin_iteration(iteration);
}

std::optional<PluggableAllocator::Failure> PluggableAllocator::last_failure() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_failure_;
}

// The stream that captures is known when it asks for memory; until then the pool is no one's.
void PluggableAllocator::begin_pool(PoolId id, std::function<bool(CudaStream)> filter) {
  const std::lock_guard<std::mutex> lock(mutex_);
  allocator_->begin_pool(id, no_stream);
  ++pool_uses_[id];
  captures_.push_back({id, std::move(filter), no_stream});
}

void PluggableAllocator::end_pool(PoolId id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  allocator_->end_pool(id);
  captures_.erase(std::remove_if(captures_.begin(), captures_.end(),
                                 [&](const Capture& capture) { return capture.id == id; }),
                  captures_.end());
}

void PluggableAllocator::release_pool(PoolId id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto uses = pool_uses_.find(id);
  if (uses == pool_uses_.end() || --uses->second > 0) return;
  pool_uses_.erase(uses);
  allocator_->release_pool(id);
}

Stream PluggableAllocator::number_of(CudaStream stream) {
  if (stream == last_stream_) return last_number_;
  const auto [known, is_new] = streams_.emplace(stream, streams_.size());
  if (is_new) handles_.push_back(stream);
  last_number_ = known->second;
  last_stream_ = stream;
  return last_number_;
}

// A stream gets its number when it asks for memory first, so that the order is that of requests.
bool PluggableAllocator::is_stream_of(const Block& block, CudaStream stream) const {
  const auto known = streams_.find(stream);
  return known != streams_.end() && known->second == block.home->stream;
}

// Lets requests of the stream go where its captures say. A filter may look at the thread, too.
void PluggableAllocator::route(CudaStream stream, Stream number) {
  for (Capture& capture : captures_) {
    const bool captured = capture.filter(stream);
    if (captured == (capture.routed == number)) continue;
    capture.routed = captured ? number : no_stream;
    allocator_->end_pool(capture.id);
    allocator_->begin_pool(capture.id, capture.routed);
  }
}

// Records the events that a freed block waits for.
void PluggableAllocator::wait_for(std::uint64_t ticket, const std::vector<CudaStream>& users) {
  const CudaCalls calls(device_.context());
  const CudaDriver& driver = device_.driver();
  open_waits_[ticket] = users.size();
  for (const CudaStream stream : users) {
    const CudaEvent event = take_event();
    driver.check(driver.event_record(event, stream), "record an event");
    waits_[stream].push_back({ticket, event});
  }
}

// Lets a stream wait for all that may use the memory of a block still.
void PluggableAllocator::take_over(const Block& block, CudaStream stream) {
  const std::vector<Handover::Moment> moments =
      handover_.take(block.address, block.end(), block.home->stream);
  if (!moments.empty()) {
    const CudaCalls calls(device_.context());
    const CudaDriver& driver = device_.driver();
    for (const Handover::Moment moment : moments) {
      for (const auto& [other, event] : moments_[moment]) {
        if (other == stream) continue;
        driver.check(driver.stream_wait_event(stream, event, 0), "let a stream wait");
      }
    }
  }
  for (const Handover::Moment moment : handover_.forgotten()) {
    for (const auto& [other, event] : moments_[moment]) spare_events_.push_back(event);
    moments_.erase(moment);
  }
}

// Records what other streams wait for before they have the memory of a block that is freed: events
// of all streams, as the owner's may be the one that is told to wait for another's use only later.
void PluggableAllocator::leave(const Block& block) {
  const CudaCalls calls(device_.context());
  const CudaDriver& driver = device_.driver();
  auto& events = moments_[handover_.leave(block.address, block.end(), block.home->stream)];
  for (const CudaStream stream : handles_) {
    const CudaEvent event = take_event();
    if (driver.event_record(event, stream) == cuda_success) {
      events.emplace_back(stream, event);
    } else {  // the stream is no more
      spare_events_.push_back(event);
    }
  }
}

CudaEvent PluggableAllocator::take_event() {
  CudaEvent event = nullptr;
  if (spare_events_.empty()) {
    const CudaDriver& driver = device_.driver();
    driver.check(driver.event_create(&event, without_timing), "create an event");
  } else {
    event = spare_events_.back();
    spare_events_.pop_back();
  }
  return event;
}

// Frees the blocks whose events have passed. Within a capture no event can be asked for.
void PluggableAllocator::settle() {
  if (!captures_.empty()) return;
  std::vector<Deferred> deferred;
  deferred.swap(deferred_);
  for (const Deferred& freed : deferred) wait_for(freed.ticket, freed.users);
  const CudaCalls calls(device_.context());
  for (auto queue = waits_.begin(); queue != waits_.end();) {
    settle_queue(queue->second);
    queue = queue->second.empty() ? waits_.erase(queue) : std::next(queue);
  }
}

void PluggableAllocator::settle_queue(std::deque<Wait>& queue) {
  const CudaDriver& driver = device_.driver();
  while (!queue.empty()) {
    const Wait wait = queue.front();
    const int result = driver.event_query(wait.event);
    if (result == cuda_not_ready) return;
    driver.check(result, "ask for an event");
    queue.pop_front();
    spare_events_.push_back(wait.event);
    const auto open = open_waits_.find(wait.ticket);
    if (--open->second > 0) continue;
    open_waits_.erase(open);
    allocator_->complete(wait.ticket);
  }
}

}  // namespace et_replay
