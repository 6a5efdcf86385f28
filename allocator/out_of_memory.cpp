// What torch says when it is out of memory.
#include <cstdio>

#include "allocator.hpp"

namespace et_replay {

namespace {

std::string text_of(Bytes size) {
  if (size <= 1024) return std::to_string(size) + " bytes";
  const char* const units[] = {"KiB", "MiB", "GiB"};
  double value = static_cast<double>(size) / 1024;
  int unit = 0;
  for (Bytes limit = mebibyte; unit < 2 && size > limit; limit *= 1024, ++unit) value /= 1024;
  char text[40];
  std::snprintf(text, sizeof text, "%.2f %s", value, units[unit]);
  return text;
}

std::string advice(Version version) {
  return std::string(" If reserved but unallocated memory is large try setting ") +
         (version.minor == 10 ? "PYTORCH_ALLOC_CONF" : "PYTORCH_CUDA_ALLOC_CONF") +
         "=expandable_segments:True to avoid fragmentation.  See documentation for Memory"
         " Management  (" +
         (version.minor < 11
              ? "https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
              : "https://docs.pytorch.org/docs/stable/notes/cuda.html"
                "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)");
}

}  // namespace

std::string OutOfMemory::torch_sentence(Version version) const {
  if (requested >= absurd_request) {
    return "CUDA out of memory. Tried to allocate more than 1EB memory.";
  }
  if (rejected) {
    return "CUDA out of memory. Allocation was preemptively rejected because it would exceed"
           " per_process_memory_fraction limit. Requested size: " +
           text_of(requested);
  }
  const Bytes cached = cached_in_private_pools;
  std::string text = "CUDA out of memory. Tried to allocate " + text_of(segment) +
                     ". GPU 0 has a total capacity of " + text_of(capacity) + " of which " +
                     text_of(available) + " is free. ";
  if (limited) text += text_of(limit) + " allowed; ";
  text += "Of the allocated memory " + text_of(allocated + cached) + " is allocated by PyTorch, ";
  if (cached > 0) {
    text += "with " + text_of(cached) + " allocated in private pools (e.g., CUDA Graphs), ";
  }
  text += "and " + text_of(reserved - allocated - cached) +
          " is reserved by PyTorch but unallocated.";
  return expandable && version.minor >= 14 ? text : text + advice(version);
}

}  // namespace et_replay
