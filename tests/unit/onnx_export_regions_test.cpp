// Control flow, states and symbols as ONNX: read back, the graph computes the same.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

#include "graph/bind_symbols.h"
#include "graph/control_flow.h"
#include "graph/data_sizes.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "import/onnx/onnx_import.h"
#include "import/onnx/write/onnx_export.h"
#include "interp/graph_interp.h"
#include "interp/graph_session.h"
#include "onnx-ml.pb.h"
#include "ops/op_table.h"
#include "random_control_flow.h"
#include "support/symbolic_graphs.h"
#include "support/test_data.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

Graph parse(const std::string& text) { return parse_graph(text, standard_ops()); }

Graph read_back(const std::string& bytes, const ImportOptions& options = {}) {
  GraphInterpreter evaluator;
  Graph graph = import_onnx_bytes(bytes, options, standard_ops(), evaluator);
  EXPECT_THAT(verify(graph), testing::IsEmpty());
  return graph;
}

// Every node of the graph and its subgraphs: "If", "ai.tessera:order".
void add_operators(const onnx::GraphProto& graph, std::multiset<std::string>& operators) {
  for (const auto& node : graph.node()) {
    operators.insert(node.domain().empty() ? node.op_type() : node.domain() + ":" + node.op_type());
    for (const auto& attribute : node.attribute())
      if (attribute.has_g()) add_operators(attribute.g(), operators);
  }
}

std::multiset<std::string> operators_of(const std::string& bytes) {
  onnx::ModelProto model;
  model.ParseFromString(bytes);
  std::multiset<std::string> operators;
  add_operators(model.graph(), operators);
  return operators;
}

size_t count_nodes(const Graph& graph, OpKind kind) {
  size_t count = 0;
  for (const Node& node : graph.nodes()) {
    count += node.op->kind == kind;
    for (const GraphPtr& region : node.regions) count += count_nodes(*region, kind);
  }
  return count;
}

void expect_same_values(const Graph& back, const Graph& graph, const std::vector<Tensor>& inputs) {
  GraphInterpreter interpreter;
  const auto found = interpreter.evaluate(back, inputs), want = interpreter.evaluate(graph, inputs);
  ASSERT_GE(want.size(), found.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(tensors_agree(found[i], want[i])) << "output " << i << "\n"
                                                  << print(graph, {.elide_constants = true}) << "\n"
                                                  << print(back, {.elide_constants = true});
}

TEST(OnnxExportRegions, RandomControlFlow) {
  size_t loops = 0, ifs = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Graph graph = random_control_flow(seed);
    const Graph back = read_back(export_onnx_bytes(graph));
    loops += count_nodes(back, OpKind::kLoop);
    ifs += count_nodes(back, OpKind::kIf);
    for (uint64_t round = 0; round < 2; ++round) expect_same_values(back, graph, control_flow_inputs(graph, round));
  }
  EXPECT_GT(loops, 100u);  // they are read as what they were
  EXPECT_GT(ifs, 20u);
}

std::string loop_of(const std::string& operands, const std::string& attributes, const std::string& inputs,
                    const std::string& condition) {
  return fmt::format(R"(
graph @main(%n: i64[], %c: bool[], %s: f32[2], %x: f32[4,2], %k: f32[2]) -> (%t: f32[2], %y: f32[4,2]) {{
  %t, %y = loop({}) {{{}num_carried = 1}} ({{
    graph @body(%i: i64[], %a: f32[2]{}, %m: f32[2]) -> ({}%b: f32[2], %p: f32[2]) {{
      %e = mul(%a, %m) : f32[2]
      %f = cast(%i) {{to = f32}} : f32[]
      %p = add(%e, %f) : f32[2]
      %b = tanh(%p) : f32[2]
      %three = constant {{value = dense<i64[] 2>}} : i64[]
      %go = lt(%i, %three) : bool[]
    }}
  }}) : f32[2], f32[4,2]
}}
)",
                     operands, attributes, inputs, condition);
}

TEST(OnnxExportRegions, EveryKindOfLoop) {
  for (const bool counted : {false, true})
    for (const bool condition : {false, true})
      for (const int scan : {0, 1, 2})  // 0: max_trip, 2: backwards
        for (const bool turned : {false, true}) {
          const std::string text = loop_of(
              fmt::format("{}{}%s{}, %k", counted ? "%n, " : "", condition ? "%c, " : "", scan ? ", %x" : ""),
              fmt::format("{}{}{}{}", counted ? "counted = true, " : "", condition ? "has_condition = true, " : "",
                          scan ? fmt::format("num_scanned = 1, scan_reversed = [{}], ", scan - 1) : "max_trip = [4], ",
                          turned ? "stack_reversed = [1], " : ""),
              scan ? ", %slice: f32[2]" : "", condition ? "%go: bool[], " : "");
          SCOPED_TRACE(text);
          const Graph graph = parse(text);
          const std::string bytes = export_onnx_bytes(graph);
          const bool plain = scan > 0 && !counted && !condition;
          EXPECT_EQ(operators_of(bytes).count("Scan"), plain ? 1u : 0u);
          EXPECT_EQ(operators_of(bytes).count("Loop"), plain ? 0u : 1u);
          const Graph back = read_back(bytes);
          EXPECT_EQ(count_nodes(back, OpKind::kLoop), 1u);
          for (const int64_t count : {-1, 0, 1, 3, 9})
            for (const int64_t go : {0, 1}) {
              std::vector<Tensor> inputs = control_flow_inputs(graph, 3);
              inputs[0].set_int(0, count);
              inputs[1].set_int(0, go);
              expect_same_values(back, graph, inputs);
            }
        }
}

TEST(OnnxExportRegions, ExamplesOfOperatorsWithRegions) {
  for (const char* name : {"if", "loop", "call"}) {
    const std::string& example = standard_ops().get(name).example;
    const Graph graph = parse(example.substr(0, example.find("\nrun ") + 1));
    expect_same_values(read_back(export_onnx_bytes(graph)), graph, control_flow_inputs(graph, 1));
  }
}

constexpr const char* kStates = R"(
graph @main(%x: f32[2], %s: f32[2] state("sum"), %n: i64[] state("calls", dense<i64[] 5>))
    -> (%y: f32[2], %t: f32[2] state("sum"), %m: i64[] state("calls")) {
  %t = add(%s, %x) : f32[2]
  %one = constant {value = dense<i64[] 1>} : i64[]
  %m = add(%n, %one) : i64[]
  %f = cast(%m) {to = f32} : f32[]
  %y = mul(%t, %f) : f32[2]
}
)";

TEST(OnnxExportRegions, StatesAreInputsWithInitializersAndOutputs) {
  const Graph graph = parse(kStates);
  const std::string bytes = export_onnx_bytes(graph);
  onnx::ModelProto model;
  model.ParseFromString(bytes);
  std::vector<std::string> inputs, outputs, initializers;
  for (const auto& value : model.graph().input()) inputs.push_back(value.name());
  for (const auto& value : model.graph().output()) outputs.push_back(value.name());
  for (const auto& tensor : model.graph().initializer()) initializers.push_back(tensor.name());
  EXPECT_THAT(inputs, testing::ElementsAre("x", "sum", "calls"));
  EXPECT_THAT(outputs, testing::ElementsAre("y", "sum.next", "calls.next"));
  EXPECT_THAT(initializers, testing::IsSupersetOf({"sum", "calls"}));

  const Graph back = read_back(bytes);
  ASSERT_EQ(back.states.size(), 2u);
  EXPECT_EQ(back.states[0].name, "sum");
  EXPECT_EQ(back.states[1].name, "calls");
  EXPECT_EQ(back.num_own_inputs(), 1u);
  GraphInterpreter interpreter;
  GraphSession found(back, interpreter), want(graph, interpreter);
  for (int call = 0; call < 3; ++call) {
    std::vector<Tensor> given = {Tensor(DType::kF32, {2})};
    given[0].set_double(0, 1);
    given[0].set_double(1, call);
    EXPECT_TRUE(tensors_agree(found.call(given)[0], want.call(given)[0], 0));
  }
}

TEST(OnnxExportRegions, StatesThatTheMetadataMakesUp) {
  onnx::ModelProto sound;
  sound.ParseFromString(export_onnx_bytes(parse(kStates)));
  const auto message = [](const onnx::ModelProto& model) {
    try {
      GraphInterpreter evaluator;
      import_onnx_bytes(model.SerializeAsString(), {}, standard_ops(), evaluator);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  onnx::ModelProto model = sound;
  model.mutable_metadata_props(0)->set_key("tessera.state.nothing");
  EXPECT_THAT(message(model), testing::AllOf(testing::HasSubstr("TSR-1016"), testing::HasSubstr("has no input")));
  model = sound;
  model.mutable_metadata_props(1)->set_key("tessera.state.sum");
  EXPECT_THAT(message(model), testing::HasSubstr("has no input"));
  model = sound;
  model.mutable_metadata_props(1)->set_value("sum.next");
  EXPECT_THAT(message(model), testing::HasSubstr("has no output"));
  model = sound;
  model.mutable_metadata_props(0)->set_value("calls.next");
  model.mutable_metadata_props(1)->set_value("sum.next");
  EXPECT_THAT(message(model), testing::HasSubstr("state 'sum' is f32[2] before a run and i64[] behind it"));
  model = sound;
  for (auto& tensor : *model.mutable_graph()->mutable_initializer())
    if (tensor.name() == "sum") tensor.set_name("other");
  EXPECT_THAT(message(model), testing::HasSubstr("has no initializer"));
}

// With the symbols that the graph has, and at fixed sizes.
void expect_same_sizes(const Graph& graph) {
  const std::string bytes = export_onnx_bytes(graph);
  ImportOptions open;
  for (const SymbolRange& symbol : graph.symbols) {
    open.dims[symbol.var->name] = {symbol.lo, symbol.hi};
    open.symbols.push_back(symbol);
  }
  const Graph back = read_back(bytes, open);
  EXPECT_EQ(back.symbols.size(), graph.symbols.size());
  for (const Ints& point : symbolic_graphs::points_of(graph, 3, 1)) {
    ImportOptions fixed;
    for (size_t i = 0; i < point.size(); ++i) fixed.dims[graph.symbols[i].var->name] = {point[i], point[i]};
    const Graph want = bind_symbols(graph, point);
    const std::vector<Tensor> inputs = symbolic_graphs::inputs_at(want, 1);
    expect_same_values(bind_symbols(back, point), want, inputs);
    expect_same_values(read_back(bytes, fixed), want, inputs);
  }
}

TEST(OnnxExportRegions, SymbolsAreNamesOfDimensions) {
  for (const Graph& graph : symbolic_graphs::graphs_about_sizes()) {
    SCOPED_TRACE(print(graph));
    expect_same_sizes(graph);
  }
  expect_same_sizes(symbolic_graphs::encoder());
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Graph graph = symbolic_graphs::random_symbolic_graph(seed);
    SCOPED_TRACE(print(graph, {.elide_constants = true}));
    expect_same_sizes(graph);
  }
}

TEST(OnnxExportRegions, LoopsOfSymbolicSizes) {
  expect_same_sizes(parse(R"(
graph @main[n in 1..9, m in 1..5](%x: f32[n,m], %s: f32[m], %c: i64[m]) -> (%t: f32[m], %y: f32[(n * 2),m], %z: f32[n,m]) {
  %t, %y = loop(%s) {max_trip = [(n * 2)], num_carried = 1, stack_reversed = [1]} ({
    graph @body(%i: i64[], %a: f32[m]) -> (%b: f32[m], %p: f32[m]) {
      %f = cast(%i) {to = f32} : f32[]
      %p = add(%a, %f) : f32[m]
      %b = tanh(%p) : f32[m]
    }
  }) : f32[m], f32[(n * 2),m]
  %count = reduce(%c) {axes = [0], keepdims = false, kind = "max"} : i64[]
  %u, %z = loop(%count, %t, %x) {counted = true, num_carried = 1, num_scanned = 1, scan_reversed = [1]} ({
    graph @body(%i: i64[], %a: f32[m], %e: f32[m]) -> (%b: f32[m], %p: f32[m]) {
      %b = add(%a, %e) : f32[m]
      %p = exp(%b) : f32[m]
    }
  }) : f32[m], f32[n,m]
})"));
}

TEST(OnnxExportRegions, ComputeOfSymbolicSizes) {
  expect_same_sizes(parse(R"text(
graph @main[n in 1..9](%x: f32[n,3]) -> (%y: f32[n]) {
  %y = compute(%x) {body = "out[i<s0] = sum[k<3] x0[((s0 - i) - 1), k]", sizes = [n]} : f32[n]
})text"));
}

// Sizes that data decide are computed where they are bound, and follow from that behind it.
TEST(OnnxExportRegions, SizesThatDataDecide) {
  const std::string& example = standard_ops().get("bind_size").example;
  const std::string graphs[] = {example.substr(0, example.find("\nrun ") + 1),
                                R"(
graph @main[c upto 12](%m: bool[12], %x: f32[12,3]) -> (%y: f32[c,3], %z: f32[(c * 3)], %w: f32[c,c]) {
  %ones = cast(%m) {to = i64} : i64[12]
  %count = reduce(%ones) {axes = [0], keepdims = false, kind = "sum"} : i64[]
  %size = bind_size(%count) {size = [c]} : i64[]
  %y = slice(%x) {sizes = [c, 3], starts = [0, 0], steps = [1, 1]} : f32[c,3]
  %z = reshape(%y) {shape = [(c * 3)]} : f32[(c * 3)]
  %t = transpose(%y) {perm = [1, 0]} : f32[3,c]
  %w = matmul(%y, %t) : f32[c,c]
})",
                                R"(
graph @main[c upto 9, d upto (c + 1)](%n: i64[], %x: f32[9], %s: f32[]) -> (%y: f32[c,2], %z: f32[d], %i: i64[c]) {
  %size = bind_size(%n) {size = [c]} : i64[]
  %part = slice(%x) {sizes = [c], starts = [0], steps = [1]} : f32[c]
  %row = reshape(%part) {shape = [c, 1]} : f32[c,1]
  %y = broadcast(%row) {shape = [c, 2]} : f32[c,2]
  %sum = reduce(%part) {axes = [0], keepdims = false, kind = "sum"} : f32[]
  %more = cast(%sum) {to = i64} : i64[]
  %other = bind_size(%more) {size = [d]} : i64[]
  %z = broadcast(%s) {shape = [d]} : f32[d]
  %i = iota() {axis = 0, dtype = i64, shape = [c]} : i64[c]
})",
                                R"(
graph @main[c upto 5](%n: i64[], %x: f32[5,4]) -> (%a: f32[4], %rows: f32[c,4]) {
  %size = bind_size(%n) {size = [c]} : i64[]
  %part = slice(%x) {sizes = [c, 4], starts = [0, 0], steps = [1, 1]} : f32[c,4]
  %start = slice(%x) {sizes = [1, 4], starts = [4, 0], steps = [1, 1]} : f32[1,4]
  %first = reshape(%start) {shape = [4]} : f32[4]
  %a, %rows = loop(%first, %part) {num_carried = 1, num_scanned = 1} ({
    graph @body(%i: i64[], %s: f32[4], %e: f32[4]) -> (%b: f32[4], %p: f32[4]) {
      %b = add(%s, %e) : f32[4]
      %p = tanh(%b) : f32[4]
    }
  }) : f32[4], f32[c,4]
})"};
  for (const std::string& text : graphs) {
    SCOPED_TRACE(text);
    const Graph graph = parse(text);
    ImportOptions options;
    options.data_sizes = true;
    const Graph back = read_back(export_onnx_bytes(graph), options);
    EXPECT_TRUE(has_data_symbols(back));
    for (int64_t count : {-1, 0, 1, 3, 5, 12}) {
      std::vector<Tensor> inputs = symbolic_graphs::inputs_at(graph, static_cast<uint64_t>(count + 2));
      for (Tensor& input : inputs) {
        if (input.dtype() == DType::kI64) input.set_int(0, count);
        for (int64_t i = 0; input.dtype() == DType::kBool && i < input.num_elements(); ++i) input.set_int(i, i < count);
      }
      expect_same_values(back, graph, inputs);
    }
  }
}

TEST(OnnxExportRegions, WhatHasNoForm) {
  const auto message = [](const std::string& text) {
    try {
      export_onnx_bytes(parse(text));
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_THAT(message(R"(
graph @main[n in 1..9](%x: f32[(n * 2)]) -> (%y: f32[n]) {
  %y = slice(%x) {sizes = [n], starts = [0], steps = [1]} : f32[n]
})"),
              testing::AllOf(testing::HasSubstr("TSR-1060"),
                             testing::HasSubstr("the size n is no dimension of an input by itself")));
  EXPECT_THAT(message(R"(
graph @main[n in 1..9](%x: f32[n], %s: f32[n] state("last")) -> (%y: f32[n], %t: f32[n] state("last")) {
  %y = add(%x, %s) : f32[n]
  %t = neg(%x) : f32[n]
})"),
              testing::AllOf(testing::HasSubstr("TSR-1060"),
                             testing::HasSubstr("state last begins with zeros of type f32[n]")));
}

}  // namespace
}  // namespace tessera
