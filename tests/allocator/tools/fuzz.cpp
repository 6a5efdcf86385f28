// Turns any bytes into a program for the allocator and holds its state against the counters. Build
// with -DFUZZ_WITHOUT_MAIN and -fsanitize=fuzzer to let libFuzzer find the bytes; alone it takes
// files with them, or runs `--random COUNT [SEED]`.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "invariants.hpp"
#include "program.hpp"

namespace {

using namespace et_replay;

// Reads numbers from bytes; behind the end they are 0.
class Bits {
 public:
  Bits(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool empty() const { return position_ >= size_; }
  unsigned below(unsigned limit) {
    const unsigned byte = empty() ? 0 : data_[position_];
    ++position_;
    return byte % limit;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t position_ = 0;
};

std::string settings_from(Bits& bits, int minor) {
  const char* const expandable[] = {"", "expandable_segments:True,"};
  const char* const split[] = {"", "max_split_size_mb:21,", "max_split_size_mb:100,"};
  const char* const roundup[] = {"", "roundup_power2_divisions:4,",
                                 "roundup_power2_divisions:[4:8,>:2],"};
  const char* const collection[] = {"", "garbage_collection_threshold:0.5,"};
  const char* const packed[] = {"", "large_segment_size_mb:11,"};
  std::string text = expandable[bits.below(2)];
  text += split[bits.below(3)];
  text += roundup[bits.below(3)];
  text += collection[bits.below(2)];
  if (minor >= 11) text += packed[bits.below(2)];
  return text;
}

std::string stream_from(Bits& bits) { return std::to_string(4096 * bits.below(3)); }

std::string pool_from(Bits& bits) { return " 0 " + std::to_string(1 + bits.below(3)); }

std::string size_from(Bits& bits) {
  const long unit = 1L << (9 + bits.below(19));
  return std::to_string(unit * static_cast<long>(1 + bits.below(8)) -
                        static_cast<long>(bits.below(2)));
}

std::string operation_from(Bits& bits, long& blocks) {
  switch (bits.below(32)) {
    case 0: return "e";
    case 1: return "frac 0." + std::to_string(3 + bits.below(7));
    case 2: return "auto " + std::to_string(bits.below(2));
    case 3: return "done " + stream_from(bits);
    case 4: return "begin" + pool_from(bits) + (bits.below(2) == 0 ? "" : " " + stream_from(bits));
    case 5: return "end" + pool_from(bits);
    case 6: return "release" + pool_from(bits);
    case 7: return "emptypool" + pool_from(bits);
    case 8: return "onoom" + pool_from(bits);
    case 9: return "nosplit" + pool_from(bits);
    case 10: return "capb";
    case 11: return "cape";
    case 12: return "strcap " + std::to_string(bits.below(2));
    case 13: return bits.below(2) == 0 ? "conf expandable_segments:True" : "conf ";
    case 14:
    case 15: return "r " + std::to_string(bits.below(64)) + " " + stream_from(bits);
    default: break;
  }
  // Numbers come round again after 64 blocks: then the block of that number is freed first.
  const long id = bits.below(2) == 0 ? blocks++ % 64 : static_cast<long>(bits.below(64)) + 64;
  if (id >= 64) return "f " + std::to_string(id - 64);
  return "a " + std::to_string(id) + " " + size_from(bits) + " " + stream_from(bits);
}

void run(Bits bits) {
  const int minor = oldest_minor + static_cast<int>(bits.below(newest_minor - oldest_minor + 1));
  const Bytes memory = (Bytes{64} << bits.below(5)) * mebibyte;
  const std::string settings = settings_from(bits, minor);
  std::ostringstream lines;
  test::Program program(Version{minor}, memory, settings, lines);
  long blocks = 0;
  for (int step = 0; !bits.empty(); ++step) {
    const std::string operation = operation_from(bits, blocks);
    if (operation[0] == 'a' && operation[1] == ' ') {
      program.run("f " + operation.substr(2, operation.find(' ', 2) - 2));
    }
    if (!program.run(operation)) return;
    if (step % 16 == 0 || bits.empty()) {
      const std::string complaint = test::complaint_about(program.allocator());
      if (!complaint.empty()) {
        std::cerr << complaint << " after " << operation << '\n';
        std::abort();
      }
    }
    lines.str("");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  run(Bits(data, size));
  return 0;
}

#ifndef FUZZ_WITHOUT_MAIN
int main(int argc, char** argv) {
  if (argc >= 3 && std::string(argv[1]) == "--random") {
    std::mt19937_64 random(argc > 3 ? std::stoull(argv[3]) : 0);
    for (long count = std::stol(argv[2]); count > 0; --count) {
      std::vector<std::uint8_t> data(64 + random() % 4096);
      for (std::uint8_t& byte : data) byte = static_cast<std::uint8_t>(random());
      LLVMFuzzerTestOneInput(data.data(), data.size());
    }
    return 0;
  }
  for (int index = 1; index < argc; ++index) {
    std::ifstream file(argv[index], std::ios::binary);
    const std::vector<char> data{std::istreambuf_iterator<char>(file), {}};
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(data.data()), data.size());
  }
}
#endif
