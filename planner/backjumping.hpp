// A partial packing and a rule in; a full packing, or the proof that there is none, out: a
// depth-first search that jumps back over decisions which a conflict does not rest on.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "branching.hpp"
#include "level_set.hpp"
#include "partial_packing.hpp"

namespace et_replay::planner {

enum class Outcome : std::uint8_t { found, impossible, spent };

class Backjumping {
 public:
  using Index = PartialPacking::Index;

  Backjumping(PartialPacking& packing, Rule rule, const std::vector<Index>& ranks,
              const std::atomic<bool>* stop)
      : packing_(packing), rule_(rule), ranks_(ranks), stop_(stop) {}

  // Gives up after so many nodes or so much work. The packing that it finds is in `packing`.
  Outcome run(Bytes capacity, std::int64_t nodes, std::int64_t work);

 private:
  struct Stretch {
    Index begin, end;  // slots
  };

  bool spent();
  std::vector<Index> left_in(const Stretch& stretch) const;
  std::vector<Stretch> stretches_left(const Stretch& stretch) const;
  Outcome solve(const Stretch& stretch);
  Outcome solve_each(std::vector<Stretch> stretches);
  Outcome decide(const Stretch& stretch, Index item, const std::vector<Index>& items);
  Outcome solve(Stretch stretch, const std::vector<Index>& items);

  PartialPacking& packing_;
  const Rule rule_;
  const std::vector<Index>& ranks_;
  const std::atomic<bool>* stop_;
  std::int64_t nodes_ = 0;  // left
  std::int64_t last_work_ = 0;
  std::size_t level_ = 0;
  LevelSet decision_, conflict_;
};

}  // namespace et_replay::planner
