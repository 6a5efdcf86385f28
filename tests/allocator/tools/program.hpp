// An interpreter of small programs for the allocator, one line an operation, as the recorded
// answers of PyTorch's own library use them.
#pragma once

#include <iosfwd>
#include <map>
#include <string>

#include "caching.hpp"

namespace et_replay::test {

// Operations: `a ID BYTES STREAM`, `f ID`, `r ID STREAM` (record_stream), `e` (empty_cache),
// `auto 0/1` (events complete by themselves), `done STREAM`, `doneall`, `frac X`, `conf TEXT`,
// `ext BYTES` (of other processes), `peak0`, `pool`/`release`/`emptypool`/`nosplit`/`onoom A B`,
// `begin A B [STREAM]`, `end A B`, `capb`, `cape`, `strcap 0/1` (captures), `stats`, `snap`,
// `used`.
//
// Writes `T` trace entries, `A` addresses, `S` counters (current/peak/allocated/freed), `G`
// segments with their blocks [size requested state], `U` used bytes, `OOM`, `ERR` and `UNDEFINED`.
class Program {
 public:
  Program(Version version, Bytes device_memory, const std::string& settings, std::ostream& out);

  // Returns false where the program cannot go on: torch itself is undefined from here on.
  bool run(const std::string& line);
  CachingAllocator& allocator() { return *allocator_; }

 private:
  void execute(const std::string& verb, std::istream& arguments);
  bool execute_on_state(const std::string& verb, std::istream& arguments);
  bool execute_on_pool(const std::string& verb, std::istream& arguments);
  void write_trace();
  void write_counters();
  void write_segments();
  void write_block(const Block& block);

  SimulatedDevice device_;
  std::unique_ptr<CachingAllocator> allocator_;
  std::map<long, Block*> blocks_;
  std::ostream& out_;
};

}  // namespace et_replay::test
