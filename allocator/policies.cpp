// One row a policy.
#include "policies.hpp"

#include <stdexcept>

#include "caching.hpp"
#include "planned.hpp"
#include "uncached.hpp"

namespace et_replay {

namespace {

using Made = std::unique_ptr<Allocator>;

Settings settings_of(const Setup& setup, const char* first = "") {
  Settings settings;
  settings.read(first + setup.settings, setup.version);
  return settings;
}

Made make_native(Device& device, const Setup& setup) {
  return std::make_unique<CachingAllocator>(device, settings_of(setup), setup.version);
}

Made make_expandable(Device& device, const Setup& setup) {
  const Settings settings = settings_of(setup, "expandable_segments:True,");
  return std::make_unique<CachingAllocator>(device, settings, setup.version);
}

template <Bytes granularity>
Made make_uncached(Device& device, const Setup& setup) {
  if (!setup.settings.empty()) {
    throw std::invalid_argument("Only native, expandable and stalloc have settings, got '" +
                                setup.settings + "'.");
  }
  return std::make_unique<UncachedAllocator>(device, granularity);
}

Made make_planned(Device& device, const Setup& setup) {
  return std::make_unique<PlannedAllocator>(device, setup.plan, settings_of(setup),
                                            setup.version);
}

}  // namespace

const std::vector<Policy>& policies() {
  static const std::vector<Policy> table{
      {"native", "PyTorch's caching allocator; settings as in PYTORCH_ALLOC_CONF", make_native},
      {"expandable", "native with expandable_segments:True", make_expandable},
      {"stalloc", "addresses from a plan, and native, with its settings, for what has none",
       make_planned, true},
      {"direct", "no cache: every request is a device allocation of whole 2 MiB",
       make_uncached<segment_granularity>, false, true},
      {"ideal", "lower bound: the live requests, each rounded up to 512 bytes",
       make_uncached<smallest_block>, false, true},
  };
  return table;
}

Made make_allocator(const std::string& name, Device& device, const Setup& setup) {
  std::string known;
  for (const Policy& policy : policies()) {
    known += (known.empty() ? "" : ", ") + std::string(policy.name);
    if (name != policy.name) continue;
    if (!policy.planned && !setup.plan.rows.empty()) {
      throw std::invalid_argument("Only stalloc serves a plan, and got it with " + name + ".");
    }
    return policy.make(device, setup);
  }
  throw std::invalid_argument("Expected an allocator among " + known + ", got '" + name + "'.");
}

}  // namespace et_replay
