// The stages of a pipeline on the command line.
#pragma once

#include <cstdint>
#include <string>

#include "process_rank.h"
#include "train/pipeline_schedule.h"

namespace CLI {
class App;
}

namespace tessera {

struct PipelineFlags {
  int64_t stages = 1, micro_batches = 1, chunks = 0;  // chunks 0: 2 where they are interleaved, else 1
  std::string kind = "1f1b", plan;                    // `plan`: a folder that has all of this
};

// --stages, --micro-batches, --chunks, and the schedule under the name `schedule`.
void add_pipeline_flags(CLI::App& app, PipelineFlags& flags, const std::string& schedule);

// UserError TSR-2086 for numbers that do not fit together.
PipelineShape shape_of(const PipelineFlags& flags);
// Of this process, of so many; those of a folder's plan where there is one. UserError TSR-4080 where the processes are
// no multiple of the stages, TSR-6251 for a plan of something else.
PipelineShape shape_of(const PipelineFlags& flags, const ProcessRank& process);

// "2 stages, 8 micro-batches, 1f1b".
std::string to_text(const PipelineShape& shape);

// plan.json of a folder, and back.
std::string plan_json(const PipelineShape& shape, const std::string& model);
PipelineShape shape_in_plan(const std::string& folder);

}  // namespace tessera
