// What holds in every state of an allocator.
#pragma once

#include <string>

#include "allocator.hpp"

namespace et_replay::test {

// Returns what is wrong, or "": blocks fill their segment without a gap, are multiples of 512
// bytes, no two free ones touch, segments do not overlap, and the counters are those of the blocks.
std::string complaint_about(const Allocator& allocator);

}  // namespace et_replay::test
