// The functions of the CUDA driver that are needed here, found at run time: no CUDA toolkit is
// needed to build, and no GPU to run what does not ask for one.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

struct CUstream_st;  // as CUDA's headers call it

namespace et_replay {

using CudaStream = CUstream_st*;
using CudaContext = void*;
using CudaEvent = void*;
using CudaAddress = unsigned long long;
using CudaHandle = unsigned long long;

enum CudaResult : int {
  cuda_success = 0,
  cuda_out_of_memory = 2,
  cuda_not_ready = 600,
};

// CUmemLocation, CUmemAllocationProp and CUmemAccessDesc of cuda.h.
struct CudaLocation {
  int type = 1;  // a device
  int id = 0;
};

struct CudaMemoryKind {
  int type = 1;  // pinned
  int handle_types = 0;
  CudaLocation location;
  void* win32_handle = nullptr;
  unsigned char flags[8] = {};
};

struct CudaAccess {
  CudaLocation location;
  int flags = 3;  // read and write
};

class CudaDriver {
 public:
  // Throws std::runtime_error with a sentence about a driver that is not there or too old.
  static const CudaDriver& get();

  int (*init)(unsigned flags);
  int (*device_get)(int* device, int ordinal);
  int (*primary_context_retain)(CudaContext* context, int device);
  int (*context_push)(CudaContext context);
  int (*context_pop)(CudaContext* context);
  int (*context_synchronize)();
  int (*memory_alloc)(CudaAddress* address, std::size_t size);
  int (*memory_free)(CudaAddress address);
  int (*memory_info)(std::size_t* free, std::size_t* total);
  int (*address_reserve)(CudaAddress* address, std::size_t size, std::size_t alignment,
                         CudaAddress wanted, unsigned long long flags);
  int (*address_free)(CudaAddress address, std::size_t size);
  int (*memory_create)(CudaHandle* handle, std::size_t size, const CudaMemoryKind* kind,
                       unsigned long long flags);
  int (*memory_release)(CudaHandle handle);
  int (*memory_map)(CudaAddress address, std::size_t size, std::size_t offset, CudaHandle handle,
                    unsigned long long flags);
  int (*memory_unmap)(CudaAddress address, std::size_t size);
  int (*memory_set_access)(CudaAddress address, std::size_t size, const CudaAccess* access,
                           std::size_t count);
  int (*allocation_granularity)(std::size_t* granularity, const CudaMemoryKind* kind, int option);
  int (*event_create)(CudaEvent* event, unsigned flags);
  int (*event_record)(CudaEvent event, CudaStream stream);
  int (*event_query)(CudaEvent event);
  int (*stream_wait_event)(CudaStream stream, CudaEvent event, unsigned flags);
  int (*event_destroy)(CudaEvent event);
  int (*exchange_capture_mode)(int* mode);
  int (*error_name)(int result, const char** name);

  // Throws std::runtime_error, "The CUDA driver failed to ACTION: CUDA_ERROR_...", if it did.
  void check(int result, const char* action) const;

 private:
  CudaDriver();
};

// While it lives, the calls of this thread go to a device's context, whatever was current before,
// and do not disturb a stream that is being captured into a graph.
class CudaCalls {
 public:
  explicit CudaCalls(CudaContext context);
  CudaCalls(const CudaCalls&) = delete;
  CudaCalls& operator=(const CudaCalls&) = delete;
  ~CudaCalls();

 private:
  int capture_mode_ = 2;  // relaxed; then what it was before
};

}  // namespace et_replay
