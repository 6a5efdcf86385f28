// The life of a private pool: uses and routings.
#include "private_pools.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace et_replay {

namespace {

std::string name_of(PoolId id) {
  return "The private pool (" + std::to_string(id.first) + ", " + std::to_string(id.second) + ")";
}

// Fibonacci hashing scatters the first number of an id that is not 0.
std::uint64_t scattered(const PoolId& id) {
  return (id.first != 0 ? id.first : id.second) * 0x9E3779B97F4A7C15u;
}

void insert(std::vector<PoolId>& ids, PoolId id) {
  const auto comes_before = [](const PoolId& left, const PoolId& right) {
    return scattered(left) < scattered(right);
  };
  if (std::find(ids.begin(), ids.end(), id) != ids.end()) return;
  ids.insert(std::upper_bound(ids.begin(), ids.end(), id, comes_before), id);
}

void remove(std::vector<PoolId>& ids, PoolId id) {
  ids.erase(std::remove(ids.begin(), ids.end(), id), ids.end());
}

}  // namespace

PrivatePool* PrivatePools::find(PoolId id) const {
  const auto found = pools_.find(id);
  return found == pools_.end() ? nullptr : found->second.get();
}

PrivatePool& PrivatePools::retain(PoolId id) {
  PrivatePool* pool = find(id);
  if (pool == nullptr) {
    pool = pools_.emplace(id, std::make_unique<PrivatePool>(id)).first->second.get();
    pool->splits = unsplit_.count(id) == 0;
  } else if (pool->uses == 0) {
    throw std::invalid_argument(name_of(id) + " is used again after its last use ended.");
  } else {
    ++pool->uses;
  }
  return *pool;
}

void PrivatePools::release(PoolId id) {
  PrivatePool* pool = find(id);
  if (pool == nullptr || pool->uses == 0) {
    throw std::invalid_argument(name_of(id) + " is released without being in use.");
  }
  if (--pool->uses == 0) insert(unused_, id);
}

void PrivatePools::erase(PoolId id) {
  pools_.erase(id);
  if (version_.forgets_unsplit()) unsplit_.erase(id);
  remove(unused_, id);
}

void PrivatePools::begin(PoolId id, std::optional<Stream> stream) {
  if (is_routed(id)) throw std::invalid_argument(name_of(id) + " is routed to twice.");
  retain(id);
  routings_.push_back({id, stream});
}

void PrivatePools::end(PoolId id) {
  const auto found = std::find_if(routings_.begin(), routings_.end(),
                                  [&](const Routing& routing) { return routing.id == id; });
  if (found == routings_.end()) throw std::invalid_argument(name_of(id) + " is not routed to.");
  routings_.erase(found);
}

bool PrivatePools::is_routed(PoolId id) const {
  return std::any_of(routings_.begin(), routings_.end(),
                     [&](const Routing& routing) { return routing.id == id; });
}

PrivatePool* PrivatePools::route(Stream stream) const {
  const auto fits = [&](const Routing& routing) {
    return !routing.stream || *routing.stream == stream;
  };
  if (version_.oldest_routing_first()) {
    const auto found = std::find_if(routings_.begin(), routings_.end(), fits);
    return found == routings_.end() ? nullptr : find(found->id);
  }
  const auto found = std::find_if(routings_.rbegin(), routings_.rend(), fits);
  return found == routings_.rend() ? nullptr : find(found->id);
}

void PrivatePools::forbid_splitting(PoolId id) {
  unsplit_.insert(id);
  if (PrivatePool* pool = find(id)) pool->splits = false;
}

void PrivatePools::lend_when_out_of_memory(PoolId id) { insert(lending_, id); }

std::vector<PrivatePool*> PrivatePools::unused() const {
  std::vector<PrivatePool*> unused;
  for (const PoolId& id : unused_) unused.push_back(find(id));
  return unused;
}

std::vector<PrivatePool*> PrivatePools::all() const {
  std::vector<PrivatePool*> all;
  for (const auto& [id, pool] : pools_) all.push_back(pool.get());
  return all;
}

}  // namespace et_replay
