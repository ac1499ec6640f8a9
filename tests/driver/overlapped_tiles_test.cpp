// Kernels that run strip by strip together (schedule/fusion/overlapped_tiles.h) compute what they compute one after the
// other: random chains for machines with small caches, each level verified, interpreted and as machine code.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "codegen/llvm/target.h"
#include "codegen_harness.h"
#include "graph/printer.h"
#include "graph_passes/pass.h"
#include "interp/graph_interp.h"
#include "interp/program_interp.h"
#include "loop/verify.h"
#include "loop_passes/pass.h"
#include "lower/lower.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"
#include "program/memory_plan.h"
#include "program/pass.h"
#include "program/printer.h"
#include "program/verify.h"
#include "schedule/choose.h"
#include "support/test_data.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

class Images {
 public:
  explicit Images(uint32_t seed) : random_(seed) {}

  int64_t pick(std::initializer_list<int64_t> choices) {
    return *(choices.begin() + random_() % static_cast<uint32_t>(choices.size()));
  }
  bool chance(uint32_t percent) { return random_() % 100 < percent; }

  ValueId input(const Ints& dims) {
    const ValueId id =
        graph_.add_input("x" + std::to_string(graph_.inputs.size()), TensorType{dtype, make_shape(dims), {}});
    Tensor tensor(dtype, dims);
    for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_double(i, value());
    inputs.push_back(std::move(tensor));
    return id;
  }
  ValueId constant(const Ints& dims) {
    auto tensor = std::make_shared<Tensor>(dtype, dims);
    for (int64_t i = 0; i < tensor->num_elements(); ++i) tensor->set_double(i, value());
    return builder_.add(standard_ops().get("constant"), {}, {{"value", TensorPtr(std::move(tensor))}});
  }
  ValueId add(const char* op, std::vector<ValueId> operands, Attrs attrs = {}) {
    return builder_.add(standard_ops().get(op), std::move(operands), std::move(attrs));
  }
  Ints dims(ValueId id) const { return graph_.type(id).dims(); }

  // A window of k x k that fits into the image.
  Attrs window(ValueId x, int64_t k, int64_t stride, int64_t dilation, bool reaches_image) {
    const Ints image = dims(x);
    Ints begin, end;
    const bool keeps_size = chance(60);
    for (const size_t d : {2, 3}) {
      const int64_t span = (k - 1) * dilation + 1, most = reaches_image ? k - 1 : span;
      begin.push_back(keeps_size ? span / 2 : std::min(most, pick({0, 1, 1, 2, 3})));
      end.push_back(keeps_size ? span / 2 : std::min(most, pick({0, 1, 1, 2})));
      while (image[d] + begin.back() + end.back() < span) ++begin.back(), ++end.back();
    }
    return {{"strides", Ints{stride, stride}},
            {"dilations", Ints{dilation, dilation}},
            {"pads_begin", begin},
            {"pads_end", end}};
  }
  ValueId conv(ValueId x, int64_t channels, int64_t k, int64_t stride, int64_t dilation, int64_t groups) {
    Attrs attrs = k == 1 ? Attrs{{"strides", Ints{stride, stride}},
                                 {"dilations", Ints{1, 1}},
                                 {"pads_begin", Ints{0, 0}},
                                 {"pads_end", Ints{0, 0}}}
                         : window(x, k, stride, dilation, false);
    attrs.set("input_dilations", Ints{1, 1});
    attrs.set("groups", groups);
    return add("conv", {x, constant({channels, dims(x)[1] / groups, k, k})}, std::move(attrs));
  }
  ValueId depthwise(ValueId x) {
    const int64_t channels = dims(x)[1];
    return conv(x, channels, pick({3, 3, 3, 5}), pick({1, 1, 2, 2, 3}), pick({1, 1, 1, 2}), channels);
  }
  ValueId pool(ValueId x) {
    const int64_t k = pick({2, 3, 3});
    Attrs attrs = window(x, k, pick({1, 2, 2, 3}), 1, true);
    attrs.set("window", Ints{k, k});
    if (dtype == DType::kF32 && chance(40)) {
      if (chance(50)) attrs.set("count_include_pad", true);
      return add_composite(builder_, standard_ops(), "average_pool", {x}, attrs).at(0);
    }
    attrs.set("kind", std::string(chance(70) ? "max" : chance(50) ? "min" : "sum"));
    return add("reduce_window", {x}, std::move(attrs));
  }
  // A bias, an activation, another operand.
  ValueId finish(ValueId x, bool residual = false) {
    if (chance(60)) x = add("add", {x, constant({1, dims(x)[1], 1, 1})});
    if (chance(60)) x = add("max", {x, constant({})});
    if (residual) x = add("add", {x, input(dims(x))});
    return x;
  }

  Graph graph(ValueId result) {
    graph_.outputs = {result};
    graph_.rename(result, "y");
    return std::move(graph_);
  }

  DType dtype = DType::kF32;
  std::vector<Tensor> inputs;

 private:
  double value() { return static_cast<double>(static_cast<int>(random_() % 33) - 16) / (is_float(dtype) ? 8 : 1); }

  std::mt19937 random_;
  Graph graph_;
  GraphBuilder builder_{graph_};
};

struct Case {
  Graph graph;
  std::vector<Tensor> inputs;
};

Case random_case(uint32_t seed) {
  Images b(seed);
  b.dtype = b.chance(70) ? DType::kF32 : b.chance(50) ? DType::kF16 : DType::kI32;
  // Over many channels the rows at a strip's ends are not worth computing twice.
  const int64_t c = b.pick({1, 2, 3, 4, 8}), wide = b.pick({8, 16, 16, 20, 32});
  const int64_t h = b.pick({2, 13, 48, 64, 64, 96, 96, 128}), w = b.pick({1, 4, 9, 16, 16});
  const ValueId x = b.input({b.pick({1, 1, 1, 2, 3}), c, h, w});
  ValueId y = -1;
  switch (seed % 6) {
    case 0: {  // an inverted residual block
      const ValueId dw = b.finish(b.depthwise(b.finish(b.conv(x, wide, 1, 1, 1, 1))));
      y = b.conv(dw, c, 1, 1, 1, 1);
      if (b.dims(y) == b.dims(x)) y = b.add("add", {y, x});
      else y = b.finish(y, b.chance(50));
      break;
    }
    case 1: y = b.finish(b.depthwise(b.finish(b.conv(x, wide, 1, 1, 1, 1))), b.chance(30)); break;
    case 2: y = b.finish(b.conv(b.finish(b.depthwise(x)), wide, 1, b.pick({1, 1, 2}), 1, 1), b.chance(30)); break;
    case 3: y = b.pool(b.finish(b.conv(x, wide, b.pick({1, 1, 3}), b.pick({1, 2}), b.pick({1, 1, 2}), 1))); break;
    case 4: y = b.finish(b.conv(b.pool(b.finish(b.conv(x, wide, b.pick({1, 1, 3}), 1, 1, 1))), c, 1, 1, 1, 1)); break;
    default: y = b.finish(b.pool(b.finish(b.depthwise(b.input({b.pick({1, 2, 4}), wide, h, w})))));
  }
  return {b.graph(y), std::move(b.inputs)};
}

Program compile(Graph graph, const Target& target, const std::set<std::string>& disabled,
                const ChoosePoint& choose = {}) {
  constexpr int kLevel = 3;
  GraphInterpreter evaluator;
  const PassContext ctx{standard_ops(), evaluator, target, kLevel};
  for (const GraphPass& pass : graph_pipeline()) graph = pass.run(graph, ctx);
  Program program = lower_graph(graph);
  const auto run_program_passes = [&](ProgramPhase phase) {
    for (const ProgramPass& pass : program_pipeline()) {
      if (pass.phase != phase) continue;
      pass.run(program, target);
      verify_or_throw(program, pass.name);
    }
  };
  run_program_passes(ProgramPhase::kLowered);
  schedule_program(program, target, kLevel, disabled, {}, choose);
  verify_or_throw(program, "schedule");
  for (const LoopPass& pass : loop_pipeline())
    for (Kernel& kernel : program.kernels) {
      kernel.program = pass.run(kernel.program, {target, kLevel});
      verify_or_throw(kernel.program, pass.name);
    }
  run_program_passes(ProgramPhase::kScheduled);
  plan_memory(program);
  verify_or_throw(program, "plan_memory");
  return program;
}

int chains_in(const Program& program) {
  int chains = 0;
  for (const KernelCall& call : program.calls)
    chains += program.kernels[static_cast<size_t>(call.kernel)].rule == "overlapped_tiles";
  return chains;
}

// Memory is right behind a second level of cache of so many bytes.
Target with_small_caches(const std::string& name, int64_t l2_bytes, int threads) {
  Target target = parse_target(name);
  target.num_threads = threads;
  target.l2_bytes = l2_bytes;
  target.l3_bytes = 1 << 10;
  return target;
}

TEST(StripChain, AgreesWithTheInterpreter) {
  const char* asked = std::getenv("TESSERA_TEST_CASES");
  const uint32_t count = asked ? static_cast<uint32_t>(std::atoi(asked)) : 120;
  const std::vector<std::string>& names = runnable_targets();
  int joined[6] = {};
  for (uint32_t seed = 0; seed < count; ++seed) {
    const Case test = random_case(seed);
    const Tensor want = GraphInterpreter().evaluate(test.graph, test.inputs)[0];
    const int threads = 1 + static_cast<int>(seed / 3 % 3);
    const std::string& name = names[seed / 2 % names.size()];
    SCOPED_TRACE(fmt::format("seed {} for {}, {} threads\n{}", seed, name, threads,
                             print(test.graph, {.elide_constants = true})));
    // Images have to be larger than the cache, and strips of them smaller.
    Target target;
    Program program;
    for (const int64_t l2 : {96 << 10, 48 << 10, 24 << 10, 12 << 10, 6 << 10}) {
      target = with_small_caches(name, l2, threads);
      program = compile(test.graph, target, {});
      if (chains_in(program) > 0) break;
    }
    joined[seed % 6] += chains_in(program);
    EXPECT_EQ(chains_in(compile(test.graph, target, {"overlapped_tiles"})), 0);
    ASSERT_TRUE(tensors_agree(interpret(program, test.inputs, ProgramRun{{}, true})[0], want)) << print(program);
    const NativeModule module(program, target);
    ASSERT_TRUE(tensors_agree(module.run(test.inputs, {.threads = threads})[0], want)) << print(program);
  }
  for (int form = 0; form < 6; ++form) {
    std::cout << fmt::format("form {}: {} chains\n", form, joined[form]);
    EXPECT_GT(joined[form], 0) << "no chain of form " << form;
  }
}

// A chain is a kernel with knobs of its own: at every point it computes the same, and what has no such point keeps the
// default, with a reason.
TEST(StripChain, PointsAgreeWithTheInterpreter) {
  std::mt19937 random(7);
  int points = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const Case test = random_case(seed);
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, print(test.graph, {.elide_constants = true})));
    Target target;
    Program standard;
    for (const int64_t l2 : {48 << 10, 24 << 10, 12 << 10}) {
      target = with_small_caches("x86-64-v2", l2, 1);
      standard = compile(test.graph, target, {});
      if (chains_in(standard) > 0) break;
    }
    const AskRules ask = first_answer_of(target, 3);
    for (const Kernel& kernel : standard.kernels) {
      if (!kernel.joined || kernel.rule != "overlapped_tiles") continue;
      const auto space = joined_knob_space(*find_joining_step(kernel.rule), *kernel.joined, {}, target, ask);
      ASSERT_TRUE(std::holds_alternative<KnobSpace>(space));
      const KnobSpace& knobs = std::get<KnobSpace>(space);
      const auto at_point = [&](const KnobPoint& point) {
        return compile(test.graph, target, {}, [&](const Kernel& other) {
          const bool same = other.joined && canonical_text(*other.joined) == canonical_text(*kernel.joined);
          return same ? TunedChoice{point, ""} : TunedChoice();
        });
      };
      for (int i = 0; i < 2; ++i) {
        const KnobPoint point = knobs.point(static_cast<int64_t>(random()) % knobs.size());
        const Program program = at_point(point);
        const bool is_taken = std::any_of(program.kernels.begin(), program.kernels.end(),
                                          [&](const Kernel& k) { return k.rule == to_string(point); });
        const bool is_refused = std::any_of(program.kernels.begin(), program.kernels.end(), [&](const Kernel& k) {
          return k.refused_tuning.starts_with(to_string(point));
        });
        ASSERT_NE(is_taken, is_refused) << to_string(point);
        points += is_taken;
        const Tensor want = GraphInterpreter().evaluate(test.graph, test.inputs)[0];
        ASSERT_TRUE(tensors_agree(interpret(program, test.inputs, ProgramRun{{}, true})[0], want)) << print(program);
      }
      const Program illegal = at_point({"overlapped_tiles", {{"strip", 1000003}}});
      EXPECT_TRUE(std::any_of(illegal.kernels.begin(), illegal.kernels.end(), [](const Kernel& k) {
        return k.rule == "overlapped_tiles" && k.refused_tuning.find("is not one of") != std::string::npos;
      }));
    }
  }
  EXPECT_GT(points, 10);
}

}  // namespace
}  // namespace tessera
