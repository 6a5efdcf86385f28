// What has a fixed offset is placed before all else.
#include "packing.hpp"

#include <algorithm>

namespace et_replay::planner {

void Packing::begin() {
  placed_.clear();
  offsets_.assign(part_.items.size(), 0);
  arena_ = 0;
  for (std::size_t index = 0; index < part_.items.size(); ++index) {
    const Item& item = part_.items[index];
    if (item.fixed < 0) continue;
    offsets_[index] = item.fixed;
    placed_.place(item, item.fixed);
    arena_ = std::max(arena_, item.fixed + item.size);
  }
}

bool Packing::put(std::uint32_t index, Bytes limit) {
  const Item& item = part_.items[index];
  if (item.fixed >= 0) return true;
  const Bytes offset = placed_.find(item, limit);
  if (offset < 0) return false;
  offsets_[index] = offset;
  placed_.place(item, offset);
  arena_ = std::max(arena_, offset + item.size);
  return true;
}

}  // namespace et_replay::planner
