// A part of which some items are placed, and what follows for the others; the state of the exact
// search.
//
//   capacity 6 ----------------
//            |           ?          c is placed at 0, b on it at 1. The item d, 2 bytes in all
//          3 |---+-------+          slots, rests on b, so its lowest offset is 3. If e, 2 bytes
//            |   |   b   |          in the first slot only, is still to come and cannot start
//          1 |---+---+---+          above 2, then d must lie above it: both are inferred.
//            |   c   |
//          0 +-----------> slots
//
// Without loss every item lies at 0 or on another (pushed down, rounded up to its alignment). So
// the search decides "this item comes next: nothing that is left lies below it", which puts it on
// its support, or "not next: something that is left lies below it", which lifts its lowest offset
// to the lowest top of what is left and meets it. Of items that share a slot, the sizes of those
// that cannot start below some offset must fit between it and the capacity; whatever breaks that
// is a conflict, and every lowest offset knows the decisions that it rests on, so a conflict does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bound_history.hpp"
#include "level_set.hpp"
#include "normal.hpp"
#include "trail.hpp"

namespace et_replay::planner {

class PartialPacking {
 public:
  using Index = std::int32_t;  // of an item or a slot
  static constexpr std::int64_t failure = 1024;

  explicit PartialPacking(const Part& part);

  void begin(Bytes capacity);  // places nothing

  // Decides; false at a conflict. Then `infer` draws all conclusions; false at a conflict.
  void place(Index item, const LevelSet& reason);     // it comes next
  bool postpone(Index item, const LevelSet& reason);  // it does not
  bool infer();
  const LevelSet& conflict() const { return conflict_; }

  struct Mark {
    std::size_t bytes, indices, placed;
    BoundHistory::Mark bounds;
  };
  Mark mark() const;
  void undo(const Mark& mark);

  Bytes capacity() const { return capacity_; }
  Index items() const { return static_cast<Index>(sizes_.size()); }
  Index slots() const { return static_cast<Index>(slots_.size()); }
  Index left() const { return items() - static_cast<Index>(placed_.size()); }
  bool is_left(Index item) const { return (left_[at(item) / 64] >> (item % 64) & 1) != 0; }
  Bytes size(Index item) const { return sizes_[at(item)]; }
  Bytes lowest(Index item) const { return bounds_.of(item); }
  Bytes lowest_top(Index item) const { return lowest(item) + size(item); }
  bool is_lifted(Index item) const { return lowest(item) > support_[at(item)]; }
  const Offsets& offsets() const { return offsets_; }  // where nothing is left

  // What is left in a slot, in any order.
  const Index* left_in(Index slot) const { return slots_[at(slot)].items.data(); }
  Index count_in(Index slot) const { return slots_[at(slot)].left; }
  Bytes height(Index slot) const { return heights_[at(slot)]; }
  Bytes remaining(Index slot) const { return remaining_[at(slot)]; }
  // Only what can start at or below it can come first of all that is left in the slot.
  Bytes limit(Index slot) const { return limits_[at(slot)]; }
  bool is_cut(Index slot) const { return crossing_[at(slot)] == 0; }  // nothing left goes on

  // How often a slot was too full, `failure` each time, for the choice of what to place first.
  // Survives `begin`.
  std::vector<std::int64_t>& failures() { return failures_; }
  std::int64_t work() const { return work_; }  // items looked at since the construction
  void add_work(std::int64_t work) { work_ += work; }

  template <typename Visit>
  void for_each_slot(Index item, Visit visit) const {
    for (const Range& range : ranges_[at(item)].both) {
      for (Index slot = range.begin; slot < range.end; ++slot) visit(slot);
    }
  }
  template <typename Visit>
  void for_each_left_that_meets(Index item, Visit visit) const {
    for_each_in(left_, item, visit);
  }

 private:
  struct Range {
    Index begin, end;
  };
  struct Ranges {
    Range both[2];
  };
  struct Slot {
    std::vector<Index> items;  // those left first
    Index left;
  };
  struct Late {
    Bytes lowest;
    Index item;
  };
  struct Forced {
    Index item, slot;
  };

  // The items of a set, as bits, that meet the item and are left.
  template <typename Visit>
  void for_each_in(const std::vector<std::uint64_t>& set, Index item, Visit visit) const {
    const std::uint64_t* meets = meets_.data() + at(item) * words_;
    for (std::size_t word = 0; word < words_; ++word) {
      std::uint64_t bits = meets[word] & left_[word] & set[word];
      for (; bits != 0; bits &= bits - 1) {
        visit(static_cast<Index>(word * 64) + lowest_bit(bits));
      }
    }
  }

  static std::size_t at(Index index) { return static_cast<std::size_t>(index); }
  static Index lowest_bit(std::uint64_t bits) {
#if defined(__GNUC__)
    return __builtin_ctzll(bits);
#else
    Index bit = 0;
    for (; (bits & 1) == 0; bits >>= 1) ++bit;
    return bit;
#endif
  }

  void note_slots(const Part& part);
  void note_meetings(const Part& part);
  void note_twins(const Part& part);
  Bytes rounded_up(Index item, Bytes offset) const;
  void take(Index item);
  void give_back(Index item);
  void rise(Index item, Bytes bound, Index note);
  void add_cone(Index item, LevelSet& reason) const;
  bool check(Index number);
  bool is_too_full();
  void lift_late(const Slot& slot, Index number);
  const LevelSet& why_first_top(const Slot& slot, Bytes limit, Bytes top);
  bool lift(Index item);
  void place_forced(const Forced& forced);
  bool is_next_by_force(const Forced& forced, LevelSet& reason) const;
  void queue_slot(Index slot);
  void queue_item(Index item);
  void clear_queues();

  std::size_t words_;  // of a set of items
  std::vector<Bytes> sizes_, alignments_, fixed_;
  std::vector<Ranges> ranges_;
  std::vector<Range> hulls_;  // from the first slot to the last
  std::vector<std::uint64_t> meets_;  // of each item a set of items
  std::vector<Bytes> loads_;
  std::vector<Bytes> first_;  // bounds without any decision
  std::vector<Index> twins_;  // the next item of the same kind, which lies above without loss
  Bytes capacity_ = 0;

  std::vector<Slot> slots_;
  std::vector<Bytes> heights_, remaining_, limits_;
  std::vector<Index> crossing_, uppermost_;
  std::vector<std::int64_t> failures_;
  std::vector<std::uint64_t> left_, once_lifted_;  // sets of items; some are no longer lifted
  std::vector<Index> placed_;
  std::vector<Bytes> support_;      // the highest top below each item
  std::vector<Index> witness_;      // what keeps a lifted item from being lifted more
  std::vector<Index> refutation_;   // the note on why an item does not come next, or -1
  Offsets offsets_;
  BoundHistory bounds_;
  Trail<Bytes> bytes_;
  Trail<Index> indices_;
  std::vector<LevelSet> cones_;     // of each placed item: the decisions on all that lies below

  std::vector<Index> queued_slots_, queued_items_;
  std::vector<Late> late_;
  std::vector<char> slot_is_queued_, item_is_queued_;
  std::vector<Forced> forced_;
  LevelSet conflict_, reason_, above_;
  Index broken_ = -1;  // a fixed item that cannot be where it must
  std::int64_t work_ = 0;
};

}  // namespace et_replay::planner
