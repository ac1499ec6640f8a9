// Graphs that a program builds: the same as those that are read from files, and refused with words for whoever wrote
// the call.
#include "tessera/graph.h"

#include <cmath>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/hash.h"
#include "graph/op_def.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "ops/op_table.h"
#include "support/onnx_model.h"
#include "support/test_data.h"

namespace tessera {
namespace {

using builder::Attributes;
using ::testing::HasSubstr;
using Floats = std::vector<float>;
using Dims = std::vector<int64_t>;

Floats random_floats(size_t count, uint32_t seed, double scale = 0.25) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Floats values(count);
  for (float& value : values) value = uniform(random) * static_cast<float>(scale);
  return values;
}

tessera_tensor tensor_of(const Floats& data, const Dims& dims) {
  tessera_tensor tensor = {};
  tensor.data = const_cast<float*>(data.data());
  tensor.dtype = TESSERA_F32;
  tensor.rank = static_cast<int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), tensor.dims);
  return tensor;
}

Floats run_module(const std::vector<std::byte>& bytes, const Floats& x, const Dims& x_dims, size_t count,
                  const Dims& y_dims) {
  tessera_error error = {};
  tessera_module* module = nullptr;
  tessera_session* session = nullptr;
  Floats y(count);
  const tessera_tensor in = tensor_of(x, x_dims), out = tensor_of(y, y_dims);
  EXPECT_EQ(tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module, &error), TESSERA_OK)
      << error.message;
  EXPECT_EQ(tessera_session_create(module, nullptr, &session, &error), TESSERA_OK) << error.message;
  EXPECT_EQ(tessera_session_run(session, &in, 1, &out, 1, &error), TESSERA_OK) << error.message;
  tessera_session_free(session);
  tessera_module_free(module);
  return y;
}

Floats interpret(Interpreter interpreter, const Floats& x, const Dims& x_dims, size_t count, const Dims& y_dims) {
  Floats y(count);
  interpreter.run({tensor_of(x, x_dims)}, {tensor_of(y, y_dims)});
  return y;
}

void expect_close(const Floats& got, const Floats& want) {
  ASSERT_EQ(got.size(), want.size());
  double most = 0, difference = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(want[i])));
    difference = std::max(difference, std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
  }
  EXPECT_GT(most, 0);
  EXPECT_LE(difference, 1e-4 * most);
}

std::string hash_of(const Graph& graph) { return fmt::format("{:016x}", structural_hash(graph)); }

CompileError::Details failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const CompileError& error) {
    return error.details();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

// ---- a small convolutional network, as PyTorch exports it

struct LeNet {
  Floats conv1 = random_floats(6 * 25, 1), bias1 = random_floats(6, 2), conv2 = random_floats(16 * 6 * 25, 3),
         bias2 = random_floats(16, 4), fc1 = random_floats(84 * 256, 5), fc1_bias = random_floats(84, 6),
         fc2 = random_floats(10 * 84, 7), fc2_bias = random_floats(10, 8);
};

OnnxModel lenet_model(const LeNet& w) {
  OnnxModel model;
  model.input("x", {1, 1, 28, 28});
  model.floats("w1", {6, 1, 5, 5}, w.conv1).floats("b1", {6}, w.bias1);
  model.floats("w2", {16, 6, 5, 5}, w.conv2).floats("b2", {16}, w.bias2);
  model.floats("w3", {84, 256}, w.fc1).floats("b3", {84}, w.fc1_bias);
  model.floats("w4", {10, 84}, w.fc2).floats("b4", {10}, w.fc2_bias);
  const auto pool = [&](const std::string& in, const std::string& out) {
    auto& node = model.node("MaxPool", {in}, {out});
    set_attribute(node, "kernel_shape", Dims{2, 2});
    set_attribute(node, "strides", Dims{2, 2});
  };
  const auto dense = [&](const std::vector<std::string>& in, const std::string& out) {
    set_attribute(model.node("Gemm", in, {out}), "transB", int64_t{1});
  };
  model.node("Conv", {"x", "w1", "b1"}, {"c1"});
  model.node("Relu", {"c1"}, {"r1"});
  pool("r1", "p1");
  model.node("Conv", {"p1", "w2", "b2"}, {"c2"});
  model.node("Relu", {"c2"}, {"r2"});
  pool("r2", "p2");
  model.node("Flatten", {"p2"}, {"f"});
  dense({"f", "w3", "b3"}, "d1");
  model.node("Relu", {"d1"}, {"r3"});
  dense({"r3", "w4", "b4"}, "d2");
  set_attribute(model.node("Softmax", {"d2"}, {"y"}), "axis", int64_t{1});
  model.output("y");
  return model;
}

builder::Graph lenet_graph(const LeNet& w) {
  builder::Graph g("lenet");
  const auto conv = [&](const builder::Value& x, const Floats& weights, const Dims& dims, const Floats& bias) {
    const auto y = g.op("conv", {x, g.constant(weights, dims)},
                        {{"strides", {1, 1}},
                         {"pads_begin", {0, 0}},
                         {"pads_end", {0, 0}},
                         {"dilations", {1, 1}},
                         {"input_dilations", {1, 1}},
                         {"groups", 1}});
    return g.op("add", {y, g.constant(bias, {1, dims[0], 1, 1})});
  };
  const auto pool = [&](const builder::Value& x) {
    return g.op("max_pool", {x},
                {{"window", {2, 2}},
                 {"strides", {2, 2}},
                 {"pads_begin", {0, 0}},
                 {"pads_end", {0, 0}},
                 {"dilations", {1, 1}},
                 {"ceil_mode", false}});
  };
  const auto dense = [&](const builder::Value& x, const Floats& weights, const Dims& dims, const Floats& bias) {
    return g.op("gemm", {x, g.constant(weights, dims), g.constant(bias, {dims[0]})},
                {{"alpha", 1}, {"beta", 1}, {"trans_a", false}, {"trans_b", true}});
  };
  const auto x = g.input("x", TESSERA_F32, {1, 1, 28, 28});
  const auto p1 = pool(g.op("relu", {conv(x, w.conv1, {6, 1, 5, 5}, w.bias1)}));
  const auto p2 = pool(g.op("relu", {conv(p1, w.conv2, {16, 6, 5, 5}, w.bias2)}));
  const auto f = g.op("reshape", {p2}, {{"shape", {1, 256}}});
  const auto d1 = g.op("relu", {dense(f, w.fc1, {84, 256}, w.fc1_bias)});
  g.output("y", g.op("softmax", {dense(d1, w.fc2, {10, 84}, w.fc2_bias)}, {{"axis", 1}}));
  return g;
}

TEST(GraphApi, LeNetIsTheImportedOne) {
  const LeNet weights;
  const builder::Graph g = lenet_graph(weights);
  const Graph imported = lenet_model(weights).import();
  EXPECT_EQ(g.hash(), hash_of(imported)) << g.text(true) << print(imported, {.elide_constants = true});

  const Floats x = random_floats(28 * 28, 9, 1);
  const Dims in = {1, 1, 28, 28}, out = {1, 10};
  const Floats want = interpret(Interpreter(g), x, in, 10, out);
  EXPECT_NEAR(std::accumulate(want.begin(), want.end(), 0.0), 1, 1e-5);
  expect_close(run_module(compile_to_memory(g), x, in, 10, out), want);
  const std::string bytes = lenet_model(weights).bytes();
  EXPECT_EQ(run_module(compile_to_memory(ModelBytes{bytes, "", "lenet"}), x, in, 10, out),
            run_module(compile_to_memory(g), x, in, 10, out));
}

// ---- a transformer block

constexpr int64_t kTokens = 5, kWidth = 16, kHeads = 4, kHidden = 32;

struct Block {
  Floats scale1 = random_floats(kWidth, 1, 1), shift1 = random_floats(kWidth, 2), q = random_floats(kWidth * kWidth, 3),
         k = random_floats(kWidth * kWidth, 4), v = random_floats(kWidth * kWidth, 5),
         o = random_floats(kWidth * kWidth, 6), scale2 = random_floats(kWidth, 7, 1), shift2 = random_floats(kWidth, 8),
         up = random_floats(kWidth * kHidden, 9), down = random_floats(kWidth * kHidden, 10);
};

OnnxModel block_model(const Block& w) {
  OnnxModel model(20);
  model.input("x", {1, kTokens, kWidth});
  model.floats("s1", {kWidth}, w.scale1).floats("t1", {kWidth}, w.shift1);
  model.floats("s2", {kWidth}, w.scale2).floats("t2", {kWidth}, w.shift2);
  model.floats("wq", {kWidth, kWidth}, w.q).floats("wk", {kWidth, kWidth}, w.k);
  model.floats("wv", {kWidth, kWidth}, w.v).floats("wo", {kWidth, kWidth}, w.o);
  model.floats("up", {kWidth, kHidden}, w.up).floats("down", {kHidden, kWidth}, w.down);
  model.floats("scale", {}, {0.5f});
  model.ints("heads", {4}, {1, kTokens, kHeads, kWidth / kHeads}).ints("joined", {3}, {1, kTokens, kWidth});
  const auto split = [&](const std::string& weights, const std::string& out, const Dims& perm) {
    model.node("MatMul", {"n1", weights}, {out + "p"});
    model.node("Reshape", {out + "p", "heads"}, {out + "r"});
    set_attribute(model.node("Transpose", {out + "r"}, {out}), "perm", perm);
  };
  model.node("LayerNormalization", {"x", "s1", "t1"}, {"n1"});
  split("wq", "q", {0, 2, 1, 3});
  split("wk", "k", {0, 2, 3, 1});
  split("wv", "v", {0, 2, 1, 3});
  model.node("MatMul", {"q", "k"}, {"raw"});
  model.node("Mul", {"raw", "scale"}, {"scores"});
  set_attribute(model.node("Softmax", {"scores"}, {"weights"}), "axis", int64_t{-1});
  model.node("MatMul", {"weights", "v"}, {"mixed"});
  set_attribute(model.node("Transpose", {"mixed"}, {"back"}), "perm", Dims{0, 2, 1, 3});
  model.node("Reshape", {"back", "joined"}, {"flat"});
  model.node("MatMul", {"flat", "wo"}, {"attended"});
  model.node("Add", {"x", "attended"}, {"h"});
  model.node("LayerNormalization", {"h", "s2", "t2"}, {"n2"});
  model.node("MatMul", {"n2", "up"}, {"wide"});
  model.node("Gelu", {"wide"}, {"active"});
  model.node("MatMul", {"active", "down"}, {"narrow"});
  model.node("Add", {"h", "narrow"}, {"y"});
  model.output("y");
  return model;
}

builder::Graph block_graph(const Block& w) {
  builder::Graph g("block");
  const auto x = g.input("x", "f32[1,5,16]");
  const Attributes norm = {{"axis", 2}, {"epsilon", static_cast<double>(1e-5f)}};
  const auto product = [&](const builder::Value& a, const Floats& b, const Dims& dims) {
    return g.op("matmul", {a, g.constant(b, dims)});
  };
  const auto n1 = g.op("layer_norm", {x, g.constant(w.scale1, {kWidth}), g.constant(w.shift1, {kWidth})}, norm);
  const auto split = [&](const Floats& weights, const Dims& perm) {
    const auto heads = g.op("reshape", {product(n1, weights, {kWidth, kWidth})},
                            {{"shape", Dims{1, kTokens, kHeads, kWidth / kHeads}}});
    return g.op("transpose", {heads}, {{"perm", perm}});
  };
  const auto q = split(w.q, {0, 2, 1, 3}), k = split(w.k, {0, 2, 3, 1}), v = split(w.v, {0, 2, 1, 3});
  const auto scores = g.op("mul", {g.op("matmul", {q, k}), g.scalar(0.5, TESSERA_F32)});
  const auto mixed = g.op("matmul", {g.op("softmax", {scores}, {{"axis", 3}}), v});
  const auto back = g.op("transpose", {mixed}, {{"perm", {0, 2, 1, 3}}});
  const auto attended = product(g.op("reshape", {back}, {{"shape", Dims{1, kTokens, kWidth}}}), w.o, {kWidth, kWidth});
  const auto h = g.op("add", {x, attended});
  const auto n2 = g.op("layer_norm", {h, g.constant(w.scale2, {kWidth}), g.constant(w.shift2, {kWidth})}, norm);
  const auto active = g.op("gelu", {product(n2, w.up, {kWidth, kHidden})}, {{"approximate", "none"}});
  g.output("y", g.op("add", {h, product(active, w.down, {kHidden, kWidth})}));
  return g;
}

TEST(GraphApi, TransformerBlockIsTheImportedOne) {
  const Block weights;
  const builder::Graph g = block_graph(weights);
  const Graph imported = block_model(weights).import();
  EXPECT_EQ(g.hash(), hash_of(imported)) << g.text(true) << print(imported, {.elide_constants = true});

  const Floats x = random_floats(kTokens * kWidth, 11, 1);
  const Dims dims = {1, kTokens, kWidth};
  expect_close(run_module(compile_to_memory(g), x, dims, x.size(), dims),
               interpret(Interpreter(g), x, dims, x.size(), dims));
}

TEST(GraphApi, TextReadsBack) {
  const builder::Graph g = block_graph(Block());
  const builder::Graph again = builder::Graph::from_text(g.text());
  EXPECT_EQ(again.text(), g.text());
  EXPECT_EQ(again.hash(), g.hash());
  EXPECT_EQ(again.name(), "block");
  ASSERT_EQ(again.inputs().size(), 1);
  EXPECT_EQ(again.inputs()[0].type(), "f32[1,5,16]");
  ASSERT_EQ(again.outputs().size(), 1);
  EXPECT_EQ(again.outputs()[0].name(), "y");
  // Built further.
  builder::Graph more = again;
  more.output("z", more.op("neg", {more.outputs()[0]}));
  EXPECT_EQ(again.outputs().size(), 2);
}

// The block of docs/graph-api.md, word for word (python.graph looks).
TEST(GraphApi, TheDocumentsExample) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "classifier.so";
  const std::vector<float> weights = random_floats(784 * 10, 1), bias(10, 0.5f);
  // clang-format off
  namespace builder = tessera::builder;
  builder::Graph g("classifier");
  g.symbol("n", 1, 64);
  const auto x = g.input("x", TESSERA_F32, {"n", 784});
  const auto w = g.constant(weights, {784, 10});                    // std::vector<float>
  const auto scores = g.op("add", {g.op("matmul", {x, w}), g.constant(bias, {10})}, {}, "scores");
  g.output("y", g.op("softmax", {scores}, {{"axis", 1}}));
  tessera::compile_file(g, path);
  // clang-format on
  EXPECT_EQ(g.outputs()[0].type(), "f32[n,10]");
  EXPECT_TRUE(std::ifstream(path).good());
}

TEST(GraphApi, SymbolsStayOpenOrGetValues) {
  builder::Graph g("open");
  g.symbol("n", 1, 16);
  const auto x = g.input("x", TESSERA_F32, {"n", 8});
  const Floats weights = random_floats(8 * 6, 1, 1);
  const auto y = g.op("softmax", {g.op("matmul", {x, g.constant(weights, {8, 6})})}, {{"axis", 1}}, "probabilities");
  EXPECT_EQ(y.type(), "f32[n,6]");
  EXPECT_EQ(y.dims()[0].text(), "n");
  g.output("y", y);
  const std::vector<std::byte> all = compile_to_memory(g);
  for (const int64_t n : {1, 2, 7, 16}) {
    CompileOptions fixed;
    fixed.dims["n"] = {n, n};
    const Floats input = random_floats(static_cast<size_t>(n) * 8, static_cast<uint32_t>(n), 1);
    const auto count = static_cast<size_t>(n) * 6;
    const Floats want = interpret(Interpreter(g, fixed), input, {n, 8}, count, {n, 6});
    expect_close(run_module(all, input, {n, 8}, count, {n, 6}), want);
    expect_close(run_module(compile_to_memory(g, fixed), input, {n, 8}, count, {n, 6}), want);
    CompileOptions shaped;
    shaped.shapes["x"] = {n, 8};
    expect_close(interpret(Interpreter(g, shaped), input, {n, 8}, count, {n, 6}), want);
  }
  const auto with = [&](const std::string& name, DimBounds bounds) {
    CompileOptions options;
    options.dims[name] = bounds;
    return options;
  };
  EXPECT_EQ(failure_of([&] { Interpreter refused(g); }).id, "TSR-1025");
  EXPECT_EQ(failure_of([&] { compile_to_memory(g, with("n", {0, 8})); }).id, "TSR-1022");
  EXPECT_EQ(failure_of([&] { compile_to_memory(g, with("n", {17, 17})); }).id, "TSR-1022");
  EXPECT_EQ(failure_of([&] { compile_to_memory(g, with("m", {1, 1})); }).id, "TSR-1021");
  CompileOptions wrong;
  wrong.shapes["x"] = {4, 9};
  EXPECT_EQ(failure_of([&] { compile_to_memory(g, wrong); }).id, "TSR-1022");
  wrong.shapes = {{"z", {4, 8}}};
  EXPECT_EQ(failure_of([&] { compile_to_memory(g, wrong); }).id, "TSR-1021");
}

TEST(GraphApi, OperatorsOfOnesOwnComputeTheirBody) {
  builder::Graph body("twice_plus");
  const auto a = body.input("a", "f32[3]"), b = body.input("b", "f32[3]");
  body.output("c", body.op("add", {body.op("add", {a, a}), b}));
  builder::Graph g;
  const auto x = g.input("x", "f32[3]");
  g.output("y", g.composite("twice_plus", body, {x, g.constant(Floats{1, 2, 3}, {3})}, {{"note", "own"}})[0]);
  EXPECT_THAT(g.text(), HasSubstr("name = \"twice_plus\", note = \"own\""));
  const Floats input = {1, -1, 0.5f};
  EXPECT_EQ(interpret(Interpreter(g), input, {3}, 3, {3}), (Floats{3, 0, 4}));
  EXPECT_EQ(run_module(compile_to_memory(g), input, {3}, 3, {3}), (Floats{3, 0, 4}));
  EXPECT_EQ(failure_of([&] { g.composite("softmax", body, {x, x}); }).id, "TSR-2066");
  EXPECT_EQ(failure_of([&] { g.composite("own", body, {x}); }).id, "TSR-2005");
}

TEST(GraphApi, AnInputOrAValueTwiceIsAnOutputOfItsOwn) {
  builder::Graph g;
  const auto x = g.input("x", "f32[2]");
  const auto y = g.op("neg", {x}, {}, "first");
  g.output("same", x);
  g.output("first", y);
  g.output("second", y);
  EXPECT_EQ(g.outputs()[0].name(), "same");
  EXPECT_EQ(x.name(), "x");
  Floats same(2), first(2), second(2);
  const Floats input = {1, -2};
  Interpreter(g).run({tensor_of(input, {2})}, {tensor_of(same, {2}), tensor_of(first, {2}), tensor_of(second, {2})});
  EXPECT_EQ(same, input);
  EXPECT_EQ(first, (Floats{-1, 2}));
  EXPECT_EQ(second, first);
}

// ---- every operator

builder::Attribute public_attribute(const Attr& attr) {
  if (const auto* value = std::get_if<bool>(&attr)) return *value;
  if (const auto* value = std::get_if<int64_t>(&attr)) return *value;
  if (const auto* value = std::get_if<double>(&attr)) return *value;
  if (const auto* value = std::get_if<std::string>(&attr)) return *value;
  if (const auto* value = std::get_if<std::vector<int64_t>>(&attr)) return *value;
  if (const auto* value = std::get_if<std::vector<double>>(&attr)) return *value;
  return std::string(dtype_name(std::get<DType>(attr)));
}

// The graph again, through the public functions.
builder::Graph rebuilt(const Graph& source) {
  builder::Graph g(source.name);
  std::map<ValueId, builder::Value> map;
  for (const ValueId id : source.inputs) map.emplace(id, g.input(source.value(id).name, source.type(id).to_string()));
  for (const Node& node : source.nodes()) {
    if (node.op->name == "constant") {
      const Tensor& tensor = *node.attrs.get<TensorPtr>("value");
      tessera_tensor view = {};
      view.data = const_cast<std::byte*>(tensor.bytes());
      view.dtype = static_cast<tessera_dtype>(tensor.dtype());
      view.rank = static_cast<int32_t>(tensor.dims().size());
      std::copy(tensor.dims().begin(), tensor.dims().end(), view.dims);
      map.emplace(node.outputs[0], g.constant(view));
      continue;
    }
    builder::Values operands;
    for (const ValueId input : node.inputs) operands.push_back(map.at(input));
    Attributes attributes;
    for (const auto& [name, attr] : node.attrs.all()) attributes.emplace(name, public_attribute(attr));
    const builder::Values results = g.ops(node.op->name, operands, attributes);
    for (size_t i = 0; i < results.size(); ++i) map.emplace(node.outputs[i], results[i]);
  }
  for (const ValueId id : source.outputs) g.output(source.value(id).name, map.at(id));
  return g;
}

TEST(GraphApi, KnowsEveryOperator) {
  std::set<std::string> names;
  size_t primitives = 0;
  for (const builder::Operator& op : builder::operators()) {
    EXPECT_TRUE(names.insert(op.name).second) << op.name;
    EXPECT_FALSE(op.doc.empty()) << op.name;
    if (op.is_composite) continue;
    ++primitives;
    const std::string text = op.example.substr(0, op.example.find("\nrun"));
    const Graph source = parse_graph(text, standard_ops());
    const builder::Graph g = rebuilt(source);
    EXPECT_EQ(g.hash(), hash_of(source)) << g.text();
  }
  EXPECT_GT(primitives, 50);
  EXPECT_TRUE(names.count("layer_norm"));
  EXPECT_FALSE(names.count("composite") || names.count("group") || names.count("constant"));
}

TEST(GraphApi, SizesThatDataDecide) {
  builder::Graph g("first");
  g.symbol("n", 1, 8);
  const auto x = g.input("x", TESSERA_F32, {"n", 2});
  const auto count = g.input("count", TESSERA_I64, {});
  const auto size = g.bind_size("c", count, "(n * 2)", "kept");
  const auto flat = g.op("reshape", {x}, {{"shape", builder::Dims{"(n * 2)"}}});
  const auto y =
      g.op("slice", {flat}, {{"starts", {0}}, {"sizes", builder::Dims{"c"}}, {"steps", {1}}}, "the first of them");
  EXPECT_EQ(size.type(), "i64[]");
  EXPECT_EQ(y.type(), "f32[c]");
  g.output("y", g.op("exp", {y}));
  g.output("size", size);
  const builder::Graph read = builder::Graph::from_text(R"(
graph @first[n in 1..8, c upto (n * 2)](%x: f32[n,2], %count: i64[]) -> (%y: f32[c], %size: i64[]) {
  %flat = reshape(%x) {shape = [(n * 2)]} : f32[(n * 2)]
  %size = bind_size(%count) {size = [c]} : i64[]
  %part = slice(%flat) {sizes = [c], starts = [0], steps = [1]} : f32[c]
  %y = exp(%part) : f32[c]
})");
  EXPECT_EQ(g.text().substr(0, g.text().find('\n')), read.text().substr(0, read.text().find('\n')));
  EXPECT_EQ(builder::Graph::from_text(g.text()).hash(), g.hash());
  EXPECT_FALSE(compile_to_memory(g).empty());

  struct Case {
    std::string id, text;
    std::function<void()> call;
  };
  const std::vector<Case> cases = {
      {"TSR-2061", "there is a dimension 'c' already", [&] { g.bind_size("c", count, 4); }},
      {"TSR-2061", "'i64' cannot be the name of a dimension", [&] { g.bind_size("i64", count, 4); }},
      {"TSR-2065", "the dimension 'd' is at most (n - 4)", [&] { g.bind_size("d", count, "(n - 4)"); }},
      {"TSR-3003", "unknown symbol 'm'", [&] { g.bind_size("d", count, "m"); }},
      {"TSR-3001", "expected the end of the bound", [&] { g.bind_size("d", count, "n n"); }},
      {"TSR-2020", "operand 1 of type f32[n,2]", [&] { g.bind_size("d", x, 4); }},
      {"TSR-2036", "the input 'u' has the size c", [&] { g.input("u", TESSERA_F32, {"c"}); }},
      {"TSR-3001", "expected the end of the size", [&] { g.op("reshape", {x}, {{"shape", builder::Dims{"n n"}}}); }},
      {"TSR-2003", "attribute 'axis' is a list of sizes",
       [&] { g.op("softmax", {x}, {{"axis", builder::Dims{"n"}}}); }},
  };
  for (const Case& wrong : cases) {
    const auto failure = failure_of(wrong.call);
    EXPECT_EQ(failure.id, wrong.id) << failure.message;
    EXPECT_NE(failure.message.find(wrong.text), std::string::npos) << failure.message;
  }
  EXPECT_EQ(g.bind_size("d", count, "n").type(), "i64[]") << "what was refused has declared nothing";
}

// ---- what is refused

TEST(GraphApi, ErrorsNameTheCallersOperator) {
  builder::Graph g, other;
  const auto x = g.input("x", TESSERA_F32, {2, 3});
  const auto foreign = other.input("x", "f32[2,3]");
  const auto details = failure_of([&] { g.op("matmul", {x, x}, {}, "projection"); });
  EXPECT_EQ(details.id, "TSR-2024");
  EXPECT_EQ(details.node, "projection");

  struct Case {
    std::string id, text;
    std::function<void()> call;
  };
  const std::vector<Case> cases = {
      {"TSR-2060", "operand 2 is a value of another graph", [&] { g.op("add", {x, foreign}); }},
      {"TSR-2061", "there is a value 'x' already", [&] { g.input("x", "f32[1]"); }},
      {"TSR-2061", "an input without a name", [&] { g.input("", "f32[1]"); }},
      {"TSR-2061", "'x' cannot be the name of an output", [&] { g.output("x", x); }},
      {"TSR-2061", "'a b' cannot be the name of a dimension", [&] { g.symbol("a b", 1, 2); }},
      {"TSR-2061", "'f32' cannot be the name of a dimension", [&] { g.symbol("f32", 1, 2); }},
      {"TSR-2062", "there is no operator 'sofmax'", [&] { g.op("sofmax", {x}); }},
      {"TSR-2062", "'constant' is made by a function of its own", [&] { g.op("constant", {}); }},
      {"TSR-2064", "6 elements for a constant [2,2]", [&] { g.constant(Floats(6), {2, 2}); }},
      {"TSR-2064", "a constant without data", [&] { g.constant(tessera_tensor{nullptr, TESSERA_F32, 1, {3}}); }},
      {"TSR-2065", "the dimension 'n' is in 5..4:1", [&] { g.symbol("n", 5, 4); }},
      {"TSR-2069", "the graph has no outputs", [&] { compile_to_memory(g); }},
      {"TSR-2002", "attribute 'axis' is missing", [&] { g.op("softmax", {x}); }},
      {"TSR-2003", "attribute 'axis' is a string", [&] { g.op("softmax", {x}, {{"axis", "last"}}); }},
      {"TSR-2004", "unknown attribute 'axes'", [&] { g.op("softmax", {x}, {{"axis", 1}, {"axes", {1}}}); }},
      {"TSR-2001", "1 operands", [&] { g.op("add", {x}); }},
      {"TSR-3003", "unknown symbol 'm' in a shape", [&] { g.input("u", TESSERA_F32, {"m"}); }},
      {"TSR-3005", "unknown dtype 'f33'", [&] { g.input("u", "f33[2]"); }},
      {"TSR-3001", "expected the end of the type", [&] { g.input("u", "f32[2] f32"); }},
      {"TSR-3001", "expected", [&] { builder::Graph::from_text("graph main"); }},
      {"TSR-2068", "a relayout with a layout or group of the compiler's own",
       [&] {
         builder::Graph::from_text(
             "graph @g(%x: f32[1,16,2]) -> (%y: f32[1,16,2]{0,1/16,2,1%16}) {\n"
             "  %y = relayout(%x) {layout = {0,1/16,2,1%16}} : f32[1,16,2]{0,1/16,2,1%16}\n}");
       }},
      {"TSR-2067", "a constant was left out of the text",
       [&] {
         builder::Graph::from_text(
             "graph @g() -> (%y: f32[2]) {\n"
             "  %c = constant {value = elided<f32[2] 0x00c0ffee00c0ffee>}\n  %y = neg(%c)\n}");
       }},
      {"TSR-2066", "the composite 'relu' computes something else",
       [&] {
         builder::Graph::from_text(
             "graph @g(%x: f32[2]) -> (%y: f32[2]) {\n  %y = composite(%x) {name = \"relu\"} ({\n"
             "    graph @relu(%a: f32[2]) -> (%b: f32[2]) {\n      %b = neg(%a)\n    }\n  })\n}");
       }},
  };
  for (const Case& one : cases) {
    const auto refused = failure_of(one.call);
    EXPECT_EQ(refused.id, one.id) << one.text;
    EXPECT_THAT(refused.message, HasSubstr(one.text));
  }
  const auto near = failure_of([&] { g.op("sofmax", {x}, {}, "head"); });
  EXPECT_THAT(near.legal, HasSubstr("softmax"));
  EXPECT_EQ(near.node, "head");
}

}  // namespace
}  // namespace tessera
