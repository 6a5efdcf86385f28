// The requests of a plan, in the order in which they are expected; which of them one is, out.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sizes.hpp"

namespace et_replay {

struct PlannedRequest {
  std::int64_t storage;
  Bytes size;  // exactly what is asked for
  Stream stream;
};

// Torch does not say whose memory it asks for. What runs tells which requests are near; among these
// a request is the first of its size and stream that has not come yet.
class RequestList {
 public:
  RequestList() = default;
  explicit RequestList(std::vector<PlannedRequest> requests)
      : requests_(std::move(requests)), come_(requests_.size(), false) {}

  std::size_t size() const { return requests_.size(); }

  // From here on the requests [begin, end) are near, and none of them has come. Beyond the list
  // there are none.
  void expect(std::size_t begin, std::size_t end) {
    end_ = end < size() ? end : size();
    next_ = begin < end_ ? begin : end_;
    for (std::size_t index = next_; index < end_; ++index) come_[index] = false;
  }

  // The storage of a request; -1: no such request is near.
  std::int64_t take(Bytes size, Stream stream) {
    for (std::size_t index = next_; index < end_; ++index) {
      if (come_[index]) continue;
      const PlannedRequest& request = requests_[index];
      if (request.size != size || request.stream != stream) continue;
      come_[index] = true;
      while (next_ < end_ && come_[next_]) ++next_;
      return request.storage;
    }
    return -1;
  }

 private:
  std::vector<PlannedRequest> requests_;
  std::vector<bool> come_;
  std::size_t next_ = 0;  // all before it have come
  std::size_t end_ = 0;
};

}  // namespace et_replay
