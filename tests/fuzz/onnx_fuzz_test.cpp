// Models that are changed at random: an import either gives a sound graph or one user's error.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <random>

#include "graph/verify.h"
#include "import/onnx/onnx_import.h"
#include "import/onnx/write/onnx_export.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "support/error.h"
#include "support/onnx_model.h"
#include "wire_mutator.h"

namespace tessera {
namespace {

uint64_t from_environment(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 10) : fallback;
}

const uint64_t kSeed = from_environment("TESSERA_FUZZ_SEED", 1);
const uint64_t kRounds = from_environment("TESSERA_FUZZ_ROUNDS", 400);

// Small models that between them use most handlers.
std::vector<OnnxModel> seeds() {
  std::vector<OnnxModel> models;
  {
    OnnxModel m(13);
    m.open_input("x", {{1, ""}, {2, ""}, {6, ""}, {6, ""}}).output("y");
    m.floats("w", {4, 2, 3, 3}, std::vector<float>(72, 0.5f)).floats("b", {4}, {1, 2, 3, 4});
    auto& conv = m.node("Conv", {"x", "w", "b"}, {"c"});
    set_attribute(conv, "pads", std::vector<int64_t>{1, 1, 1, 1});
    set_attribute(conv, "strides", std::vector<int64_t>{2, 2});
    set_attribute(conv, "auto_pad", "NOTSET");
    auto& pool = m.node("MaxPool", {"c"}, {"p"});
    set_attribute(pool, "kernel_shape", std::vector<int64_t>{2, 2});
    set_attribute(pool, "ceil_mode", int64_t{1});
    m.node("Shape", {"p"}, {"s"});
    m.ints("zero", {1}, {0}).ints("rest", {1}, {-1});
    m.node("Gather", {"s", "zero"}, {"n"});
    set_attribute(m.node("Concat", {"n", "rest"}, {"target"}), "axis", int64_t{0});
    m.node("Reshape", {"p", "target"}, {"f"});
    m.floats("k", {16, 3}, std::vector<float>(48, 0.1f));
    set_attribute(m.node("Gemm", {"f", "k"}, {"g"}), "alpha", 0.5f);
    set_attribute(m.node("Softmax", {"g"}, {"y"}), "axis", int64_t{-1});
    models.push_back(m);
  }
  {
    OnnxModel m(18);
    m.input("x", {2, 3, 4}).output("y").output("z").output("r");
    m.ints("starts", {2}, {1, -1})
        .ints("ends", {2}, {3, INT64_MIN})
        .ints("axes", {2}, {1, 2})
        .ints("steps", {2}, {1, -2});
    m.node("Slice", {"x", "starts", "ends", "axes", "steps"}, {"y"});
    m.ints("pads", {4}, {1, 0, 2, -1}).floats("value", {}, {9}).ints("pad_axes", {2}, {0, 2});
    set_attribute(m.node("Pad", {"x", "pads", "value", "pad_axes"}, {"p"}), "mode", "constant");
    m.ints("repeats", {3}, {2, 1, 3});
    m.node("Tile", {"p", "repeats"}, {"t"});
    m.ints("split", {2}, {1, 2});
    set_attribute(m.node("Split", {"t", "split"}, {"u", "z"}), "axis", int64_t{1});
    m.floats("scales", {3}, {1, 1, 2.5f});
    auto& resize = m.node("Resize", {"x", "", "scales"}, {"q"});
    set_attribute(resize, "mode", "linear");
    set_attribute(resize, "coordinate_transformation_mode", "half_pixel");
    set_attribute(m.node("ReduceMean", {"q", "axes"}, {"r"}), "keepdims", int64_t{0});
    models.push_back(m);
  }
  {
    OnnxModel m(20);
    m.input("x", {3, 4}).input("i", {3, 1}, onnx::TensorProto::INT64).output("y").output("z").output("o").output("t");
    set_attribute(m.node("GatherElements", {"x", "i"}, {"y"}), "axis", int64_t{1});
    m.node("GatherND", {"x", "i"}, {"z"});
    m.ints("depth", {}, {5}).floats("values", {2}, {0, 1});
    set_attribute(m.node("OneHot", {"i", "depth", "values"}, {"o"}), "axis", int64_t{0});
    m.ints("from", {}, {0}).ints("to", {}, {12}).ints("by", {}, {3});
    m.node("Range", {"from", "to", "by"}, {"range"});
    set_attribute(m.node("Cast", {"range"}, {"floats"}), "to", int64_t{1});
    m.node("Add", {"x", "floats"}, {"sum"});
    m.node("Trilu", {"sum"}, {"upper"});
    m.ints("shape", {3}, {2, 3, 4});
    m.node("Expand", {"upper", "shape"}, {"wide"});
    set_attribute(m.node("Transpose", {"wide"}, {"t"}), "perm", std::vector<int64_t>{2, 0, 1});
    models.push_back(m);
  }
  {
    OnnxModel m(17);
    auto& domain = *m.proto.add_opset_import();
    domain.set_domain("local");
    domain.set_version(1);
    auto& function = *m.proto.add_functions();
    function.set_name("f");
    function.set_domain("local");
    function.add_input("a");
    function.add_output("c");
    function.add_opset_import()->set_version(17);
    for (const auto& [op, from, to] : {std::tuple("Relu", "a", "b"), std::tuple("Exp", "b", "c")}) {
      auto& node = *function.add_node();
      node.set_op_type(op);
      node.add_input(from);
      node.add_output(to);
    }
    m.input("x", {1, 4, 5, 5}).output("y").output("n");
    m.node("f", {"x"}, {"a"}).set_domain("local");
    m.floats("w", {4, 2, 2, 2}, std::vector<float>(32, 1));
    auto& transposed = m.node("ConvTranspose", {"a", "w"}, {"y"});
    set_attribute(transposed, "group", int64_t{2});
    set_attribute(transposed, "strides", std::vector<int64_t>{2, 2});
    set_attribute(transposed, "output_padding", std::vector<int64_t>{1, 0});
    m.floats("s", {4}, {1, 1, 1, 1});
    m.node("BatchNormalization", {"a", "s", "s", "s", "s"}, {"bn"});
    set_attribute(m.node("LRN", {"bn"}, {"n"}), "size", int64_t{3});
    models.push_back(m);
  }
  return models;
}

// Sound, or a UserError: anything else escapes and fails the test.
bool import_or_refuse(const std::string& bytes) {
  GraphInterpreter evaluator;
  try {
    const Graph graph = import_onnx_bytes(bytes, {}, standard_ops(), evaluator);
    EXPECT_THAT(verify(graph), testing::IsEmpty());
    export_onnx_bytes(graph);
    return true;
  } catch (const UserError& error) {
    EXPECT_TRUE(error.diagnostic().id.starts_with("TSR-")) << error.what();
    EXPECT_FALSE(error.diagnostic().message.empty());
    return false;
  }
}

TEST(OnnxFuzz, SeedsImport) {
  for (const OnnxModel& model : seeds()) EXPECT_TRUE(import_or_refuse(model.bytes()));
}

TEST(OnnxFuzz, ChangedModels) {
  std::mt19937_64 random(kSeed);
  size_t accepted = 0;
  for (const OnnxModel& seed : seeds()) {
    for (uint64_t round = 0; round < kRounds; ++round) {
      std::string bytes = seed.bytes();
      for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) bytes = mutate_message(bytes, random);
      SCOPED_TRACE(fmt::format("TESSERA_FUZZ_SEED={}, round {}", kSeed, round));
      accepted += import_or_refuse(bytes);
      if (HasFailure()) return;
    }
  }
  // Changes are small, so that some models stay legal: else this would test the parser only.
  EXPECT_GT(accepted, seeds().size() * kRounds / 20);
}

TEST(OnnxFuzz, ChangedBytes) {
  std::mt19937_64 random(kSeed);
  for (const OnnxModel& seed : seeds()) {
    const std::string bytes = seed.bytes();
    for (uint64_t round = 0; round < kRounds; ++round) {
      std::string changed = bytes;
      for (uint64_t changes = 1 + random() % 8; changes > 0; --changes)
        changed[random() % changed.size()] = static_cast<char>(random());
      if (random() % 4 == 0) changed.resize(random() % changed.size());
      SCOPED_TRACE(fmt::format("TESSERA_FUZZ_SEED={}, round {}", kSeed, round));
      import_or_refuse(changed);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace tessera
