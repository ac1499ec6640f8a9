#include "driver/text/accelerator_tool.h"

#include <algorithm>
#include <iterator>

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

std::string timeline_picture(const Accelerator& unit, const InstructionStream& stream, const SimulatedRun& run,
                             int64_t begin, int64_t end) {
  static constexpr const char* kColours[] = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759",
                                             "#76b7b2", "#edc948", "#b07aa1", "#9c755f"};
  constexpr int kWidth = 1400, kLeft = 90, kLane = 34, kTop = 44;
  if (end <= begin) end = std::max<int64_t>(run.cycles, 1), begin = 0;
  const double scale = static_cast<double>(kWidth - kLeft - 20) / static_cast<double>(end - begin);
  const auto x = [&](int64_t cycle) { return kLeft + static_cast<double>(cycle - begin) * scale; };
  const size_t lanes = unit.queues.size();
  const int height = kTop + static_cast<int>(lanes) * kLane + 60;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kWidth, height);
  text += fmt::format(
      "<text x=\"{}\" y=\"20\" font-size=\"14\">{}: {} cycles, {:.1f} % of the multiply-adds that could be</text>\n",
      kLeft, unit.name, run.cycles, 100 * run.utilisation());
  for (size_t q = 0; q < lanes; ++q) {
    const int y = kTop + static_cast<int>(q) * kLane;
    text += fmt::format(
        "<text x=\"8\" y=\"{}\">{}</text>\n<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#f2f2f2\"/>\n",
        y + kLane / 2, unit.queues[q], kLeft, y, kWidth - kLeft - 20, kLane - 8);
  }
  for (size_t i = 0; i < stream.instructions.size(); ++i) {
    const SimulatedStep& step = run.steps[i];
    if (step.end <= begin || step.begin >= end) continue;
    const auto number = static_cast<size_t>(stream.instructions[i].kind);
    const UnitInstruction& kind = unit.instructions[number];
    const double left = x(std::max(step.begin, begin)), right = x(std::min(step.end, end));
    text += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>{} {}: cycles {} to "
        "{}</title></rect>\n",
        left, kTop + kind.queue * kLane, std::max(right - left, 0.2), kLane - 8, kColours[number % std::size(kColours)],
        i, kind.name, step.begin, step.end);
  }
  const int axis = kTop + static_cast<int>(lanes) * kLane + 12;
  for (int tick = 0; tick <= 8; ++tick) {
    const int64_t cycle = begin + (end - begin) * tick / 8;
    text += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{}</text>\n", x(cycle), axis,
                        cycle);
  }
  for (size_t k = 0; k < unit.instructions.size(); ++k) {
    const size_t at = kLeft + k * 110;
    text += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>\n", at,
        axis + 14, kColours[k % std::size(kColours)], at + 16, axis + 24, unit.instructions[k].name);
  }
  return text + "</svg>\n";
}

}  // namespace tessera::inline driver
