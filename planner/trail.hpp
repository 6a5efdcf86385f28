// Changes of a search in; the values before them back, last change first.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace et_replay::planner {

template <typename Value>
class Trail {
 public:
  void set(Value& where, Value value) {
    changes_.emplace_back(&where, where);
    where = value;
  }
  void clear() { changes_.clear(); }
  std::size_t mark() const { return changes_.size(); }
  void undo(std::size_t mark) {
    for (; changes_.size() > mark; changes_.pop_back()) {
      *changes_.back().first = changes_.back().second;
    }
  }

 private:
  std::vector<std::pair<Value*, Value>> changes_;
};

}  // namespace et_replay::planner
