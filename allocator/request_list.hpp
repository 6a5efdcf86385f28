// The requests of a plan, in the order in which they are expected; which of them one is, out.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "request_index.hpp"

namespace et_replay {

// Torch does not say whose memory it asks for. A replay knows what it runs: it says which requests
// are expected, and among these a request is the first of its size and stream that has not come.
//
// A script says at most when an iteration begins. Then the list is followed: it has a place, the
// first row that has not come. A request is looked for
//
//   1. in its place: it is the first open row of its stream from the place on (other streams may
//      be ahead or behind, and are left behind if they are a stretch behind);
//   2. where the last four of known size that came out of order stand in a row, anywhere in the
//      iteration, as soon as there are four;
//   3. near the rival, which is where requests that came out of order would go on;
//   4. among the open rows near the place, those that were skipped first;
//   5. as the row in its place, if the size of that one varies;
//   6. further on in the iteration.
//
// What is not found by 1 or 5 came out of order. 4 and 6 put the rival behind what they find. Two
// in a row within a stretch, or four elsewhere, make the rival the place; what 2 finds does so at
// once, and if it lies back, the iteration goes on from there as if nothing had come. A request
// that 6 finds gets no storage before the place has followed it. If 4 found a row further on, and
// the next request is in its place by 1, it was a stranger of that size: the row is open again.
class RequestList {
 public:
  // Rows, measured: on recorded jobs with what random changes do to their order, more rows near the
  // place or the rival give wrong storages, and fewer none.
  static constexpr std::size_t near = 8, stretch = 32;

  RequestList() = default;
  // To be expected.
  explicit RequestList(std::vector<PlannedRequest> requests)
      : requests_(std::move(requests)), come_(requests_.size(), 0) {}
  // To be followed; `begins` are the first rows of iterations, of which the last happens again and
  // again. With `marked`, they are where begin_iteration() is said; without, and until that is said
  // first, they follow from the order of requests. Throws std::invalid_argument about them.
  RequestList(std::vector<PlannedRequest> requests, std::vector<std::size_t> begins, bool marked);

  std::size_t size() const { return requests_.size(); }
  bool is_followed() const { return !begins_.empty(); }
  const PlannedRequest& row(std::size_t index) const { return requests_[index]; }

  // From here on the requests [begin, end) are near, and none of them has come. Beyond the list
  // there are none.
  void expect(std::size_t begin, std::size_t end);

  // Of a list that is followed.
  void begin_iteration(std::size_t iteration);
  bool is_marked() const { return marked_; }
  bool repeats() const { return iteration_ + 1 >= begins_.size(); }
  std::size_t first() const { return first_; }
  // The rows of the iteration.
  std::size_t expected() const;
  // Changes when the requests begin again from a row before the place.
  std::uint32_t turn() const { return turn_; }
  std::int64_t resynchronisations() const { return resynchronisations_; }

  // The storage of a request; -1: there is no such request.
  std::int64_t take(Bytes size, Stream stream) {
    if (place_ == end_) start_again();
    if (place_ < end_ && lost_ == 0) {
      const PlannedRequest& next = requests_[place_];
      if (next.size == size && next.stream == stream && !next.varies) {
        come_[place_] = turn_;
        skip_what_came();
        return next.storage;
      }
    }
    return begins_.empty() ? take_expected(size, stream) : look_for(size, stream);
  }

 private:
  static constexpr std::size_t none = RequestIndex::none;

  bool is_open(std::size_t row) const { return come_[row] != turn_; }
  void skip_what_came() {
    do {
      ++place_;
    } while (place_ < end_ && !is_open(place_));
  }

  void start_again();
  void start_turn(std::size_t row);
  std::int64_t take_expected(Bytes size, Stream stream);
  std::int64_t look_for(Bytes size, Stream stream);
  std::size_t first_open(RequestIndex::Key key, std::size_t begin, std::size_t end) const;
  std::size_t first_open_of(Stream stream) const;
  std::size_t near_row(RequestIndex::Key key) const;
  std::int64_t come_in_order(std::size_t row);
  std::int64_t come_out_of_order(std::size_t row);
  std::int64_t follow_rival(std::size_t row);
  std::int64_t resynchronise(std::size_t row);
  void lose(RequestIndex::Key key);
  void settle(std::size_t place);

  std::vector<PlannedRequest> requests_;
  std::vector<std::size_t> begins_;  // empty: it is not followed
  RequestIndex index_;
  bool marked_ = false, told_ = false;
  std::size_t iteration_ = 0;

  std::vector<std::uint32_t> come_;  // by row, the turn in which it came last
  std::uint32_t turn_ = 1;
  std::size_t first_ = 0, end_ = 0;  // of what may come; the iteration, once one is marked
  std::size_t turned_to_ = 0;        // no row before is open in this turn
  std::size_t place_ = 0;
  std::size_t rival_ = none;
  std::size_t stranger_ = none;  // the row ahead that is before the rival, and nothing else
  int agreed_ = 0;  // requests in a row that are for the rival
  RequestIndex::Run lost_run_{};
  std::size_t lost_ = 0;  // how many of these, the last ones, came out of order
  std::int64_t resynchronisations_ = 0;
};

}  // namespace et_replay
