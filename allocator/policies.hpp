// The allocators there are, by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "allocator.hpp"
#include "plan_table.hpp"

namespace et_replay {

// What an allocator is made from.
struct Setup {
  std::string settings;  // in the syntax of PYTORCH_ALLOC_CONF
  Version version;
  PlanTable plan;
};

struct Policy {
  const char* name;
  const char* help;  // one line
  // Throws std::invalid_argument.
  std::unique_ptr<Allocator> (*make)(Device& device, const Setup& setup);
  bool planned = false;            // it serves a plan
  bool invents_addresses = false;  // it cannot serve a real device
};

const std::vector<Policy>& policies();

// Throws std::invalid_argument with a sentence about an unknown name, a wrong setting, or a plan
// that is not served or cannot be.
std::unique_ptr<Allocator> make_allocator(const std::string& name, Device& device,
                                          const Setup& setup);

}  // namespace et_replay
