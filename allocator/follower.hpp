// Requests that do not say whose they are in, served by the plan all the same; figures of every
// iteration out.
#pragma once

#include "planned.hpp"
#include "request_list.hpp"

namespace et_replay {

// Serves with any allocator, and with a planned one by the list of requests of its plan.
class Follower {
 public:
  explicit Follower(Allocator& allocator)
      : allocator_(allocator), planned_(dynamic_cast<PlannedAllocator*>(&allocator)) {
    mark();
  }

  // Serves another plan from here on, to the requests of this list. Throws std::invalid_argument
  // about the plan, while its arena is in use, or where none is served.
  void adopt(const PlanTable& plan, RequestList requests);
  // The list of the plan that the allocator has.
  void follow(RequestList requests);
  // Of that list, the requests [begin, end) come next, in about this order.
  void expect(std::size_t begin, std::size_t end) { requests_.expect(begin, end); }

  // Returns a block; nullptr for no bytes. Throws OutOfMemory.
  Block* allocate(Bytes requested, Stream stream);

  // Ends the one before and returns its figures.
  IterationFigures begin_iteration(std::size_t iteration);

 private:
  PlannedFigures served() const;
  void mark();

  Allocator& allocator_;
  PlannedAllocator* planned_;  // nullptr: it serves no plan
  RequestList requests_;
  std::uint32_t turn_ = 0;
  Served unmatched_, all_;

  // At the begin of the iteration.
  PlannedFigures served_before_;
  Served unmatched_before_;
  std::int64_t resynchronisations_before_ = 0;
};

}  // namespace et_replay
