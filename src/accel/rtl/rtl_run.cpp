#include "accel/rtl/rtl_run.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "accel/rtl/shell.h"
#include "accel/rtl/unit_rtl.h"
#include "support/error.h"

namespace tessera::inline rtl {

namespace {

constexpr int64_t kDramBytes = int64_t{1} << 24;       // of the bench
constexpr size_t kMostInstructions = size_t{1} << 16;  // of the bench

UserError failed(const std::string& message, const std::string& text) {
  return UserError({.id = "TSR-3511",
                    .message = fmt::format("{}:\n{}", message, text),
                    .node = {},
                    .legal = "Verilator 5 in PATH",
                    .hint = "scripts/setup.sh --rtl installs it"});
}

// Lines of hex digits, a word each, the way $writememh writes them: the highest digit first.
std::vector<std::byte> read_memory(const std::string& path, int64_t bytes_of_word) {
  std::ifstream file(path);
  std::vector<std::byte> result;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '@' || line[0] == '/') continue;
    const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; };
    check(static_cast<int64_t>(line.size()) == 2 * bytes_of_word, "a line of a memory is one of its places");
    for (size_t at = line.size(); at >= 2; at -= 2)
      result.push_back(static_cast<std::byte>(digit(line[at - 2]) * 16 + digit(line[at - 1])));
  }
  return result;
}

// Where each segment begins in the bench's DRAM: at whole lines of 4 KiB.
std::vector<int64_t> segment_places(const InstructionStream& stream) {
  std::vector<int64_t> places;
  int64_t next = 0;
  for (const DramSegment& segment : stream.segments) {
    places.push_back(next);
    next += (segment.bytes + 4095) / 4096 * 4096;
  }
  places.push_back(next);
  return places;
}

}  // namespace

bool has_verilator() { return run_command("verilator --version").status == 0; }

void write_rtl(const RtlFiles& files, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (const auto* list : {&files.design, &files.headers, &files.bench})
    for (const auto& [name, text] : *list) write_text(folder + "/" + name, text);
}

RtlSimulator::RtlSimulator(const Accelerator& unit, const RtlFiles& files, std::string folder)
    : unit_(unit), folder_(std::move(folder)) {
  if (!has_verilator()) throw failed("there is no Verilator on this machine", "verilator --version failed");
  write_rtl(files, folder_);
  std::string sources;
  for (const auto* list : {&files.design, &files.bench})
    for (const auto& [name, text] : *list)
      if (name.ends_with(".sv")) sources += " " + name;
  // Loops of kernels are unrolled, so that parts of wide words lie at places that are known. Verilator's own files are
  // the same each time.
  const CommandResult built = run_command(fmt::format(
      "command -v ccache > /dev/null && export OBJCACHE=ccache; cd {} && verilator --cc --exe --build -O3 --x-assign "
      "fast --x-initial fast --noassert --unroll-count 1024 "
      "--unroll-stmts 1000000 -Wno-fatal -Wno-lint -Wno-style -CFLAGS -O1 --top-module bench -Mdir build -o bench "
      "bench_main.cpp{}",
      shell_word(folder_), sources));
  if (built.status != 0) throw failed("Verilator could not build the hardware of " + unit.name, built.text);
}

RtlRun RtlSimulator::run(const InstructionStream& stream, std::span<Tensor* const> segments, int64_t limit) {
  const std::vector<int64_t> places = segment_places(stream);
  check(segments.size() == stream.segments.size(), "a tensor for each segment");
  if (places.back() > kDramBytes || stream.instructions.size() > kMostInstructions)
    throw failed("the bench is too small", fmt::format("{} bytes of DRAM of {}, {} instructions of {}", places.back(),
                                                       kDramBytes, stream.instructions.size(), kMostInstructions));
  std::string text;
  const std::vector<uint64_t> words = encode(unit_, stream);
  const auto each = static_cast<size_t>(instruction_bits(unit_) / 64);
  for (size_t i = 0; i < words.size(); i += each) {
    for (size_t w = each; w-- > 0;) text += fmt::format("{:016x}", words[i + w]);
    text += '\n';
  }
  write_text(folder_ + "/stream.hex", text);
  text.clear();
  for (size_t s = 0; s < segments.size(); ++s) {
    text += fmt::format("@{:x}\n", places[s]);
    const std::byte* data = segments[s]->bytes();
    for (int64_t i = 0; i < stream.segments[s].bytes; ++i) text += fmt::format("{:02x}\n", static_cast<int>(data[i]));
  }
  write_text(folder_ + "/dram.hex", text);
  text.clear();
  for (size_t s = 0; s < segments.size(); ++s) text += fmt::format("{:08x}\n", places[s]);
  write_text(folder_ + "/segments.hex", text);

  const CommandResult ran =
      run_command(fmt::format("cd {} && build/bench +folder=. +instructions={} +dram={} +limit={}", shell_word(folder_),
                              stream.instructions.size(), std::max<int64_t>(places.back(), 1), limit));
  RtlRun run;
  const size_t at = ran.text.find("cycles ");
  if (ran.status != 0 || at == std::string::npos ||
      sscanf(ran.text.c_str() + at, "cycles %ld dram_bytes %ld dram_busy %ld", &run.cycles, &run.dram_bytes,
             &run.dram_busy) != 3) {
    if (ran.text.find("no end within") == std::string::npos) throw failed("the hardware's run failed", ran.text);
    run.problem = fmt::format("the hardware does not end within {} cycles", limit);
  }
  const std::vector<std::byte> dram = read_memory(folder_ + "/dram.out", 1);
  for (size_t s = 0; s < segments.size(); ++s) {
    const auto begin = dram.begin() + places[s];
    run.segments.emplace_back(begin, begin + stream.segments[s].bytes);
  }
  for (const UnitMemory& memory : unit_.memories)
    run.memories.push_back(read_memory(fmt::format("{}/{}.out", folder_, memory.name), memory.element));

  // The n-th instruction of a queue that begins is the n-th of the stream in it.
  std::vector<std::vector<size_t>> of_queue(unit_.queues.size());
  for (size_t i = 0; i < stream.instructions.size(); ++i)
    of_queue[static_cast<size_t>(unit_.instructions[static_cast<size_t>(stream.instructions[i].kind)].queue)].push_back(
        i);
  run.steps.resize(stream.instructions.size(), {-1, -1});
  std::vector<size_t> begun(unit_.queues.size(), 0), ended(unit_.queues.size(), 0);
  std::ifstream steps(folder_ + "/steps.out");
  char what = 0;
  size_t queue = 0;
  int64_t cycle = 0;
  while (steps >> what >> queue >> cycle) {
    size_t& next = what == 'b' ? begun[queue] : ended[queue];
    if (next >= of_queue[queue].size()) continue;
    SimulatedStep& step = run.steps[of_queue[queue][next++]];
    (what == 'b' ? step.begin : step.end) = cycle;
  }
  return run;
}

std::vector<std::string> differences_of_rtl(RtlSimulator& rtl, const Accelerator& unit, const InstructionStream& stream,
                                            std::span<Tensor* const> segments) {
  constexpr size_t kMostDifferences = 10;
  std::vector<std::string> differences;
  const auto differs = [&](std::string text) {
    if (differences.size() < kMostDifferences) differences.push_back(std::move(text));
  };
  const SimulatedRun simulated = simulate(unit, stream);
  check(simulated.problem.empty(), simulated.problem);
  const RtlRun run = rtl.run(stream, segments, 2 * simulated.cycles + 1000);
  if (!run.problem.empty()) differs(run.problem);
  if (run.cycles != simulated.cycles) differs(fmt::format("{} cycles, and {} simulated", run.cycles, simulated.cycles));
  if (run.dram_bytes != simulated.dram_bytes)
    differs(fmt::format("{} bytes of DRAM, and {} simulated", run.dram_bytes, simulated.dram_bytes));
  for (size_t i = 0; i < run.steps.size(); ++i)
    if (run.steps[i].begin != simulated.steps[i].begin || run.steps[i].end != simulated.steps[i].end)
      differs(fmt::format("instruction {} ({}) ran from cycle {} to {}, and simulated from {} to {}", i,
                          unit.instructions[static_cast<size_t>(stream.instructions[i].kind)].name, run.steps[i].begin,
                          run.steps[i].end, simulated.steps[i].begin, simulated.steps[i].end));
  std::vector<Tensor> wanted;
  std::vector<Tensor*> pointers;
  for (const Tensor* segment : segments) wanted.push_back(*segment);
  for (Tensor& segment : wanted) pointers.push_back(&segment);
  const std::vector<std::vector<std::byte>> memories = run_stream(unit, decode(unit, encode(unit, stream)), pointers);
  const auto compare = [&](const std::string& name, const std::byte* want, const std::vector<std::byte>& got,
                           int64_t bytes) {
    for (int64_t i = 0; i < bytes; ++i) {
      if (static_cast<size_t>(i) < got.size() && got[static_cast<size_t>(i)] == want[i]) continue;
      return differs(
          fmt::format("byte {} of '{}' is {}, and {} simulated", i, name,
                      static_cast<size_t>(i) < got.size() ? static_cast<int>(got[static_cast<size_t>(i)]) : -1,
                      static_cast<int>(want[i])));
    }
  };
  for (size_t s = 0; s < wanted.size(); ++s)
    compare(stream.segments[s].name, wanted[s].bytes(), run.segments[s], stream.segments[s].bytes);
  for (size_t m = 0; m < memories.size(); ++m)
    compare(unit.memories[m].name, memories[m].data(), run.memories[m], static_cast<int64_t>(memories[m].size()));
  return differences;
}

}  // namespace tessera::inline rtl
