// Which of several processes of one run this is.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::inline driver {

struct ProcessRank {
  int64_t rank = 0, ranks = 1;
  std::string communicator = "mpi";  // by which the processes reach each other: the kind of a device
  bool is_first() const { return rank == 0; }
};

}  // namespace tessera::inline driver
