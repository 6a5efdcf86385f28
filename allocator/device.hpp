// The device below an allocator: it gives and takes back memory in whole segments or in pages of
// reserved address ranges, and may refuse.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "held_ranges.hpp"
#include "sizes.hpp"

namespace et_replay {

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual Bytes capacity() const = 0;
  virtual Bytes available() const = 0;
  // Returns the address, a multiple of 2 MiB, of `size` fresh bytes; nothing if they do not fit.
  virtual std::optional<Address> reserve(Bytes size) = 0;
  virtual void release(Address address, Bytes size) = 0;

  // Returns where a range of addresses without memory lies.
  virtual Address reserve_addresses(Bytes size) = 0;
  // Gives such a range back; nothing is mapped in it.
  virtual void free_addresses(Address, Bytes) {}
  // Puts memory behind a part of such a range. Returns where the part lies, which for the first
  // part of a range may differ from `address`: then the whole range has moved. Nothing if the
  // memory does not fit.
  virtual std::optional<Address> map(Address address, Bytes size) = 0;
  virtual void unmap(Address address, Bytes size) = 0;

  // Takes the addresses [begin, end) as given before, with memory of `size` bytes behind them.
  // Returns whether the device has that much.
  virtual bool adopt(Address begin, Address end, Bytes size) = 0;
  // Waits for all work on the device.
  virtual void synchronize() {}
};

// A device without memory: it counts bytes against its capacity and hands out ever rising
// addresses, ranges for mapping below whole segments as drivers do. Recorded addresses, where
// given, are those of the segments and mapped parts in the order in which a real device gave them;
// they are handed out first: before torch 2.12 the driver's choice of addresses decided between
// free blocks of equal size.
class SimulatedDevice final : public Device {
 public:
  explicit SimulatedDevice(Bytes capacity, std::vector<Address> recorded = {})
      : capacity_(capacity), recorded_(std::move(recorded)) {
    if (capacity < 0) throw std::invalid_argument("The device memory must not be negative.");
  }

  Bytes capacity() const override { return capacity_; }
  Bytes available() const override { return capacity_ - used_; }

  std::optional<Address> reserve(Bytes size) override {
    const Bytes cost = round_up(size, segment_granularity);
    if (cost > available()) return std::nullopt;
    used_ += cost;
    while (const Address end = held_.end_of_overlap(next_segment_, cost)) next_segment_ = end;
    const Address address = recorded_or(next_segment_, cost);
    if (address == next_segment_) next_segment_ += static_cast<Address>(cost);
    hold(address, cost);
    return address;
  }

  void release(Address address, Bytes size) override {
    const Bytes cost = round_up(size, segment_granularity);
    used_ -= cost;
    held_.drop(address, cost);
  }

  Address reserve_addresses(Bytes size) override {
    const Address address = next_range_;
    next_range_ += static_cast<Address>(round_up(size, range_granularity) + range_granularity);
    return address;
  }

  std::optional<Address> map(Address address, Bytes size) override {
    if (size > available()) return std::nullopt;
    used_ += size;
    const Address given = recorded_or(address, size);
    hold(given, size);
    return given;
  }

  void unmap(Address address, Bytes size) override {
    used_ -= size;
    held_.drop(address, size);
  }

  bool adopt(Address begin, Address end, Bytes size) override {
    if (size > available()) return false;
    used_ += size;
    hold(begin, static_cast<Bytes>(end - begin));
    const auto unit = static_cast<Address>(range_granularity);
    const Address beyond = (end + unit - 1) / unit * unit;
    next_segment_ = std::max(next_segment_, beyond);
    if (begin < first_segment) next_range_ = std::max(next_range_, beyond);
    return true;
  }

  // Takes bytes for others than the allocator, or, if negative, gives them back.
  void occupy(Bytes size) { used_ += size; }

 private:
  static constexpr Address first_segment = 0x7f0000000000;
  static constexpr Address first_range = 0x600000000000;
  static constexpr Bytes range_granularity = Bytes{1} << 30;

  // Recorded addresses are of another run: where this one has come to differ, they may be in use.
  Address recorded_or(Address address, Bytes size) {
    if (served_ == recorded_.size()) return address;
    const Address recorded = recorded_[served_++];
    return held_.end_of_overlap(recorded, size) == 0 ? recorded : address;
  }

  // Without recorded addresses none can come twice.
  void hold(Address begin, Bytes size) {
    if (!recorded_.empty()) held_.hold(begin, size);
  }

  Bytes capacity_;
  Bytes used_ = 0;
  HeldRanges held_;
  Address next_segment_ = first_segment;
  Address next_range_ = first_range;
  std::vector<Address> recorded_;
  std::size_t served_ = 0;
};

}  // namespace et_replay
