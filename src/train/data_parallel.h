// A training step of a batch that several ranks share, or that is summed up in parts of a fixed number.
//
// `step` computes means over the samples of a part: result 0, the loss, and the last ones, gradients, are means, result
// 1 is a count. Its first `num_batched` inputs have the samples along dimension 0; all others are alike for every part.
// The graph that is answered has the same inputs and results, of the whole batch: its batched inputs have
// as many parts, one behind the other, as this rank has, and all ranks get the same results.
//
// Without leaves, each rank has one part, and the ranks' results are added by all_reduce, each as soon as it is there.
// With `leaves`, the batch has so many parts, however many ranks there are; part p is computed by rank p modulo
// `ranks`, in a loop, and parts are gathered (all_gather), not added, by the ranks. Their sum is then a tree of
// additions over all leaves, in their order: neighbours first. So every number of ranks that divides the leaves gives
// the same bits, one rank included.
//
// With `zero`, a rank gets its part of each gradient only (shards.h), and sends less for it: parts of sums instead of
// sums, and, of leaves, the parts of each leaf's gradients that are another rank's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "graph/op_def.h"
#include "train/graph_ops.h"
#include "train/pipeline_schedule.h"
#include "types/mesh.h"

namespace tessera::inline train {

struct DataParallel {
  int64_t ranks = 1;   // that share the batch; of a pipeline, each of these is a row of stages
  int64_t leaves = 0;  // a multiple of `ranks`; 0: as many as ranks, and the order of sums is the communicator's
  // What each rank keeps a part of only, as the stages of ZeRO number it: 1 the optimizer's moments, 2 gradients, too,
  // 3 parameters, too.
  int64_t zero = 0;
  int64_t rank = 0;  // whose step it is, where parts differ
  PipelineShape pipeline = {};
  // Ranks that share each layer, and which of them this is: one behind the other, along the mesh axis "model".
  int64_t tensor = 1, tensor_rank = 0;

  bool is_cut() const { return zero > 0 && ranks > 1; }
  bool is_used() const { return ranks > 1 || leaves > 0 || pipeline.is_used(); }
  int64_t parts() const { return leaves > 0 ? leaves : ranks * pipeline.micro_batches; }  // of the whole batch
  int64_t parts_of_rank() const { return leaves > 0 ? leaves / ranks : pipeline.micro_batches; }
  // Which part of the whole batch is this rank's i-th. Those of a pipeline are neighbours, whose sums are then parts of
  // the tree.
  int64_t part(int64_t i) const { return pipeline.is_used() ? rank * parts_of_rank() + i : i * ranks + rank; }
};

// UserError TSR-2085 where `leaves` is no multiple of `ranks`, or not as many as a pipeline's micro-batches, `zero` no
// stage, or a batched input has no samples along dimension 0; TSR-2086 of a pipeline.
void check_data_parallel(const DataParallel& how);
// `num_statistics`: so many results behind the first two follow what a part sees (batch normalisations). Without leaves
// they are the same on all ranks already; those of leaves are averaged, as gradients are.
// `part`: the place of an input that is the number of a part, i64[], which the answer does not have; -1: none.
Graph share_batch(const Graph& step, size_t num_batched, size_t num_statistics, const DataParallel& how,
                  const OpTable& ops, std::ptrdiff_t part = -1);

// The collective `op` ("all_reduce", "all_gather", ...) of all ranks; of those that combine, `kind` says how ("sum").
// `along`: of the mesh "data=2,stage=2,model=2", whose last two axes are there where they are used.
ValueId collective(const GraphOps& o, const char* op, ValueId v, const DataParallel& how, const char* kind = nullptr,
                   const std::string& name = "", const std::string& along = "data", int64_t turn = 0);
Mesh mesh_of(const DataParallel& how);
// The sum of the rows, the parts of a batch: neighbours first, then neighbouring sums.
class PartTree {
 public:
  explicit PartTree(const GraphOps& o) : o_(o) {}
  void add(ValueId part);
  ValueId sum() const;  // REQUIRES: there was a part

 private:
  const GraphOps& o_;
  std::vector<std::pair<int64_t, ValueId>> sums_;  // of so many parts, ever fewer
};

}  // namespace tessera::inline train
