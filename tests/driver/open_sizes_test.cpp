// Modules for a range of sizes: what a session has for them, and what it refuses. tests/e2e/open_sizes.py has the
// results of many models beside ONNX Runtime's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "support/onnx_model.h"
#include "support/test_data.h"
#include "tessera/compiler.h"
#include "tessera/tessera.h"

namespace tessera {
namespace {

using testing::HasSubstr;

// y[n,2k] = softmax(relu(x) and x side by side), s[n] = sums of x's rows
OnnxModel two_open_axes() {
  OnnxModel model;
  model.open_input("x", {OnnxModel::named("n"), OnnxModel::named("k")}).output("y").output("s");
  model.node("Relu", {"x"}, {"r"});
  set_attribute(model.node("Concat", {"r", "x"}, {"c"}), "axis", int64_t{1});
  set_attribute(model.node("Softmax", {"c"}, {"y"}), "axis", int64_t{1});
  set_attribute(model.node("ReduceSum", {"x", "axes"}, {"s"}), "keepdims", int64_t{0});
  model.ints("axes", {1}, {1});
  return model;
}

class Session {
 public:
  Session(const OnnxModel& model, const std::map<std::string, DimBounds>& dims) {
    const TemporaryFolder folder;
    CompileOptions options;
    options.dims = dims;
    options.num_threads = 1;
    const std::vector<std::byte> bytes = compile_to_memory(folder.write("model.onnx", model.bytes()), options);
    tessera_error error = {};
    EXPECT_EQ(tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module_, &error), TESSERA_OK)
        << error.message;
    EXPECT_EQ(tessera_session_create(module_, nullptr, &session_, &error), TESSERA_OK) << error.message;
  }
  ~Session() {
    tessera_session_free(session_);
    tessera_module_free(module_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const tessera_module* module() const { return module_; }
  const tessera_session* get() const { return session_; }

  static tessera_tensor tensor(float* data, std::vector<int64_t> dims) {
    tessera_tensor result = {};
    result.data = data;
    result.dtype = TESSERA_F32;
    result.rank = static_cast<int32_t>(dims.size());
    std::copy(dims.begin(), dims.end(), result.dims);
    return result;
  }

  std::string prepare(int64_t n, int64_t k) {
    const tessera_tensor x = tensor(nullptr, {n, k});
    tessera_error error = {};
    return tessera_session_prepare(session_, &x, 1, &error) == TESSERA_OK ? "" : error.message;
  }

  std::string run(std::vector<float>& x, int64_t n, int64_t k, std::vector<float>& y, std::vector<float>& s) {
    const tessera_tensor input = tensor(x.data(), {n, k});
    const tessera_tensor outputs[] = {tensor(y.data(), {n, 2 * k}), tensor(s.data(), {n})};
    tessera_error error = {};
    return tessera_session_run(session_, &input, 1, outputs, 2, &error) == TESSERA_OK ? "" : error.message;
  }

 private:
  tessera_module* module_ = nullptr;
  tessera_session* session_ = nullptr;
};

TEST(OpenSizes, MemoryDependsOnTheSizesAlone) {
  Session session(two_open_axes(), {{"n", {1, 90}}, {"k", {1, 70}}});
  std::mt19937 random(3);
  std::uniform_int_distribution<int64_t> any_n(1, 90), any_k(1, 70);
  std::map<std::pair<int64_t, int64_t>, uint64_t> known;
  for (int i = 0; i < 10000; ++i) {
    const int64_t n = any_n(random), k = any_k(random);
    std::vector<float> x(static_cast<size_t>(n * k), 0.5f), y(x.size() * 2), s(static_cast<size_t>(n));
    ASSERT_EQ(session.run(x, n, k, y, s), "");
    ASSERT_NEAR(s.back(), 0.5f * static_cast<float>(k), 1e-4f * static_cast<float>(k));
    ASSERT_NEAR(y.back(), 0.5f / static_cast<float>(k), 1e-5f);
    const uint64_t bytes = tessera_session_arena_bytes(session.get());
    const auto [it, is_new] = known.try_emplace({n, k}, bytes);
    ASSERT_EQ(it->second, bytes) << n << " " << k;
    // The concatenation, its exponentials and a few numbers a row, in pieces of 64 bytes.
    ASSERT_LE(bytes, static_cast<uint64_t>(2 * 2 * n * k * 4 + 3 * n * 4 + 6 * 64)) << n << " " << k;
  }
  EXPECT_GT(known.size(), 3000u);
}

TEST(OpenSizes, ShapesOfOutputs) {
  Session session(two_open_axes(), {{"n", {1, 90}}, {"k", {1, 70}}});
  tessera_tensor_info info;
  EXPECT_EQ(tessera_session_output(session.get(), 0, &info), TESSERA_INVALID_ARGUMENT) << "nothing is bound yet";
  ASSERT_EQ(session.prepare(7, 5), "");
  ASSERT_EQ(tessera_session_output(session.get(), 0, &info), TESSERA_OK);
  EXPECT_EQ(std::vector(info.dims, info.dims + info.rank), (std::vector<int64_t>{7, 10}));
  ASSERT_EQ(tessera_session_output(session.get(), 1, &info), TESSERA_OK);
  EXPECT_EQ(std::vector(info.dims, info.dims + info.rank), (std::vector<int64_t>{7}));
  EXPECT_EQ(tessera_session_output(session.get(), 2, &info), TESSERA_NOT_FOUND);
  tessera_symbol_info symbol;
  ASSERT_EQ(tessera_module_symbol(session.module(), 0, &symbol), TESSERA_OK);
  EXPECT_STREQ(symbol.name, "k");
  EXPECT_EQ(symbol.hi, 70);
}

TEST(OpenSizes, WhatIsRefused) {
  Session session(two_open_axes(), {{"n", {4, 90, 3}}, {"k", {1, 70}}});
  EXPECT_THAT(session.prepare(4, 71), HasSubstr("compiled for 'k' in 1..70"));
  EXPECT_THAT(session.prepare(1, 7), HasSubstr("compiled for 'n' in 4..88"));
  EXPECT_THAT(session.prepare(8, 7), HasSubstr("in steps of 3"));
  EXPECT_EQ(session.prepare(7, 7), "");
  std::vector<float> x(16 * 3, 1), y(16 * 6), s(16);
  ASSERT_EQ(session.run(x, 16, 3, y, s), "");
  const tessera_tensor input = Session::tensor(x.data(), {16, 3});
  const tessera_tensor wrong[] = {Session::tensor(y.data(), {16, 5}), Session::tensor(s.data(), {16})};
  tessera_error error = {};
  auto* mutable_session = const_cast<tessera_session*>(session.get());
  EXPECT_EQ(tessera_session_run(mutable_session, &input, 1, wrong, 2, &error), TESSERA_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr("takes 6 at axis 1"));
}

std::string compile_error(const OnnxModel& model, const std::map<std::string, DimBounds>& dims,
                          const std::set<std::string>& disabled = {}) {
  const TemporaryFolder folder;
  CompileOptions options;
  options.dims = dims;
  options.disabled_passes = disabled;
  try {
    compile_to_memory(folder.write("model.onnx", model.bytes()), options);
  } catch (const CompileError& error) {
    EXPECT_FALSE(error.is_bug()) << error.what();
    return error.details().id + ": " + error.details().message;
  }
  return "";
}

TEST(OpenSizes, ModelsThatHaveNoRange) {
  // The product has a meaning for 12 alone.
  OnnxModel fixed;
  fixed.open_input("x", {{2, ""}, OnnxModel::named("k")}).input("w", {12, 3}).output("y");
  fixed.node("MatMul", {"x", "w"}, {"y"});
  EXPECT_THAT(compile_error(fixed, {{"k", {4, 40}}}), HasSubstr("TSR-5023: the model has no meaning for k="));
  // Short ranges are looked at beyond their ends; what is named is a size that was asked for.
  EXPECT_THAT(compile_error(fixed, {{"k", {11, 13}}}, {"symbolic_sizes"}),
              testing::AnyOf(HasSubstr("TSR-5023: the model has no meaning for k=13: "),
                             HasSubstr("TSR-5023: the model has no meaning for k=11: ")));
  // A table of 8 has a part for each size of the range, and none for the sizes behind it at which samples of a short
  // range are taken.
  OnnxModel table;
  table.open_input("x", {OnnxModel::named("n")}).floats("t", {8}, std::vector<float>(8, 0.5f)).output("y");
  table.ints("zero", {1}, {0}).node("Shape", {"x"}, {"n"});
  table.node("Slice", {"t", "zero", "n"}, {"part"});
  table.node("Add", {"x", "part"}, {"y"});
  EXPECT_EQ(compile_error(table, {{"n", {2, 8}}}), "");
  EXPECT_THAT(compile_error(table, {{"n", {2, 8}}}, {"symbolic_sizes"}),
              testing::AllOf(HasSubstr("TSR-5023: the model has no meaning for n="),
                             HasSubstr(", which is looked at because the range is short: ")));
}

// The same for all sizes is what a step does, not how many there are. tests/e2e/open_sizes.py runs such models.
TEST(OpenSizes, ModelsThatTakeMoreStepsForLargerSizesBecomeFlows) {
  OnnxModel recurrent;
  recurrent.open_input("x", {OnnxModel::named("length"), {1, ""}, {2, ""}}).output("y");
  recurrent.floats("w", {1, 3, 2}, std::vector<float>(6, 0.5f)).floats("r", {1, 3, 3}, std::vector<float>(9, 0.25f));
  set_attribute(recurrent.node("RNN", {"x", "w", "r"}, {"y"}), "hidden_size", int64_t{3});
  EXPECT_EQ(compile_error(recurrent, {{"length", {2, 40}}}), "");
  // With a length for each member of the batch, too.
  recurrent.input("lengths", {1});
  onnx::GraphProto& graph = *recurrent.proto.mutable_graph();
  graph.mutable_input(1)->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::INT32);
  graph.mutable_node(0)->add_input("");
  graph.mutable_node(0)->add_input("lengths");
  EXPECT_EQ(compile_error(recurrent, {{"length", {2, 40}}}), "");
}

TEST(OpenSizes, SequencesOfOpenTensors) {
  OnnxModel sequence;
  sequence.open_input("x", {OnnxModel::named("n"), {3, ""}}).output("y");
  sequence.node("SequenceConstruct", {"x", "x"}, {"y"});
  EXPECT_EQ(compile_error(sequence, {{"n", {2, 9}}}), "");
}

TEST(OpenSizes, TheInterpreterHasOneSize) {
  const TemporaryFolder folder;
  CompileOptions options;
  options.dims["n"] = {1, 9};
  options.dims["k"] = {2, 2};
  try {
    const Interpreter interpreter(folder.write("model.onnx", two_open_axes().bytes()), options);
    FAIL() << "the range is taken";
  } catch (const CompileError& error) {
    EXPECT_EQ(error.details().id, "TSR-1025");
    EXPECT_EQ(error.details().message, "--dim n=1..9 is a range");
  }
}

}  // namespace
}  // namespace tessera
