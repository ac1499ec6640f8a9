// Tensors that ranks have equal parts of: as a row of numbers, with zeros behind it so that the ranks divide it evenly
// (ZeRO: Rajbhandari, Rasley, Ruwase, He, "Memory Optimizations Toward Training Trillion Parameter Models", SC 2020,
// section 5). Part r is rank r's.
#pragma once

#include "train/data_parallel.h"
#include "train/graph_ops.h"
#include "types/tensor.h"

namespace tessera::inline train {

// Elements of a rank's part of so many.
int64_t shard_size(int64_t elements, int64_t ranks);

// This rank's part of a tensor.
Tensor own_shard(const Tensor& whole, const DataParallel& how);

class Shards {
 public:
  Shards(const GraphOps& o, const DataParallel& how) : o_(o), how_(how) {}

  // All of v as a row.
  ValueId row(ValueId v) const;
  // This rank's part of a row that all ranks have.
  ValueId own(ValueId row) const;
  // This rank's part of the sum of all ranks' v.
  ValueId sum(ValueId v) const;
  // What all ranks' parts are together, in this shape; `turn`: of the collective.
  ValueId whole(ValueId own, const Shape& shape, int64_t turn = 0) const;
  // Of rows of all ranks, [ranks, size]: this rank's part of each.
  ValueId exchanged(ValueId v) const;

 private:
  ValueId flat(ValueId v) const;

  const GraphOps& o_;
  const DataParallel& how_;
};

// @gather(part: u8[bytes]) -> (all: u8[ranks * bytes]): what is written of parts; of a pipeline, of all stages, those
// of a row side by side; where layers are shared, of all ranks.
Graph gathering(int64_t bytes, const DataParallel& how, const OpTable& ops);

}  // namespace tessera::inline train
