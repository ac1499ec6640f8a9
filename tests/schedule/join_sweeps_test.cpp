// schedule/fusion/join_sweeps.h: loops that are joined compute what they computed one after the other, and others are
// not.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "codegen_harness.h"
#include "loop/parser.h"
#include "loop/printer.h"
#include "schedule/fusion/join_sweeps.h"

namespace tessera {
namespace {

// exp(x) in y, and the sum of what `read` reads of y; 150 elements in vectors of 64 and one of 22.
std::string program_text(const std::string& stored, const std::string& read, int first_steps = 2, int second_steps = 2,
                         const std::string& before = "") {
  return fmt::format(R"(kernel @k(x: f32[160]) -> (y: f32[160], total: f32[1]) {{
  {{
    for s in 0..{} {{ vectorized for l in 0..64 {{ y[((s * 64) + l)] = {} }} }}
    vectorized for m in 0..22 {{ y[(m + 128)] = exp(x[(m + 128)]) }}
  }}
  {{
    alloc partial: f32[64] register
    vectorized for l_1 in 0..64 {{ partial[l_1] = 0:f32 }}
    {}
    for r in 0..{} {{ vectorized for l_2 in 0..64 {{ partial[l_2] = (partial[l_2] + {}) }} }}
    vectorized for l_3 in 0..22 {{ partial[l_3] = (partial[l_3] + y[(l_3 + 128)]) }}
    total[0] = 0:f32
    vectorized for l_4 in 0..64 {{ total[0] = (total[0] + partial[l_4]) }}
  }}
}}
)",
                     first_steps, stored, before, second_steps, read);
}

Stmt joined(const LoopProgram& loops) {
  std::vector<Stmt> list = loops.body->stmts;
  const Stmt second = list.back();
  list.pop_back();
  return join_sweeps(seq(std::move(list)), second, loops.params[1].get());
}

constexpr const char* kExp = "exp(x[((s * 64) + l)])";
constexpr const char* kSame = "y[((r * 64) + l_2)]";

TEST(JoinSweeps, ComputesTheSame) {
  LoopProgram loops = parse_loop_program(program_text(kExp, kSame));
  const auto inputs = random_inputs(loops, 3);
  const auto want = run_interpreted(loops, inputs);
  loops.body = joined(loops);
  ASSERT_TRUE(loops.body);
  int serial = 0;
  walk(
      loops.body, [&](const Stmt& s) { serial += s->kind == StmtKind::kFor && s->for_kind == ForKind::kSerial; },
      nullptr);
  EXPECT_EQ(serial, 1) << print(loops);
  const auto got = run_interpreted(loops, inputs);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(difference(got[i], want[i], 0), "");
  expect_agrees(loops, inputs);
}

TEST(JoinSweeps, LeavesLoopsThatAreNotAlike) {
  const auto is_joined = [](const std::string& text) { return static_cast<bool>(joined(parse_loop_program(text))); };
  EXPECT_TRUE(is_joined(program_text(kExp, kSame)));
  EXPECT_TRUE(is_joined(program_text("(y[((s * 64) + l)] * 2:f32)", kSame)));
  EXPECT_FALSE(is_joined(program_text(kExp, "y[(((r * 64) + l_2) + 1)]"))) << "reads the neighbour";
  EXPECT_FALSE(is_joined(program_text("y[(((s * 64) + l) + 1)]", kSame))) << "changes what it reads later";
  EXPECT_FALSE(is_joined(program_text(kExp, kSame, 1, 2))) << "other extents";
  EXPECT_FALSE(is_joined(program_text(kExp, kSame, 2, 2, "partial[0] = y[0]"))) << "reads before the loops";
}

}  // namespace
}  // namespace tessera
