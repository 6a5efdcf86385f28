// Which block each live storage has, or which row of a plan: a hash table with open addressing, as
// large as the most storages in it at once need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace et_replay {

template <class Item>
class StorageTable {
 public:
  // Returns the storage's item, or nullptr.
  Item* find(std::int64_t storage) const { return entries_[probe(storage)].item; }

  // Starts to load a storage's entry, or the item behind an entry that has been loaded: with
  // 100,000 live blocks the caches miss at each of them, and looking ahead runs a third faster.
  void prefetch_entry(std::int64_t storage) const { __builtin_prefetch(&entries_[ideal(storage)]); }
  void prefetch_item(std::int64_t storage) const {
    __builtin_prefetch(entries_[ideal(storage)].item);
  }

  // Visits every storage with its item, in no useful order.
  template <class Visitor>
  void for_each(Visitor&& visit) const {
    for (const Entry& entry : entries_) {
      if (entry.item != nullptr) visit(entry.storage, entry.item);
    }
  }

  // The storage must not be in the table yet.
  void insert(std::int64_t storage, Item* item) {
    if (2 * (count_ + 1) > entries_.size()) grow();
    entries_[probe(storage)] = Entry{storage, item};
    ++count_;
  }

  // Removes the storage and returns its item, or nullptr.
  Item* take(std::int64_t storage) {
    std::size_t hole = probe(storage);
    Item* item = entries_[hole].item;
    if (item == nullptr) return nullptr;
    --count_;
    // Later entries of the same run move up, so that no search stops at the hole.
    for (std::size_t index = next(hole); entries_[index].item != nullptr; index = next(index)) {
      const std::size_t wanted = ideal(entries_[index].storage);
      if (((index - wanted) & mask_) >= ((index - hole) & mask_)) {
        entries_[hole] = entries_[index];
        hole = index;
      }
    }
    entries_[hole] = Entry{};
    return item;
  }

 private:
  struct Entry {
    std::int64_t storage = 0;
    Item* item = nullptr;  // nullptr: the entry is vacant
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
    while (entries_[index].item != nullptr && entries_[index].storage != storage) {
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
      if (entry.item != nullptr) entries_[probe(entry.storage)] = entry;
    }
  }

  std::vector<Entry> entries_ = std::vector<Entry>(64);
  std::size_t mask_ = 63;
  int shift_ = 64 - 6;  // entries_.size() is 2^(64 - shift_)
  std::size_t count_ = 0;
};

}  // namespace et_replay
