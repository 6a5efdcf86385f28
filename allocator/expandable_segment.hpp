// A range of addresses whose pages get memory one after another.
#pragma once

#include "sizes.hpp"

namespace et_replay {

struct ExpandableSegment {
  Address base;
  Bytes size;
  Bytes page;
  bool placed = false;  // memory was mapped once: the range does not move any more

  // An eighth more than the device has, so that pages can move from the front to the back; and more
  // than an empty device has, so that no request finds all of it mapped.
  static Bytes range_size(Bytes capacity, Bytes page) {
    return round_up(capacity + capacity / 8 + (capacity == 0 ? 1 : 0), page);
  }
};

}  // namespace et_replay
