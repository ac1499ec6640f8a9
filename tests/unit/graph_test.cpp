// The graph room: text form, builder and rewriter, verifier, structural hash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <regex>

#include "graph/hash.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "ops/op_table.h"
#include "random_graph.h"
#include "support/error.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Graph parse(const std::string& text) { return parse_graph(text, standard_ops()); }
const OpDef& op(const char* name) { return standard_ops().get(name); }
TensorType f32(std::vector<int64_t> dims) { return {DType::kF32, make_shape(dims), {}}; }

TEST(GraphText, RandomGraphsReadBackToTheSameTextAndHash) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Graph graph = random_graph(seed, 20);
    const std::string text = print(graph);
    const Graph again = parse(text);
    ASSERT_EQ(print(again), text) << "seed " << seed;
    ASSERT_EQ(structural_hash(again), structural_hash(graph)) << "seed " << seed;
    const std::string elided = print(graph, {.elide_constants = true});
    ASSERT_EQ(print(parse(elided), {.elide_constants = true}), elided) << "seed " << seed;
    ASSERT_EQ(structural_hash(parse(elided)), structural_hash(graph)) << "seed " << seed;
  }
}

TEST(GraphText, ConstantsOfEveryTypeReadBackBitForBit) {
  const DType types[] = {DType::kF64,        DType::kF32,    DType::kF16,        DType::kBF16,   DType::kF8E4M3FN,
                         DType::kF8E4M3FNUZ, DType::kF8E5M2, DType::kF8E5M2FNUZ, DType::kF8E8M0, DType::kF4E2M1,
                         DType::kI64,        DType::kI32,    DType::kI16,        DType::kI8,     DType::kI4,
                         DType::kI2,         DType::kU64,    DType::kU32,        DType::kU16,    DType::kU8,
                         DType::kU4,         DType::kU2};
  uint64_t state = 99;
  for (const DType dtype : types)
    for (const int64_t count : {1, 5, 64, 65}) {
      Tensor tensor(dtype, {count});
      // Random bits: NaNs with payloads, denormals and negative zeros among them.
      const auto bytes = static_cast<size_t>(tensor.num_bytes());
      for (size_t i = 0; i < bytes; ++i) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        tensor.mutable_bytes()[i] = static_cast<std::byte>(state >> 56);
      }
      if (dtype_bits(dtype) < 8) {  // unused bits of the last byte are not part of the value
        const int64_t per_byte = 8 / dtype_bits(dtype);
        for (int64_t i = count; i < static_cast<int64_t>(bytes) * per_byte; ++i) tensor.set_int(i, 0);
      }
      Graph graph;
      GraphBuilder builder(graph);
      graph.outputs = {builder.add(op("constant"), {}, {{"value", std::make_shared<const Tensor>(tensor)}})};
      const Graph again = parse(print(graph));
      const Tensor& got = *again.nodes()[0].attrs.get<TensorPtr>("value");
      ASSERT_EQ(got.dims(), tensor.dims());
      EXPECT_EQ(std::memcmp(got.bytes(), tensor.bytes(), bytes), 0) << print(graph);
    }
}

TEST(GraphText, WritesConstantsInTheShortestForm) {
  const auto text_of = [](DType dtype, std::vector<int64_t> dims, std::vector<double> values) {
    Tensor tensor(dtype, std::move(dims));
    for (size_t i = 0; i < values.size(); ++i) tensor.set_double(static_cast<int64_t>(i), values[i]);
    return attr_text(TensorPtr(std::make_shared<const Tensor>(tensor)), true);
  };
  EXPECT_EQ(text_of(DType::kF32, {2, 2}, {0.1, -0.0, INFINITY, NAN}), "dense<f32[2,2] 0.1 -0 inf nan>");
  EXPECT_EQ(text_of(DType::kF32, {}, {16777217}), "dense<f32[] 16777216>");
  EXPECT_EQ(text_of(DType::kBool, {2}, {1, 0}), "dense<bool[2] true false>");
  EXPECT_EQ(text_of(DType::kI64, {1000}, {}), "splat<i64[1000] 0>");
  EXPECT_EQ(text_of(DType::kI64, {0}, {}), "dense<i64[0]>");
  EXPECT_THAT(text_of(DType::kF32, {100}, {1}), testing::MatchesRegex("elided<f32\\[100\\] 0x[0-9a-f]{16}>"));
}

TEST(GraphText, KeepsSymbolsNamesLayoutsAndAttributes) {
  const std::string shape = "f32[n,(m * 2),floordiv(n, 2)]";
  const std::string text = R"(graph @"my graph"[n in 1..64, m in 0..](%"in:0": SHAPE, %b: f32[1,20]{0,1/8,1%8}) -> ()"
                           R"(%c: SHAPE) {
  %c = composite(%"in:0") {a = 1.0, b = 1, c = [1, 2], d = [1.0, 2.0], e = [], f = floats[], g = "x\"\\\n\t\x01", )"
                           R"(h = bf16, i = {0,1/16,1%16}, j = {}, k = inf, l = false, name = "c"} ({
    graph @c(%x: SHAPE) -> (%y: SHAPE) {
      %y = neg(%x) : SHAPE loc("a/b:c")
    }
  }) : SHAPE
}
)";
  const std::string full = std::regex_replace(text, std::regex("SHAPE"), shape);
  EXPECT_EQ(print(parse(full)), full);
  EXPECT_TRUE(verify(parse(full)).empty());
}

TEST(GraphText, KeepsChecks) {
  const std::string text =
      R"(graph @g(%x: f32[2], %p: i64[3]) -> (%y: f32[2], %p: i64[3] check("Sum \"s\"", "[1, 2]")) {
  %y = neg(%x) : f32[2]
}
)";
  const Graph graph = parse(text);
  EXPECT_EQ(print(graph), text);
  EXPECT_EQ(graph.num_own_outputs(), 1U);
  EXPECT_THAT(verify(graph), ElementsAre());
  Graph other = graph;
  other.checks[0].legal = "[1, 3]";
  EXPECT_NE(structural_hash(graph), structural_hash(other));
  other.checks.emplace_back();
  EXPECT_THAT(verify(other), ElementsAre("check %y is f32[2] instead of a list of i64"));
  other.checks.emplace_back();
  EXPECT_THAT(verify(other), ElementsAre("more checks than outputs"));
}

TEST(GraphText, TypesMayBeLeftOutAndIntegersStandForNumbers) {
  const Graph graph = parse(R"(graph @g(%x: f32[1,1,2,2]) -> (%y: f32[1,1,4,4]) {
  // a comment
  %y = resize(%x) {coordinate = "asymmetric", mode = "linear", scales = [1, 1, 2, 2], sizes = [1, 1, 4, 4]}
})");
  EXPECT_THAT(graph.nodes()[0].attrs.get<std::vector<double>>("scales"), ElementsAre(1, 1, 2, 2));
}

TEST(GraphRewriter, OutputsKeepTheirNames) {
  const Graph graph = parse(R"(graph @g(%x: f32[2]) -> (%y: f32[2], %z: f32[2]) {
  %a = exp(%x)
  %y = neg(%a)
  %z = neg(%y)
})");
  // neg is taken for an identity: %y becomes %a and takes over its name; %z cannot, since %y has it already.
  const Graph result =
      GraphRewriter(graph).run([](GraphRewriter&, const Node& node, const std::vector<ValueId>& inputs) {
        return node.op->name == "neg" ? inputs : std::vector<ValueId>{};
      });
  EXPECT_EQ(print(result), R"(graph @g(%x: f32[2]) -> (%y: f32[2], %z: f32[2]) {
  %y = exp(%x) : f32[2]
  %z = neg(%y) : f32[2]
}
)");
  // An input cannot become an output.
  const Graph inputs_stay =
      GraphRewriter(parse("graph @g(%x: f32[2]) -> (%y: f32[2]) { %y = neg(%x) }"))
          .run([](GraphRewriter&, const Node&, const std::vector<ValueId>& inputs) { return inputs; });
  EXPECT_EQ(inputs_stay.nodes().size(), 1u);
}

TEST(Graph, NamesAreMadeUnique) {
  Graph graph;
  const ValueId x = graph.add_input("x", f32({2}));
  GraphBuilder builder(graph);
  EXPECT_EQ(graph.value(builder.add(op("exp"), {x}, {}, "x")).name, "x_1");
  EXPECT_EQ(graph.value(builder.add(op("exp"), {x}, {}, "x")).name, "x_2");
  EXPECT_EQ(graph.value(builder.add(op("exp"), {x})).name, "exp");
  EXPECT_THROW(graph.rename(x, "exp"), InternalError);
}

TEST(GraphHash, IgnoresNamesLocationsOrderAndDeadNodes) {
  const uint64_t hash = structural_hash(parse(R"(graph @g(%x: f32[2]) -> (%y: f32[2]) {
  %a = exp(%x) loc("A")
  %b = neg(%x)
  %y = add(%a, %b)
})"));
  EXPECT_EQ(hash, structural_hash(parse(R"(graph @h(%in: f32[2]) -> (%out: f32[2]) {
  %dead = tanh(%in)
  %q = neg(%in)
  %p = exp(%in) loc("B")
  %out = add(%p, %q)
})")));
  const char* others[] = {
      "graph @g(%x: f32[2]) -> (%y: f32[2]) { %a = exp(%x) %b = neg(%x) %y = add(%b, %a) }",
      "graph @g(%x: f32[2]) -> (%y: f32[2]) { %a = exp(%x) %b = neg(%x) %y = sub(%a, %b) }",
      "graph @g(%x: f32[3]) -> (%y: f32[3]) { %a = exp(%x) %b = neg(%x) %y = add(%a, %b) }",
      "graph @g(%x: f32[2]) -> (%y: f32[2], %a: f32[2]) { %a = exp(%x) %b = neg(%x) %y = add(%a, %b) }",
      "graph @g(%x: f32[2], %z: f32[2]) -> (%y: f32[2]) { %a = exp(%x) %b = neg(%z) %y = add(%a, %b) }",
  };
  for (const char* other : others) EXPECT_NE(hash, structural_hash(parse(other))) << other;
}

TEST(GraphHash, SeesConstantsAttributesAndRegions) {
  const auto with = [](const std::string& value, const std::string& axis, const std::string& inner) {
    return structural_hash(parse(
        "graph @g(%x: f32[2,2]) -> (%y: f32[2,2]) {\n  %c = constant {value = " + value +
        "}\n  %s = reduce(%x) {axes = [" + axis + "], keepdims = false, kind = \"sum\"}\n" +
        "  %d = add(%s, %c)\n  %y = composite(%x) {name = \"n\"} ({ graph @r(%a: f32[2,2]) -> (%b: f32[2,2]) { %b = " +
        inner + "(%a) } })\n  %z = add(%y, %d)\n}\n"));
  };
  EXPECT_EQ(with("dense<f32[2] 1 2>", "0", "neg"), with("hex<f32[2] 0x0000803f00000040>", "0", "neg"));
  const auto all_used = [](const std::string& value, const std::string& axis) {
    return structural_hash(parse("graph @g(%x: f32[2,2]) -> (%d: f32[2]) {\n  %c = constant {value = " + value +
                                 "}\n  %s = reduce(%x) {axes = [" + axis +
                                 "], keepdims = false, kind = \"sum\"}\n  %d = add(%s, %c)\n}\n"));
  };
  EXPECT_NE(all_used("dense<f32[2] 1 2>", "0"), all_used("dense<f32[2] 1 3>", "0"));
  EXPECT_NE(all_used("dense<f32[2] 1 2>", "0"), all_used("dense<f32[2] 1 2>", "1"));
  EXPECT_NE(with("dense<f32[2] 1 2>", "0", "neg"), with("dense<f32[2] 1 2>", "0", "exp"));
}

// The rules, each broken alone.
TEST(GraphVerifier, NamesTheNodeAndTheRule) {
  const auto fresh = [] {
    return parse(R"(graph @g(%x: f32[2]) -> (%y: f32[2]) {
  %a = exp(%x) loc("Exp_0")
  %y = neg(%a) loc("Neg_1")
})");
  };
  EXPECT_THAT(verify(fresh()), ElementsAre());

  Graph graph = fresh();
  std::swap(graph.node(0), graph.node(1));
  EXPECT_THAT(verify(graph), testing::Contains(HasSubstr("node Neg_1 (neg %y): reads %a before it is defined")));

  graph = fresh();
  graph.value(graph.outputs[0]).type = f32({3});
  EXPECT_THAT(verify(graph), ElementsAre("node Neg_1 (neg %y): result 0 is f32[3], but the operator gives f32[2]"));

  graph = fresh();
  graph.value(1).name = "x";
  EXPECT_THAT(verify(graph), ElementsAre("two values are named %x"));

  graph = fresh();
  graph.node(0).attrs.set("speed", int64_t{3});
  EXPECT_THAT(verify(graph),
              ElementsAre("node Exp_0 (exp %a): operator exp: unknown attribute 'speed' (legal: no attributes)"));

  graph = fresh();
  graph.value(1).type.layout = Layout::blocked(4, 1, 16);
  EXPECT_THAT(verify(graph), ElementsAre("%a: layout {0,1/16,2,3,1%16}: axis 1 of a tensor of rank 1"));

  graph = fresh();
  graph.outputs = {17};
  EXPECT_THAT(verify(graph), ElementsAre("a graph output is not defined"));

  graph = fresh();
  graph.value(0).type.shape = {make_var("n")};
  EXPECT_THAT(verify(graph), testing::Contains("%x: symbol n is not declared by the graph"));

  graph = fresh();
  graph.node(1).op = nullptr;
  EXPECT_THAT(verify(graph), ElementsAre("node Neg_1 (? %y): no operator"));
}

TEST(GraphVerifier, LooksIntoRegionsAndAtLayouts) {
  Graph graph = parse(R"(graph @g(%x: f32[2,8]{0,1/4,1%4}) -> (%y: f32[2,8]) {
  %y = group(%x) ({
    graph @group(%a: f32[2,8]{0,1/4,1%4}) -> (%b: f32[2,8]) {
      %b = relayout(%a) {layout = {}}
    }
  }) loc("Relayout_0")
})");
  EXPECT_THAT(verify(graph), ElementsAre());
  graph.value(graph.inputs[0]).type.layout = {};
  EXPECT_THAT(verify(graph),
              ElementsAre("node Relayout_0 (group %y): operand 0 and input %a of the region differ in layout"));

  Graph region = *graph.nodes()[0].regions[0];
  region.value(region.outputs[0]).type.layout = Layout::blocked(2, 1, 4);
  graph.node(0).regions[0] = std::make_shared<const Graph>(region);
  EXPECT_THAT(verify(graph),
              testing::Contains(HasSubstr(
                  "in its region: node (relayout %b): the result does not have the layout of the attribute")));
  EXPECT_THROW(verify_or_throw(graph, "some_pass"), InternalError);
}

}  // namespace
}  // namespace tessera
