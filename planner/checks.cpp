// Looks at each buffer, then for overlaps of the fixed ones.
#include "checks.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "validate.hpp"

namespace et_replay::planner {

namespace {

std::string name(std::size_t index) { return "buffer " + std::to_string(index); }

void check_buffer(const Buffer& buffer, std::size_t index) {
  const auto who = [index] { return "Buffer " + std::to_string(index); };
  if (buffer.size < 0) {
    throw std::invalid_argument(who() + " has the negative size " + std::to_string(buffer.size) +
                                ".");
  }
  if (buffer.alignment <= 0) {
    throw std::invalid_argument(who() + " has the alignment " + std::to_string(buffer.alignment) +
                                ", expected a positive one.");
  }
  if (!buffer.takes_memory()) return;
  const Bytes fixed = std::max<Bytes>(buffer.fixed, 0);
  for (const Bytes bytes : {buffer.size, buffer.alignment, fixed}) {
    if (bytes > largest_arena / 2) {
      throw std::overflow_error(who() + " is too large: size, alignment and fixed offset may be" +
                                " 2^61 bytes, got " + std::to_string(bytes) + ".");
    }
  }
  if (fixed % buffer.alignment != 0) {
    throw std::invalid_argument(who() + " has the fixed offset " + std::to_string(fixed) +
                                ", which is no multiple of its alignment " +
                                std::to_string(buffer.alignment) + ".");
  }
  if (!buffer.again.empty() && !buffer.span.empty() && buffer.span.overlaps(buffer.again)) {
    throw std::invalid_argument(who() + " has two spans that overlap.");
  }
}

void check_fixed(const Problem& problem) {
  Offsets offsets;
  for (const Buffer& buffer : problem) offsets.push_back(buffer.fixed);
  const auto overlap = find_overlap(problem, offsets);
  if (!overlap) return;
  throw std::invalid_argument("The fixed offsets of " + name(overlap->older) + " and " +
                              name(overlap->younger) + " overlap at time " +
                              std::to_string(overlap->time) + ".");
}

}  // namespace

void check_problem(const Problem& problem) {
  bool any_fixed = false;
  for (std::size_t index = 0; index < problem.size(); ++index) {
    check_buffer(problem[index], index);
    any_fixed |= problem[index].fixed >= 0;
  }
  if (any_fixed) check_fixed(problem);
}

}  // namespace et_replay::planner
