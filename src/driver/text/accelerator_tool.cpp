#include "driver/text/accelerator_tool.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "accel/expand.h"
#include "accel/tokens.h"
#include "driver/engine/loop_kernel.h"
#include "support/error.h"

namespace tessera::inline driver {

InstructionStream make_stream(const ScheduledLoops& loops, const Accelerator& unit) {
  InstructionStream stream = expand(unit, loops.scheduled);
  order_by_need(unit, stream);
  place_tokens(unit, stream);
  encode(unit, stream);  // every number fits its field
  const std::vector<std::string> problems = check_stream(unit, stream);
  check(problems.empty(), fmt::format("a stream that is not proven: {}", fmt::join(problems, "; ")));
  return stream;
}

std::vector<ScheduleCheck> check_stream_of(const ScheduledLoops& loops, const Accelerator& unit,
                                           const InstructionStream& stream) {
  const std::vector<Tensor> inputs = random_loop_inputs(loops.original, 1);
  const std::vector<Tensor> want = outputs_of_original(loops, inputs);
  std::vector<Tensor> segments = inputs;
  const size_t first = loops.original.params.size() - want.size();
  check(inputs.size() == first, "inputs, then outputs");
  for (const Tensor& output : want) segments.emplace_back(output.dtype(), output.dims());
  std::vector<Tensor*> pointers;
  for (Tensor& segment : segments) pointers.push_back(&segment);
  run_stream(unit, decode(unit, encode(unit, stream)), pointers);
  std::vector<ScheduleCheck> checks;
  for (size_t i = 0; i < want.size(); ++i)
    checks.push_back({fmt::format("stream of {}, simulated, against the original", unit.name),
                      loops.original.params[first + i]->name,
                      compare(segments[first + i], want[i], {.rtol = 0, .atol = 0, .mtol = 1e-4})});
  return checks;
}

std::string simulation_text(const Accelerator& unit, const InstructionStream& stream, const SimulatedRun& run) {
  const auto share = [&](int64_t cycles) {
    return run.cycles ? 100 * static_cast<double>(cycles) / static_cast<double>(run.cycles) : 0.0;
  };
  std::string text =
      fmt::format("{} at {} MHz: {} cycles, {:.3f} ms, {} instructions\n", unit.name, unit.clock_mhz, run.cycles,
                  static_cast<double>(run.cycles) / unit.clock_mhz / 1e3, stream.instructions.size());
  if (run.multiply_adds)
    text += fmt::format("multiply-adds {}, {:.1f} % of the {} a cycle that could be\n", run.multiply_adds,
                        100 * run.utilisation(), run.peak_per_cycle);
  text += fmt::format("DRAM {} bytes, busy {:.1f} % of the time\n", run.dram_bytes, share(run.dram_busy));
  text += fmt::format("{:<10} {:>7}  {}\n", "queue", "busy", "waits for");
  for (size_t q = 0; q < unit.queues.size(); ++q) {
    std::vector<std::string> waits;
    for (size_t other = 0; other < unit.queues.size(); ++other)
      if (run.queues[q].waits_for[other])
        waits.push_back(fmt::format("{} {:.1f} %", unit.queues[other], share(run.queues[q].waits_for[other])));
    if (run.queues[q].waits_for_instructions)
      waits.push_back(fmt::format("instructions {:.1f} %", share(run.queues[q].waits_for_instructions)));
    text += fmt::format("{:<10} {:>5.1f} %  {}\n", unit.queues[q], share(run.queues[q].busy), fmt::join(waits, ", "));
  }
  return text;
}

}  // namespace tessera::inline driver
