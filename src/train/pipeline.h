// A training step of a batch that goes through the stages of a pipeline, micro-batch by micro-batch.
//
// `forward` is the model with its loss for one micro-batch: its first `num_batched` inputs have samples, the learning
// rate stands behind them, then parameters; results are the loss, a mean, and a count. A cut between two nodes divides
// it into chunks (pipeline_schedule.h). What a later chunk reads of what was computed before a cut goes over it:
// through all chunks in between, each to the next, so that gradients are added in the order of one process. What
// follows from parameters alone belongs to whoever reads it; a parameter belongs to one stage.
//
// The graph of a rank has its slots' nodes in their order, and messages between them (send, receive): passes keep that
// order. A message is received one slot ahead of its use. Gradients of micro-batches are added as a tree whose leaves
// they are, in their order, as leaves are (data_parallel.h): with as many leaves, one process computes the same.
#pragma once

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
  int64_t bytes = 0;            // of these, of one micro-batch
};
// Those at which no parameter is read on both sides, and less goes over than at the places around; at most `most`.
std::vector<CutPlace> cut_places(const Graph& forward, size_t num_batched, size_t most);

// A chunk by itself: what it is given, its parameters, and the gradients of its results are its inputs; its results
// and the gradients of what it was given and of its parameters its outputs.
struct PipelineChunk {
  Graph graph;
  std::vector<ValueId> given, results;  // values of `forward`
  std::vector<ValueId> own;             // inputs of `forward` that it reads
  std::vector<ValueId> wrt;             // of `given`, then of `own`: those whose gradients are outputs
  std::vector<bool> is_forward;         // by node: results need it
};
// The chunk of the nodes begin .. end - 1; the loss and the count are results of the last one.
PipelineChunk pipeline_chunk(const Graph& forward, size_t num_batched, int64_t begin, int64_t end, const OpTable& ops);

// Which stage has each input behind the learning rate; -1: no chunk reads it. UserError TSR-2086 for one that several
// stages read, and for cuts that are none.
std::vector<int64_t> stages_of_parameters(const Graph& forward, size_t num_batched, const PipelineShape& how);

struct PipelineStep {
  // Inputs: as `forward`, of all this rank's samples and its stage's parameters alone. Outputs: the loss and the count
  // of all ranks, the gradients of these parameters, in order, and a value without elements that messages hang on.
  Graph graph;
};
// `wrt`: inputs behind the learning rate.
PipelineStep pipeline_step(const Graph& forward, size_t num_batched, const std::vector<ValueId>& wrt,
                           const DataParallel& how, const OpTable& ops);

}  // namespace tessera::inline train
