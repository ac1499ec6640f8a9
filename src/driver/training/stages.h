// The stages that processes are, as they are asked for in words and numbers.
#pragma once

#include <string>

#include "driver/process_rank.h"
#include "tessera/train.h"
#include "train/pipeline_schedule.h"

namespace tessera::inline driver {

// UserError TSR-2086 for numbers that do not fit together, TSR-4080 for a schedule that is none.
PipelineShape pipeline_shape(const PipelineSettings& settings);
// Of this process, whose place among the stages that sets; `tensor` neighbours are of one stage. UserError TSR-4080
// where the processes are no multiple of the stages, times `tensor`.
PipelineShape shape_of_process(PipelineShape shape, const ProcessRank& process, int64_t tensor);

}  // namespace tessera::inline driver
