// Which of several processes of one run this is, as whoever started them says in the environment.
#pragma once

#include <string>

#include "driver/process_rank.h"

namespace tessera {

// Of Open MPI's mpirun (OMPI_COMM_WORLD_RANK and _SIZE) or MPICH's (PMI_RANK and PMI_SIZE); of torchrun (RANK and
// WORLD_SIZE), whose processes have no MPI between them and use gloo; one process alone without.
// UserError TSR-6250 where they are no such numbers.
ProcessRank process_rank();

// The file of this process's graph, where `path` is a folder that `tessera parallelize` wrote; else `path`. UserError
// TSR-6251 for a plan for another number of processes.
std::string model_of_rank(const std::string& path);

}  // namespace tessera
