// PyTorch's native caching allocator, over any Device.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allocator.hpp"
#include "expandable_segment.hpp"
#include "pending_frees.hpp"
#include "private_pools.hpp"
#include "rounding.hpp"

namespace et_replay {

class CachingAllocator final : public Allocator {
 public:
  // With another's records, what that one holds counts against the limit, too.
  explicit CachingAllocator(Device& device, Settings settings = {}, Version version = {},
                            Records* shared = nullptr);

  // caching.cpp: handing out and taking back.
  Block* allocate(Bytes requested, Stream stream) override;
  void free(Block* block) override;
  void record_stream(Block* block, Stream stream) override;
  std::uint64_t hold(Block* block) override;
  void complete(std::uint64_t ticket) override;

  // release.cpp: giving back to the device.
  void empty_cache() override { release_everything(); }
  void empty_cache(PoolId id);
  // What empty_cache() gives back, but for parts of pages.
  Bytes cached_bytes() const;

  // restore.cpp: segments in and out.
  std::vector<Block*> restore(const SegmentView& segment) override;
  Bytes largest_free() const override;
  std::vector<SegmentView> segments() const override;

  void begin_pool(PoolId id, std::optional<Stream> stream) override { pools_.begin(id, stream); }
  void end_pool(PoolId id) override;
  void release_pool(PoolId id) override;
  PrivatePools& private_pools() { return pools_; }
  const PrivatePools& private_pools() const { return pools_; }

  void set_fraction(double fraction) override;
  void reset_peaks() override;
  const std::optional<Bytes>& limit() const { return limit_; }
  // What this allocator alone holds from the device.
  const Counter& held_bytes() const { return held_bytes_; }
  // The failure of a request, for which the device would have had to give a segment.
  OutOfMemory out_of_memory(Bytes requested) const;
  void configure(const std::string& text) { settings_.read(text, version_); }
  const Settings& settings() const { return settings_; }
  const Version& version() const { return version_; }
  StreamEvents& stream_events() { return pending_.events; }
  // From torch 2.13 on memory is treated as in a capture only between these, while the stream that
  // asks captures.
  void announce_capture(bool begins);
  void set_stream_capturing(bool capturing) { stream_captures_ = capturing; }
  bool capturing() const;

 private:
  struct Request {
    Bytes requested;
    Bytes rounded;
    Bytes segment;
    Shelf* shelf;
    bool expandable;  // expandable segments may serve it
  };

  Request request_for(Bytes requested, Stream stream);
  bool ages() const { return limit_ && settings_.garbage_collection_threshold > 0; }
  // Held from the device by all that share the records.
  Bytes total() const { return statistics_.reserved_bytes.all.current; }
  void count_reserved(PoolKind kind, Bytes size) {
    held_bytes_.change(size);
    statistics_.reserved_bytes.change(kind, size);
  }
  void settle_events();
  void synchronize(const PrivatePool* pool);
  Block* find(const Request& request);
  bool is_worth_splitting(const Block& block, const Request& request) const;
  Block* hand_out(Block* block, const Request& request);
  void mark_allocated(Block* block);
  Block* split(Block* block, Bytes size);
  Block* insert_before(Block* block, Bytes size);
  Block* insert_behind(Block* block, Bytes size);
  void request_free(Block* block);
  void complete(Block* block);
  bool absorb(Block* block, Block* neighbour);
  void list(Block* block);
  Block* part_of(const Block& block, Bytes offset, Bytes size);
  void cut_front(Block* block, Bytes size);
  void record(TraceAction action, const Block& block, Bytes size) {
    trace_.record(action, block.address, size, block.home->stream, block.home->pool.id);
  }

  // growth.cpp: when no free block fits.
  Block* obtain(Request& request);
  Block* grow(const Request& request);
  Block* reserve_segment(const Request& request);
  Block* add_segment(Shelf& shelf, Address address, Bytes size);
  Block* borrow(Request& request);
  void reject_beyond_fraction(const Request& request);
  [[noreturn]] void fail(const Request& request);

  // expandable.cpp: mapping and unmapping.
  FreeList::Cursor skip_growable(FreeList& free, FreeList::Cursor cursor, bool expandable) const;
  Block* expand(const Request& request);
  Block* room_for(const Request& request);
  Block* add_range(Shelf& shelf, std::optional<Address> place);
  bool map(Block* block, Bytes size);
  void move_range(Block* block, Address base);
  void unmap(Block* block);
  void take_memory(Block* block);
  void drop_range(Block* block);

  // release.cpp and garbage_collection.cpp: giving back to the device.
  void collect_garbage();
  bool release_oversize(const Request& request);
  void release_everything();
  void release_private(PrivatePool& pool);
  void release_pool_blocks(Pool& pool);
  void release_segment(Block* block);
  void erase_pool(PrivatePool& pool);

  // restore.cpp
  Block* restore_mapped(Shelf& shelf, Address begin, Bytes size);
  void restore_block(Block* block, bool active, bool last);

  const Version version_;
  const TieOrder tie_order_;
  Settings settings_;
  std::optional<Bytes> limit_;
  Counter held_bytes_;
  std::uint64_t next_order_ = 0;  // addresses ever reserved, or blocks ever made: see TieOrder
  int announced_captures_ = 0;
  bool stream_captures_ = false;

  BlockArena<> arena_;
  Pool small_{PoolKind::small, {0, 0}, nullptr};
  Pool large_{PoolKind::large, {0, 0}, nullptr};
  PrivatePools pools_{version_};
  std::vector<std::unique_ptr<ExpandableSegment>> ranges_;
  PendingFrees pending_;
  std::map<std::uint64_t, Block*> held_;
  std::uint64_t next_ticket_ = 0;
};

}  // namespace et_replay
