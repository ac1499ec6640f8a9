#include "driver/text/rtl_tool.h"

#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "accel/network/unit_kernel.h"
#include "driver/accelerators.h"
#include "driver/devices.h"
#include "driver/engine/loop_kernel.h"

namespace tessera::inline driver {

namespace {

RtlCheck run_beside(RtlSimulator& rtl, const Accelerator& unit, const LoopProgram& program,
                    const InstructionStream& stream) {
  // Outputs begin as anything: what is not written stays.
  LoopProgram all_inputs = program;
  all_inputs.num_outputs = 0;
  std::vector<Tensor> segments = random_loop_inputs(all_inputs, 1);
  std::vector<Tensor*> pointers;
  for (Tensor& segment : segments) pointers.push_back(&segment);
  return {program.name, simulate(unit, stream).cycles, static_cast<int64_t>(stream.instructions.size()),
          differences_of_rtl(rtl, unit, stream, pointers)};
}

}  // namespace

std::string rtl_check_text(const Accelerator& unit, const RtlCheck& check) {
  std::string text = fmt::format("check {}: hardware of {} against its simulators: ", check.kernel, unit.name);
  if (check.differences.empty())
    return text + fmt::format("agrees: {} cycles, {} instructions, all memories\n", check.cycles, check.instructions);
  return text + fmt::format("DIFFERS: {}\n", fmt::join(check.differences, "; "));
}

RtlCheck check_rtl(const Accelerator& unit, const LoopProgram& program, const InstructionStream& stream,
                   const std::string& folder) {
  RtlSimulator rtl(unit, folder);
  return run_beside(rtl, unit, program, stream);
}

std::vector<RtlCheck> check_rtl_of(const Program& program, const std::string& folder) {
  std::map<const Accelerator*, RtlSimulator> simulators;
  std::vector<RtlCheck> checks;
  for (const Kernel& kernel : program.kernels) {
    if (!has_fixed_loops(program, kernel)) continue;
    const Accelerator& unit = accelerator_named(program.devices[static_cast<size_t>(kernel.device) - 1].name);
    const auto it = simulators.try_emplace(&unit, unit, folder + "/" + unit.name).first;
    checks.push_back(run_beside(it->second, unit, kernel.program, stream_of(unit, kernel.program)));
  }
  return checks;
}

}  // namespace tessera::inline driver
