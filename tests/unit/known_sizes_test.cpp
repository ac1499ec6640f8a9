// What stays known of values that are computed from sizes.
#include "import/common/known_sizes.h"

#include <gmock/gmock.h>

#include "arith/simplify.h"
#include "graph/parser.h"
#include "ops/op_table.h"

namespace tessera {
namespace {

// The elements of the last value of the graph, "?" for those that are not known.
std::vector<std::string> elements(const std::string& body, const std::string& symbols = "n in 1..64, m in 4..128:4") {
  const Graph graph =
      parse_graph("graph @main[" + symbols + "](%x: f32[n,m]) -> () {\n" + body + "\n}", standard_ops());
  const KnownSymbols known(graph.symbols);
  const auto found = KnownSizes(graph).find(static_cast<ValueId>(graph.values().size()) - 1);
  if (!found) return {"none"};
  std::vector<std::string> texts;
  for (const KnownElement& element : *found) {
    if (!element.value) texts.push_back("?");
    else
      texts.push_back(to_string(element.value) +
                      (is_const_int(element.divisor, 1) ? "" : "/" + to_string(element.divisor)));
  }
  return texts;
}

using testing::ElementsAre;

TEST(KnownSizes, FollowsMovesAndArithmetic) {
  EXPECT_THAT(elements(R"(
    %s = sizes {sizes = [n, m], dtype = i64}
    %i = constant {value = dense<i64[1] -1>}
    %l = gather(%s, %i) {axis = 0}
    %two = constant {value = dense<i64[1] 2>}
    %p = mul(%l, %two)
    %c = concat(%p, %s) {axis = 0}
    %r = reduce(%c) {kind = "prod", axes = [0], keepdims = false})"),
              ElementsAre("(((n * m) * m) * 2)"));
}

TEST(KnownSizes, DecidesOnlyWhatHoldsForTheWholeRange) {
  const std::string compare = R"(
    %s = sizes {sizes = [n, m], dtype = i64}
    %k = constant {value = dense<i64[] LIMIT>}
    %c = COMPARE(%s, %k))";
  const auto with = [&](const std::string& op, const std::string& limit) {
    std::string text = compare;
    text.replace(text.find("LIMIT"), 5, limit);
    text.replace(text.find("COMPARE"), 7, op);
    return elements(text);
  };
  EXPECT_THAT(with("eq", "-1"), ElementsAre("0", "0"));
  EXPECT_THAT(with("eq", "4"), ElementsAre("?", "?"));
  EXPECT_THAT(with("ge", "4"), ElementsAre("?", "1"));
  EXPECT_THAT(with("lt", "1"), ElementsAre("0", "0"));
  EXPECT_THAT(with("le", "128"), ElementsAre("1", "1"));
  EXPECT_THAT(with("gt", "64"), ElementsAre("0", "?"));
}

TEST(KnownSizes, ChoosesWhereTheConditionIsKnown) {
  EXPECT_THAT(elements(R"(
    %s = sizes {sizes = [n, m], dtype = i64}
    %k = constant {value = dense<i64[] -1>}
    %c = eq(%s, %k)
    %one = constant {value = dense<i64[] 1>}
    %r = select(%c, %one, %s))"),
              ElementsAre("n", "m"));
  EXPECT_THAT(elements(R"(
    %s = sizes {sizes = [n], dtype = i64}
    %k = constant {value = dense<i64[] 1>}
    %c = eq(%s, %k)
    %r = select(%c, %k, %s))"),
              ElementsAre("?"));
}

TEST(KnownSizes, FollowsFloatsAsFarAsTheyAreExact) {
  const auto scaled = [](const std::string& factor, const std::string& round) {
    return elements(R"(
      %s = sizes {sizes = [n, m], dtype = i64}
      %f = cast(%s) {to = f32}
      %k = constant {value = dense<f32[] )" +
                    factor + R"(>}
      %p = mul(%f, %k)
      %q = )" + round +
                    R"((%p)
      %r = cast(%q) {to = i64})");
  };
  EXPECT_THAT(scaled("2.0", "floor"), ElementsAre("(n * 2)", "(m * 2)"));
  EXPECT_THAT(scaled("0.5", "floor"), ElementsAre("floordiv(n, 2)", testing::_));
  EXPECT_THAT(scaled("0.3", "floor"), ElementsAre("?", "?"));
}

TEST(KnownSizes, RoundsQuotientsAsFloatsDo) {
  EXPECT_THAT(elements(R"(
    %s = sizes {sizes = [n], dtype = i64}
    %f = cast(%s) {to = f32}
    %k = constant {value = dense<f32[] 7.0>}
    %p = div(%f, %k)
    %q = floor(%p)
    %r = cast(%q) {to = i64})"),
              ElementsAre("floordiv(n, 7)"));
  // Another operation on the rounded quotient is not followed.
  EXPECT_THAT(elements(R"(
    %s = sizes {sizes = [n], dtype = i64}
    %f = cast(%s) {to = f32}
    %k = constant {value = dense<f32[] 7.0>}
    %p = div(%f, %k)
    %q = add(%p, %k)
    %r = floor(%q))"),
              ElementsAre("?"));
}

TEST(KnownSizes, KnowsNothingOfInputsAndWrappingNumbers) {
  EXPECT_THAT(elements("%r = reduce(%x) {kind = \"sum\", axes = [0, 1], keepdims = false}"), ElementsAre("?"));
  EXPECT_THAT(elements(R"(
    %s = sizes {sizes = [n], dtype = i64}
    %r = cast(%s) {to = i32})",
                       "n in 1.., m in 1..4"),
              ElementsAre("?"));
  EXPECT_THAT(elements(R"(
    %s = sizes {sizes = [(n - 8)], dtype = i64}
    %k = constant {value = dense<i64[] 3>}
    %r = div(%s, %k))"),
              ElementsAre("?"));
}

}  // namespace
}  // namespace tessera
