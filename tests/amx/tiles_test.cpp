// Tiles of one function beside those of what it calls: a parallel loop's task has tiles of its own, perhaps on the same
// thread. Every access outside of a buffer is a crash (codegen_harness.h).
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <iostream>

#include "amx/amx_emulator.h"
#include "codegen_harness.h"
#include "loop/parser.h"

namespace tessera {
namespace {

// c[16, 16] = 0, or as it is, + two steps of a[16, 64 places] * b, whose places lie in groups.
std::string product(const std::string& c, bool clears, const std::string& intrinsic, int depth, const char* sums) {
  const std::string nest =
      "unrolled for p in 0..1 {{ unrolled for v in 0..1 {{ for r in 0..16 {{ for n in 0..16 {{ {} }} }} }} }}";
  const std::string clear = fmt::format(fmt::runtime(nest), fmt::format("{}r, n] = 0:{}", c, sums));
  const std::string add = fmt::format(
      "for k in 0..16 {{ for q in 0..{1} {{ {0}r, n] = ({0}r, n] + (cast:{2}(a[r, ((((s * 16) + k) * {1}) + q)]) * "
      "cast:{2}(b[((s * 16) + k), n, q]))) }} }}",
      c, depth, sums);
  return fmt::format("tensorized \"{}\" {{ {} for s in 0..2 {{ {} }} }} ", intrinsic, clears ? clear : "",
                     fmt::format(fmt::runtime(nest), add));
}

LoopProgram tile_program(const std::string& intrinsic, const char* factors, const char* second, const char* sums,
                         int depth) {
  std::string text = fmt::format("kernel @f(a: {0}[16,{3}], b: {1}[32,16,{4}]) -> (c: {2}[8,16,16]) {{ ", factors,
                                 second, sums, 32 * depth, depth);
  text += product("c[0, ", true, intrinsic, depth, sums);
  // Iterations with much work, which threads share, and few, which are called at once.
  text += "parallel for t in 0..4 { " + product("c[(t + 1), ", true, intrinsic, depth, sums) + "} ";
  text += product("c[0, ", false, intrinsic, depth, sums);
  text += "parallel for u in 0..1 { " + product("c[(u + 5), ", true, intrinsic, depth, sums) + "} ";
  text += product("c[6, ", true, intrinsic, depth, sums) + product("c[7, ", true, intrinsic, depth, sums) + "}";
  return parse_loop_program(text, "tiles");
}

void check(const std::string& factors, const char* first, const char* second, const char* sums, int depth) {
  emulate_amx();
  for (const auto& [name, features] : {std::pair("portable.tile.dot.", "x86-64-v4,+portable-tiles"),
                                       std::pair("x86.amx.dot.", "x86-64-v4,+amx-bf16,+amx-int8")}) {
    Target target = parse_target(features);
    Target here = target;
    if (emulate_amx()) std::erase_if(here.features, [](const std::string& f) { return f.starts_with("amx-"); });
    if (!runs_here(here)) {
      std::cout << "not run, for want of the processor: " << features << "\n";
      continue;
    }
    const LoopProgram loops = tile_program(name + factors, first, second, sums, depth);
    const std::vector<Tensor> inputs = random_inputs(loops, 5);
    const std::vector<Tensor> want = run_interpreted(loops, inputs);
    for (const int level : {0, 3}) {
      CodegenOptions options;
      options.opt_level = level;
      const NativeModule module(program_of(loops), target, options);
      for (const int threads : {1, 2}) {
        const std::vector<Tensor> got = module.run(inputs, {.threads = threads});
        EXPECT_EQ(difference(got[0], want[0], 1e-5), "") << features << " -O" << level << " threads " << threads;
        EXPECT_EQ(amx_counts().configured_threads, 0);
      }
    }
  }
}

TEST(Tiles, BesideThoseOfTasks) {
  check("bf16", "bf16", "bf16", "f32", 2);
  check("u8i8", "u8", "i8", "i32", 4);
  check("i8i8", "i8", "i8", "i32", 4);
}

}  // namespace
}  // namespace tessera
