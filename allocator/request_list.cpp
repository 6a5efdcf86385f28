// Following a list: in order, out of order, and back into order.
#include "request_list.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace et_replay {

namespace {

using Key = RequestIndex::Key;

constexpr int agreed_in_stretch = 2, agreed_elsewhere = 4;
constexpr std::int64_t no_storage = -1;

}  // namespace

RequestList::RequestList(std::vector<PlannedRequest> requests, std::vector<std::size_t> begins,
                         bool marked)
    : requests_(std::move(requests)),
      begins_(std::move(begins)),
      index_(requests_),
      marked_(marked),
      come_(requests_.size(), 0),
      end_(requests_.size()) {
  bool rises = !begins_.empty() && begins_.front() == 0;
  for (std::size_t k = 1; k < begins_.size(); ++k) rises = rises && begins_[k - 1] <= begins_[k];
  if (!rises || begins_.back() > size()) {
    throw std::invalid_argument("Iterations of a list of " + std::to_string(size()) +
                                " requests begin at 0 and not before one another.");
  }
}

void RequestList::expect(std::size_t begin, std::size_t end) {
  end_ = std::min(end, size());
  start_turn(std::min(begin, end_));
}

void RequestList::begin_iteration(std::size_t iteration) {
  iteration_ = iteration;
  if (begins_.empty() || !marked_) return;
  told_ = true;
  const std::size_t last = begins_.size() - 1;
  first_ = begins_[std::min(iteration, last)];
  end_ = iteration < last ? begins_[iteration + 1] : size();
  start_turn(first_);
}

std::size_t RequestList::expected() const {
  if (begins_.empty()) return 0;
  return repeats() ? size() - begins_.back() : begins_[iteration_ + 1] - begins_[iteration_];
}

void RequestList::start_turn(std::size_t row) {
  ++turn_;
  turned_to_ = place_ = row;
  settle(row);
}

// All of the list has come.
void RequestList::start_again() {
  if (begins_.empty() || begins_.back() == end_ || told_) return;
  first_ = begins_.back();
  start_turn(first_);
}

std::int64_t RequestList::take_expected(Bytes size, Stream stream) {
  for (std::size_t row = place_; row < end_; ++row) {
    const PlannedRequest& request = requests_[row];
    if (!is_open(row) || request.size != size || request.stream != stream) continue;
    come_[row] = turn_;
    if (row == place_) skip_what_came();
    return request.storage;
  }
  return no_storage;
}

std::int64_t RequestList::look_for(Bytes size, Stream stream) {
  const Key key = index_.find(size, stream);
  const std::size_t here = first_open_of(stream);
  const bool varies = here != none && requests_[here].varies;
  if (key == RequestIndex::unknown) return varies ? come_in_order(here) : no_storage;
  if (here != none && index_.key(here) == key) {
    if (stranger_ != none && stranger_ > here) come_[stranger_] = 0;
    settle(place_);
    return come_in_order(here);
  }
  lose(key);
  std::size_t row = none;
  if (lost_ == RequestIndex::run_length) row = index_.find_run(lost_run_, first_, end_, place_);
  if (row != none) return resynchronise(row);
  if (rival_ != none) row = first_open(key, rival_, std::min(rival_ + near, end_));
  if (row != none) return follow_rival(row);
  row = near_row(key);
  if (row != none) return come_out_of_order(row);
  if (varies) return come_in_order(here);
  row = first_open(key, rival_ == none ? place_ : std::max(rival_, place_), end_);
  if (row == none) return no_storage;
  rival_ = row + 1;
  stranger_ = none;
  agreed_ = 1;
  return no_storage;
}

std::size_t RequestList::first_open(Key key, std::size_t begin, std::size_t end) const {
  return index_.first(key, begin, end, [this](std::size_t row) { return is_open(row); });
}

std::size_t RequestList::first_open_of(Stream stream) const {
  const std::size_t end = std::min(place_ + stretch, end_);
  for (std::size_t row = place_; row < end; ++row) {
    if (requests_[row].stream == stream && is_open(row)) return row;
  }
  return none;
}

std::size_t RequestList::near_row(Key key) const {
  const std::size_t skipped = std::max(turned_to_, place_ < near ? 0 : place_ - near);
  const std::size_t row = first_open(key, skipped, place_);
  return row != none ? row : first_open(key, place_, std::min(place_ + near, end_));
}

std::int64_t RequestList::come_in_order(std::size_t row) {
  come_[row] = turn_;
  if (row + 1 == place_ + stretch) place_ = row;
  if (row == place_) skip_what_came();
  return requests_[row].storage;
}

std::int64_t RequestList::come_out_of_order(std::size_t row) {
  come_[row] = turn_;
  rival_ = row + 1;
  stranger_ = row > place_ ? row : none;
  agreed_ = 1;
  return requests_[row].storage;
}

std::int64_t RequestList::follow_rival(std::size_t row) {
  const bool in_stretch = row < place_ + stretch && place_ < row + stretch;
  rival_ = row + 1;
  stranger_ = none;
  if (++agreed_ < (in_stretch ? agreed_in_stretch : agreed_elsewhere)) return no_storage;
  come_[row] = turn_;
  if (!in_stretch) ++resynchronisations_;
  settle(rival_);
  return requests_[row].storage;
}

// Rows that came before are open again where the list goes back.
std::int64_t RequestList::resynchronise(std::size_t row) {
  ++resynchronisations_;
  if (row < place_) start_turn(row + 1);
  come_[row] = turn_;
  settle(row + 1);
  return requests_[row].storage;
}

void RequestList::lose(Key key) {
  std::copy(lost_run_.begin() + 1, lost_run_.end(), lost_run_.begin());
  lost_run_.back() = key;
  lost_ = std::min(lost_ + 1, RequestIndex::run_length);
}

void RequestList::settle(std::size_t place) {
  rival_ = stranger_ = none;
  agreed_ = 0;
  lost_ = 0;
  place_ = place;
  while (place_ < end_ && !is_open(place_)) ++place_;
}

}  // namespace et_replay
