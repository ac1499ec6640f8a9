// Faults are put into what a step gives, and must be found there.
#include "driver/analysis/bisect.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "arith/simplify.h"
#include "driver/compile.h"
#include "graph/op_def.h"
#include "loop/stmt.h"
#include "support/error.h"
#include "support/onnx_model.h"
#include "support/test_data.h"
#include "support/watched_compile.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// x -> Conv Na -> Relu Nb -> Exp Nc -> Transpose Nt -> y, with a constant that is computed: Ns = s + s.
OnnxModel sample() {
  OnnxModel model;
  model.input("x", {1, 4, 8, 8}).output("y");
  std::vector<float> w(4 * 4 * 9);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 7) / 16 - 0.15f;
  model.floats("w", {4, 4, 3, 3}, w).floats("s", {1, 4, 1, 1}, {0.5f, 1, 0.25f, 2});
  model.node("Conv", {"x", "w"}, {"a"});
  model.node("Relu", {"a"}, {"b"});
  model.node("Add", {"s", "s"}, {"d"});
  model.node("Mul", {"b", "d"}, {"c"});
  auto& transpose = model.node("Transpose", {"c"}, {"y"});
  set_attribute(transpose, "perm", std::vector<int64_t>{0, 2, 3, 1});
  return model;
}

class Bisect : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() / fmt::format("tessera-bisect-{}.onnx", getpid())).string();
    std::ofstream(path_, std::ios::binary) << sample().bytes();
    request_.diff.model = path_;
    request_.diff.num_threads = request_.diff.driver.compile.num_threads = 1;
    request_.diff.driver.compile.target = "native";
    request_.diff.find.tolerance = {.rtol = 0, .atol = 0, .mtol = 1e-4};
    request_.diff.make_inputs = [](const std::vector<TensorInfo>& infos) {
      std::vector<Tensor> inputs;
      for (const TensorInfo& info : infos) {
        Tensor tensor(info.dtype, info.dims);
        for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.set_double(i, static_cast<double>(i % 11) / 8);
        inputs.push_back(tensor);
      }
      return inputs;
    };
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string path_;
  BisectRequest request_;
};

// Every constant of more than one element of the graph is doubled, from the first time that `step` runs on.
void double_constants(Graph& graph) {
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    Node& node = graph.node(static_cast<NodeId>(i));
    if (node.op->kind != OpKind::kConstant) continue;
    const TensorPtr old = node.attrs.get<TensorPtr>("value");
    if (old->num_elements() != 4) continue;
    auto changed = std::make_shared<Tensor>(old->dtype(), old->dims());
    for (int64_t k = 0; k < 4; ++k) changed->set_double(k, old->get_double(k) * 2);
    node.attrs.set("value", TensorPtr(changed));
  }
}

TEST_F(Bisect, SaysSoWhenNothingIsWrong) {
  const BisectResult result = bisect_model(request_);
  EXPECT_FALSE(result.difference.first.has_value());
  EXPECT_FALSE(result.culprit.has_value());
  EXPECT_GE(result.difference.compared, 2);
}

TEST_F(Bisect, FindsAGraphPass) {
  // A fold that is wrong: the sum of the two constants.
  request_.diff.driver.decisions = std::make_shared<SpoiledGraphs>([](std::string_view step, Graph& graph) {
    if (step != "fold_constants") return;
    bool has_sum = false;
    for (const Node& node : graph.nodes()) has_sum |= node.op->name == "add";
    if (!has_sum) double_constants(graph);
  });
  const BisectResult result = bisect_model(request_);
  ASSERT_TRUE(result.culprit.has_value());
  EXPECT_EQ(result.culprit->pass, "fold_constants");
  EXPECT_EQ(result.culprit->kind, "graph pass");
  EXPECT_THAT(result.culprit->evidence, HasSubstr("interpreted, computes something else"));
  EXPECT_EQ(result.difference.first->node, "Nd");
  EXPECT_TRUE(result.culprit->can_disable);
  EXPECT_TRUE(result.culprit->helps);
  EXPECT_THAT(to_text(result, {}), HasSubstr("--disable-pass fold_constants: the whole model agrees"));
}

// Kernels that `rule` wrote lose the last iteration of their first loop that is not for vectors.
void cut_loops(Program& program, const std::string& rule) {
  for (Kernel& kernel : program.kernels) {
    if (kernel.rule != rule) continue;
    const StmtNode* first = nullptr;
    walk(
        kernel.program.body,
        [&](const Stmt& stmt) {
          const bool serial = stmt->kind == StmtKind::kFor && stmt->for_kind != ForKind::kVectorized &&
                              stmt->for_kind != ForKind::kUnrolled;
          if (serial && !first && as_int(stmt->extent).value_or(0) > 1) first = stmt.get();
        },
        [](const Expr&) {});
    kernel.program.body = transform(
        kernel.program.body, [](const Expr&) { return Expr(); },
        [&](const Stmt& stmt) {
          if (!first || stmt->kind != StmtKind::kFor || !stmt->var.same_node(first->var)) return Stmt();
          return for_loop(stmt->var, stmt->begin, *as_int(stmt->extent) - 1, stmt->for_kind, stmt->stmts[0]);
        });
  }
}

TEST_F(Bisect, FindsAScheduleRule) {
  std::string rule, nodes;
  OnProgram see([&](std::string_view step, const Program& program) {
    if (step != "schedule" || !rule.empty()) return;
    rule = program.kernels.at(0).rule;
    nodes = program.kernels.at(0).loc;
  });
  request_.diff.driver.observers.add(see);
  EXPECT_FALSE(bisect_model(request_).difference.first.has_value());
  ASSERT_NE(rule, "naive");
  request_.diff.driver.observers = {};
  request_.diff.driver.decisions = std::make_shared<SpoiledPrograms>([&](std::string_view step, Program& program) {
    if (step == "schedule") cut_loops(program, rule);
  });
  const BisectResult result = bisect_model(request_);
  ASSERT_TRUE(result.culprit.has_value());
  EXPECT_EQ(result.culprit->pass, rule);
  EXPECT_EQ(result.culprit->kind, "schedule rule");
  EXPECT_EQ(result.culprit->applied->pass, rule);
  EXPECT_THAT(nodes, HasSubstr(result.culprit->nodes));
  EXPECT_THAT(result.culprit->evidence, HasSubstr("interpreted, computes something else"));
  EXPECT_NE(result.culprit->before, result.culprit->after);
  EXPECT_TRUE(result.culprit->helps);
  ASSERT_TRUE(result.difference.reproduction.has_value());
  EXPECT_LE(result.difference.reproduction->nodes.size(), 3u);
}

TEST_F(Bisect, FindsWhatOnlyTheCompilerDoes) {
  // Right until it is lowered: lowering is no pass that could be left out, and what it is given is right.
  request_.diff.driver.decisions = std::make_shared<SpoiledPrograms>([](std::string_view step, Program& program) {
    if (step != "lower") return;
    for (Kernel& kernel : program.kernels) kernel.rule = "naive", kernel.definition = nullptr;  // keeps the loops below
    cut_loops(program, "naive");
  });
  const BisectResult result = bisect_model(request_);
  ASSERT_TRUE(result.culprit.has_value());
  EXPECT_EQ(result.culprit->pass, "lower");
  EXPECT_EQ(result.culprit->application, 0);
}

TEST_F(Bisect, FindsAStepThatIsAlwaysDone) {
  // Memory planned as if two buffers that live together did not.
  request_.diff.driver.decisions = std::make_shared<SpoiledPrograms>([](std::string_view step, Program& program) {
    if (step != "plan_memory") return;
    for (ProgramBuffer& buffer : program.buffers)
      if (buffer.kind == BufferKind::kArena) buffer.offset = 0;
  });
  request_.diff.driver.compile.opt_level = 0;
#ifndef NDEBUG
  // Builds with assertions verify what every step makes, and do not get as far.
  EXPECT_THAT([&] { bisect_model(request_); }, ThrowsMessage<InternalError>(HasSubstr("after plan_memory")));
  return;
#endif
  const BisectResult result = bisect_model(request_);
  ASSERT_TRUE(result.culprit.has_value());
  EXPECT_EQ(result.culprit->pass, "plan_memory");
  EXPECT_EQ(result.culprit->kind, "step");
  EXPECT_EQ(result.culprit->application, 0);
  EXPECT_FALSE(result.culprit->can_disable);
}

}  // namespace
}  // namespace tessera
