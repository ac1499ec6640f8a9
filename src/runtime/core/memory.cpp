#include "runtime/core/memory.h"

#include <sys/mman.h>

namespace tessera {

namespace {
constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kPage = 4096;  // only for rounding sizes up; the kernel rounds to its own page
}  // namespace

bool MemoryRegion::map(uint64_t bytes) {
  if (bytes > (uint64_t{1} << 62)) return false;
  const bool large = bytes >= 2 * kHugePage;
  uint64_t total = (bytes + kPage - 1) / kPage * kPage;
  if (total == 0) total = kPage;
  if (large) total += kHugePage;  // slack to move the start to a huge page's boundary
  void* mapped = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return false;
  base = mapped;
  base_bytes = total;
  uintptr_t start = reinterpret_cast<uintptr_t>(mapped);
  if (large) {
    start = (start + kHugePage - 1) / kHugePage * kHugePage;
    // Only advice: without transparent huge pages everything works with small ones.
    madvise(reinterpret_cast<void*>(start), bytes, MADV_HUGEPAGE);
  }
  data = reinterpret_cast<uint8_t*>(start);
  return true;
}

void MemoryRegion::unmap() {
  if (base) munmap(base, base_bytes);
  *this = MemoryRegion();
}

}  // namespace tessera
