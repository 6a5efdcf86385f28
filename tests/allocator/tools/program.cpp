// Carries the operations out, and writes what the recorded programs have as their output.
#include "program.hpp"

#include <cstdio>
#include <ostream>
#include <sstream>

namespace et_replay::test {

namespace {

std::string hexadecimal(Address address) {
  char text[20];
  std::snprintf(text, sizeof text, "%llx", static_cast<unsigned long long>(address));
  return text;
}

template <class Value>
Value next(std::istream& arguments) {
  Value value{};
  arguments >> value;
  return value;
}

PoolId next_pool(std::istream& arguments) {
  const auto first = next<std::uint64_t>(arguments);
  return {first, next<std::uint64_t>(arguments)};
}

Settings settings_of(const std::string& text, Version version) {
  Settings settings;
  settings.read(text, version);
  return settings;
}

}  // namespace

Program::Program(Version version, Bytes device_memory, const std::string& settings,
                 std::ostream& out)
    : device_(device_memory),
      allocator_(std::make_unique<CachingAllocator>(device_, settings_of(settings, version),
                                                    version)),
      out_(out) {
  allocator_->trace().enabled = true;
}

bool Program::run(const std::string& line) {
  std::istringstream arguments(line);
  const auto verb = next<std::string>(arguments);
  if (verb.empty()) return true;
  try {
    execute(verb, arguments);
  } catch (const OutOfMemory& error) {
    write_trace();
    out_ << "OOM " << error.torch_sentence(allocator_->version()) << '\n';
  } catch (const UndefinedBehavior& error) {
    write_trace();
    out_ << "UNDEFINED " << error.what() << '\n';
    return false;
  } catch (const std::invalid_argument& error) {
    write_trace();
    out_ << "ERR " << error.what() << '\n';
  }
  write_trace();
  return true;
}

void Program::execute(const std::string& verb, std::istream& arguments) {
  if (verb == "a") {
    const auto id = next<long>(arguments);
    const auto size = next<Bytes>(arguments);
    blocks_[id] = allocator_->allocate(size, next<Stream>(arguments));
    write_trace();
    const Address address = blocks_[id] == nullptr ? 0 : blocks_[id]->address;
    out_ << "A " << id << ' ' << hexadecimal(address) << '\n';
  } else if (verb == "f") {
    const auto id = next<long>(arguments);
    Block* block = blocks_[id];
    blocks_.erase(id);
    if (block != nullptr) allocator_->free(block);
  } else if (verb == "r") {
    Block* block = blocks_[next<long>(arguments)];
    if (block != nullptr) allocator_->record_stream(block, next<Stream>(arguments));
  } else if (verb == "e") {
    allocator_->empty_cache();
  } else if (verb == "stats") {
    write_counters();
  } else if (verb == "snap") {
    write_segments();
  } else if (verb == "used") {
    out_ << "U " << device_.capacity() - device_.available() << '\n';
  } else if (!execute_on_state(verb, arguments) && !execute_on_pool(verb, arguments)) {
    throw std::invalid_argument("Unknown operation '" + verb + "'.");
  }
}

bool Program::execute_on_state(const std::string& verb, std::istream& arguments) {
  if (verb == "auto") {
    allocator_->stream_events().complete_at_once(next<int>(arguments) != 0);
  } else if (verb == "done") {
    allocator_->stream_events().complete(next<Stream>(arguments));
  } else if (verb == "doneall") {
    allocator_->stream_events().complete_all();
  } else if (verb == "frac") {
    allocator_->set_fraction(next<double>(arguments));
  } else if (verb == "conf") {
    allocator_->configure(next<std::string>(arguments));
  } else if (verb == "ext") {
    device_.occupy(next<Bytes>(arguments));
  } else if (verb == "peak0") {
    allocator_->reset_peaks();
  } else if (verb == "capb" || verb == "cape") {
    allocator_->announce_capture(verb == "capb");
  } else if (verb == "strcap") {
    allocator_->set_stream_capturing(next<int>(arguments) != 0);
  } else {
    return false;
  }
  return true;
}

bool Program::execute_on_pool(const std::string& verb, std::istream& arguments) {
  const PoolId id = next_pool(arguments);
  if (verb == "pool") {
    allocator_->private_pools().retain(id);
  } else if (verb == "begin") {
    Stream stream = 0;
    const bool one = static_cast<bool>(arguments >> stream);
    allocator_->begin_pool(id, one ? std::optional<Stream>(stream) : std::nullopt);
  } else if (verb == "end") {
    allocator_->end_pool(id);
  } else if (verb == "release") {
    allocator_->private_pools().release(id);
  } else if (verb == "emptypool") {
    allocator_->empty_cache(id);
  } else if (verb == "nosplit") {
    allocator_->private_pools().forbid_splitting(id);
  } else if (verb == "onoom") {
    allocator_->private_pools().lend_when_out_of_memory(id);
  } else {
    return false;
  }
  return true;
}

void Program::write_trace() {
  for (const TraceEntry& entry : allocator_->trace().entries) {
    const PoolId pool = allocator_->version().traces_pools() ? entry.pool : PoolId{0, 0};
    out_ << "T " << trace_action_names[static_cast<int>(entry.action)] << ' '
         << hexadecimal(entry.address) << ' ' << entry.size << ' ' << entry.stream << ' '
         << pool.first << ',' << pool.second << '\n';
  }
  allocator_->trace().entries.clear();
}

void Program::write_counters() {
  const Statistics& stats = allocator_->statistics();
  const std::pair<const char*, const PoolCounter*> counters[] = {
      {"alloc", &stats.allocation},          {"seg", &stats.segment},
      {"active", &stats.active},             {"isplit", &stats.inactive_split},
      {"ab", &stats.allocated_bytes},        {"rb", &stats.reserved_bytes},
      {"actb", &stats.active_bytes},         {"isb", &stats.inactive_split_bytes},
      {"rq", &stats.requested_bytes},
  };
  out_ << 'S';
  for (const auto& [name, counter] : counters) {
    const Counter& all = counter->all;
    out_ << ' ' << name << '=' << all.current << '/' << all.peak << '/' << all.allocated << '/'
         << all.freed;
  }
  out_ << " retries=" << stats.num_alloc_retries << " ooms=" << stats.num_ooms
       << " osa=" << stats.oversize_allocations.current
       << " oss=" << stats.oversize_segments.current << " sync=" << stats.num_sync_all_streams
       << " dalloc=" << stats.num_device_alloc << " dfree=" << stats.num_device_free
       << " rej=" << stats.num_oom_rejections << '\n';
}

void Program::write_segments() {
  const std::vector<SegmentView> segments = allocator_->segments();
  Bytes active = 0;
  for (const SegmentView& segment : segments) {
    for (const Block& block : segment.blocks) active += block.is_active() ? block.size : 0;
  }
  out_ << "T snapshot 0 " << active << " 0 0,0\n";
  for (const SegmentView& segment : segments) {
    Bytes total = 0, allocated = 0, active_size = 0, requested = 0;
    for (const Block& block : segment.blocks) {
      total += block.size;
      if (block.allocated) allocated += block.size;
      if (block.is_active()) active_size += block.size;
      if (block.is_active()) requested += block.requested;
    }
    out_ << "G " << hexadecimal(segment.blocks.front().address) << ' ' << total
         << " st=" << segment.stream << (segment.kind == PoolKind::small ? " small" : " large")
         << " exp=" << segment.expandable << " pool=" << segment.pool.first << ','
         << segment.pool.second << " alloc=" << allocated << " act=" << active_size
         << " req=" << requested;
    for (const Block& block : segment.blocks) write_block(block);
    out_ << '\n';
  }
}

void Program::write_block(const Block& block) {
  const char state = block.allocated ? 'A' : block.is_active() ? 'P' : 'I';
  out_ << " [" << block.size << ' ' << block.requested << ' ' << state << ']';
}

}  // namespace et_replay::test
