// The functions whose addresses torch gets, over the states of all devices.
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "pluggable.hpp"

#define ET_REPLAY_EXPORT extern "C" __attribute__((visibility("default")))

namespace et_replay {

namespace pluggable {

namespace {

constexpr int most_devices = 64;

// What a device is to serve that has not served yet.
struct Followed {
  PlanTable plan;
  RequestList requests;
};

struct Process {
  PluggableSetup setup;
  std::mutex mutex;  // of making a state, and of what follows
  std::atomic<PluggableAllocator*> devices[most_devices] = {};
  std::map<int, Followed> followed;
  std::size_t iteration = 0;
};

// All of it is leaked on purpose: tensors are freed as late as the end of the process, after the
// destructors of whatever else there is.
std::atomic<Process*> process{nullptr};
std::atomic<Thrower> thrower{nullptr};

PluggableAllocator* make(Process& current, int ordinal) {
  auto made = std::make_unique<PluggableAllocator>(ordinal, current.setup);
  const auto found = current.followed.find(ordinal);
  if (found != current.followed.end()) {
    made->adopt(found->second.plan, std::move(found->second.requests));
    current.followed.erase(found);
  }
  if (current.iteration > 0) made->begin_iteration(current.iteration);
  return made.release();
}

// Throws where it is not installed, or no process has such a device.
Process& process_for(int ordinal) {
  Process* current = process.load();
  if (current == nullptr) throw std::runtime_error("No allocator of et_replay is installed.");
  if (ordinal < 0 || ordinal >= most_devices) {
    throw std::runtime_error("There is no CUDA device " + std::to_string(ordinal) + ".");
  }
  return *current;
}

// Throws std::invalid_argument where the allocator cannot be made, or cannot serve the plan.
void check(const PluggableSetup& setup, const PlanTable& plan) {
  SimulatedDevice device(0);
  make_allocator(setup.policy, device, {setup.setup.settings, setup.setup.version, plan});
}

void replace(std::string& text, const std::string& old, const std::string& fresh) {
  const std::size_t at = text.find(old);
  if (at != std::string::npos) text.replace(at, old.size(), fresh);
}

// Torch's words, without its advice about settings of its own allocator; and where the capacity is
// a limit of ours they say so.
std::string sentence(const OutOfMemory& error, int device) {
  const PluggableSetup& setup = process.load()->setup;
  std::string text = error.torch_sentence(setup.setup.version);
  const std::string name = "GPU " + std::to_string(device);
  const bool limited = setup.limit && error.capacity == *setup.limit;
  replace(text, "GPU 0 has a total capacity of ",
          name + (limited ? " is limited to " : " has a total capacity of "));
  return text.substr(0, text.find(" If reserved but unallocated"));
}

template <class Visitor>
void for_each_device(Visitor&& visit) {
  Process* current = process.load();
  if (current == nullptr) return;
  for (auto& slot : current->devices) {
    if (PluggableAllocator* state = slot.load()) visit(*state);
  }
}

}  // namespace

void install(PluggableSetup setup) {
  if (process.load() != nullptr) {
    throw std::runtime_error("An allocator has been installed in this process before.");
  }
  CudaDriver::get();
  for (const Policy& policy : policies()) {
    if (policy.name == setup.policy && policy.invents_addresses) {
      throw std::invalid_argument("The allocator " + setup.policy +
                                  " exists in simulation only.");
    }
  }
  check(setup, setup.setup.plan);
  auto* made = new Process;
  made->setup = std::move(setup);
  process.store(made);
}

void uninstall() {
  for_each_device([](PluggableAllocator&) {
    throw std::runtime_error("The installed allocator has served memory, and stays.");
  });
  process.store(nullptr);
}

bool is_installed() { return process.load() != nullptr; }

PluggableAllocator* find(int ordinal) {
  Process* current = process.load();
  const bool possible = current != nullptr && ordinal >= 0 && ordinal < most_devices;
  return possible ? current->devices[ordinal].load() : nullptr;
}

PluggableAllocator& on_device(int ordinal) {
  Process& current = process_for(ordinal);
  std::atomic<PluggableAllocator*>& slot = current.devices[ordinal];
  if (PluggableAllocator* state = slot.load()) return *state;
  const std::lock_guard<std::mutex> lock(current.mutex);
  if (slot.load() == nullptr) slot.store(make(current, ordinal));
  return *slot.load();
}

void follow(int ordinal, PlanTable plan, RequestList requests) {
  Process& current = process_for(ordinal);
  const std::lock_guard<std::mutex> lock(current.mutex);
  if (PluggableAllocator* state = current.devices[ordinal].load()) {
    return state->adopt(plan, std::move(requests));
  }
  check(current.setup, plan);
  current.followed[ordinal] = {std::move(plan), std::move(requests)};
}

std::map<int, IterationFigures> begin_iteration(std::size_t iteration) {
  std::map<int, IterationFigures> figures;
  Process* current = process.load();
  if (current == nullptr) return figures;
  const std::lock_guard<std::mutex> lock(current->mutex);
  current->iteration = iteration;
  for (int ordinal = 0; ordinal < most_devices; ++ordinal) {
    if (PluggableAllocator* state = current->devices[ordinal].load()) {
      figures.emplace(ordinal, state->begin_iteration(iteration));
    }
  }
  return figures;
}

void throw_out_of_memory_by(Thrower function) { thrower.store(function); }

}  // namespace pluggable

namespace {

// A stray error would end the process: these are called where nothing may be thrown.
template <class Call>
void without_errors(Call&& call) noexcept {
  try {
    call();
  } catch (...) {
  }
}

Address to_address(void* pointer) { return reinterpret_cast<Address>(pointer); }

}  // namespace

}  // namespace et_replay

// For no bytes it returns null, as torch's own allocator does: there is nothing to free then. For
// more it never does, as torch would take it for memory: it throws.
ET_REPLAY_EXPORT void* et_replay_alloc(std::size_t size, int device, CUstream_st* stream) {
  using namespace et_replay;
  if (size == 0) return nullptr;
  std::string text;
  try {
    const auto requested = static_cast<Bytes>(size);
    const Address address = pluggable::on_device(device).allocate(requested, stream);
    return reinterpret_cast<void*>(address);
  } catch (const OutOfMemory& error) {
    text = pluggable::sentence(error, device);
  }
  if (const pluggable::Thrower thrower = pluggable::thrower.load()) thrower(text.c_str());
  throw std::runtime_error(text);
}

ET_REPLAY_EXPORT void et_replay_free(void* pointer, std::size_t, int device, CUstream_st*) {
  using namespace et_replay;
  if (pointer == nullptr) return;
  without_errors([&] { pluggable::on_device(device).free(to_address(pointer)); });
}

// Torch does not say on which device.
ET_REPLAY_EXPORT void et_replay_record_stream(void* pointer, CUstream_st* stream) {
  using namespace et_replay;
  bool found = false;
  pluggable::for_each_device([&](PluggableAllocator& state) {
    found = found || state.record_stream(to_address(pointer), stream);
  });
}

ET_REPLAY_EXPORT void et_replay_empty_cache() {
  using namespace et_replay;
  pluggable::for_each_device([](PluggableAllocator& state) { state.empty_cache(); });
}

ET_REPLAY_EXPORT void et_replay_set_fraction(double fraction, int device) {
  et_replay::pluggable::on_device(device).set_fraction(fraction);
}

ET_REPLAY_EXPORT void et_replay_begin_pool(int device, et_replay::PoolId id,
                                           std::function<bool(CUstream_st*)> filter) {
  et_replay::pluggable::on_device(device).begin_pool(id, std::move(filter));
}

ET_REPLAY_EXPORT void et_replay_end_pool(int device, et_replay::PoolId id) {
  et_replay::pluggable::on_device(device).end_pool(id);
}

ET_REPLAY_EXPORT void et_replay_release_pool(int device, et_replay::PoolId id) {
  using namespace et_replay;
  without_errors([&] { pluggable::on_device(device).release_pool(id); });
}
