// The device below an allocator: it gives and takes back whole segments, and may refuse.
#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "sizes.hpp"

namespace et_replay {

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual Bytes capacity() const = 0;
  // Returns the address, a multiple of 2 MiB, of `size` fresh bytes; nothing if they do not fit.
  virtual std::optional<Address> reserve(Bytes size) = 0;
  virtual void release(Address address, Bytes size) = 0;
};

// A device without memory: it counts bytes against its capacity and hands out ever rising
// addresses, aligned to 2 MiB. Recorded addresses, where given, are handed out first and in their
// order: before torch 2.12 the driver's choice of segment addresses decided between free blocks of
// equal size.
class SimulatedDevice final : public Device {
 public:
  explicit SimulatedDevice(Bytes capacity, std::vector<Address> recorded = {})
      : capacity_(capacity), recorded_(std::move(recorded)) {
    if (capacity < 0) throw std::invalid_argument("The device memory must not be negative.");
  }

  Bytes capacity() const override { return capacity_; }

  std::optional<Address> reserve(Bytes size) override {
    if (size > capacity_ - used_) return std::nullopt;
    used_ += size;
    if (served_ < recorded_.size()) return recorded_[served_++];
    const Address address = next_;
    next_ += static_cast<Address>(round_up(size, segment_granularity));
    return address;
  }

  void release(Address, Bytes size) override { used_ -= size; }

 private:
  static constexpr Address first_address = Address{1} << 40;

  Bytes capacity_;
  Bytes used_ = 0;
  Address next_ = first_address;
  std::vector<Address> recorded_;
  std::size_t served_ = 0;
};

}  // namespace et_replay
