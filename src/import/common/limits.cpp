#include "import/common/limits.h"

namespace tessera::inline import_common {

std::optional<int64_t> checked_num_elements(const std::vector<int64_t>& dims) {
  int64_t count = 1;
  bool empty = false;
  for (const int64_t dim : dims) {
    if (dim < 0 || dim > kMaxTensorElements) return std::nullopt;
    if (dim == 0) empty = true;
    else if (__builtin_mul_overflow(count, dim, &count) || count > kMaxTensorElements) return std::nullopt;
  }
  return empty ? 0 : count;
}

}  // namespace tessera::inline import_common
