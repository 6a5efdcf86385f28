// A block: a run of bytes of one segment, handed out, free or unmapped, linked to those beside it.
#pragma once

#include <deque>

#include "sizes.hpp"

namespace et_replay {

struct Shelf;
struct ExpandableSegment;

struct Block {
  Address address = 0;
  Bytes size = 0;
  Bytes requested = 0;      // what its last owner asked for; stale while the block is free
  std::uint64_t order = 0;  // of free blocks of one size the lowest is taken, see TieOrder
  Block* previous = nullptr;
  Block* next = nullptr;
  Shelf* home = nullptr;                 // the pool and stream it belongs to
  ExpandableSegment* segment = nullptr;  // nullptr: the segment came from the device in one piece
  std::uint64_t age_base = 0;            // the searches of its pool when it became free
  std::int32_t pending = 0;              // events to complete before it is free
  bool allocated = false;
  bool mapped = true;
  bool has_users = false;  // other streams use it

  Address end() const { return address + static_cast<Address>(size); }
  bool shares_segment() const { return previous != nullptr || next != nullptr; }
  bool is_active() const { return allocated || pending > 0 || has_users; }
};

// Owns all blocks, each a Block and what its allocator adds to it. Slots of destroyed ones are used
// again, so memory follows the most blocks alive at once.
template <class Kind = Block>
class BlockArena {
 public:
  Kind* create() {
    if (vacant_ == nullptr) return &slots_.emplace_back();
    Kind* block = vacant_;
    vacant_ = static_cast<Kind*>(block->next);
    *block = Kind{};
    return block;
  }

  void destroy(Kind* block) {
    *block = Kind{};
    block->next = vacant_;
    vacant_ = block;
  }

  // Visits every live block, in no useful order; a vacant slot has no home.
  template <class Visitor>
  void for_each(Visitor&& visit) const {
    for (const Kind& block : slots_) {
      if (block.home != nullptr) visit(block);
    }
  }

 private:
  std::deque<Kind> slots_;
  Kind* vacant_ = nullptr;
};

}  // namespace et_replay
