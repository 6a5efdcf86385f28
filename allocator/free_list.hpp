// Free blocks ordered by size and then by Block::order, so that the best fit is the first that
// fits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "block.hpp"

namespace et_replay {

// A two-level sorted array. Chunks hold at most 64 entries, so an insertion moves at most 1.5 KiB,
// and a search touches one array of bounds and one chunk; a tree of blocks would miss the cache at
// each of its levels.
//
//   bounds_   | 1024 #7       | 4096 #2                 | 20480 #9 |      last key of each chunk
//   chunks_   | 512 .. 1024#7 | 1024#8 .. 2048 .. 4096#2 | 4608 ..  |
class FreeList {
 public:
  // A block in its place; any change of the list ends its use.
  struct Cursor {
    std::size_t chunk;
    std::size_t entry;
  };

  FreeList() = default;
  FreeList(const FreeList&) = delete;
  FreeList& operator=(const FreeList&) = delete;

  bool empty() const { return chunks_.empty(); }

  // The block must not change its size or order while it is in the list.
  void insert(Block* block) {
    const Key key = key_of(*block);
    if (chunks_.empty()) {
      bounds_.push_back(key);
      chunks_.emplace_back().reserve(chunk_capacity);
    }
    std::size_t index = std::min(chunk_of(key), chunks_.size() - 1);
    if (chunks_[index].size() == chunk_capacity) {
      halve(index);
      if (bounds_[index] < key && index + 1 < chunks_.size()) ++index;
    }
    Chunk& chunk = chunks_[index];
    chunk.insert(position(chunk, key), Entry{key, block});
    bounds_[index] = chunk.back().key;
  }

  void erase(const Block* block) {
    const Key key = key_of(*block);
    const std::size_t index = chunk_of(key);
    remove(index, position(chunks_[index], key));
  }

  // The smallest block of at least `size` bytes, or the end.
  Cursor best_fit(Bytes size) {
    const Key key{size, 0};
    const std::size_t chunk = chunk_of(key);
    if (chunk == chunks_.size()) return {chunk, 0};
    const auto entry = position(chunks_[chunk], key) - chunks_[chunk].begin();
    return {chunk, static_cast<std::size_t>(entry)};
  }
  // The block at the cursor; nullptr at the end.
  Block* at(Cursor cursor) const {
    return cursor.chunk == chunks_.size() ? nullptr : chunks_[cursor.chunk][cursor.entry].block;
  }
  Cursor next(Cursor cursor) const {
    if (cursor.entry + 1 < chunks_[cursor.chunk].size()) return {cursor.chunk, cursor.entry + 1};
    return {cursor.chunk + 1, 0};
  }
  void erase(Cursor cursor) {
    remove(cursor.chunk,
           chunks_[cursor.chunk].begin() + static_cast<std::ptrdiff_t>(cursor.entry));
  }

  Bytes largest() const { return bounds_.empty() ? 0 : bounds_.back().size; }

  // Visits the blocks in order; the list must not change meanwhile.
  template <class Visitor>
  void for_each(Visitor&& visit) const {
    for (const Chunk& chunk : chunks_) {
      for (const Entry& entry : chunk) visit(entry.block);
    }
  }

 private:
  struct Key {
    Bytes size;
    std::uint64_t order;
    // Without short circuits: the outcome is random, and a mispredicted branch costs more than
    // both comparisons.
    bool operator<(const Key& other) const {
      return (size < other.size) | ((size == other.size) & (order < other.order));
    }
  };
  struct Entry {
    Key key;
    Block* block;
  };
  using Chunk = std::vector<Entry>;
  static constexpr std::size_t chunk_capacity = 64;

  static Key key_of(const Block& block) { return Key{block.size, block.order}; }

  // The first chunk whose last key is not below `key`.
  std::size_t chunk_of(const Key& key) const {
    return static_cast<std::size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), key) -
                                    bounds_.begin());
  }

  static Chunk::iterator position(Chunk& chunk, const Key& key) {
    return std::lower_bound(
        chunk.begin(), chunk.end(), key,
        [](const Entry& entry, const Key& wanted) { return entry.key < wanted; });
  }

  void halve(std::size_t index) {
    Chunk upper;
    upper.reserve(chunk_capacity);
    Chunk& lower = chunks_[index];
    const auto middle = lower.begin() + static_cast<std::ptrdiff_t>(chunk_capacity / 2);
    upper.assign(middle, lower.end());
    lower.erase(middle, lower.end());
    const Key bound = lower.back().key;
    const auto offset = static_cast<std::ptrdiff_t>(index);
    bounds_.insert(bounds_.begin() + offset, bound);
    chunks_.insert(chunks_.begin() + offset + 1, std::move(upper));
  }

  void remove(std::size_t index, Chunk::iterator entry) {
    Chunk& chunk = chunks_[index];
    chunk.erase(entry);
    if (!chunk.empty()) {
      bounds_[index] = chunk.back().key;
      return;
    }
    chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(index));
    bounds_.erase(bounds_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  std::vector<Key> bounds_;
  std::vector<Chunk> chunks_;
};

}  // namespace et_replay
