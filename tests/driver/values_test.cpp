// Values across the C API: what compiled code and the interpreter take and give, and what they refuse.
#include <functional>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/onnx_model.h"
#include "tessera/compiler.h"
#include "tessera/tessera.h"

namespace tessera {
namespace {

// y = the sequence s with the tensor of strings x at its end; h = whether the optional o has an element.
std::string model_bytes() {
  OnnxModel model(21);
  model.input("s", {}).input("x", {2}, onnx::TensorProto::STRING).input("o", {}).output("y").output("h");
  onnx::TypeProto sequence;
  sequence.mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type()->set_elem_type(
      onnx::TensorProto::STRING);
  *model.graph().mutable_input(0)->mutable_type() = sequence;
  *model.graph().mutable_output(0)->mutable_type() = sequence;
  model.graph().mutable_input(2)->mutable_type()->mutable_optional_type()->mutable_elem_type()->CopyFrom(sequence);
  model.graph().mutable_output(1)->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::BOOL);
  model.graph().mutable_output(1)->mutable_type()->mutable_tensor_type()->mutable_shape();
  model.node("SequenceInsert", {"s", "x"}, {"y"});
  model.node("OptionalHasElement", {"o"}, {"h"});
  return model.bytes();
}

struct Values {
  tessera_string texts[2] = {{"ab", 2}, {"\xC3\xBC", 2}};
  tessera_value x = {}, sequence = {}, optional = {};
  const tessera_value *sequence_items[1] = {&x}, *optional_items[2] = {&sequence, &sequence};
  std::vector<const tessera_value*> inputs{&sequence, &x, &optional};

  Values() {
    x.dtype = TESSERA_STRING;
    x.rank = 1;
    x.dims[0] = 2;
    x.data = texts;
    sequence.kind = TESSERA_SEQUENCE;
    sequence.num_items = 1;
    sequence.items = sequence_items;
    optional.kind = TESSERA_OPTIONAL;
    optional.items = optional_items;
  }
  Values(const Values&) = delete;
};

using Result = std::shared_ptr<const tessera_value>;
using RunValues = std::function<std::vector<Result>(const std::vector<const tessera_value*>&)>;

// Runs once, and answers the id of the error, or "".
std::string id_of(const RunValues& run, const std::vector<const tessera_value*>& inputs) {
  try {
    run(inputs);
  } catch (const CompileError& error) {
    EXPECT_FALSE(error.is_bug()) << error.what();
    return error.details().id;
  }
  return "";
}

class ValuesTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const std::string bytes = model_bytes();
    if (GetParam()) {
      interpreter_ = std::make_unique<Interpreter>(ModelBytes{bytes, "", "values"});
      run_ = [this](const std::vector<const tessera_value*>& inputs) { return interpreter_->run_values(inputs); };
      return;
    }
    const std::vector<std::byte> contents = compile_to_memory(ModelBytes{bytes, "", "values"});
    tessera_error error = {};
    ASSERT_EQ(tessera_module_load_memory(contents.data(), contents.size(), nullptr, &module_, &error), TESSERA_OK);
    ASSERT_EQ(tessera_session_create(module_, nullptr, &session_, &error), TESSERA_OK);
    run_ = [this](const std::vector<const tessera_value*>& inputs) {
      std::vector<tessera_value*> outputs(2, nullptr);
      tessera_error failure = {};
      const tessera_status status = tessera_session_run_values(
          session_, inputs.data(), static_cast<int32_t>(inputs.size()), outputs.data(), 2, nullptr, &failure);
      if (status != TESSERA_OK)
        throw CompileError(failure.message,
                           {.id = failure.id, .message = failure.message, .node = {}, .legal = {}, .hint = {}});
      std::vector<Result> results;
      for (tessera_value* output : outputs)
        results.emplace_back(output, [](tessera_value* value) { tessera_value_free(value, nullptr); });
      return results;
    };
  }
  void TearDown() override {
    tessera_session_free(session_);
    tessera_module_free(module_);
  }

  tessera_module* module_ = nullptr;
  tessera_session* session_ = nullptr;
  std::unique_ptr<Interpreter> interpreter_;
  RunValues run_;
};

std::string text(const tessera_value& value, int64_t index) {
  const tessera_string& string = static_cast<const tessera_string*>(value.data)[index];
  return {string.data, string.size};
}

TEST_P(ValuesTest, GoInAndComeOut) {
  Values values;
  for (const int64_t items : {0, 1}) {
    values.optional.num_items = items;
    const std::vector<Result> results = run_(values.inputs);
    ASSERT_EQ(results.size(), 2);
    ASSERT_EQ(results[0]->kind, TESSERA_SEQUENCE);
    ASSERT_EQ(results[0]->num_items, 2);
    for (const int64_t i : {0, 1}) {
      const tessera_value& element = *results[0]->items[i];
      ASSERT_EQ(element.dtype, TESSERA_STRING);
      ASSERT_EQ(std::vector<int64_t>(element.dims, element.dims + element.rank), std::vector<int64_t>{2});
      EXPECT_EQ(text(element, 0), "ab");
      EXPECT_EQ(text(element, 1), "\xC3\xBC");
    }
    ASSERT_EQ(results[1]->dtype, TESSERA_BOOL);
    EXPECT_EQ(*static_cast<const bool*>(results[1]->data), items == 1);
  }
}

TEST_P(ValuesTest, WhatIsNoSoundValueIsRefused) {
  const std::map<std::string, std::pair<std::function<void(Values&)>, std::string>> cases = {
      {"a null pointer", {[](Values& v) { v.inputs[0] = nullptr; }, "TSR-7042"}},
      {"a null item", {[](Values& v) { v.sequence_items[0] = nullptr; }, "TSR-7042"}},
      {"no items", {[](Values& v) { v.sequence.items = nullptr; }, "TSR-7042"}},
      {"items below none", {[](Values& v) { v.sequence.num_items = -1; }, "TSR-7042"}},
      {"no kind", {[](Values& v) { v.sequence.kind = static_cast<tessera_value_kind>(9); }, "TSR-7042"}},
      {"no data", {[](Values& v) { v.x.data = nullptr; }, "TSR-7042"}},
      {"a string without data", {[](Values& v) { v.texts[0].data = nullptr; }, "TSR-7042"}},
      {"a negative dimension", {[](Values& v) { v.x.dims[0] = -2; }, "TSR-7042"}},
      {"too high a rank", {[](Values& v) { v.x.rank = 17; }, "TSR-7042"}},
      {"a rank below none", {[](Values& v) { v.x.rank = -1; }, "TSR-7042"}},
      {"several elements", {[](Values& v) { v.optional.num_items = 2; }, "TSR-7042"}},
      {"no UTF-8", {[](Values& v) { v.texts[1] = {"\xC3", 1}; }, "TSR-7044"}},
      {"one input less", {[](Values& v) { v.inputs.pop_back(); }, GetParam() ? "TSR-6301" : "TSR-7030"}},
      {"another dtype", {[](Values& v) { v.x.dtype = TESSERA_BOOL; }, GetParam() ? "TSR-6309" : "TSR-7042"}},
      {"another shape", {[](Values& v) { v.x.dims[0] = 1; }, GetParam() ? "TSR-6303" : "TSR-7033"}},
      {"another kind", {[](Values& v) { v.inputs[2] = &v.sequence; }, GetParam() ? "TSR-6309" : "TSR-7042"}},
  };
  for (const auto& [name, change] : cases) {
    Values values;
    change.first(values);
    EXPECT_EQ(id_of(run_, values.inputs), change.second) << name;
  }
  EXPECT_EQ(id_of(run_, Values().inputs), "");
}

INSTANTIATE_TEST_SUITE_P(Engines, ValuesTest, ::testing::Bool(), [](const ::testing::TestParamInfo<bool>& engine) {
  return engine.param ? "Interpreted" : "Compiled";
});

TEST(Values, TheInterpreterSaysWhatItTakes) {
  Interpreter interpreter(ModelBytes{model_bytes(), "", "values"});
  EXPECT_TRUE(interpreter.has_values());
  EXPECT_TRUE(interpreter.inputs().empty());
  ASSERT_EQ(interpreter.input_values().size(), 3);
  EXPECT_EQ(interpreter.input_values()[2].num_wrappers, 2);
  EXPECT_EQ(interpreter.input_values()[2].wrappers[1], TESSERA_SEQUENCE);
  EXPECT_EQ(interpreter.input_values()[1].dims[0], 2);
  const auto run = [&](const std::vector<const tessera_value*>&) {
    interpreter.run({}, {});
    return std::vector<Result>();
  };
  EXPECT_EQ(id_of(run, {}), "TSR-7043");
}

TEST(Values, TheInterpreterRunsTensorsAsValues) {
  OnnxModel model;
  model.input("x", {2}).output("y").node("Neg", {"x"}, {"y"});
  Interpreter interpreter(ModelBytes{model.bytes(), "", "tensors"});
  EXPECT_FALSE(interpreter.has_values());
  const float data[2] = {1, -2};
  tessera_value x = {};
  x.dtype = TESSERA_F32;
  x.rank = 1;
  x.dims[0] = 2;
  x.data = data;
  const std::vector<Result> results = interpreter.run_values({&x});
  ASSERT_EQ(results.size(), 1);
  EXPECT_EQ(static_cast<const float*>(results[0]->data)[0], -1);
  EXPECT_EQ(static_cast<const float*>(results[0]->data)[1], 2);
}

}  // namespace
}  // namespace tessera
