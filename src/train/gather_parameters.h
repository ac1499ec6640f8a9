// Parameters of which each rank keeps a part (ZeRO 3), put together where they are read, and no longer than that.
//
// Of a step that has computed loss and gradients: each parameter is gathered ahead of its first reader forwards, and
// again ahead of its first reader backwards, while what was read before is still at work; in between it is nowhere.
// What ranks share stands directly behind what it is made of, so that gradients as a whole live as shortly. The
// collectives have turns (ops/collectives.cpp): passes leave them in their places.
#pragma once

#include <cstddef>

#include "graph/graph.h"
#include "graph/op_def.h"
#include "train/data_parallel.h"

namespace tessera::inline train {

// `graph` has whole parameters, `num_parameters` inputs from `first` on, and the loss, the count and `num_alike` more
// results of the forward pass before all others. Those inputs become this rank's parts.
Graph gather_parameters(const Graph& graph, size_t first, size_t num_parameters, size_t num_alike,
                        const DataParallel& how, const OpTable& ops);

}  // namespace tessera::inline train
