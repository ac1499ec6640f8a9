// States of graphs: compiled code against the interpreter, call after call.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/compile.h"
#include "driver/engine/interpreted_model.h"
#include "driver/engine/native_model.h"
#include "graph/parser.h"
#include "graph/verify.h"
#include "ops/op_table.h"
#include "support/error.h"
#include "support/test_data.h"
#include "unit/random_graph.h"

namespace tessera {
namespace {

Graph parse(const std::string& text) { return parse_graph(text, standard_ops()); }

std::unique_ptr<Model> compiled(const Graph& graph, int opt_level, int threads = 1) {
  DriverOptions options;
  options.emit = Emit::kModule;
  options.compile.opt_level = opt_level;
  options.compile.num_threads = threads;
  PassRunner runner(options);
  return load_module(module_in_memory(compile_graph(Graph(graph), options, runner)), graph.name, threads);
}

void expect_same_states(const Model& got, const Model& want, const std::string& what) {
  ASSERT_EQ(got.states().size(), want.states().size()) << what;
  for (size_t i = 0; i < want.states().size(); ++i) {
    EXPECT_EQ(got.states()[i].name, want.states()[i].name) << what;
    EXPECT_TRUE(tensors_agree(got.state(i), want.state(i))) << what << ", state " << want.states()[i].name;
  }
}

void expect_same_run(Model& got, Model& want, const std::vector<Tensor>& inputs, const std::string& what) {
  got.bind(inputs);
  want.bind(inputs);
  got.run();
  want.run();
  ASSERT_EQ(got.results().size(), want.results().size()) << what;
  for (size_t i = 0; i < want.results().size(); ++i)
    EXPECT_TRUE(tensors_agree(got.results()[i], want.results()[i])) << what << ", output " << i;
  expect_same_states(got, want, what);
}

// Some inputs of a random graph become states. What each is afterwards: an element-wise function of it, the old value
// of another state or an input, one of the graph's values of its type, or itself.
Graph with_states(uint64_t seed) {
  Graph graph = random_graph(seed, 6);
  const std::vector<ValueId> inputs = graph.inputs, outputs = graph.outputs;
  std::vector<ValueId> own, states, after;
  for (size_t i = 0; i < inputs.size(); ++i) ((seed + i) % 3 != 0 ? states : own).push_back(inputs[i]);
  for (size_t i = 0; i < states.size(); ++i) {
    const ValueId state = states[i];
    const TensorType type = graph.type(state);  // the graph's values move when one is added
    GraphBuilder b(graph);
    std::vector<ValueId> of_type;
    for (ValueId v = 0; v < static_cast<ValueId>(graph.values().size()); ++v)
      if (graph.type(v) == type && v != state) of_type.push_back(v);
    switch ((seed / 3 + i) % 4) {
      case 0: after.push_back(b.add(standard_ops().get("tanh"), {b.add(standard_ops().get("neg"), {state})})); break;
      case 1: after.push_back(state); break;
      default:
        after.push_back(of_type.empty() ? b.add(standard_ops().get("abs"), {state}) : of_type[seed % of_type.size()]);
    }
    Tensor first(DType::kF32, type.dims());
    for (int64_t e = 0; e < first.num_elements(); ++e) first.set_double(e, static_cast<double>(e % 7) / 8 - 0.25);
    graph.states.push_back(
        {"s" + std::to_string(i), (seed + i) % 2 ? std::make_shared<const Tensor>(std::move(first)) : nullptr});
  }
  graph.inputs = own;
  graph.inputs.insert(graph.inputs.end(), states.begin(), states.end());
  graph.outputs.insert(graph.outputs.end(), after.begin(), after.end());
  return graph;
}

TEST(GraphState, AgreesWithTheInterpreterOnRandomGraphs) {
  size_t states = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const Graph graph = with_states(seed);
    ASSERT_THAT(verify(graph), testing::IsEmpty()) << "seed " << seed;
    states += graph.states.size();
    for (const int level : {0, 3}) {
      const std::unique_ptr<Model> native = compiled(graph, level, seed % 5 == 0 ? 2 : 1);
      const std::unique_ptr<Model> interpreted = interpret_graph(Graph(graph), graph.name);
      for (uint64_t call = 0; call < 4; ++call) {
        std::vector<Tensor> inputs = random_inputs(graph, seed * 10 + call);
        inputs.resize(graph.num_own_inputs());
        expect_same_run(
            *native, *interpreted, inputs,
            "seed " + std::to_string(seed) + ", -O" + std::to_string(level) + ", call " + std::to_string(call));
      }
      native->reset_states();
      interpreted->reset_states();
      expect_same_states(*native, *interpreted, "seed " + std::to_string(seed) + ", reset");
    }
  }
  EXPECT_GT(states, 20u) << "the generator should make some";
}

// Two states that change places, one that is an input of the call before, one that nobody changes.
TEST(GraphState, ReadsOldValuesWhateverIsWrittenFirst) {
  const Graph graph = parse(R"(
graph @swap(%x: f32[70], %a: f32[70] state("a"), %b: f32[70] state("b", splat<f32[70] 2>), %c: f32[70] state("c", splat<f32[70] 3>))
    -> (%y: f32[70], %b: f32[70] state("a"), %a2: f32[70] state("b"), %c: f32[70] state("c")) {
  %a2 = add(%a, %x)
  %t = mul(%a, %b)
  %y = add(%t, %c)
})");
  for (const int level : {0, 1, 3}) {
    const std::unique_ptr<Model> native = compiled(graph, level);
    const std::unique_ptr<Model> interpreted = interpret_graph(Graph(graph), graph.name);
    for (int call = 0; call < 5; ++call) {
      Tensor x(DType::kF32, {70});
      for (int64_t i = 0; i < 70; ++i) x.set_double(i, static_cast<double>(i * call) / 16);
      expect_same_run(*native, *interpreted, {x}, "-O" + std::to_string(level) + ", call " + std::to_string(call));
    }
  }
}

TEST(GraphState, IsLeftAloneByARunWhoseCheckDoesNotHold) {
  const Graph graph = parse(R"(
graph @counter(%x: f32[2], %n: i64[1] state("calls", dense<i64[1] 5>))
    -> (%y: f32[2], %m: i64[1] state("calls"), %c: i64[2] check("the calls", "at most 7")) {
  %y = neg(%x)
  %one = constant {value = dense<i64[1] 1>}
  %seven = constant {value = dense<i64[1] 7>}
  %m = add(%n, %one)
  %few = le(%m, %seven)
  %f = cast(%few) {to = i64}
  %c = concat(%f, %m) {axis = 0}
})");
  const std::unique_ptr<Model> native = compiled(graph, 3);
  native->bind({Tensor(DType::kF32, {2})});
  native->run();
  native->run();
  EXPECT_EQ(native->state(0).get_int(0), 7);
  EXPECT_THROW(native->run(), UserError);
  EXPECT_EQ(native->state(0).get_int(0), 7);
  Tensor less(DType::kI64, {1});
  native->set_state(0, less);
  native->run();
  EXPECT_EQ(native->state(0).get_int(0), 1);
  EXPECT_THROW(native->set_state(0, Tensor(DType::kF32, {1})), UserError);
  EXPECT_THROW(native->set_state(0, Tensor(DType::kI64, {2})), UserError);
}

// The element of a stepper state that nobody needs any more is overwritten: no second copy of it.
TEST(GraphState, ElementWiseUpdatesHappenInPlace) {
  const Graph graph = parse(R"(
graph @sgd(%g: f32[4096], %w: f32[4096] state("w", splat<f32[4096] 1>)) -> (%n: f32[], %u: f32[4096] state("w")) {
  %rate = constant {value = dense<f32[] 0.5>}
  %d = mul(%g, %rate)
  %u = sub(%w, %d)
  %n = reduce(%u) {axes = [0], keepdims = false, kind = "sum"}
})");
  DriverOptions options;
  options.emit = Emit::kModule;
  options.compile.num_threads = 1;
  PassRunner runner(options);
  const std::vector<std::byte> bytes = module_in_memory(compile_graph(Graph(graph), options, runner)).contents();
  tessera_module* module = nullptr;
  tessera_session* session = nullptr;
  tessera_error error = {};
  ASSERT_EQ(tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module, &error), TESSERA_OK);
  ASSERT_EQ(tessera_session_create(module, nullptr, &session, &error), TESSERA_OK);
  std::vector<float> gradient(4096, 1);
  float norm = 0;
  tessera_tensor in = {gradient.data(), TESSERA_F32, 1, {4096}}, out = {&norm, TESSERA_F32, 0, {}}, before = {},
                 after = {};
  ASSERT_EQ(tessera_session_state(session, 0, &before), TESSERA_OK);
  ASSERT_EQ(tessera_session_run(session, &in, 1, &out, 1, &error), TESSERA_OK) << error.message;
  ASSERT_EQ(tessera_session_state(session, 0, &after), TESSERA_OK);
  EXPECT_EQ(before.data, after.data);
  EXPECT_EQ(norm, 2048);
  tessera_session_free(session);
  tessera_module_free(module);
}

TEST(GraphState, OfSymbolicShapeIsRefused) {
  const Graph graph = parse(R"(
graph @open[n in 1..8](%x: f32[n], %s: f32[n] state("s")) -> (%y: f32[n], %t: f32[n] state("s")) {
  %t = add(%s, %x)
  %y = neg(%t)
})");
  EXPECT_THROW(compiled(graph, 3), UserError);
}

}  // namespace
}  // namespace tessera
