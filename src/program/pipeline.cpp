#include <algorithm>
#include <array>

#include "program/carry_in_place.h"
#include "program/merge_kernels.h"
#include "program/order_calls.h"
#include "program/pass.h"
#include "program/rematerialize.h"
#include "program/reuse_buffers.h"
#include "program/serpentine_order.h"

namespace tessera::inline program {
namespace {

// For the machine's own affairs a pass is asked with a target; most have none.
template <void (*run)(Program&)>
void on_any_target(Program& program, const ProgramPassContext&) {
  run(program);
}

void within_memory(Program& program, const ProgramPassContext& context) {
  if (context.max_memory > 0) rematerialize(program, context.max_memory);
}

void serpentine(Program& program, const ProgramPassContext& context) { serpentine_order(program, context.target); }

constexpr std::array kPipeline = {
    ProgramPass{"merge_kernels", "Keeps one of each set of equal kernels", 1, ProgramPhase::kLowered,
                on_any_target<merge_kernels>},
    ProgramPass{"carry_in_place", "Lets loops write what they carry over what it was, or change places with it", 1,
                ProgramPhase::kScheduled, on_any_target<carry_in_place>},
    ProgramPass{"order_calls", "Reorders calls where that needs less memory at once", 1, ProgramPhase::kScheduled,
                on_any_target<order_calls>},
    ProgramPass{"rematerialize", "Computes values again where less memory is allowed than is needed to keep them", 0,
                ProgramPhase::kScheduled, within_memory},
    ProgramPass{"reuse_buffers", "Lets kernels write over inputs that die there", 1, ProgramPhase::kScheduled,
                on_any_target<reuse_buffers>},
    ProgramPass{"serpentine_order", "Reads weights that several calls share in turns forwards and backwards", 2,
                ProgramPhase::kScheduled, serpentine},
};

}  // namespace

std::span<const ProgramPass> program_pipeline() { return kPipeline; }

const ProgramPass* find_program_pass(std::string_view name) {
  const auto it =
      std::find_if(kPipeline.begin(), kPipeline.end(), [&](const ProgramPass& p) { return p.name == name; });
  return it == kPipeline.end() ? nullptr : &*it;
}

}  // namespace tessera::inline program
