// Private pools, and which requests go to them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "pool.hpp"
#include "version.hpp"

namespace et_replay {

struct PrivatePool {
  explicit PrivatePool(PoolId its_id)
      : id(its_id), small(PoolKind::small, its_id, this), large(PoolKind::large, its_id, this) {}

  const PoolId id;
  Pool small;
  Pool large;
  std::int64_t uses = 1;  // the pool may go back to the device when there are none
  std::int64_t device_allocations = 0;
  bool splits = true;
};

class PrivatePools {
 public:
  explicit PrivatePools(Version version) : version_(version) {}

  PrivatePool* find(PoolId id) const;
  // Creates the pool, or adds a use to it.
  PrivatePool& retain(PoolId id);
  // Ends one use. Throws std::invalid_argument if there is none.
  void release(PoolId id);
  void erase(PoolId id);

  // Requests of `stream`, or of all streams, go to this pool until end(); retains it. Throws
  // std::invalid_argument where torch raises an error.
  void begin(PoolId id, std::optional<Stream> stream);
  void end(PoolId id);
  bool is_routed() const { return !routings_.empty(); }
  bool is_routed(PoolId id) const;
  PrivatePool* route(Stream stream) const;

  void forbid_splitting(PoolId id);
  // Out of memory, requests to the default pool may take free blocks of this one.
  void lend_when_out_of_memory(PoolId id);

  // Lending ones and those without use come in the order of torch's hash table, as far as nothing
  // collides in it.
  const std::vector<PoolId>& lending() const { return lending_; }
  std::vector<PrivatePool*> unused() const;
  std::vector<PrivatePool*> all() const;

 private:
  struct Routing {
    PoolId id;
    std::optional<Stream> stream;
  };

  const Version version_;
  std::map<PoolId, std::unique_ptr<PrivatePool>> pools_;
  std::vector<Routing> routings_;
  std::set<PoolId> unsplit_;
  std::vector<PoolId> lending_;
  std::vector<PoolId> unused_;
};

}  // namespace et_replay
