// dlopen, and one dlsym a function.
#include "cuda_driver.hpp"

#include <dlfcn.h>

namespace et_replay {

namespace {

constexpr const char* library_name = "libcuda.so.1";

template <class Function>
void load(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (function != nullptr) return;
  throw std::runtime_error(std::string("The CUDA driver ") + library_name + " has no " + symbol +
                           "; a driver for CUDA 11.2 or newer is needed.");
}

}  // namespace

const CudaDriver& CudaDriver::get() {
  // Leaked, as what uses it is: frees still come when the process ends.
  static const CudaDriver* const driver = new CudaDriver;
  return *driver;
}

CudaDriver::CudaDriver() {
  void* library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error(std::string("No CUDA driver was found: ") + dlerror() + ".");
  }
  load(library, "cuInit", init);
  load(library, "cuDeviceGet", device_get);
  load(library, "cuDevicePrimaryCtxRetain", primary_context_retain);
  load(library, "cuCtxPushCurrent_v2", context_push);
  load(library, "cuCtxPopCurrent_v2", context_pop);
  load(library, "cuCtxSynchronize", context_synchronize);
  load(library, "cuMemAlloc_v2", memory_alloc);
  load(library, "cuMemFree_v2", memory_free);
  load(library, "cuMemGetInfo_v2", memory_info);
  load(library, "cuMemAddressReserve", address_reserve);
  load(library, "cuMemAddressFree", address_free);
  load(library, "cuMemCreate", memory_create);
  load(library, "cuMemRelease", memory_release);
  load(library, "cuMemMap", memory_map);
  load(library, "cuMemUnmap", memory_unmap);
  load(library, "cuMemSetAccess", memory_set_access);
  load(library, "cuMemGetAllocationGranularity", allocation_granularity);
  load(library, "cuEventCreate", event_create);
  load(library, "cuEventRecord", event_record);
  load(library, "cuEventQuery", event_query);
  load(library, "cuStreamWaitEvent", stream_wait_event);
  load(library, "cuEventDestroy_v2", event_destroy);
  load(library, "cuThreadExchangeStreamCaptureMode", exchange_capture_mode);
  load(library, "cuGetErrorName", error_name);
  check(init(0), "start");
}

void CudaDriver::check(int result, const char* action) const {
  if (result == cuda_success) return;
  const char* name = nullptr;
  if (error_name(result, &name) != cuda_success || name == nullptr) name = "an unknown error";
  throw std::runtime_error(std::string("The CUDA driver failed to ") + action + ": " + name + " (" +
                           std::to_string(result) + ").");
}

CudaCalls::CudaCalls(CudaContext context) {
  const CudaDriver& driver = CudaDriver::get();
  driver.check(driver.context_push(context), "make the device current");
  driver.exchange_capture_mode(&capture_mode_);
}

CudaCalls::~CudaCalls() {
  const CudaDriver& driver = CudaDriver::get();
  driver.exchange_capture_mode(&capture_mode_);
  CudaContext context = nullptr;
  driver.context_pop(&context);
}

}  // namespace et_replay
