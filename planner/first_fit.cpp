// Bottom-up walks over the segment tree: node 1 is the root, node slots_ + slot a leaf.
#include "first_fit.hpp"

namespace et_replay::planner {

FirstFit::FirstFit(std::int32_t slots)
    : slots_(static_cast<std::size_t>(slots)), cover_(2 * slots_), any_(2 * slots_) {}

void FirstFit::clear() {
  for (AddressUnion& list : cover_) list.clear();
  for (AddressUnion& list : any_) list.clear();
}

// The largest nodes inside of the span.
template <class Visitor>
void FirstFit::visit_stored(std::int32_t begin, std::int32_t end, Visitor visit) {
  std::size_t left = static_cast<std::size_t>(begin) + slots_;
  std::size_t right = static_cast<std::size_t>(end) + slots_;
  for (; left < right; left /= 2, right /= 2) {
    if (left % 2 == 1) visit(left++);
    if (right % 2 == 1) visit(--right);
  }
}

// The nodes above those: above the one that begins with the span and the one that ends with it.
template <class Visitor>
void FirstFit::visit_above(std::int32_t begin, std::int32_t end, Visitor visit) {
  const std::int32_t length = end - begin;
  std::size_t left = static_cast<std::size_t>(begin) + slots_;
  std::size_t right = static_cast<std::size_t>(end - 1) + slots_;
  for (std::int32_t width = 2; left % 2 == 0 && width <= length; width *= 2) left /= 2;
  for (std::int32_t width = 2; right % 2 == 1 && width <= length; width *= 2) right /= 2;
  for (left /= 2, right /= 2; left != right;) {
    std::size_t& lower = left > right ? left : right;
    visit(lower);
    lower /= 2;
  }
  for (; left >= 1; left /= 2) visit(left);
}

void FirstFit::gather(std::int32_t begin, std::int32_t end) {
  const auto add = [&](const AddressUnion& list) {
    if (!list.empty()) cursors_.push_back({*list.begin(), list.begin() + 1, list.end()});
  };
  visit_stored(begin, end, [&](std::size_t node) { add(any_[node]); });
  visit_above(begin, end, [&](std::size_t node) { add(cover_[node]); });
}

// The lowest offset from `offset` on with `size` free bytes; above `highest` it may have less.
Bytes FirstFit::climb(Bytes offset, Bytes size, Bytes alignment, Bytes highest) {
  const std::size_t count = cursors_.size();
  std::size_t quiet = 0;  // lists in a row that were not in the way
  for (std::size_t index = 0; quiet < count && offset <= highest;) {
    Cursor& cursor = cursors_[index];
    while (cursor.range.end <= offset) cursor.advance();
    if (cursor.range.begin < offset + size) {
      offset = cursor.range.end;
      if (alignment != 1) offset = (offset + alignment - 1) / alignment * alignment;
      quiet = 0;
    } else {
      ++quiet;
    }
    if (++index == count) index = 0;
  }
  return offset;
}

Bytes FirstFit::find(const Item& item, Bytes limit) {
  cursors_.clear();
  gather(item.begin, item.end);
  if (item.lives_twice()) gather(item.begin_again, item.end_again);
  const Bytes highest = limit - item.size;
  const Bytes offset = climb(0, item.size, item.alignment, highest);
  return offset <= highest ? offset : -1;
}

void FirstFit::place(std::int32_t begin, std::int32_t end, Range range) {
  visit_stored(begin, end, [&](std::size_t node) {
    cover_[node].insert(range);
    any_[node].insert(range);
  });
  visit_above(begin, end, [&](std::size_t node) { any_[node].insert(range); });
}

void FirstFit::place(const Item& item, Bytes offset) {
  place(item.begin, item.end, {offset, offset + item.size});
  if (item.lives_twice()) place(item.begin_again, item.end_again, {offset, offset + item.size});
}

std::vector<Range> FirstFit::holes(std::int32_t begin, std::int32_t end, Bytes arena) {
  cursors_.clear();
  gather(begin, end);
  std::vector<Range> holes;
  for (Bytes offset = climb(0, 1, 1, arena); offset < arena; offset = climb(offset, 1, 1, arena)) {
    Bytes top = arena;
    for (const Cursor& cursor : cursors_) {
      top = std::min(top, cursor.range.begin);
    }
    holes.push_back({offset, top});
    offset = top;
  }
  return holes;
}

}  // namespace et_replay::planner
