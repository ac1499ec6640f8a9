// A training step of a batch that goes through the stages of a pipeline, micro-batch by micro-batch.
//
// `forward` is the model with its loss for one micro-batch: its first `num_batched` inputs have samples, the learning
// rate stands behind them, then parameters, statistics, and the numbers of the step and of the part where something is
// dropped; results are the loss, a mean, a count, and what statistics are next. A cut between two nodes divides
// it into chunks (pipeline_schedule.h). What a later chunk reads of what was computed before a cut goes over it:
// through all chunks in between, each to the next, so that gradients are added in the order of one process. What
// follows from parameters alone belongs to whoever reads it. A parameter that several stages read is a state of each:
// they give each other their parts of its gradient behind all micro-batches, and do the same update.
//
// The graph of a rank has its slots' nodes in their order, and messages between them (send, receive): passes keep that
// order. A message is received one slot ahead of its use. Gradients of micro-batches are added as a tree whose leaves
// they are, in their order, as leaves are (data_parallel.h): with as many leaves, one process computes the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"
#include "train/data_parallel.h"

namespace tessera::inline train {

// A place between two nodes at which a model may be cut.
struct CutPlace {
  int64_t node = 0;             // the first one behind it
  std::vector<ValueId> values;  // that go over it
  int64_t bytes = 0;            // of these, of one micro-batch, and of parameters that are read on both sides
};
// Those at which less goes over than at the places around; at most `most`.
std::vector<CutPlace> cut_places(const Graph& forward, size_t num_batched, size_t most);

// A chunk by itself: what it is given, its parameters, and the gradients of its results are its inputs; its results,
// what its statistics are next, and the gradients of what it was given and of its parameters its outputs.
struct PipelineChunk {
  Graph graph;
  std::vector<ValueId> given, results;  // values of `forward`
  std::vector<ValueId> statistics;      // outputs of `forward`
  std::vector<ValueId> own;             // inputs of `forward` that it reads
  std::vector<ValueId> wrt;             // of `given`, then of `own`: those whose gradients are outputs
  std::vector<bool> is_forward;         // by node: results or statistics need it
};
// The chunk of the nodes begin .. end - 1; the loss and the count are results of the last one.
PipelineChunk pipeline_chunk(const Graph& forward, size_t num_batched, int64_t begin, int64_t end, const OpTable& ops);

// Which stages read each input behind the learning rate, in the order of their chunks; none: no chunk does. UserError
// TSR-2086 for cuts that are none.
std::vector<std::vector<int64_t>> stages_of_parameters(const Graph& forward, size_t num_batched,
                                                       const PipelineShape& how);

struct PipelineStep {
  // Inputs: as `forward`, of all this rank's samples and its stage's parameters and statistics alone, without the
  // number of the part. Outputs: the loss and the count of all ranks, its statistics, the gradients of these
  // parameters, in order, and a value without elements that messages hang on.
  Graph graph;
};
// `wrt`: inputs behind the learning rate; `part`: the place of the input that is the number of a part; -1: none. With
// how.zero > 1, gradients are this rank's parts (shards.h). Gradients of what several stages read have the bits of one
// process where there are leaves; without, each stage sends a sum.
PipelineStep pipeline_step(const Graph& forward, size_t num_batched, const std::vector<ValueId>& wrt,
                           const DataParallel& how, const OpTable& ops, std::ptrdiff_t part = -1);

}  // namespace tessera::inline train
