// A CUDA driver without a GPU, built as libcuda.so.1: memory is host memory, work on streams ends
// when a test says so, and calls fail when a test says so. Below it, what calls functions of the
// allocator for a test in Python, which no C++ exception may reach.
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <typeinfo>
#include <utility>
#include <vector>

namespace {

constexpr int out_of_memory = 2;
constexpr int invalid_value = 1;
constexpr int invalid_context = 201;
constexpr int not_ready = 600;
constexpr std::size_t page = std::size_t{2} << 20;

std::mutex lock;
std::size_t total = std::size_t{8} << 30;
std::size_t used = 0;
std::map<std::uint64_t, std::size_t> segments, ranges;
std::set<std::uint64_t> mapped;  // pages
std::map<std::uint64_t, std::size_t> handles;
std::uint64_t next_address = 0x10000000000;
std::uint64_t next_handle = 1;
std::set<void*> busy_streams;
std::map<void*, void*> events;  // the stream of each
std::uint64_t next_event = 1;
std::vector<std::pair<std::uintptr_t, std::uintptr_t>> waits;  // of a stream for another
int wrong_calls = 0;
int synchronizations = 0;
thread_local int contexts = 0;
thread_local int capture_mode = 0;

// Memory may be asked for only in a context, and in relaxed mode.
int checked(bool fine) {
  if (contexts == 0) return invalid_context;
  if (!fine || capture_mode != 2) {
    ++wrong_calls;
    return invalid_value;
  }
  return 0;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal < 2 ? 0 : 101;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(std::uintptr_t{1} + static_cast<std::uintptr_t>(device));
  return 0;
}
int cuCtxPushCurrent_v2(void*) {
  ++contexts;
  return 0;
}
int cuCtxPopCurrent_v2(void**) {
  --contexts;
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return 0;
}
int cuGetErrorName(int result, const char** name) {
  *name = result == 101 ? "CUDA_ERROR_INVALID_DEVICE" : "CUDA_ERROR_OF_THE_FAKE";
  return 0;
}
int cuCtxSynchronize() {
  const std::lock_guard<std::mutex> guard(lock);
  ++synchronizations;
  busy_streams.clear();
  return checked(true);
}

int cuMemGetInfo_v2(std::size_t* free, std::size_t* all) {
  const std::lock_guard<std::mutex> guard(lock);
  *free = total - used;
  *all = total;
  return checked(true);
}

int cuMemAlloc_v2(std::uint64_t* address, std::size_t size) {
  const std::lock_guard<std::mutex> guard(lock);
  if (const int wrong = checked(size > 0)) return wrong;
  if (used + size > total) return out_of_memory;
  *address = next_address;
  next_address += (size + page - 1) / page * page;
  segments[*address] = size;
  used += size;
  return 0;
}

int cuMemFree_v2(std::uint64_t address) {
  const std::lock_guard<std::mutex> guard(lock);
  const auto found = segments.find(address);
  if (const int wrong = checked(found != segments.end())) return wrong;
  used -= found->second;
  segments.erase(found);
  return 0;
}

int cuMemGetAllocationGranularity(std::size_t* granularity, const void*, int) {
  *granularity = page;
  return checked(true);
}

int cuMemAddressReserve(std::uint64_t* address, std::size_t size, std::size_t, std::uint64_t,
                        unsigned long long) {
  const std::lock_guard<std::mutex> guard(lock);
  if (const int wrong = checked(size % page == 0)) return wrong;
  *address = next_address;
  next_address += size;
  ranges[*address] = size;
  return 0;
}

int cuMemAddressFree(std::uint64_t address, std::size_t size) {
  const std::lock_guard<std::mutex> guard(lock);
  const auto found = ranges.find(address);
  const bool whole = found != ranges.end() && found->second == size;
  const auto first = mapped.lower_bound(address);
  const bool empty = first == mapped.end() || *first >= address + size;
  if (const int wrong = checked(whole && empty)) return wrong;
  ranges.erase(found);
  return 0;
}

int cuMemCreate(std::uint64_t* handle, std::size_t size, const void*, unsigned long long) {
  const std::lock_guard<std::mutex> guard(lock);
  if (const int wrong = checked(size == page)) return wrong;
  if (used + size > total) return out_of_memory;
  *handle = next_handle++;
  handles[*handle] = size;
  used += size;
  return 0;
}

int cuMemRelease(std::uint64_t handle) {
  const std::lock_guard<std::mutex> guard(lock);
  return checked(handles.erase(handle) == 1);
}

int cuMemMap(std::uint64_t address, std::size_t size, std::size_t offset, std::uint64_t handle,
             unsigned long long) {
  const std::lock_guard<std::mutex> guard(lock);
  const bool known = handles.count(handle) == 1 && offset == 0 && size == page;
  return checked(known && address % page == 0 && mapped.insert(address).second);
}

int cuMemUnmap(std::uint64_t address, std::size_t size) {
  const std::lock_guard<std::mutex> guard(lock);
  if (const int wrong = checked(address % page == 0 && size % page == 0)) return wrong;
  for (std::size_t at = 0; at < size; at += page) {
    if (mapped.erase(address + at) == 0) return checked(false);
    used -= page;
  }
  return 0;
}

int cuMemSetAccess(std::uint64_t address, std::size_t size, const void*, std::size_t count) {
  const std::lock_guard<std::mutex> guard(lock);
  return checked(count == 1 && mapped.count(address) == 1 && size % page == 0);
}

int cuEventCreate(void** event, unsigned) {
  const std::lock_guard<std::mutex> guard(lock);
  *event = reinterpret_cast<void*>(next_event++);
  return checked(true);
}
int cuEventRecord(void* event, void* stream) {
  const std::lock_guard<std::mutex> guard(lock);
  events[event] = stream;
  return checked(true);
}
int cuEventQuery(void* event) {
  const std::lock_guard<std::mutex> guard(lock);
  if (const int wrong = checked(events.count(event) == 1)) return wrong;
  return busy_streams.count(events[event]) == 1 ? not_ready : 0;
}
int cuEventDestroy_v2(void*) { return 0; }
int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  const std::lock_guard<std::mutex> guard(lock);
  if (const int wrong = checked(events.count(event) == 1)) return wrong;
  waits.emplace_back(reinterpret_cast<std::uintptr_t>(stream),
                     reinterpret_cast<std::uintptr_t>(events[event]));
  return 0;
}

// --- what tests ask for and set ---

void fake_set_total(std::size_t bytes) { total = bytes; }
std::size_t fake_used() { return used; }
std::size_t fake_ranges() { return ranges.size(); }
std::uint64_t fake_events() { return next_event - 1; }
int fake_wrong_calls() { return wrong_calls; }
int fake_synchronizations() { return synchronizations; }
std::size_t fake_waits() { return waits.size(); }
std::uint64_t fake_last_waiting() { return waits.back().first; }
std::uint64_t fake_last_waited_for() { return waits.back().second; }
void fake_set_busy(void* stream, int busy) {
  const std::lock_guard<std::mutex> guard(lock);
  if (busy != 0) {
    busy_streams.insert(stream);
  } else {
    busy_streams.erase(stream);
  }
}

using Alloc = void* (*)(std::size_t size, int device, void* stream);
using Free = void (*)(void* pointer, std::size_t size, int device, void* stream);

std::string error_type;
const char* fake_error_type() { return error_type.c_str(); }

// Returns the pointer, or null with the text of the error.
void* fake_try_alloc(Alloc alloc, std::size_t size, int device, void* stream, char* text,
                     std::size_t room) {
  text[0] = '\0';
  try {
    return alloc(size, device, stream);
  } catch (const std::exception& error) {
    error_type = typeid(error).name();
    std::strncpy(text, error.what(), room - 1);
    text[room - 1] = '\0';
    return nullptr;
  }
}

// Allocates and frees from several threads on several streams, some blocks from the next thread.
// Returns how often two live blocks overlapped.
int fake_hammer(Alloc alloc, Free free, int threads, int rounds) {
  std::mutex live_lock;
  std::map<std::uintptr_t, std::size_t> live;
  int overlaps = 0;
  const auto work = [&](int number) {
    std::mt19937 random(static_cast<unsigned>(number));
    void* stream = reinterpret_cast<void*>(static_cast<std::uintptr_t>(number % 3));
    for (int round = 0; round < rounds; ++round) {
      const std::size_t size = 1 + random() % (random() % 4 == 0 ? 30000000 : 100000);
      const auto address = reinterpret_cast<std::uintptr_t>(alloc(size, 0, stream));
      std::uintptr_t victim = 0;
      std::size_t victim_size = 0;
      {
        const std::lock_guard<std::mutex> guard(live_lock);
        const auto behind = live.lower_bound(address);
        if (behind != live.end() && behind->first < address + size) ++overlaps;
        if (behind != live.begin() && std::prev(behind)->first + std::prev(behind)->second > address)
          ++overlaps;
        live[address] = size;
        if (live.size() > 20) {
          victim = live.begin()->first;
          victim_size = live.begin()->second;
          live.erase(live.begin());
        }
      }
      if (victim != 0) free(reinterpret_cast<void*>(victim), victim_size, 0, stream);
    }
  };
  std::vector<std::thread> running;
  for (int number = 0; number < threads; ++number) running.emplace_back(work, number);
  for (std::thread& thread : running) thread.join();
  for (const auto& [address, size] : live) free(reinterpret_cast<void*>(address), size, 0, nullptr);
  return overlaps;
}

}  // extern "C"

// A pool for the requests of one stream, as a capture of a graph begins it, while that lasts.
using PoolId = std::pair<std::uint64_t, std::uint64_t>;
struct CUstream_st;

static bool capture_lasts = true;

extern "C" void fake_set_capture_lasts(int lasts) { capture_lasts = lasts != 0; }

extern "C" void fake_begin_pool(void (*begin)(int, PoolId, std::function<bool(CUstream_st*)>),
                                std::uint64_t id, CUstream_st* captured) {
  begin(0, {0, id}, [captured](CUstream_st* stream) { return capture_lasts && stream == captured; });
}

extern "C" void fake_call_pool(void (*call)(int, PoolId), std::uint64_t id) { call(0, {0, id}); }
