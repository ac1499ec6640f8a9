// Which rank of a pipeline does what, and when: schedules as data.
//
// A model's nodes are cut into *chunks*, one behind the other; each rank, a *stage*, has one chunk, or several that lie
// `stages` apart. A batch goes through them in micro-batches. Forward of a chunk and micro-batch needs that of the
// chunk before it; backward needs that of the chunk behind it, and its own forward.
//
//   gpipe        all forwards, then all backwards (Huang et al. 2019)
//   1f1b         a backward as soon as there is one, so that a stage keeps what `stages` micro-batches left, not what
//                all did (Narayanan et al. 2019, PipeDream-Flush)
//   interleaved  the same with several chunks a stage, which makes the time shorter in which stages have nothing to do
//                (Narayanan et al. 2021, section 2.2)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::inline train {

enum class PipelineKind : uint8_t { kGPipe, kOneForwardOneBackward, kInterleaved };
// "gpipe", "1f1b", "interleaved".
const std::vector<std::string_view>& pipeline_kind_names();
PipelineKind pipeline_kind(std::string_view name);  // REQUIRES: one of these

struct PipelineShape {
  int64_t stages = 1, stage = 0;  // how many, and which is this rank's
  int64_t micro_batches = 1;
  int64_t chunks = 1;  // of a stage; 1 but where they are interleaved
  PipelineKind kind = PipelineKind::kOneForwardOneBackward;
  // Where chunks begin, but the first: numbers of nodes of the model with its loss (pipeline.h); empty: not chosen yet.
  std::vector<int64_t> cuts = {};

  bool is_used() const { return stages > 1 || micro_batches > 1; }
  int64_t num_chunks() const { return stages * chunks; }
  int64_t stage_of(int64_t chunk) const { return chunk % stages; }
};

// UserError TSR-2086 where the numbers do not fit together: interleaved schedules need micro-batches that are a
// multiple of the stages.
void check_pipeline(const PipelineShape& how);

struct PipelineSlot {
  int64_t chunk = 0, micro_batch = 0;
  bool forward = true;
  bool operator==(const PipelineSlot&) const = default;
};
// What a stage does, in order.
std::vector<PipelineSlot> pipeline_slots(const PipelineShape& how, int64_t stage);

// Seconds that a chunk takes, of one micro-batch.
struct ChunkTime {
  double forward = 0, backward = 0;
};
struct PipelineTime {
  double seconds = 0;               // from the first slot to the end of the last
  std::vector<double> busy;         // of each stage
  std::vector<int64_t> most_alive;  // of each stage: micro-batches of chunks whose backward is still to come, at most
  double bubble() const;            // the share of all stages' time in which they have nothing to do
};
// Each stage does its slots in order, and a slot begins when what it needs has come, which takes `message_seconds` from
// stage to stage. InternalError where stages wait for each other forever.
PipelineTime simulate_pipeline(const PipelineShape& how, const std::vector<ChunkTime>& times,
                               double message_seconds = 0);

// The cheapest way to cut a row of segments into `parts` pieces, none empty, by the largest cost of a piece: where the
// pieces begin, but the first. `cost(begin, end, part)` is that of a piece; infinity: it may not be. Of equal ones,
// the one whose `tie(cut)` have the least sum. Empty where there is none.
std::vector<size_t> best_cuts(size_t segments, size_t parts, const std::vector<std::vector<std::vector<double>>>& cost,
                              const std::vector<double>& tie);

}  // namespace tessera::inline train
