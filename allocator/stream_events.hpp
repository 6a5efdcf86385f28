// The events that streams of a device complete in their order.
#pragma once

#include <cstdint>
#include <map>

#include "sizes.hpp"

namespace et_replay {

// Events complete as soon as they are recorded, or when complete() is called.
class StreamEvents {
 public:
  void complete_at_once(bool at_once) { at_once_ = at_once; }

  // Returns the number of a new event of the stream.
  std::uint64_t record(Stream stream) { return ++counts_[stream].recorded; }
  bool is_complete(Stream stream, std::uint64_t event) const {
    const auto found = counts_.find(stream);
    return at_once_ || (found != counts_.end() && found->second.completed >= event);
  }
  // Waits for an event, and with it for those before it.
  void wait_for(Stream stream, std::uint64_t event) {
    Counts& counts = counts_[stream];
    if (counts.completed < event) counts.completed = event;
  }
  void complete(Stream stream) { counts_[stream].completed = counts_[stream].recorded; }
  void complete_all() {
    for (auto& [stream, counts] : counts_) counts.completed = counts.recorded;
  }

 private:
  struct Counts {
    std::uint64_t recorded = 0;
    std::uint64_t completed = 0;
  };

  bool at_once_ = true;
  std::map<Stream, Counts> counts_;
};

}  // namespace et_replay
