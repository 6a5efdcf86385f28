// The event loop of the simulator.
#include "simulation.hpp"

#include <stdexcept>
#include <string>
#include <utility>

namespace et_replay {

namespace {

enum Action : std::int8_t {
  action_alloc,
  action_free,
  action_free_requested,
  action_free_completed,
  action_record_stream,
  action_empty_cache,
  action_out_of_memory,
  action_pool_begin,
  action_pool_end,
  action_pool_release,
};

constexpr std::int64_t look_ahead = 12;  // rows; a load from memory takes about as long

}  // namespace

void Simulation::restore(const SegmentView& segment, const std::vector<std::int64_t>& storages) {
  const std::vector<Block*> live = allocator_->restore(segment);
  std::size_t next = 0;
  for (std::size_t index = 0; index < segment.blocks.size(); ++index) {
    const Block& block = segment.blocks[index];
    if (!block.is_active()) continue;
    if (table_.find(storages[index]) != nullptr) {
      throw std::invalid_argument("Storage " + std::to_string(storages[index]) +
                                  " has two blocks in the segments to start with.");
    }
    table_.insert(storages[index], live[next++]);
    if (!block.allocated) request_free(storages[index]);
  }
}

void Simulation::follow(RequestList requests) {
  follower_.emplace(*allocator_);
  follower_->follow(std::move(requests));
}

IterationFigures Simulation::begin_iteration(std::size_t iteration) {
  if (!follower_) throw std::invalid_argument("There is no list of requests to follow.");
  return follower_->begin_iteration(iteration);
}

Address Simulation::allocate(std::int64_t storage, Bytes size, Stream stream) {
  if (table_.find(storage) != nullptr) {
    throw std::invalid_argument("Storage " + std::to_string(storage) +
                                " is allocated again before it was freed.");
  }
  Block* block = follower_ ? follower_->allocate(size, stream)
                           : allocator_->allocate_for(storage, size, stream);
  if (block == nullptr) return 0;
  table_.insert(storage, block);
  return block->address;
}

Address Simulation::free(std::int64_t storage) {
  Block* block = table_.take(storage);
  if (block == nullptr) return 0;
  const Address address = block->address;
  allocator_->free(block);
  return address;
}

void Simulation::request_free(std::int64_t storage) {
  Block* block = table_.take(storage);
  if (block == nullptr) return;
  const Address address = block->address;
  held_[storage] = {allocator_->hold(block), address};
}

void Simulation::complete_free(std::int64_t storage) {
  const auto found = held_.find(storage);
  if (found == held_.end()) {
    free(storage);
    return;
  }
  allocator_->complete(found->second.ticket);
  held_.erase(found);
}

void Simulation::record_stream(std::int64_t storage, Stream stream) {
  Block* block = table_.find(storage);
  if (block != nullptr) allocator_->record_stream(block, stream);
}

void Simulation::run(const EventColumns& events, std::int64_t begin, std::int64_t end,
                     bool keep_going, const Outcomes& outcomes) {
  for (std::int64_t row = begin; row < end; ++row) {
    if (row + look_ahead < end) {
      table_.prefetch_entry(events.storage[row + look_ahead]);
      table_.prefetch_item(events.storage[row + look_ahead / 2]);
    }
    try {
      note(outcomes, row - begin, run_row(events, row));
    } catch (OutOfMemory& error) {
      error.event = row;
      if (!keep_going) throw;
      failures_.push_back(error);
      note(outcomes, row - begin, 0);
    } catch (UndefinedBehavior& error) {
      error.event = row;
      throw;
    }
  }
}

void Simulation::note(const Outcomes& outcomes, std::int64_t at, Address address) const {
  if (outcomes.address != nullptr) outcomes.address[at] = static_cast<std::int64_t>(address);
  if (outcomes.entries != nullptr) {
    outcomes.entries[at] = static_cast<std::int64_t>(allocator_->trace().entries.size());
  }
  if (outcomes.allocated == nullptr && outcomes.reserved == nullptr) return;
  const Statistics& statistics = allocator_->statistics();
  if (outcomes.allocated != nullptr) {
    outcomes.allocated[at] = statistics.allocated_bytes.all.current;
  }
  if (outcomes.reserved != nullptr) outcomes.reserved[at] = statistics.reserved_bytes.all.current;
}

Address Simulation::run_row(const EventColumns& events, std::int64_t row) {
  const std::int64_t storage = events.storage[row];
  const std::int8_t action = events.action[row];
  if (action == action_free) return free(storage);
  if (action != action_alloc) return run_rare(events, row);
  return allocate(storage, events.size[row], static_cast<Stream>(events.stream[row]));
}

// The actions that most histories have few of.
Address Simulation::run_rare(const EventColumns& events, std::int64_t row) {
  const std::int64_t storage = events.storage[row];
  const auto stream = static_cast<Stream>(events.stream[row]);
  const Address before = address(storage);
  switch (events.action[row]) {
    case action_free_requested:
      request_free(storage);
      return before;
    case action_free_completed:
      complete_free(storage);
      return before;
    case action_record_stream:
      record_stream(storage, stream);
      return before;
    case action_empty_cache:
      allocator_->empty_cache();
      return 0;
    case action_out_of_memory:
      expect_failure(events.size[row], stream, row);
      return 0;
    case action_pool_begin:
      allocator_->begin_pool(pool_id(storage), events.stream[row] < 0
                                                   ? std::nullopt
                                                   : std::optional<Stream>(stream));
      return 0;
    case action_pool_end:
      allocator_->end_pool(pool_id(storage));
      return 0;
    case action_pool_release:
      allocator_->release_pool(pool_id(storage));
      return 0;
    default:
      throw std::invalid_argument("Event " + std::to_string(row) + " has the unknown action " +
                                  std::to_string(events.action[row]) + ".");
  }
}

void Simulation::expect_failure(Bytes size, Stream stream, std::int64_t row) {
  try {
    Block* block = allocator_->allocate(size, stream);
    unexpected_.push_back(row);
    if (block != nullptr) allocator_->free(block);
  } catch (OutOfMemory& error) {
    error.event = row;
    reproduced_.push_back(error);
  }
}

std::map<Address, std::int64_t> Simulation::owners() const {
  std::map<Address, std::int64_t> owners;
  for (const auto& [storage, held] : held_) owners[held.address] = storage;
  table_.for_each([&](std::int64_t storage, const Block* block) {
    owners[block->address] = storage;
  });
  return owners;
}

Address Simulation::address(std::int64_t storage) const {
  const Block* block = table_.find(storage);
  if (block != nullptr) return block->address;
  const auto held = held_.find(storage);
  return held == held_.end() ? 0 : held->second.address;
}

}  // namespace et_replay
