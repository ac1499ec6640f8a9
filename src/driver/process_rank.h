// Which of several processes of one run this is, as whoever started them says in the environment.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::inline driver {

struct ProcessRank {
  int64_t rank = 0, ranks = 1;
  std::string communicator = "mpi";  // by which the processes reach each other: the kind of a device
  bool is_first() const { return rank == 0; }
};

// Of Open MPI's mpirun (OMPI_COMM_WORLD_RANK and _SIZE) or MPICH's (PMI_RANK and PMI_SIZE); of torchrun (RANK and
// WORLD_SIZE), whose processes have no MPI between them and use gloo; one process alone without.
// UserError TSR-6250 where they are no such numbers.
ProcessRank process_rank();

// UserError TSR-6251 where what `what` names ("'plan' is a plan") is for another number of processes.
void require_processes(const ProcessRank& process, int64_t wanted, const std::string& what, const std::string& hint);

}  // namespace tessera::inline driver
