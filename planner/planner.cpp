// Takes the problem apart, improves the part that needs the most as long as it pays, and puts the
// answer together.
#include "planner.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <vector>

#include "deadline.hpp"
#include "normal.hpp"
#include "part_search.hpp"
#include "sweep.hpp"
#include "validate.hpp"
#include "workers.hpp"

namespace et_replay::planner {

namespace {

using Searches = std::vector<std::unique_ptr<PartSearch>>;

class Plan {
 public:
  Plan(const Normal& normal, const Effort& effort, const Stop& stop)
      : normal_(normal),
        threads_(std::max(effort.threads, 1u)),
        times_(effort.level == Level::best ? 10 : 1),
        hurried_(ends(effort.timeout)) {
    for (const Part& part : normal.parts) {
      searches_.push_back(std::make_unique<PartSearch>(part, threads_, stop));
    }
  }

  void run() {
    for (const auto& search : searches_) search->begin(hurried_);
    std::vector<bool> improved(searches_.size(), false);
    Bytes needed = 0;  // by the parts that have been improved
    while (!searches_.empty()) {
      const std::size_t part = neediest();
      if (improved[part]) break;
      const Bytes target = std::max(normal_.parts[part].target, needed - normal_.bases[part]);
      searches_[part]->improve(target, effort_for(normal_.parts[part]), times_);
      improved[part] = true;
      needed = std::max(needed, top(part));
    }
  }

  Offsets offsets(std::size_t buffers) const {
    std::vector<Offsets> parts;
    for (const auto& search : searches_) parts.push_back(search->offsets());
    return denormalise(normal_, parts, buffers);
  }

  const PartSearch* decisive() const {
    return searches_.empty() ? nullptr : searches_[neediest()].get();
  }

 private:
  Bytes top(std::size_t part) const { return normal_.bases[part] + searches_[part]->arena(); }

  std::size_t neediest() const {
    std::size_t most = 0;
    for (std::size_t part = 1; part < searches_.size(); ++part) {
      if (top(part) > top(most)) most = part;
    }
    return most;
  }

  static std::int64_t effort_for(const Part& part) {
    return std::max<std::int64_t>(4'000'000, 40 * static_cast<std::int64_t>(part.items.size()));
  }

  const Normal& normal_;
  const unsigned threads_;
  const int times_;
  const bool hurried_;
  Searches searches_;
};

Bytes arena_of(const Problem& problem, const Offsets& offsets) {
  Bytes arena = 0;
  for (std::size_t index = 0; index < problem.size(); ++index) {
    if (problem[index].takes_memory()) {
      arena = std::max(arena, offsets[index] + problem[index].size);
    }
  }
  return arena;
}

// Putting the answer together and validating it takes about as long as taking the problem apart.
double time_to_search(Deadline::Clock::time_point begin, const Effort& effort) {
  if (!ends(effort.timeout)) return 0;
  const std::chrono::duration<double> so_far = Deadline::Clock::now() - begin;
  return std::max(effort.timeout - so_far.count(), effort.timeout / 2);
}

}  // namespace

Answer plan(const Problem& problem, const Effort& effort) {
  Stop stop;
  return plan(problem, effort, stop);
}

Answer plan(const Problem& problem, const Effort& effort, Stop& stop) {
  const auto begin = Deadline::Clock::now();
  const Normal normal = make_normal(problem);
  const Deadline deadline(begin, time_to_search(begin, effort), stop);
  Plan search(normal, effort, stop);
  search.run();
  if (stop.cancelled) throw Cancelled();
  Answer answer;
  answer.offsets = search.offsets(problem.size());
  answer.arena = arena_of(problem, answer.offsets);
  answer.lower_bound = std::max(lower_bound(problem), normal.lower_bound);
  const PartSearch* decisive = search.decisive();
  answer.method = decisive == nullptr ? "residents alone" : decisive->method();
  const bool exhausted = decisive != nullptr && decisive->exhausted();
  answer.proven = answer.arena == answer.lower_bound || exhausted;
  const std::string fault = find_fault(problem, answer.offsets, answer.arena);
  if (!fault.empty()) throw std::logic_error(fault);
  return answer;
}

}  // namespace et_replay::planner
