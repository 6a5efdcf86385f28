// Which request is whose, what time of the plan that makes it, and what came of an iteration.
#include "follower.hpp"

#include <stdexcept>
#include <utility>

namespace et_replay {

void Follower::adopt(const PlanTable& plan, RequestList requests) {
  if (planned_ == nullptr) {
    throw std::invalid_argument("Only stalloc serves a plan, and another allocator serves here.");
  }
  planned_->adopt(plan);
  follow(std::move(requests));
}

void Follower::follow(RequestList requests) {
  requests_ = std::move(requests);
  turn_ = requests_.turn();
  if (planned_ != nullptr && requests_.is_followed()) planned_->expect_turns();
  mark();
}

Block* Follower::allocate(Bytes requested, Stream stream) {
  std::int64_t storage = -1;
  if (planned_ != nullptr && !planned_->leaves_to_pool(stream)) {
    storage = requests_.take(requested, stream);
    if (storage < 0) {
      unmatched_.count(requested);
    } else if (requests_.turn() != turn_ && requests_.is_followed()) {
      turn_ = requests_.turn();
      planned_->turn_to_storage(storage);
    }
  }
  Block* block = storage < 0 ? allocator_.allocate(requested, stream)
                             : allocator_.allocate_for(storage, requested, stream);
  if (block != nullptr) all_.count(requested);
  return block;
}

IterationFigures Follower::begin_iteration(std::size_t iteration) {
  const Statistics& statistics = allocator_.statistics();
  const PlannedFigures now = served();
  IterationFigures figures;
  figures.peak_allocated = statistics.allocated_bytes.peak_since_mark;
  figures.peak_active = statistics.active_bytes.peak_since_mark;
  figures.peak_reserved = statistics.reserved_bytes.peak_since_mark;
  figures.allocated = statistics.allocated_bytes.all.current;
  figures.reserved = statistics.reserved_bytes.all.current;
  figures.planned = now.planned.since(served_before_.planned);
  figures.reused = now.reused.since(served_before_.reused);
  figures.displaced = now.displaced.since(served_before_.displaced);
  figures.fallback = now.fallback.since(served_before_.fallback);
  figures.unmatched = unmatched_.since(unmatched_before_);
  figures.expected = static_cast<std::int64_t>(requests_.expected());
  figures.resynchronisations = requests_.resynchronisations() - resynchronisations_before_;

  if (planned_ != nullptr) planned_->end_iteration(figures.fallback);
  requests_.begin_iteration(iteration);
  turn_ = requests_.turn();
  if (planned_ != nullptr && requests_.is_followed() && requests_.is_marked()) {
    if (requests_.repeats() || requests_.first() == requests_.size()) {
      planned_->turn_to(0);
    } else {
      planned_->turn_to_storage(requests_.row(requests_.first()).storage);
    }
  }
  mark();
  return figures;
}

// Without a plan there is only the allocator.
PlannedFigures Follower::served() const {
  if (planned_ != nullptr) return planned_->figures();
  PlannedFigures figures;
  figures.fallback = all_;
  return figures;
}

void Follower::mark() {
  allocator_.mark();
  served_before_ = served();
  unmatched_before_ = unmatched_;
  resynchronisations_before_ = requests_.resynchronisations();
}

}  // namespace et_replay
