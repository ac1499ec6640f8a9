// Text that is no graph, and operands and attributes that do not fit: each gives one message, pinned here, and nothing
// that a text can contain crashes, hangs or asks for much memory.
#include <gtest/gtest.h>

#include "graph/parser.h"
#include "graph/printer.h"
#include "ops/op_table.h"
#include "support/error.h"

namespace tessera {
namespace {

std::string message_of(const std::string& text) {
  try {
    parse_graph(text, standard_ops(), "t.graph");
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

// The lines of a graph whose second line is `node`.
std::string with_node(const std::string& node) {
  return "graph @main(%x: f32[2,3]) -> (%y: f32[2,3]) {\n  " + node + "\n}\n";
}

struct Case {
  const char* name;
  std::string text;
  const char* message;
};

const Case kCases[] = {
    {"Empty", "", "error TSR-3001: expected 'graph', found the end of the text\n  node:  t.graph:1:1"},
    {"NotAGraph", "hello", "error TSR-3001: expected 'graph', found 'hello'\n  node:  t.graph:1:1"},
    {"NoName", "graph (", "error TSR-3001: expected the name of the graph ('@name'), found '('\n  node:  t.graph:1:7"},
    {"Behind", "graph @g() -> () {}\n x",
     "error TSR-3001: expected the end of the text, found 'x'\n  node:  t.graph:2:2"},
    {"Truncated", "graph @g(%x: f32[2]",
     "error TSR-3001: expected ',', found the end of the text\n  node:  t.graph:1:20"},
    {"UnknownDtype", "graph @g(%x: f33[2]) -> () {}",
     "error TSR-3005: unknown dtype 'f33'\n  node:  t.graph:1:14\n  legal: f32, i64, bool, ..."},
    {"NegativeDim", "graph @g(%x: f32[2,-1]) -> () {}",
     "error TSR-3005: the type f32[2,-1] has a negative dimension or is too large\n  node:  t.graph:1:14\n"
     "  legal: dimensions from 0, less than 2^63 bits in all"},
    {"HugeShape", "graph @g(%x: f32[4611686018427387904,4]) -> () {}",
     "error TSR-3005: the type f32[4611686018427387904,4] has a negative dimension or is too large\n"
     "  node:  t.graph:1:14\n  legal: dimensions from 0, less than 2^63 bits in all"},
    {"HugeNumber", "graph @g(%x: f32[99999999999999999999]) -> () {}",
     "error TSR-3001: a dimension is not a 64-bit integer: 99999999999999999999\n  node:  t.graph:1:18\n"
     "  legal: -9223372036854775808 to 9223372036854775807"},
    {"UnknownSymbol", "graph @g[n](%x: f32[n,m]) -> () {}",
     "error TSR-3003: unknown symbol 'm' in a shape\n  node:  t.graph:1:23\n"
     "  legal: a symbol declared by the graph: graph @name[n in 1..64](...)"},
    {"SymbolRange", "graph @g[n in 4..2](%x: f32[n]) -> () {}",
     "error TSR-3005: symbol n ranges over 4..2\n  node:  t.graph:1:10\n  legal: 0 <= smallest <= largest"},
    {"SymbolTwice", "graph @g[n, n](%x: f32[n]) -> () {}",
     "error TSR-3004: symbol n is declared twice\n  node:  t.graph:1:13"},
    {"LayoutAxis", "graph @g(%x: f32[2,3]{0,2}) -> () {}",
     "error TSR-3005: the layout {0,2} does not fit: axis 2 of a tensor of rank 2\n  node:  t.graph:1:14\n"
     "  legal: every axis whole, or as quotient and remainder of one block"},
    {"LayoutHalf", "graph @g(%x: f32[2,3]{0,1/16}) -> () {}",
     "error TSR-3005: the layout {0,1/16} does not fit: axis 1 must appear once whole, or once as quotient and once as "
     "remainder\n  node:  t.graph:1:14\n  legal: every axis whole, or as quotient and remainder of one block"},
    {"UnknownOperator", with_node("%y = expp(%x)"),
     "error TSR-3002: unknown operator 'expp'\n  node:  t.graph:2:8\n  legal: exp"},
    {"UseBeforeDefinition", with_node("%y = exp(%z)"),
     "error TSR-3003: %z is used but not defined before\n  node:  t.graph:2:12\n"
     "  legal: graph inputs and results of earlier nodes"},
    {"DefinedTwice", with_node("%x = exp(%x)"),
     "error TSR-3004: %x is defined twice\n  node:  t.graph:2:3\n  legal: one definition for each name"},
    {"ResultMissing", with_node("%z = exp(%x)"), "error TSR-3003: result %y is not defined\n  node:  t.graph:1:31"},
    {"ResultType", with_node("%y = reduce(%x) {axes = [0], keepdims = true, kind = \"sum\"}"),
     "error TSR-3007: result %y is declared as f32[2,3]\n  node:  t.graph:1:31\n  legal: f32[1,3], as it is defined"},
    {"WrongType", with_node("%y = exp(%x) : f32[3,2]"),
     "error TSR-3007: %y is declared as f32[3,2]\n  node:  t.graph:2:16\n"
     "  legal: f32[2,3], which exp gives for its operands"},
    {"TwoNames", with_node("%y, %z = exp(%x)"),
     "error TSR-3007: 2 names for the results of exp\n  node:  t.graph:2:3\n  legal: 1 names and types"},
    {"AttributeTwice", with_node("%y = cast(%x) {to = f32, to = f64}"),
     "error TSR-3004: attribute to is given twice\n  node:  t.graph:2:28"},
    {"AttributeValue", with_node("%y = cast(%x) {to = float}"),
     "error TSR-3001: 'float' is no value of an attribute\n  node:  t.graph:2:23\n"
     "  legal: true, 1, 1.0, \"text\", [1, 2], [1.0], f32, {0,1/16,1%16}, dense<...>, splat<...>, hex<...>, "
     "elided<...>"},
    {"AttributeMissing", with_node("%y = cast(%x)"),
     "error TSR-2002: operator cast: attribute 'to' is missing\n  node:  t.graph:2:3\n  legal: 'to' is a dtype: the "
     "result's element type"},
    {"AttributeKind", with_node("%y = cast(%x) {to = 1} loc(\"Cast_7\")"),
     "error TSR-2003: operator cast: attribute 'to' is an integer\n  node:  Cast_7\n  legal: 'to' is a dtype"},
    {"AttributeUnknown", with_node("%y = exp(%x) {base = 2.0}"),
     "error TSR-2004: operator exp: unknown attribute 'base'\n  node:  t.graph:2:3\n  legal: no attributes"},
    {"OperandCount", with_node("%y = add(%x)"),
     "error TSR-2001: operator add: 1 operands\n  node:  t.graph:2:3\n  legal: 2 operands"},
    {"RegionUnexpected", with_node("%y = exp(%x) ({ graph @r() -> () {} })"),
     "error TSR-2005: operator exp: 1 regions\n  node:  t.graph:2:3\n  legal: no regions"},
    {"RegionOperands", with_node("%y = composite(%x) {name = \"c\"} ({ graph @r(%a: f32[3]) -> (%a: f32[3]) {} })"),
     "error TSR-2005: operator composite: operand 0 is f32[2,3]\n  node:  t.graph:2:3\n"
     "  legal: f32[3], as input %a of the region"},
    {"GroupResultOrder",
     with_node("%a, %y = group(%x) ({ graph @r(%x: f32[2,3]) -> (%q: f32[2,3], %p: f32[2,3]) { %p = "
               "exp(%x) : f32[2,3] %q = neg(%x) : f32[2,3] } })"),
     "error TSR-2005: operator group: result 1 of the region comes before result 0\n  node:  t.graph:2:3\n"
     "  legal: results of different nodes, in the order of these"},
    {"GroupResultShapes",
     with_node("%a, %y = group(%x) ({ graph @r(%x: f32[2,3]) -> (%p: f32[2,1], %q: f32[2,3]) { %p = "
               "reduce(%x) {axes = [1], keepdims = true, kind = \"sum\"} : f32[2,1] "
               "%q = neg(%x) : f32[2,3] } })"),
     "error TSR-2005: operator group: results f32[2,1] and f32[2,3]\n  node:  t.graph:2:3\n"
     "  legal: results of one shape and one layout"},
    {"RegionCaptures",
     with_node("%y = composite(%x) {name = \"c\"} ({ graph @r(%a: f32[2,3]) -> (%b: f32[2,3]) { %b = exp(%x) } })"),
     "error TSR-3003: %x is used but not defined before\n  node:  t.graph:2:90\n"
     "  legal: graph inputs and results of earlier nodes"},
    {"ViewOfLayout", "graph @g(%x: f32[8,8]{0,1/4,1%4}) -> (%y: f32[64]) {\n  %y = reshape(%x) {shape = [64]}\n}",
     "error TSR-3009: node (reshape %y): %x must be row-major\n  node:  t.graph:2:3"},
    {"TooFewElements", with_node("%y = constant {value = dense<f32[2,3] 1 2 3>}"),
     "error TSR-3006: 3 elements for f32[2,3]\n  node:  t.graph:2:32\n  legal: 6 elements"},
    {"TooManyElements", with_node("%y = constant {value = dense<f32[2] 1 2 3>}"),
     "error TSR-3006: more than 2 elements for f32[2]\n  node:  t.graph:2:32\n  legal: as many as the shape has"},
    {"ElementType", with_node("%y = constant {value = dense<i8[1] 1.5>}"),
     "error TSR-3006: element 1.5 is no value of i8\n  node:  t.graph:2:38"},
    {"ElementRange", with_node("%y = constant {value = dense<i8[1] 200>}"),
     "error TSR-3006: element 200 does not fit into i8\n  node:  t.graph:2:38"},
    {"HexLength", with_node("%y = constant {value = hex<f32[2] 0x00>}"),
     "error TSR-3006: 2 hexadecimal digits for the 8 bytes of f32[2]\n  node:  t.graph:2:30\n  legal: two digits for "
     "each byte"},
    {"HugeSplat", with_node("%y = constant {value = splat<f32[1000000,1000000] 0>}"),
     "error TSR-3006: a constant of 4000000000000 bytes\n  node:  t.graph:2:32\n  legal: at most 268435456 bytes"},
    {"Unclosed", with_node("%y = cast(%x) {to = \"f32}"),
     "error TSR-3001: a string has no closing quote on its line\n  node:  t.graph:2:23\n  legal: \"...\""},
    {"Escape", with_node("%y = cast(%x) {to = \"\\q\"}"),
     "error TSR-3001: a string has an unknown escape\n  node:  t.graph:2:23\n  legal: \\\" \\\\ \\n \\t \\xHH"},
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class GraphTextError : public testing::TestWithParam<Case> {};

TEST_P(GraphTextError, IsPinned) { EXPECT_EQ(message_of(GetParam().text), GetParam().message); }

INSTANTIATE_TEST_SUITE_P(Graph, GraphTextError, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(GraphTextError, NestingIsBounded) {
  std::string regions, dims = "n";
  for (int i = 0; i < 100000; ++i) regions += "graph @g(%x: f32[1]) -> () { %y = composite(%x) {name = \"c\"} ({ ";
  EXPECT_NE(message_of(regions).find("TSR-3008: regions are nested too deeply"), std::string::npos);
  for (int i = 0; i < 100000; ++i) dims = "(" + dims;
  EXPECT_NE(message_of("graph @g[n](%x: f32[" + dims).find("TSR-3008: a dimension is nested too deeply"),
            std::string::npos);
}

// Texts one to four small damages away from a good one.
TEST(GraphTextError, DamagedTextsGiveErrorsOrGraphs) {
  const std::string good =
      R"(graph @main[n in 1..64](%x: f32[n,3,(2 * n)], %"a b": f32[4,32]{0,1/16,1%16}) -> (%y: f32[n,3,(n * 2)]) {
  %w = constant {value = dense<f32[2,3] 0.5 -1 2 nan inf 1e-40>} : f32[2,3]
  %u = constant {value = dense<u64[1] 18446744073709551615>} : u64[1]
  %s = constant {value = splat<f32[64,2] 0>} : f32[64,2]
  %h = constant {value = hex<f32[2] 0x0000803f0000ff7f>} : f32[2]
  %z = exp(%x) : f32[n,3,(2 * n)] loc("Conv_0")
  %y = composite(%z) {name = "relu", alpha = 1.0, e = floats[], g = [1, 2.5], d = f32, t = {0,1/16,1%16}, b = true} ({
    graph @relu(%a: f32[n,3,(2 * n)]) -> (%r: f32[n,3,(2 * n)]) {
      %r = neg(%a)
    }
  })
}
)";
  uint64_t state = 12345;
  const auto random = [&](size_t bound) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<size_t>(state >> 33) % bound;
  };
  ASSERT_EQ(message_of(good), "no error");
  int graphs = 0, errors = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (size_t damage = random(4) + 1; damage > 0 && !text.empty(); --damage) {
      const size_t at = random(text.size());
      switch (random(5)) {
        case 0: text[at] = static_cast<char>(random(256)); break;
        case 1: text.erase(at, random(12)); break;
        case 2: text.insert(at, text.substr(random(text.size()), random(30))); break;
        case 3: text[at] = "0123456789[](){}<>%,-.e\"=:@"[random(27)]; break;
        default: text.resize(at); break;
      }
    }
    try {
      const std::string printed = print(parse_graph(text, standard_ops()));
      ASSERT_EQ(print(parse_graph(printed, standard_ops())), printed) << text;
      ++graphs;
    } catch (const UserError&) {
      ++errors;
    }
  }
  EXPECT_GT(graphs, 100);
  EXPECT_GT(errors, 1000);
}

}  // namespace
}  // namespace tessera
