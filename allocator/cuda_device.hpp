// An NVIDIA GPU, or a part of its memory, through the driver.
#pragma once

#include <optional>

#include "cuda_driver.hpp"
#include "device.hpp"

namespace et_replay {

// Segments come from cuMemAlloc; address ranges are mapped in pages of 2 MiB. What the allocator
// holds stays below a limit of its own, as if the GPU had no more.
class CudaDevice final : public Device {
 public:
  // Throws std::runtime_error where the driver or the device is missing.
  CudaDevice(int ordinal, std::optional<Bytes> limit);

  Bytes capacity() const override { return capacity_; }
  Bytes available() const override;
  std::optional<Address> reserve(Bytes size) override;
  void release(Address address, Bytes size) override;
  Address reserve_addresses(Bytes size) override;
  void free_addresses(Address address, Bytes size) override;
  std::optional<Address> map(Address address, Bytes size) override;
  void unmap(Address address, Bytes size) override;
  bool adopt(Address, Address, Bytes) override { return false; }
  void synchronize() override;

  CudaContext context() const { return context_; }
  const CudaDriver& driver() const { return driver_; }

 private:
  bool map_page(Address address);
  void unmap_pages(Address begin, Address end);

  const CudaDriver& driver_;
  CudaContext context_ = nullptr;
  CudaMemoryKind kind_;
  Bytes capacity_ = 0;
  Bytes used_ = 0;
};

}  // namespace et_replay
