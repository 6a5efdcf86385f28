// The allocators there are, by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "allocator.hpp"

namespace et_replay {

struct Policy {
  const char* name;
  const char* help;  // one line
  // `settings` has the syntax of PYTORCH_ALLOC_CONF. Throws std::invalid_argument.
  std::unique_ptr<Allocator> (*make)(Device& device, const std::string& settings, Version version);
};

const std::vector<Policy>& policies();

// Throws std::invalid_argument with a sentence about an unknown name or a wrong setting.
std::unique_ptr<Allocator> make_allocator(const std::string& name, const std::string& settings,
                                          Device& device, Version version);

}  // namespace et_replay
