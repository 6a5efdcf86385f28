// `run_program TORCH_VERSION DEVICE_MEMORY SETTINGS < program`: what the allocator does, line by
// line.
#include <iostream>
#include <string>

#include "program.hpp"

int main(int argc, char** argv) {
  using namespace et_replay;
  if (argc != 4) {
    std::cerr << "Expected: run_program TORCH_VERSION DEVICE_MEMORY SETTINGS < program\n";
    return 2;
  }
  try {
    test::Program program(version_of(argv[1]), std::stoll(argv[2]), argv[3], std::cout);
    std::string line;
    while (std::getline(std::cin, line) && program.run(line)) {
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
