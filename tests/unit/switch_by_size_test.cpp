// Two programs for parts of a range of sizes as the blocks of a branch.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "program/memory_plan.h"
#include "program/parser.h"
#include "program/printer.h"
#include "program/steps.h"
#include "program/switch_by_size.h"
#include "program/verify.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// y = (x + x) + w with a value of `n` elements in between; `n` is the symbol or a number.
Program program_of(const std::string& head, const std::string& n, const std::string& weight) {
  const std::string symbol = n == "n" ? "<n>" : "";
  return parse_program(fmt::format(R"(program @main{0}(%x) -> (%y) {{
  plan arena 0 weights 0 scratch 0
  buffer %x: f32[{1}] input 0
  buffer %y: f32[{1}] output 0
  buffer %t: f32[{1}] arena
  buffer %w: f32[1] weight = dense<f32[1] {2}>
  define rule "naive"
  kernel @twice{3}(a: f32[{1}]) -> (b: f32[{1}]) {{
    for i in 0..{1} {{ b[i] = (a[i] + a[i]) }}
  }}
  define rule "naive"
  kernel @more{3}(a: f32[{1}], w: f32[1]) -> (b: f32[{1}]) {{
    for i in 0..{1} {{ b[i] = (a[i] + w[0]) }}
  }}
  call @twice(%x, %t) loc("twice")
  call @more(%t, %w, %y) loc("more")
}}
)",
                                   head, n, weight, symbol));
}

uint64_t first_element(const TensorPtr& tensor) { return static_cast<uint64_t>(tensor->get_double(0) * 1024); }

TEST(SwitchBySize, MakesABranchWhoseBlocksShareMemory) {
  Program above = program_of("[n in 2..64]", "n", "3"), below = program_of("", "1", "5");
  const std::vector<SymbolRange> symbols = {{above.symbols[0].var, 1, 64, 1}};
  auto joined = switch_by_size(below, above, symbols, symbols[0].var, 2, first_element);
  ASSERT_TRUE(std::holds_alternative<Program>(joined));
  Program program = std::get<Program>(joined);
  EXPECT_THAT(verify(program), IsEmpty()) << print(program);
  ASSERT_EQ(program.steps.size(), 2U);
  EXPECT_EQ(program.steps[1].kind, StepKind::kBranch);
  EXPECT_EQ(program.steps[1].blocks[0][0].num_calls, 2U);
  EXPECT_EQ(program.steps[1].blocks[1][0].num_calls, 2U);
  EXPECT_EQ(print(parse_program(print(program))), print(program));
  plan_memory(program);
  EXPECT_THAT(verify(program), IsEmpty());
  EXPECT_EQ(program.arena_bytes, 64 * 4);  // what one of the blocks needs: the bool is dead by then
}

TEST(SwitchBySize, BranchesMayStandInOneAnother) {
  const Program all = program_of("[n in 1..64]", "n", "3");
  const Var n = all.symbols[0].var;
  const std::vector<SymbolRange> upper = {{n, 8, 64, 1}}, whole = {{n, 1, 64, 1}};
  const auto above = std::get<Program>(switch_by_size(all, all, upper, n, 16, first_element));
  const auto joined = std::get<Program>(switch_by_size(all, above, whole, n, 8, first_element));
  EXPECT_THAT(verify(joined), IsEmpty()) << print(joined);
  EXPECT_EQ(joined.calls.size(), 8U);  // of three programs, and two that compare
  EXPECT_EQ(joined.steps[1].blocks[1].back().kind, StepKind::kBranch);
  EXPECT_EQ(std::count_if(joined.buffers.begin(), joined.buffers.end(),
                          [](const ProgramBuffer& b) { return b.kind == BufferKind::kWeight; }),
            1);
}

TEST(SwitchBySize, SaysWhyNot) {
  const Program above = program_of("[n in 2..64]", "n", "3");
  Program below = program_of("", "1", "5");
  below.inputs.push_back(below.inputs[0]);
  const std::vector<SymbolRange> symbols = {{above.symbols[0].var, 1, 64, 1}};
  const auto joined = switch_by_size(below, above, symbols, symbols[0].var, 2, first_element);
  ASSERT_TRUE(std::holds_alternative<std::string>(joined));
  EXPECT_THAT(std::get<std::string>(joined), HasSubstr("other values"));
}

}  // namespace
}  // namespace tessera
