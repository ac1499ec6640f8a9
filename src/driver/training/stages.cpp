#include "driver/training/stages.h"

#include <algorithm>

#include <fmt/format.h>

#include "support/refuse.h"

namespace tessera::inline driver {

PipelineShape pipeline_shape(const PipelineSettings& settings) {
  const auto& kinds = pipeline_kind_names();
  if (std::find(kinds.begin(), kinds.end(), settings.kind) == kinds.end())
    refuse("TSR-4080", fmt::format("--pipeline {}", settings.kind), fmt::format("{}", fmt::join(kinds, ", ")));
  PipelineShape shape;
  shape.stages = settings.stages;
  shape.micro_batches = settings.micro_batches;
  shape.kind = pipeline_kind(settings.kind);
  shape.chunks = settings.chunks > 0 ? settings.chunks : shape.kind == PipelineKind::kInterleaved ? 2 : 1;
  check_pipeline(shape);
  return shape;
}

PipelineShape shape_of_process(PipelineShape shape, const ProcessRank& process, int64_t tensor) {
  if (process.ranks % (shape.stages * tensor) != 0) {
    const std::string shared = tensor > 1 ? fmt::format(" of {} that share layers", tensor) : "";
    refuse("TSR-4080",
           fmt::format("{} process{} for {} stage{}{}", process.ranks, process.ranks == 1 ? "" : "es", shape.stages,
                       shape.stages == 1 ? "" : "s", shared),
           fmt::format("a multiple of {}", shape.stages * tensor),
           fmt::format("mpirun -n {} starts them", shape.stages * tensor));
  }
  shape.stage = process.rank / tensor % shape.stages;
  return shape;
}

}  // namespace tessera::inline driver
