// Pools: which free and which unmapped blocks may serve a request.
#pragma once

#include <map>
#include <tuple>

#include "block.hpp"
#include "free_list.hpp"

namespace et_replay {

struct Pool;
struct PrivatePool;

// What one stream has of one pool; nothing is shared between streams.
struct Shelf {
  Shelf(Pool& its_pool, PoolKind its_kind, Stream its_stream)
      : pool(its_pool), kind(its_kind), stream(its_stream) {}

  Pool& pool;
  const PoolKind kind;
  const Stream stream;
  FreeList free;
  std::map<Address, Block*> unmapped;
};

struct Pool {
  Pool(PoolKind its_kind, PoolId its_id, PrivatePool* its_owner)
      : kind(its_kind), id(its_id), owner(its_owner) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  Shelf& shelf(Stream stream) {
    const auto found = shelves.find(stream);
    if (found != shelves.end()) return found->second;
    return shelves
        .emplace(std::piecewise_construct, std::forward_as_tuple(stream),
                 std::forward_as_tuple(*this, kind, stream))
        .first->second;
  }

  // The free blocks by stream, size and order.
  template <class Visitor>
  void for_each_free(Visitor&& visit) const {
    for (const auto& [stream, shelf] : shelves) shelf.free.for_each(visit);
  }

  const PoolKind kind;
  const PoolId id;
  PrivatePool* const owner;    // nullptr: the default pool
  std::uint64_t searches = 0;  // the clock by which free blocks age
  std::map<Stream, Shelf> shelves;
};

}  // namespace et_replay
