// An allocator that keeps nothing: every request is a segment of its own, which goes back when it
// is freed. With segments in the granularity of the device it is what PyTorch does without its
// cache (`direct`); with segments of the smallest block it is what no allocator can go below, the
// sum of the live requests, each rounded up to 512 bytes (`ideal`).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "allocator.hpp"
#include "pool.hpp"

namespace et_replay {

class UncachedAllocator final : public Allocator {
 public:
  // Segments are mapped one behind the other, and no address is used twice.
  UncachedAllocator(Device& device, Bytes granularity)
      : Allocator(device), granularity_(granularity), limit_(device.capacity()) {}

  Block* allocate(Bytes requested, Stream stream) override;
  void free(Block* block) override;
  void record_stream(Block*, Stream) override {}
  std::uint64_t hold(Block* block) override;
  void complete(std::uint64_t ticket) override;
  void empty_cache() override {}
  void begin_pool(PoolId, std::optional<Stream>) override {}
  void end_pool(PoolId) override {}
  void release_pool(PoolId) override {}
  void set_fraction(double fraction) override;
  std::vector<Block*> restore(const SegmentView& segment) override;
  Bytes largest_free() const override { return 0; }
  std::vector<SegmentView> segments() const override;

 private:
  Shelf& shelf_of(Bytes size, Stream stream);
  Block* add(Shelf& shelf, Address address, Bytes requested, Bytes size);
  void count(const Block& block, int sign);
  void count_active(const Block& block, int sign);
  [[noreturn]] void fail(Bytes requested, const Shelf& shelf);
  OutOfMemory out_of_memory(Bytes requested) const;

  const Bytes granularity_;
  Bytes limit_;
  Address next_address_ = Address{1} << 40;
  BlockArena<> arena_;
  Pool small_{PoolKind::small, {0, 0}, nullptr};
  Pool large_{PoolKind::large, {0, 0}, nullptr};
  std::map<std::uint64_t, Block*> held_;
  std::uint64_t next_ticket_ = 0;
};

}  // namespace et_replay
