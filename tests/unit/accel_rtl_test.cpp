// The hardware that is made of descriptions, built by Verilator, beside the simulators: the same contents of all
// memories, and each instruction begins and ends in the same cycle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "accel/rtl/rtl_run.h"
#include "accel/rtl/step_timing.h"
#include "accel/rtl/unit_rtl.h"
#include "accel_streams.h"
#include "support/error.h"

namespace tessera {
namespace {

using namespace accel_streams;
using testing::HasSubstr;
using testing::IsEmpty;

class AcceleratorRtl : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_verilator()) GTEST_SKIP() << "there is no Verilator (scripts/setup.sh --rtl)";
    folder_ = std::filesystem::temp_directory_path() / fmt::format("accel_rtl_{}", getpid());
  }
  void TearDown() override {
    if (!HasFailure()) std::filesystem::remove_all(folder_);
  }

  std::string folder(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

std::string unit_text(const Wanted& of) {
  return with_queues(description(of.tile, of.loops, 1 << 15, 1 << 15, 1 << 16), of.queues);
}

std::vector<std::string> differences(RtlSimulator& rtl, Made& made) {
  EXPECT_THAT(check_stream(made.unit, made.stream), IsEmpty());
  return differences_of_rtl(rtl, made.unit, made.stream, pointers(made.segments));
}

void run_streams(const Wanted& of, int rounds, uint32_t seed, const std::string& folder) {
  SCOPED_TRACE(folder);
  Random random(seed);
  const Accelerator unit = read_accelerator(unit_text(of), "test.json");
  RtlSimulator rtl(unit, folder);
  for (int round = 0; round < rounds; ++round) {
    Made made = make_random(random, true, of);
    ASSERT_THAT(differences(rtl, made), IsEmpty()) << "round " << round << "\n" << print(made.unit, made.stream);
  }
}

TEST_F(AcceleratorRtl, SomeStreams) { run_streams({2, 3, 3}, 20, 10, folder("unit")); }

// 300 on five units.
TEST_F(AcceleratorRtl, RandomStreams) {
  uint32_t seed = 11;
  for (const Wanted& of : {Wanted{2, 2, 1}, Wanted{4, 3, 3}, Wanted{2, 5, 5}, Wanted{8, 1, 3}, Wanted{4, 5, 1}})
    run_streams(of, 60, seed++, folder(std::to_string(seed)));
}

struct Fault {
  const char *what, *file, *from, *to;
};
constexpr Fault kFaults[] = {
    {"a token that is lost", "tokens.sv", "count <= count + 1'b1", "count <= count"},
    {"a token that stays", "tokens.sv", "count <= count - 1'b1", "count <= count"},
    {"tokens that are never taken", "queues.sv", "assign take = start ? waits : '0", "assign take = '0"},
    {"tokens that are not waited for", "queues.sv", "(waits & ~available) == '0", "1'b1"},
    {"tokens that are given at the beginning", "queues.sv", "assign give = finish ? ", "assign give = start ? "},
    {"a queue that is one shorter", "instruction_fifo.sv", "count < COUNT'(DEPTH)", "count < COUNT'(DEPTH - 1)"},
    {"an instruction that waits a cycle in the queue", "instruction_fifo.sv", "!is_empty || push", "!is_empty"},
    {"a cycle more for fetching", "instruction_fetch.sv", "LEFT'(CYCLES - 1)", "LEFT'(CYCLES)"},
    {"no cycles behind a loop", "sequencer.sv", "pause = pause + after[l*WAIT+:WAIT]", "pause = pause"},
    {"an end a cycle early", "sequencer.sv", "left <= WAIT'(1)", "left <= WAIT'(2)"},
    {"an end before the data are there", "sequencer.sv", "is_over && !hold", "is_over"},
    {"a loop that does not begin again", "sequencer.sv", "at[l*EXTENT+:EXTENT] <= '0;",
     "at[l*EXTENT+:EXTENT] <= EXTENT'(1);"},
    {"a pad that begins late", "queues.sv", "EXTENT] >= now[", "EXTENT] > now["},
    {"a pad that ends late", "queues.sv", "EXTENT] < now[", "EXTENT] <= now["},
    {"a pad of other numbers", "queues.sv", "in_s_inside ? dram_data[15:0] : '0", "in_s_inside ? dram_data[15:0] : '1"},
    {"an operand that moves in the pad", "queues.sv", "dram_moves = {", "dram_moves = '1 | {"},
    {"a stride from the wrong loop", "address_generator.sv", "now[l*WIDTH+:WIDTH] + (",
     "now[(LOOPS-1)*WIDTH+:WIDTH] + ("},
    {"a read from the place behind", "memory.sv", "places[read_address[r*ADDRESS+:ADDRESS]]",
     "places[read_address[r*ADDRESS+:ADDRESS] ^ ADDRESS'(1)]"},
    {"a product that is subtracted", "kernels.sv", "add_i32 = a + b", "add_i32 = a - b"},
    {"a shift that is off by one", "kernels.sv", "a >>> b", "a >>> (b + 1)"},
};

// Faults in the hardware itself.
TEST_F(AcceleratorRtl, PlantedFaultsAreFound) {
  const Wanted of{2, 3, 3};
  const Accelerator unit = read_accelerator(unit_text(of), "test.json");
  int found = 0;
  for (const Fault& fault : kFaults) {
    SCOPED_TRACE(fault.what);
    RtlFiles files = rtl_files(unit);
    int planted = 0;
    for (auto& [name, text] : files.design)
      for (size_t at = text.find(fault.from); name == fault.file && at != std::string::npos;
           at = text.find(fault.from, at + std::string(fault.to).size())) {
        text.replace(at, std::string(fault.from).size(), fault.to);
        ++planted;
      }
    ASSERT_GT(planted, 0);
    RtlSimulator rtl(unit, files, folder("fault"));
    Random random(13);
    bool differs = false;
    for (int round = 0; round < 20 && !differs; ++round) {
      Made made = make_random(random, true, of);
      differs = !differences(rtl, made).empty();
    }
    EXPECT_TRUE(differs);
    found += differs;
  }
  EXPECT_EQ(found, 20);
}

// One instruction for each operation on f32, whose operands are loaded as they are.
std::string float_unit() {
  std::vector<std::string> entries;
  const auto add = [&](const std::string& name, const std::string& queue, const std::string& operands,
                       const std::string& more, const std::string& parameters, const std::string& result,
                       const std::string& value) {
    entries.push_back(fmt::format(
        R"({{"name": "{0}", "queue": "{1}", "loops": 1, "cycles": "n0 + 2", "operands": {2},
          {3}"kernel": "kernel @{0}({4}) -> (d: {5}[4]) {{ for l in 0..4 {{ d[l] = {6} }} }}"}})",
        name, queue, operands, more, parameters, result, value));
  };
  const std::string two = R"({"s": "acc", "t": "acc", "d": "acc"})";
  add("load", "load", R"({"s": "dram", "d": "acc"})", R"("moves": true, )", "s: i32[4]", "i32", "s[l]");
  add("store", "store", R"({"s": "acc", "d": "dram"})", R"("moves": true, )", "s: i32[4]", "i32", "s[l]");
  for (const char* op : {"+", "-", "*", "/"})
    add(fmt::format("f{}", entries.size()), "compute", two, "", "s: f32[4], t: f32[4]", "f32",
        fmt::format("s[l] {} t[l]", op));
  for (const char* op : {"min", "max"})
    add(op, "compute", two, "", "s: f32[4], t: f32[4]", "f32", fmt::format("{}(s[l], t[l])", op));
  add("round", "compute", two, "", "s: f32[4], t: f32[4]", "f32", "select(t[l] < s[l], round(s[l]), round(t[l]))");
  add("whole", "compute", two, "", "s: f32[4], t: f32[4]", "i32", "cast:i32(s[l]) + cast:i32(cast:i8(t[l]))");
  add("float", "compute", two, "", "s: i32[4], t: i32[4]", "f32",
      "select(s[l] <= t[l], cast:f32(s[l]), cast:f32(t[l]))");
  return fmt::format(
      R"({{"name": "floats", "clock_mhz": 1, "dram": {{"bytes_per_cycle": 16, "latency": 3, "burst": 16}},
        "fetch": {{"cycles": 1, "queue_depth": 2}}, "memories": [{{"name": "acc", "bytes": 49152, "element": 16}}],
        "queues": ["load", "compute", "store"], "instructions": [{}]}})",
      fmt::join(entries, ",\n"));
}

// A number of any kind, many of those that are next to something special.
uint32_t any_float(Random& random) {
  static constexpr uint32_t kSpecial[] = {0x00000000, 0x80000000, 0x3f800000, 0x7f800000, 0xff800000,
                                          0x7fc00000, 0x7f800001, 0xffc01234, 0x00000001, 0x007fffff,
                                          0x00800000, 0x7f7fffff, 0x4b000000, 0x4f000000, 0xcf000000,
                                          0x42fe0000, 0xc3000000, 0x3f000000, 0x3effffff, 0x4b800001};
  switch (random() % 4) {
    case 0: return kSpecial[random() % std::size(kSpecial)];
    case 1: return kSpecial[random() % std::size(kSpecial)] + static_cast<uint32_t>(random() % 5) - 2;
    case 2: return std::bit_cast<uint32_t>(static_cast<float>(static_cast<int>(random() % 4001) - 2000) / 8);
    default: return static_cast<uint32_t>(random());
  }
}

TEST_F(AcceleratorRtl, Floats) {
  constexpr int64_t kVectors = 1000;
  const Accelerator unit = read_accelerator(float_unit(), "test.json");
  RtlSimulator rtl(unit, folder("floats"));
  Random random(14);
  for (size_t k = 2; k < unit.instructions.size(); ++k) {
    SCOPED_TRACE(unit.instructions[k].name);
    Made made;
    made.unit = unit;
    made.stream.segments = {{"s", kVectors * 16, false}, {"t", kVectors * 16, false}, {"d", kVectors * 16, true}};
    const auto in_dram = [](int segment) { return UnitOperand{0, {16}, segment, {}}; };
    const auto in_unit = [](int64_t place) { return UnitOperand{place * kVectors * 16, {16}, -1, {}}; };
    made.stream.instructions = {{0, {kVectors}, {in_dram(0), in_unit(0)}, {}},
                                {0, {kVectors}, {in_dram(1), in_unit(1)}, {}},
                                {static_cast<int>(k), {kVectors}, {in_unit(0), in_unit(1), in_unit(2)}, {}},
                                {1, {kVectors}, {in_unit(2), in_dram(2)}, {}}};
    place_tokens(unit, made.stream);
    for (int segment = 0; segment < 3; ++segment) {
      Tensor values(DType::kI32, {kVectors * 4});
      for (int32_t& value : values.as_mutable<int32_t>()) value = static_cast<int32_t>(any_float(random));
      made.segments.push_back(std::move(values));
    }
    EXPECT_THAT(differences(rtl, made), IsEmpty());
  }
}

std::string example(const std::string& name) {
  std::ifstream file(std::string(TESSERA_SOURCE_DIR) + "/examples/accel/" + name);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Layer C6 on the design of the TVM paper's size.
TEST_F(AcceleratorRtl, LayerC6) {
  Made made;
  made.unit = read_accelerator(example("vdla.json"), "vdla.json");
  made.original = parse_loop_programs(example("c6.loop"))[0];
  made.stream = expand(made.unit, scheduled(made.unit, made.original, example("c6.sched")));
  order_by_need(made.unit, made.stream);
  place_tokens(made.unit, made.stream);
  Random random(12);
  made.segments = {random_bytes(random, {8, 28, 28, 16}), random_bytes(random, {8, 8, 3, 3, 16, 16}),
                   random_bytes(random, {8, 28, 28, 16})};
  RtlSimulator rtl(made.unit, folder("vdla"));
  EXPECT_THAT(differences(rtl, made), IsEmpty());
}

// ---- without Verilator ----

const UnitInstruction& instruction(const Accelerator& unit, const std::string& name) {
  for (const UnitInstruction& kind : unit.instructions)
    if (kind.name == name) return kind;
  throw InternalError(name);
}

TEST(AcceleratorHardware, CyclesAreThoseOfNests) {
  const Accelerator systolic = read_accelerator(example("systolic.json"), "systolic.json");
  const StepTiming gemm = step_timing(systolic, instruction(systolic, "gemm"));
  EXPECT_EQ(gemm.per_step, 1);
  EXPECT_EQ(gemm.after, (std::vector<int64_t>{0, 0, 0, 46, 0}));
  const StepTiming weights = step_timing(systolic, instruction(systolic, "load_wgt"));
  EXPECT_EQ(weights.per_step, 16);
  const auto with_cycles = [](const std::string& cycles) {
    std::string text = unit_text({2, 3, 3});
    const std::string from = "1 * n0 * n1 * n2 + 3";
    text.replace(text.find(from), from.size(), cycles);
    return text;
  };
  const auto timing = [&](const std::string& cycles) {
    const Accelerator unit = read_accelerator(with_cycles(cycles), "test.json");
    return step_timing(unit, unit.instructions[0]);
  };
  EXPECT_EQ(timing("n0 * (n1 * (2 * n2 + 5) + 7)").after, (std::vector<int64_t>{0, 7, 5}));
  for (const char* cycles : {"n0 * n0", "max(n0, n1) * n2 + 4", "n0 * n1", "n0 * n1 * n2 - 1", "n1 * (n0 * n2 + 2)"})
    EXPECT_THROW(timing(cycles), UserError) << cycles;
}

TEST(AcceleratorHardware, KernelsWithoutHardwareAreRefused) {
  const auto message = [](const std::string& from, const std::string& to) -> std::string {
    std::string text = unit_text({2, 3, 3});
    text.replace(text.find(from), from.size(), to);
    try {
      rtl_files(read_accelerator(text, "test.json"));
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("shr(s[l]", "shr(s[l]"), "");
  EXPECT_THAT(message("shr(s[l], cast:i32(bits))", "cast:i32(floor(cast:f32(s[l])))"),
              testing::AllOf(HasSubstr("TSR-3510"), HasSubstr("'shift' has the operator 'floor' on f32")));
  EXPECT_THAT(message("shr(s[l], cast:i32(bits))", "cast:i32(cast:f64(s[l]))"), HasSubstr("elements of f64"));
}

// The same description gives the same text, and every file ends.
TEST(AcceleratorHardware, FilesOfTheExamples) {
  for (const char* name : {"vdla.json", "tile8.json", "systolic.json"}) {
    const Accelerator unit = read_accelerator(example(name), name);
    const RtlFiles a = rtl_files(unit), b = rtl_files(unit);
    EXPECT_EQ(a.design, b.design);
    EXPECT_EQ(a.headers, b.headers);
    for (const auto& [file, text] : a.design) EXPECT_THAT(text, HasSubstr("endmodule\n")) << file;
  }
}

}  // namespace
}  // namespace tessera
