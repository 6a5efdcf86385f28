// Items and an attempt's number go in; the order in which a descent prefers them, out.
#pragma once

#include <cstdint>
#include <vector>

#include "orders.hpp"

namespace et_replay::planner {

// The first attempts take proven mixtures of size, life and room, later ones draw them.
ItemOrder descent_order(const Traits& traits, std::uint32_t attempt);

}  // namespace et_replay::planner
