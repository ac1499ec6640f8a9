// State that is carried from call to call in one place: outputs bound to the memory of inputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "support/onnx_model.h"
#include "support/test_data.h"
#include "tessera/compiler.h"
#include "tessera/tessera.h"

namespace tessera {
namespace {

// A compiled model of f32 tensors with one input and one output of the state's shape, each the last one.
class Compiled {
 public:
  Compiled(const OnnxModel& model, int opt_level) {
    const TemporaryFolder folder;
    CompileOptions options;
    options.opt_level = opt_level;
    const std::vector<std::byte> bytes = compile_to_memory(folder.write("model.onnx", model.bytes()), options);
    tessera_error error = {};
    EXPECT_EQ(tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module_, &error), TESSERA_OK)
        << error.message;
    EXPECT_EQ(tessera_session_create(module_, nullptr, &session_, &error), TESSERA_OK) << error.message;
  }
  ~Compiled() {
    tessera_session_free(session_);
    tessera_module_free(module_);
  }
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  bool writes_in_place() const {
    return tessera_module_writes_in_place(module_, tessera_module_num_outputs(module_) - 1,
                                          tessera_module_num_inputs(module_) - 1) == 1;
  }

  // The state after each of `steps` calls, in one place or in two that change roles.
  std::vector<std::vector<float>> run(int steps, bool one_place) {
    std::vector<tessera_tensor> inputs, outputs;
    std::vector<std::vector<float>> memory;
    for (int i = 0; i < tessera_module_num_inputs(module_); ++i) {
      tessera_tensor_info info;
      EXPECT_EQ(tessera_module_input(module_, i, &info), TESSERA_OK);
      inputs.push_back(make(info, memory));
    }
    for (int i = 0; i < tessera_module_num_outputs(module_); ++i) {
      tessera_tensor_info info;
      EXPECT_EQ(tessera_module_output(module_, i, &info), TESSERA_OK);
      outputs.push_back(make(info, memory));
    }
    void* const first = inputs.back().data;
    void* const second = outputs.back().data;
    const size_t state_size = memory.back().size();
    std::vector<std::vector<float>> states;
    for (int step = 0; step < steps; ++step) {
      inputs.back().data = one_place || step % 2 == 0 ? first : second;
      outputs.back().data = one_place || step % 2 == 1 ? first : second;
      tessera_error error = {};
      EXPECT_EQ(tessera_session_run(session_, inputs.data(), static_cast<int32_t>(inputs.size()), outputs.data(),
                                    static_cast<int32_t>(outputs.size()), &error),
                TESSERA_OK)
          << error.message;
      const auto* state = static_cast<const float*>(outputs.back().data);
      states.emplace_back(state, state + state_size);
    }
    return states;
  }

 private:
  static tessera_tensor make(const tessera_tensor_info& info, std::vector<std::vector<float>>& memory) {
    tessera_tensor tensor = {};
    tensor.dtype = info.dtype;
    tensor.rank = info.rank;
    size_t count = 1;
    for (int32_t axis = 0; axis < info.rank; ++axis) {
      tensor.dims[axis] = info.dims[axis];
      count *= static_cast<size_t>(info.dims[axis]);
    }
    memory.reserve(16);  // so that nothing moves
    std::vector<float>& values = memory.emplace_back(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>((i * 7 + memory.size()) % 13) / 8 - 0.5F;
    tensor.data = values.data();
    return tensor;
  }

  tessera_module* module_ = nullptr;
  tessera_session* session_ = nullptr;
};

std::vector<float> ramp(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>((i * 37) % 17) / 64 - 0.125F;
  return values;
}

struct StateModel {
  const char* name;
  bool in_place;  // at -O3
  std::function<void(OnnxModel&)> build;
};

const std::vector<StateModel>& models() {
  static const std::vector<StateModel> list = {
      {"Counter", true,
       [](OnnxModel& m) {
         m.floats("one", {}, {1}).input("s", {5, 33}).output("t");
         m.node("Add", {"s", "one"}, {"t"});
       }},
      {"SumWithInput", true,
       [](OnnxModel& m) {
         m.input("x", {64}).input("s", {64}).output("y").output("t");
         m.node("Add", {"s", "x"}, {"t"});
         m.node("Mul", {"x", "x"}, {"y"});
       }},
      // Every element of the new state needs all of the old one.
      {"RecurrentNetwork", false,
       [](OnnxModel& m) {
         m.floats("w", {24, 24}, ramp(24 * 24)).input("x", {3, 24}).input("s", {3, 24}).output("t");
         m.node("MatMul", {"s", "w"}, {"p"});
         m.node("Add", {"p", "x"}, {"q"});
         m.node("Tanh", {"q"}, {"t"});
       }},
      // The oldest row goes, the others move, a new one comes.
      {"SlidingWindow", false,
       [](OnnxModel& m) {
         m.ints("from", {1}, {1}).ints("to", {1}, {8}).input("x", {1, 16}).input("s", {8, 16}).output("t");
         m.node("Slice", {"s", "from", "to"}, {"rest"});
         m.node("Concat", {"rest", "x"}, {"t"}).add_attribute()->set_name("axis");
         onnx::AttributeProto& axis = *m.proto.mutable_graph()->mutable_node(1)->mutable_attribute(0);
         axis.set_type(onnx::AttributeProto::INT);
         axis.set_i(0);
       }},
      // The state is read again behind what computes the new one.
      {"ReadAgain", false,
       [](OnnxModel& m) {
         m.floats("w", {16, 16}, ramp(256)).input("s", {16, 16}).output("y").output("t");
         m.node("Sin", {"s"}, {"t"});
         m.node("MatMul", {"t", "w"}, {"u"});
         m.node("MatMul", {"u", "s"}, {"y"});
       }},
  };
  return list;
}

class State : public testing::TestWithParam<size_t> {};

TEST_P(State, OnePlaceGivesTheSameAsTwo) {
  const StateModel& entry = models()[GetParam()];
  for (const int level : {0, 1, 3}) {
    OnnxModel model;
    entry.build(model);
    Compiled compiled(model, level);
    const auto separate = compiled.run(5, false);
    EXPECT_EQ(compiled.run(5, true), separate) << entry.name << " at -O" << level;
    EXPECT_NE(separate[0], separate[4]) << "the state should change";
    if (level == 3) {
      EXPECT_EQ(compiled.writes_in_place(), entry.in_place) << entry.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, State, testing::Range(size_t{0}, models().size()),
                         [](const auto& info) { return std::string(models()[info.param].name); });

TEST(State, IndicesOutOfRangeAreNotInPlace) {
  OnnxModel model;
  models()[0].build(model);
  const TemporaryFolder folder;
  const std::vector<std::byte> bytes = compile_to_memory(folder.write("model.onnx", model.bytes()), {});
  tessera_module* module = nullptr;
  tessera_error error = {};
  ASSERT_EQ(tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module, &error), TESSERA_OK);
  EXPECT_EQ(tessera_module_writes_in_place(module, 0, 0), 1);
  for (const int bad : {-1, 1, 1 << 30}) {
    EXPECT_EQ(tessera_module_writes_in_place(module, bad, 0), 0);
    EXPECT_EQ(tessera_module_writes_in_place(module, 0, bad), 0);
  }
  EXPECT_EQ(tessera_module_writes_in_place(nullptr, 0, 0), 0);
  tessera_module_free(module);
}

}  // namespace
}  // namespace tessera
