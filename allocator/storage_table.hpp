// Which block each live storage has: a hash table with open addressing, as large as the most
// storages alive at once need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "block.hpp"

namespace et_replay {

class StorageTable {
 public:
  // Returns the storage's block, or nullptr.
  Block* find(std::int64_t storage) const { return entries_[probe(storage)].block; }

  // Starts to load a storage's entry, or the block behind an entry that has been loaded: with
  // 100,000 live blocks the caches miss at each of them, and looking ahead runs a third faster.
  void prefetch_entry(std::int64_t storage) const { __builtin_prefetch(&entries_[ideal(storage)]); }
  void prefetch_block(std::int64_t storage) const {
    __builtin_prefetch(entries_[ideal(storage)].block);
  }

  // Visits every storage with its block, in no useful order.
  template <class Visitor>
  void for_each(Visitor&& visit) const {
    for (const Entry& entry : entries_) {
      if (entry.block != nullptr) visit(entry.storage, entry.block);
    }
  }

  // The storage must not be in the table yet.
  void insert(std::int64_t storage, Block* block) {
    if (2 * (count_ + 1) > entries_.size()) grow();
    entries_[probe(storage)] = Entry{storage, block};
    ++count_;
  }

  // Removes the storage and returns its block, or nullptr.
  Block* take(std::int64_t storage) {
    std::size_t hole = probe(storage);
    Block* block = entries_[hole].block;
    if (block == nullptr) return nullptr;
    --count_;
    // Later entries of the same run move up, so that no search stops at the hole.
    for (std::size_t index = next(hole); entries_[index].block != nullptr; index = next(index)) {
      const std::size_t wanted = ideal(entries_[index].storage);
      if (((index - wanted) & mask_) >= ((index - hole) & mask_)) {
        entries_[hole] = entries_[index];
        hole = index;
      }
    }
    entries_[hole] = Entry{};
    return block;
  }

 private:
  struct Entry {
    std::int64_t storage = 0;
    Block* block = nullptr;  // nullptr: the entry is vacant
  };

  std::size_t next(std::size_t index) const { return (index + 1) & mask_; }

  // Multiplying by 2^64 / golden ratio spreads neighbouring numbers over the high bits.
  std::size_t ideal(std::int64_t storage) const {
    return static_cast<std::size_t>((static_cast<std::uint64_t>(storage) * 0x9E3779B97F4A7C15u) >>
                                    shift_);
  }

  // Where the storage is, or the vacant entry where it would go.
  std::size_t probe(std::int64_t storage) const {
    std::size_t index = ideal(storage);
    while (entries_[index].block != nullptr && entries_[index].storage != storage) {
      index = next(index);
    }
    return index;
  }

  void grow() {
    std::vector<Entry> old(2 * entries_.size());
    old.swap(entries_);
    mask_ = entries_.size() - 1;
    --shift_;
    for (const Entry& entry : old) {
      if (entry.block != nullptr) entries_[probe(entry.storage)] = entry;
    }
  }

  std::vector<Entry> entries_ = std::vector<Entry>(64);
  std::size_t mask_ = 63;
  int shift_ = 64 - 6;  // entries_.size() is 2^(64 - shift_)
  std::size_t count_ = 0;
};

}  // namespace et_replay
