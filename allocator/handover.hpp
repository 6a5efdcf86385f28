// Memory that was freed on one stream in, what another must wait for before it uses it out.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sizes.hpp"

namespace et_replay {

// A range of addresses that was freed is as good as idle on its own stream, where work is done in
// order. Another stream waits until all that was asked for before is done: a moment.
class Handover {
 public:
  using Moment = std::uint64_t;

  // `stream` has freed [begin, end). Returns the moment, which has begun now.
  Moment leave(Address begin, Address end, Stream stream);
  // `stream` begins to use [begin, end): returns the moments at which others freed it. What is freed
  // later comes after them, so the range is forgotten.
  std::vector<Moment> take(Address begin, Address end, Stream stream);
  // The moments that no range has any more, once.
  std::vector<Moment> forgotten();

 private:
  struct Left {
    Address end;
    Stream stream;
    Moment moment;
  };
  using Ranges = std::map<Address, Left>;  // by their begins; no two overlap

  Ranges::iterator first_in(Address begin);
  void cut(Address begin, Address end);
  void insert(Address begin, const Left& left);
  void drop(Moment moment);

  Ranges left_;
  std::map<Moment, int> ranges_of_;
  std::vector<Moment> forgotten_;
  Moment next_ = 0;
};

}  // namespace et_replay
