// One row a policy.
#include "policies.hpp"

#include <stdexcept>

#include "caching.hpp"
#include "uncached.hpp"

namespace et_replay {

namespace {

using Made = std::unique_ptr<Allocator>;

Made make_native(Device& device, const std::string& text, Version version) {
  Settings settings;
  settings.read(text, version);
  return std::make_unique<CachingAllocator>(device, settings, version);
}

Made make_expandable(Device& device, const std::string& text, Version version) {
  return make_native(device, "expandable_segments:True," + text, version);
}

template <Bytes granularity>
Made make_uncached(Device& device, const std::string& text, Version) {
  if (!text.empty()) {
    throw std::invalid_argument("Only native and expandable have settings, got '" + text + "'.");
  }
  return std::make_unique<UncachedAllocator>(device, granularity);
}

}  // namespace

const std::vector<Policy>& policies() {
  static const std::vector<Policy> table{
      {"native", "PyTorch's caching allocator; settings as in PYTORCH_ALLOC_CONF", make_native},
      {"expandable", "native with expandable_segments:True", make_expandable},
      {"direct", "no cache: every request is a device allocation of whole 2 MiB",
       make_uncached<segment_granularity>},
      {"ideal", "lower bound: the live requests, each rounded up to 512 bytes",
       make_uncached<smallest_block>},
  };
  return table;
}

Made make_allocator(const std::string& name, const std::string& settings, Device& device,
                    Version version) {
  std::string known;
  for (const Policy& policy : policies()) {
    if (name == policy.name) return policy.make(device, settings, version);
    known += (known.empty() ? "" : ", ") + std::string(policy.name);
  }
  throw std::invalid_argument("Expected an allocator among " + known + ", got '" + name + "'.");
}

}  // namespace et_replay
