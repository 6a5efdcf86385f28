// An order in; the offsets that first fit gives, out.
#pragma once

#include <optional>
#include <utility>

#include "first_fit.hpp"
#include "orders.hpp"

namespace et_replay::planner {

class Packing {
 public:
  explicit Packing(const Part& part) : part_(part), placed_(part.slots) {}

  // Gives up and returns nothing as soon as an item ends above limit(), which may sink meanwhile;
  // it is asked every 256 items, since it may be shared with others.
  template <class Limit>
  std::optional<Bytes> pack(const ItemOrder& order, Limit&& limit) {
    begin();
    Bytes highest = limit();
    std::uint32_t count = 0;
    for (const std::uint32_t index : order) {
      if (count++ % 256 == 0) highest = limit();
      if (!put(index, highest)) return std::nullopt;
    }
    if (arena_ > limit()) return std::nullopt;
    return arena_;
  }

  const Offsets& offsets() const { return offsets_; }

 private:
  void begin();
  bool put(std::uint32_t index, Bytes limit);

  const Part& part_;
  FirstFit placed_;
  Offsets offsets_;
  Bytes arena_ = 0;
};

}  // namespace et_replay::planner
