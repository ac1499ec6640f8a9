// Which of several processes of one run this is.
#pragma once

#include <cstdint>

namespace tessera::inline driver {

struct ProcessRank {
  int64_t rank = 0, ranks = 1;
  bool is_first() const { return rank == 0; }
};

}  // namespace tessera::inline driver
