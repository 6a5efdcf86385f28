// Rows by what they ask for, and ends of runs by what is asked for in them, in order.
#include "request_index.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace et_replay {

RequestIndex::RequestIndex(const std::vector<PlannedRequest>& requests) {
  if (requests.size() > static_cast<std::size_t>(std::numeric_limits<Key>::max())) {
    throw std::invalid_argument("The list has more than 2^31 requests.");
  }
  key_of_row_.reserve(requests.size());
  Run run{};
  std::size_t known = 0;
  for (const PlannedRequest& request : requests) {
    const auto row = static_cast<std::uint32_t>(key_of_row_.size());
    if (request.varies) {
      key_of_row_.push_back(unknown);
      continue;
    }
    const Key next = static_cast<Key>(rows_of_key_.size());
    const Key key = keys_.emplace(std::pair(request.size, request.stream), next).first->second;
    if (key == next) rows_of_key_.emplace_back();
    key_of_row_.push_back(key);
    rows_of_key_[static_cast<std::size_t>(key)].push_back(row);
    std::copy(run.begin() + 1, run.end(), run.begin());
    run.back() = key;
    if (++known >= run_length) ends_of_run_[run].push_back(row);
  }
}

std::size_t RequestIndex::first_from(const std::vector<std::uint32_t>& rows, std::size_t begin) {
  const auto found = std::lower_bound(rows.begin(), rows.end(), begin);
  return static_cast<std::size_t>(found - rows.begin());
}

std::size_t RequestIndex::find_run(const Run& run, std::size_t begin, std::size_t end,
                                   std::size_t place) const {
  const auto found = ends_of_run_.find(run);
  if (found == ends_of_run_.end()) return none;
  const std::vector<std::uint32_t>& ends = found->second;
  const std::size_t next = first_from(ends, place);
  if (next < ends.size() && ends[next] < end) return ends[next];
  return next > 0 && ends[next - 1] >= begin ? ends[next - 1] : none;
}

}  // namespace et_replay
