// Which orders are worth trying.
#pragma once

#include <string>
#include <vector>

#include "orders.hpp"
#include "random.hpp"

namespace et_replay::planner {

// Tried first, the most successful first.
const std::vector<Order>& fixed_orders();

// Any one of the family, and a small change of one.
Order random_order(Random& random);
Order varied_order(Order order, Random& random);

// "first fit by size and start", for people.
std::string describe(const Order& order);

}  // namespace et_replay::planner
