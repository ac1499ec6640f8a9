// Graph -> ONNX -> graph: the structural hash stays, and what is standard ONNX is written as standard ONNX.
#include "import/onnx/write/onnx_export.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include "graph/hash.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "import/onnx/onnx_import.h"
#include "interp/graph_interp.h"
#include "onnx-ml.pb.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"
#include "random_graph.h"
#include "support/error.h"
#include "support/test_data.h"

namespace tessera {
namespace {

Graph read_back(const std::string& bytes) {
  GraphInterpreter evaluator;
  Graph graph = import_onnx_bytes(bytes, {}, standard_ops(), evaluator);
  EXPECT_THAT(verify(graph), testing::IsEmpty());
  return graph;
}

std::set<std::string> own_operators(const std::string& bytes) {
  onnx::ModelProto model;
  model.ParseFromString(bytes);
  std::set<std::string> names;
  for (const auto& node : model.graph().node())
    if (node.domain() == "ai.tessera") names.insert(node.op_type());
  return names;
}

void expect_round_trip(const Graph& graph) {
  const std::string bytes = export_onnx_bytes(graph);
  const std::set<ValueId> outputs(graph.outputs.begin(), graph.outputs.end());
  const bool copies = outputs.size() < graph.outputs.size() ||
                      std::any_of(outputs.begin(), outputs.end(), [&](ValueId id) { return !graph.producer(id); });
  if (copies) {  // see onnx_export.h
    const std::vector<Tensor> inputs = random_inputs(graph, 1);
    GraphInterpreter interpreter;
    const auto found = interpreter.evaluate(read_back(bytes), inputs), want = interpreter.evaluate(graph, inputs);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(tensors_agree(found[i], want[i], 0));
    return;
  }
  const Graph back = read_back(bytes);
  EXPECT_EQ(structural_hash(back), structural_hash(graph))
      << print(graph, {.elide_constants = true}) << "\n---- read back ----\n"
      << print(back, {.elide_constants = true});
  ASSERT_EQ(back.inputs.size(), graph.inputs.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    EXPECT_EQ(back.value(back.inputs[i]).name, graph.value(graph.inputs[i]).name);
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    EXPECT_EQ(back.value(back.outputs[i]).name, graph.value(graph.outputs[i]).name);
}

TEST(OnnxExport, RandomGraphs) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    expect_round_trip(random_graph(seed, 3 + static_cast<int>(seed % 20)));
  }
}

// The graph of an operator's example, without its `run` lines.
Graph example_graph(const std::string& example) {
  return parse_graph(example.substr(0, example.find("\nrun ") + 1), standard_ops());
}

TEST(OnnxExport, EveryPrimitive) {
  for (const OpDef* op : standard_ops().all()) {
    if (op->kind == OpKind::kGroup || op->kind == OpKind::kComposite || op->name == "relayout") continue;
    SCOPED_TRACE(op->name);
    if (op->kind == OpKind::kIf || op->kind == OpKind::kLoop || op->kind == OpKind::kCall ||
        op->kind == OpKind::kBindSize)
      continue;  // onnx_export_regions_test.cpp
    expect_round_trip(example_graph(op->example));
  }
}

TEST(OnnxExport, EveryComposite) {
  for (const CompositeDef* def : all_composites()) {
    SCOPED_TRACE(def->name);
    // "name(x: f32[2]) {attributes}" as a graph with one value for each operand.
    const std::string head = def->example.substr(0, def->example.find("\nrun "));
    const size_t open = head.find('('),
                 close = head.find(") {") == std::string::npos ? head.rfind(')') : head.find(") {");
    std::string inputs, names;
    std::string rest = head.substr(open + 1, close - open - 1) + ", ";
    int depth = 0;
    std::string part;
    for (const char c : rest) {
      depth += c == '[' ? 1 : c == ']' ? -1 : 0;
      if (c == ',' && depth == 0) {
        part.erase(0, part.find_first_not_of(' '));
        inputs += (inputs.empty() ? "%" : ", %") + part;
        names += (names.empty() ? "%" : ", %") + part.substr(0, part.find(':'));
        part.clear();
      } else {
        part += c;
      }
    }
    // A primitive with these attributes gives us the parsed attributes; the composite is then added by hand.
    Graph graph;
    GraphBuilder builder(graph);
    std::vector<ValueId> operands;
    const Graph typed = parse_graph("graph @main(" + inputs + ") -> () {\n}\n", standard_ops());
    for (const ValueId id : typed.inputs) operands.push_back(graph.add_input(typed.value(id).name, typed.type(id)));
    const std::string text = head.find('{') == std::string::npos ? "" : head.substr(head.find('{'));
    Attrs attrs;
    for (const AttrDef& attr : def->attrs) {
      const size_t at = text.find(attr.name + " = ");
      if (at == std::string::npos) continue;
      const std::string value = text.substr(at + attr.name.size() + 3);
      switch (attr.kind) {
        case AttrKind::kBool: attrs.set(attr.name, value.starts_with("true")); break;
        case AttrKind::kInt: attrs.set(attr.name, int64_t{std::stoll(value)}); break;
        case AttrKind::kFloat: attrs.set(attr.name, std::stod(value)); break;
        case AttrKind::kString: attrs.set(attr.name, value.substr(1, value.find('"', 1) - 1)); break;
        case AttrKind::kSizes:
        case AttrKind::kInts: {
          std::vector<int64_t> numbers;
          for (size_t i = 1; i < value.find(']');) {
            size_t used = 0;
            numbers.push_back(std::stoll(value.substr(i), &used));
            i += used + 2;
          }
          attrs.set(attr.name, numbers);
          break;
        }
        case AttrKind::kDType: attrs.set(attr.name, *parse_dtype(value.substr(0, value.find_first_of(",}")))); break;
        default: FAIL() << "an attribute of another kind";
      }
    }
    graph.outputs = add_composite(builder, standard_ops(), def->name, operands, attrs);
    expect_round_trip(graph);
  }
}

TEST(OnnxExport, NormalisationsWithStatisticsAndInAnotherType) {
  for (const DType dtype : {DType::kF32, DType::kF16})
    for (const bool stash : {false, true})
      for (const bool statistics : {false, true})
        for (const char* name : {"layer_norm", "rms_norm", "group_norm"}) {
          SCOPED_TRACE(fmt::format("{} of {}, stash {}, statistics {}", name, dtype_name(dtype), stash, statistics));
          const bool groups = name == std::string("group_norm");
          if (groups && statistics) continue;
          Graph graph;
          GraphBuilder builder(graph);
          std::vector<ValueId> operands = {graph.add_input("x", {dtype, make_shape({2, 4, 3}), {}})};
          operands.push_back(graph.add_input("scale", {dtype, make_shape({groups ? 4 : 3}), {}}));
          if (groups) operands.push_back(graph.add_input("bias", {dtype, make_shape({4}), {}}));
          Attrs attrs = {{"epsilon", 0.125}};
          attrs.set(groups ? "groups" : "axis", int64_t{2});
          if (stash) attrs.set("stash", dtype == DType::kF32 ? DType::kF64 : DType::kF32);
          if (statistics) attrs.set("statistics", true);
          graph.outputs = add_composite(builder, standard_ops(), name, operands, attrs);
          expect_round_trip(graph);
        }
}

TEST(OnnxExport, RealModelsAreStandardOnnx) {
  const auto folder = find_test_data("real/ultraface-rfb-320/model.onnx");
  const auto detector = source_path(".deps/ppocr/ch_PP-OCRv4_det_infer.onnx");
  std::vector<std::pair<std::string, ImportOptions>> models;
  if (folder) models.push_back({folder->string(), {}});
  if (std::filesystem::exists(detector)) models.push_back({detector.string(), {{}, {{"x", {1, 3, 64, 96}}}}});
  if (models.empty()) GTEST_SKIP() << missing_test_data("real/ultraface-rfb-320/model.onnx");
  for (const auto& [path, options] : models) {
    SCOPED_TRACE(path);
    GraphInterpreter evaluator;
    const Graph graph = import_onnx_file(path, options, standard_ops(), evaluator);
    expect_round_trip(graph);
    EXPECT_THAT(own_operators(export_onnx_bytes(graph)), testing::IsEmpty());
  }
}

TEST(OnnxExport, ExternalData) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "model.onnx").string();
  Graph graph;
  GraphBuilder builder(graph);
  const ValueId x = graph.add_input("x", {DType::kF32, make_shape({1000}), {}});
  ValueId y = x;
  for (int k = 0; k < 3; ++k) {
    auto tensor = std::make_shared<Tensor>(DType::kF32, std::vector<int64_t>{1000});
    for (int64_t i = 0; i < 1000; ++i) tensor->set_double(i, static_cast<double>(i * k));
    const ValueId constant = builder.add(standard_ops().get("constant"), {}, {{"value", TensorPtr(tensor)}});
    y = builder.add(standard_ops().get("add"), {y, constant});
  }
  graph.outputs = {y};
  export_onnx_file(graph, path, 5000);
  EXPECT_GT(std::filesystem::file_size(path + ".data"), 12000u);
  EXPECT_LT(std::filesystem::file_size(path), 4000u);
  GraphInterpreter evaluator;
  EXPECT_EQ(structural_hash(import_onnx_file(path, {}, standard_ops(), evaluator)), structural_hash(graph));
}

// Groups are opened: the same values, another graph.
TEST(OnnxExport, Groups) {
  const Graph graph = parse_graph(R"(
graph @main(%x: f32[2,3]) -> (%y: f32[2,3]) {
  %y = group(%x) ({
    graph @group(%a: f32[2,3]) -> (%b: f32[2,3]) {
      %e = exp(%a) : f32[2,3]
      %b = neg(%e) : f32[2,3]
    }
  }) : f32[2,3]
}
)",
                                  standard_ops());
  const Graph back = read_back(export_onnx_bytes(graph));
  const std::vector<Tensor> inputs = random_inputs(graph, 1);
  GraphInterpreter interpreter;
  EXPECT_TRUE(tensors_agree(interpreter.evaluate(back, inputs)[0], interpreter.evaluate(graph, inputs)[0]));
  EXPECT_EQ(back.nodes().size(), 2u);
}

TEST(OnnxExport, Errors) {
  Graph graph;
  GraphBuilder builder(graph);
  TensorType type{DType::kF32, make_shape({1, 16, 4, 4}), {}};
  const ValueId x = graph.add_input("x", type);
  graph.outputs = {builder.add(standard_ops().get("relayout"), {x}, {{"layout", Layout::blocked(4, 1, 8)}}, "y")};
  try {
    export_onnx_bytes(graph);
    FAIL() << "a layout was exported";
  } catch (const NoOnnxForm& error) {
    EXPECT_EQ(error.diagnostic().id, "TSR-1060");
    EXPECT_THAT(error.what(), testing::HasSubstr("before layouts are chosen"));
  }
  const Graph plain = random_graph(1, 3);
  try {
    export_onnx_file(plain, "/nowhere/model.onnx");
    FAIL() << "wrote into a folder that does not exist";
  } catch (const UserError& error) {
    EXPECT_EQ(error.diagnostic().id, "TSR-6004");
  }
}

}  // namespace
}  // namespace tessera
