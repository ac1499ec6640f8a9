// Memory of a session: obtained once from the kernel, so that runs touch no allocator.
#pragma once

#include <stdint.h>

namespace tessera {

// A private zero-filled mapping. `data` is at least 64-byte aligned (in fact page aligned; 2 MiB aligned when large,
// with huge pages asked for). Not a smart pointer: whoever maps it unmaps it.
struct MemoryRegion {
  uint8_t* data = nullptr;
  void* base = nullptr;     // what mmap returned
  uint64_t base_bytes = 0;  // and how much of it

  // False when the kernel refuses or `bytes` overflows; `bytes` 0 is served with one page.
  bool map(uint64_t bytes);
  void unmap();
};

}  // namespace tessera
