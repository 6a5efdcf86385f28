// Handover against an oracle that knows for each address who freed it last.
#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "check.hpp"
#include "handover.hpp"

namespace et_replay::test {
namespace {

constexpr Address top = 48;
constexpr std::uint64_t streams = 3;

using Moments = std::set<Handover::Moment>;

struct Freed {
  Stream stream;
  Handover::Moment moment;
};

struct Oracle {
  std::vector<std::optional<Freed>> addresses{top};
  Moments known;

  Moments of_others(Address begin, Address end, Stream stream) const {
    Moments moments;
    for (Address at = begin; at < end; ++at) {
      const auto& freed = addresses[at];
      if (freed && freed->stream != stream) moments.insert(freed->moment);
    }
    return moments;
  }
  void set(Address begin, Address end, std::optional<Freed> freed) {
    for (Address at = begin; at < end; ++at) addresses[at] = freed;
    if (freed) known.insert(freed->moment);
  }
  // The moments that no address has any more, once.
  Moments forgotten() {
    Moments gone = known;
    for (const auto& freed : addresses) {
      if (freed) gone.erase(freed->moment);
    }
    for (const Handover::Moment moment : gone) known.erase(moment);
    return gone;
  }
};

bool are(const std::vector<Handover::Moment>& moments, const Moments& right) {
  return Moments(moments.begin(), moments.end()) == right && moments.size() == right.size();
}

void another_stream_waits_for_those_that_freed_its_addresses_last(unsigned seed) {
  std::mt19937 random(seed);
  Handover handover;
  Oracle oracle;
  for (int step = 0; step < 2000; ++step) {
    const Address begin = random() % top;
    const Address end = begin + 1 + random() % std::min<Address>(top - begin, 12);
    const Stream stream = random() % streams;
    if (random() % 2 == 0) {
      oracle.set(begin, end, Freed{stream, handover.leave(begin, end, stream)});
    } else {
      const auto right = oracle.of_others(begin, end, stream);
      CHECK(are(handover.take(begin, end, stream), right));
      oracle.set(begin, end, std::nullopt);
    }
    CHECK(are(handover.forgotten(), oracle.forgotten()));
  }
}

}  // namespace

void run_handover_tests() {
  for (unsigned seed = 0; seed < 20; ++seed) another_stream_waits_for_those_that_freed_its_addresses_last(seed);
}

}  // namespace et_replay::test
