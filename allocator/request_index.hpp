// The requests of a plan in; where one of a size and stream, or several in a row, stand in it, out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sizes.hpp"

namespace et_replay {

struct PlannedRequest {
  std::int64_t storage;
  Bytes size;  // exactly what is asked for
  Stream stream;
  bool varies = false;  // where the list is followed: of any size
};

// Rows whose size varies are in no index, as their sizes tell nothing.
class RequestIndex {
 public:
  using Key = std::int32_t;  // of one size and stream
  static constexpr Key unknown = -1;
  static constexpr std::size_t none = ~std::size_t{0};
  static constexpr std::size_t run_length = 4;
  using Run = std::array<Key, run_length>;  // of requests in a row, varying ones left out

  RequestIndex() = default;
  // Throws std::invalid_argument for more rows than can be counted.
  explicit RequestIndex(const std::vector<PlannedRequest>& requests);

  // What is asked for, if any row asks for it.
  Key find(Bytes size, Stream stream) const {
    const auto found = keys_.find({size, stream});
    return found == keys_.end() ? unknown : found->second;
  }
  Key key(std::size_t row) const { return key_of_row_[row]; }

  // Visits the rows [begin, end) with a key, in order, until `visit` is true of one; returns it.
  template <class Visit>
  std::size_t first(Key key, std::size_t begin, std::size_t end, Visit&& visit) const {
    const std::vector<std::uint32_t>& rows = rows_of_key_[static_cast<std::size_t>(key)];
    for (std::size_t at = first_from(rows, begin); at < rows.size() && rows[at] < end; ++at) {
      if (visit(rows[at])) return rows[at];
    }
    return none;
  }

  // The last row of such a run in [begin, end): the first at `place` or behind it, else the last
  // before it.
  std::size_t find_run(const Run& run, std::size_t begin, std::size_t end, std::size_t place) const;

 private:
  struct Hash {
    std::size_t operator()(const std::pair<Bytes, Stream>& request) const {
      return static_cast<std::size_t>(
          (static_cast<std::uint64_t>(request.first) ^ (request.second << 48)) *
          0x9E3779B97F4A7C15u >> 16);
    }
  };
  struct RunHash {
    std::size_t operator()(const Run& run) const {
      std::uint64_t hash = 0;
      for (const Key key : run) {
        hash = (hash + static_cast<std::uint32_t>(key)) * 0x9E3779B97F4A7C15u;
      }
      return static_cast<std::size_t>(hash >> 16);
    }
  };

  static std::size_t first_from(const std::vector<std::uint32_t>& rows, std::size_t begin);

  std::unordered_map<std::pair<Bytes, Stream>, Key, Hash> keys_;
  std::vector<Key> key_of_row_;
  std::vector<std::vector<std::uint32_t>> rows_of_key_;
  std::unordered_map<Run, std::vector<std::uint32_t>, RunHash> ends_of_run_;
};

}  // namespace et_replay
