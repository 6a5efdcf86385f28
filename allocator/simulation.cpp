// The event loop of the simulator.
#include "simulation.hpp"

#include <stdexcept>
#include <string>

namespace et_replay {

namespace {

constexpr std::int8_t action_alloc = 0;
constexpr std::int8_t action_free = 1;
constexpr std::int64_t look_ahead = 12;  // rows; a load from memory takes about as long

}  // namespace

void Simulation::allocate(std::int64_t storage, Bytes size, Stream stream) {
  if (table_.find(storage) != nullptr) {
    throw std::invalid_argument("Storage " + std::to_string(storage) +
                                " is allocated again before it was freed.");
  }
  Block* block = allocator_.allocate(size, stream);
  if (block != nullptr) table_.insert(storage, block);
}

void Simulation::free(std::int64_t storage) {
  Block* block = table_.take(storage);
  if (block != nullptr) allocator_.free(block);
}

void Simulation::run(const EventColumns& events, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    if (row + look_ahead < end) {
      table_.prefetch_entry(events.storage[row + look_ahead]);
      table_.prefetch_block(events.storage[row + look_ahead / 2]);
    }
    const std::int8_t action = events.action[row];
    if (action == action_free) {
      free(events.storage[row]);
    } else if (action == action_alloc) {
      try {
        allocate(events.storage[row], events.size[row], static_cast<Stream>(events.stream[row]));
      } catch (OutOfMemory& error) {
        error.event = row;
        throw;
      }
    } else {
      throw std::invalid_argument("Event " + std::to_string(row) + " has the unknown action " +
                                  std::to_string(action) + ".");
    }
  }
}

Address Simulation::address(std::int64_t storage) const {
  const Block* block = table_.find(storage);
  return block == nullptr ? 0 : block->address;
}

}  // namespace et_replay
