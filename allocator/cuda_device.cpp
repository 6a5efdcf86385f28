// Each verb of a device in calls of the driver.
#include "cuda_device.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace et_replay {

namespace {

constexpr auto page = static_cast<std::size_t>(segment_granularity);

}  // namespace

CudaDevice::CudaDevice(int ordinal, std::optional<Bytes> limit) : driver_(CudaDriver::get()) {
  int device = 0;
  driver_.check(driver_.device_get(&device, ordinal), "find the device");
  driver_.check(driver_.primary_context_retain(&context_, device), "open the device");
  kind_.location.id = ordinal;
  const CudaCalls calls(context_);
  std::size_t free = 0, total = 0;
  driver_.check(driver_.memory_info(&free, &total), "tell the size of the device");
  capacity_ = static_cast<Bytes>(total);
  if (limit) capacity_ = std::min(capacity_, *limit);
  std::size_t granularity = 0;
  driver_.check(driver_.allocation_granularity(&granularity, &kind_, 0), "tell its page size");
  if (granularity == 0 || page % granularity != 0) {
    throw std::runtime_error("The device has pages of " + std::to_string(granularity) +
                             " bytes, of which 2 MiB are no multiple.");
  }
}

// What others have taken of the GPU is not there, either.
Bytes CudaDevice::available() const {
  const CudaCalls calls(context_);
  std::size_t free = 0, total = 0;
  driver_.check(driver_.memory_info(&free, &total), "tell its free memory");
  return std::min(capacity_ - used_, static_cast<Bytes>(free));
}

std::optional<Address> CudaDevice::reserve(Bytes size) {
  const Bytes cost = round_up(size, segment_granularity);
  if (cost > capacity_ - used_) return std::nullopt;
  const CudaCalls calls(context_);
  CudaAddress address = 0;
  const int result = driver_.memory_alloc(&address, static_cast<std::size_t>(size));
  if (result == cuda_out_of_memory) return std::nullopt;
  driver_.check(result, "allocate memory");
  used_ += cost;
  return address;
}

void CudaDevice::release(Address address, Bytes size) {
  const CudaCalls calls(context_);
  driver_.check(driver_.memory_free(address), "free memory");
  used_ -= round_up(size, segment_granularity);
}

Address CudaDevice::reserve_addresses(Bytes size) {
  const CudaCalls calls(context_);
  CudaAddress address = 0;
  driver_.check(driver_.address_reserve(&address, static_cast<std::size_t>(size), 0, 0, 0),
                "reserve addresses");
  return address;
}

void CudaDevice::free_addresses(Address address, Bytes size) {
  const CudaCalls calls(context_);
  driver_.check(driver_.address_free(address, static_cast<std::size_t>(size)), "free addresses");
}

std::optional<Address> CudaDevice::map(Address address, Bytes size) {
  if (size > capacity_ - used_) return std::nullopt;
  const CudaCalls calls(context_);
  const Address end = address + static_cast<Address>(size);
  for (Address at = address; at < end; at += page) {
    bool mapped = false;
    try {
      mapped = map_page(at);
    } catch (...) {
      unmap_pages(address, at);
      throw;
    }
    if (!mapped) {
      unmap_pages(address, at);
      return std::nullopt;
    }
  }
  CudaAccess access;
  access.location = kind_.location;
  const int result = driver_.memory_set_access(address, static_cast<std::size_t>(size), &access, 1);
  if (result != cuda_success) unmap_pages(address, end);
  if (result == cuda_out_of_memory) return std::nullopt;
  driver_.check(result, "open memory for access");
  used_ += size;
  return address;
}

// Returns whether there was memory. The mapping keeps the memory, which needs no handle then.
bool CudaDevice::map_page(Address address) {
  CudaHandle handle = 0;
  const int created = driver_.memory_create(&handle, page, &kind_, 0);
  if (created == cuda_out_of_memory) return false;
  driver_.check(created, "create memory");
  const int mapped = driver_.memory_map(address, page, 0, handle, 0);
  driver_.check(driver_.memory_release(handle), "release a handle");
  if (mapped == cuda_out_of_memory) return false;
  driver_.check(mapped, "map memory");
  return true;
}

void CudaDevice::unmap_pages(Address begin, Address end) {
  if (begin < end) driver_.memory_unmap(begin, static_cast<std::size_t>(end - begin));
}

// Unlike cuMemFree this does not wait for the work that still uses the memory.
void CudaDevice::unmap(Address address, Bytes size) {
  const CudaCalls calls(context_);
  driver_.check(driver_.context_synchronize(), "finish the work on the device");
  driver_.check(driver_.memory_unmap(address, static_cast<std::size_t>(size)), "unmap memory");
  used_ -= size;
}

void CudaDevice::synchronize() {
  const CudaCalls calls(context_);
  driver_.check(driver_.context_synchronize(), "finish the work on the device");
}

}  // namespace et_replay
