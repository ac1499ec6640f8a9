// The stages of a pipeline on the command line.
#pragma once

#include <cstdint>
#include <string>

#include "driver/process_rank.h"
#include "tessera/train.h"
#include "train/pipeline_schedule.h"

namespace CLI {
class App;
}

namespace tessera {

struct PipelineFlags {
  PipelineSettings settings;
  std::string plan;  // a folder that has all of them
};

// --stages, --micro-batches, --chunks, and the schedule under the name `schedule`.
void add_pipeline_flags(CLI::App& app, PipelineFlags& flags, const std::string& schedule);

// Of this process, of so many; those of a folder's plan where there is one. UserError as pipeline_shape() and
// shape_of_process(), TSR-6251 for a plan of something else.
PipelineShape shape_of(const PipelineFlags& flags, const ProcessRank& process);

// "2 stages, 8 micro-batches, 1f1b".
std::string to_text(const PipelineShape& shape);

// plan.json of a folder, and back.
std::string plan_json(const PipelineShape& shape, const std::string& model);
PipelineShape shape_in_plan(const std::string& folder);

}  // namespace tessera
