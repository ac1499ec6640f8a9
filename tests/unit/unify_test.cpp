// What the matcher of intrinsics can be told, each with nests that must not match.
#include "loop/unify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loop/intrinsic.h"
#include "loop/intrinsic_text.h"
#include "loop/parser.h"
#include "loop/printer.h"
#include "support/error.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The loops of a kernel whose parameters are these, without what allocates buffers around them.
Stmt nest_of(const std::string& params, const std::string& body) {
  Stmt s = parse_loop_program("kernel @k(" + params + ") -> (y: f32[4096], u: u32[64]) { " + body + " }").body;
  while (s->kind == StmtKind::kAlloc || (s->kind == StmtKind::kSeq && s->stmts.size() == 1)) s = s->stmts[0];
  return s;
}

PatternMatch matched(const std::string& pattern, const std::string& nest, const PatternRules& rules = {},
                     const std::string& params = "x: f32[4096], w: f32[4096], h: f16[64], v: u32[64]") {
  return unify(parse_loop_program(pattern), nest_of(params, nest), rules);
}

TEST(Unify, AnImmediateIsANumberWithinItsRange) {
  const std::string pattern =
      "kernel @p<n>(v: u32[8]) -> (u: u32[8]) { for l in 0..8 { u[l] = (shr(v[l], cast:u32(n)) & 255:u32) } }";
  const PatternRules rules{.ranges = {{"n", {0, 7}}}};
  const auto with = [&](const std::string& amount) {
    return matched(pattern, "for i in 0..8 { u[i] = (shr(v[i], " + amount + ") & 255:u32) }", rules);
  };
  EXPECT_EQ(with("0:u32").problem, "");
  EXPECT_THAT(with("3:u32").symbols, ElementsAre(3));
  EXPECT_THAT(with("7:u32").symbols, ElementsAre(7));
  EXPECT_THAT(with("8:u32").problem, HasSubstr("n would be 8; 0 to 7 are legal"));
  EXPECT_NE(with("v[0]").problem, "") << "what is loaded is no immediate";
  EXPECT_NE(with("cast:u32(i)").problem, "") << "nor what changes from lane to lane";
  const std::string twice =
      "kernel @p<n>(v: u32[8]) -> (u: u32[8]) { for l in 0..8 { u[l] = (shr(v[l], cast:u32(n)) * cast:u32(n)) } }";
  EXPECT_EQ(matched(twice, "for i in 0..8 { u[i] = (shr(v[i], 3:u32) * 3:u32) }").problem, "");
  EXPECT_NE(matched(twice, "for i in 0..8 { u[i] = (shr(v[i], 3:u32) * 4:u32) }").problem, "") << "one number";
}

TEST(Unify, AStrideIsAMultipleOfASymbol) {
  const std::string pattern =
      "kernel @p<X, st>(x: f32[X]) -> (y: f32[4,8]) { for r in 0..4 { for l in 0..8 { "
      "y[r, l] = x[((r * ((2 * st) + 1)) + l)] } } }";
  const PatternRules rules{.open = {"X"}};
  const auto with = [&](const std::string& address) {
    return matched(pattern, "for i in 0..4 { for j in 0..8 { y[((i * 8) + j)] = x[" + address + "] } }", rules);
  };
  EXPECT_THAT(with("((i * 7) + j)").symbols, ElementsAre(0, 3));
  EXPECT_THAT(with("((i * 41) + j)").symbols, ElementsAre(0, 20));
  EXPECT_THAT(with("((64 - i) + j)").symbols, ElementsAre(0, -1)) << "rows from the last to the first";
  EXPECT_THAT(with("(i + j)").symbols, ElementsAre(0, 0)) << "what is read may overlap";
  EXPECT_THAT(with("((i * 8) + j)").problem, HasSubstr("which ((st * 2) + 1) cannot be"));
  EXPECT_THAT(with("((i * 7) + (j * 2))").problem, HasSubstr("is 2, where the pattern has 1"));
  EXPECT_THAT(with("((floordiv(i, 2) * 7) + j)").problem, HasSubstr("not affine"));
}

TEST(Unify, ASymbolIsOneNumberInAllPlaces) {
  const std::string pattern =
      "kernel @p<X, st>(x: f32[X], w: f32[X]) -> (y: f32[8]) { for l in 0..8 { y[l] = (x[(l * st)] + w[(l * (3 * "
      "st))]) } }";
  const PatternRules rules{.open = {"X"}};
  EXPECT_THAT(matched(pattern, "for i in 0..8 { y[i] = (x[(i * 2)] + w[(i * 6)]) }", rules).symbols, ElementsAre(0, 2));
  EXPECT_THAT(matched(pattern, "for i in 0..8 { y[i] = (x[(i * 2)] - w[(i * 6)]) }", rules).problem, HasSubstr("sub"));
  EXPECT_NE(matched(pattern, "for i in 0..8 { y[i] = (x[(i * 2)] + w[(i * 5)]) }", rules).problem, "");
}

TEST(Unify, PlacesOfWhatIsStoredToDoNotMeet) {
  const std::string pattern =
      "kernel @p<Y, st>(x: f32[4,8]) -> (y: f32[Y]) { for r in 0..4 { for l in 0..8 { y[((r * st) + l)] = x[r, l] } } "
      "}";
  const PatternRules rules{.open = {"Y"}};
  const auto with = [&](const std::string& address) {
    return matched(pattern, "for i in 0..4 { for j in 0..8 { y[" + address + "] = x[((i * 8) + j)] } }", rules).problem;
  };
  EXPECT_EQ(with("((i * 8) + j)"), "");
  EXPECT_EQ(with("((i * 100) + j)"), "");
  EXPECT_EQ(with("((24 - (i * 8)) + j)"), "");
  EXPECT_THAT(with("((i * 7) + j)"), HasSubstr("places of y would meet"));
  EXPECT_THAT(with("j"), HasSubstr("places of y would meet"));
}

TEST(Unify, APaddedReadIsZeroOutside) {
  const std::string pattern =
      "kernel @p(a: f32[], x: f32[8]) -> (y: f32[8]) { for l in 0..8 { y[l] = (y[l] + (a[] * x[l])) } }";
  const PatternRules padded{.padded = {"x"}};
  const auto with = [&](const std::string& read, const PatternRules& rules) {
    return matched(pattern, "for i in 0..8 { y[i] = (y[i] + (w[5] * " + read + ")) }", rules);
  };
  EXPECT_EQ(with("x[(i + 3)]", padded).problem, "");
  EXPECT_FALSE(with("x[(i + 3)]", padded).regions[1].inside);
  const PatternMatch inside = with("select((i < 5), x[(i + 3)], 0:f32)", padded);
  EXPECT_EQ(inside.problem, "");
  EXPECT_EQ(to_string(inside.regions[1].inside), "(l < 5)");
  EXPECT_FALSE(inside.regions[0].inside);
  EXPECT_NE(with("select((i < 5), x[(i + 3)], 0:f32)", {}).problem, "") << "the pattern reads everywhere";
  EXPECT_NE(with("select((i < 5), x[(i + 3)], 1:f32)", padded).problem, "") << "not 0 outside";
  EXPECT_NE(with("select((i < 5), 0:f32, x[(i + 3)])", padded).problem, "");
  EXPECT_THAT(with("select((x[i] < 0:f32), x[(i + 3)], 0:f32)", padded).problem, HasSubstr("what is loaded"));
  const std::string twice = "kernel @p(x: f32[9]) -> (y: f32[8]) { for l in 0..8 { y[l] = (x[l] - x[(l + 1)]) } }";
  const auto both = [&](const std::string& first, const std::string& second) {
    return matched(twice,
                   "for i in 0..8 { y[i] = (select((i < " + first + "), x[i], 0:f32) - select((i < " + second +
                       "), x[(i + 1)], 0:f32)) }",
                   padded)
        .problem;
  };
  EXPECT_EQ(both("5", "5"), "");
  EXPECT_THAT(both("5", "4"), HasSubstr("two reads of x are padded otherwise"));
}

TEST(Unify, BuffersAreWhereTheRulesSay) {
  const std::string pattern = "kernel @p(x: f32[8]) -> (y: f32[8]) { for l in 0..8 { y[l] = (y[l] + x[l]) } }";
  const auto with = [&](const std::string& scope, const PatternRules& rules) {
    return matched(pattern, "alloc t: f32[8] " + scope + " for i in 0..8 { t[i] = (t[i] + x[i]) }", rules).problem;
  };
  for (const char* scope : {"register", "local"}) EXPECT_EQ(with(scope, {}), "") << scope;
  EXPECT_EQ(with("register", {.in_registers = {"y"}}), "");
  EXPECT_THAT(with("local", {.in_registers = {"y"}}), HasSubstr("t is not in registers"));
  EXPECT_EQ(with("local", {.in_memory = {"x", "y"}}), "");
  EXPECT_THAT(with("register", {.in_memory = {"x", "y"}}), HasSubstr("t is in registers"));
}

TEST(Unify, AnExactPatternHasItsLoopsAsTheyStand) {
  const std::string pattern =
      "kernel @p(x: f32[2,3,8]) -> (y: f32[2,3,8]) { for r in 0..2 { unrolled for p in 0..3 { vectorized for l in 0..8 "
      "{ "
      "y[r, p, l] = x[r, p, l] } } } }";
  const PatternRules exact{.exact = true, .shifted = {"p"}};
  const auto with = [&](const std::string& r, const std::string& p, const std::string& l) {
    return matched(pattern,
                   r + " { " + p + " { " + l + " { y[(((r * 24) + (p * 8)) + l)] = x[(((r * 24) + (p * 8)) + l)] } } }",
                   exact)
        .problem;
  };
  const std::string r = "for r in 0..2", p = "unrolled for p in 0..3", l = "vectorized for l in 0..8";
  EXPECT_EQ(with(r, p, l), "");
  EXPECT_EQ(with("unrolled " + r, p, l), "") << "a serial loop may be unrolled";
  EXPECT_EQ(with(r, "unrolled for p in 4..+3", l), "") << "a shifted loop begins anywhere";
  EXPECT_THAT(with(r, "for p in 0..3", l), HasSubstr("loop p is serial, and unrolled in the pattern"));
  EXPECT_THAT(with("vectorized " + r, p, l), HasSubstr("loop r is vectorized"));
  EXPECT_THAT(with(r, p, "vectorized for l in 1..+8"), HasSubstr("loop l does not run from 0"));
  EXPECT_THAT(with("for r in 1..+2", p, l), HasSubstr("loop r does not run from 0"));
}

TEST(Unify, WhatIsMovedIsOfAnyTypeOfItsWidth) {
  const std::string pattern = "kernel @p(x: f32[8]) -> (y: f32[8]) { for l in 0..8 { y[l] = x[l] } }";
  const std::string nest = "for i in 0..8 { u[i] = v[i] }";
  EXPECT_EQ(matched(pattern, nest, {.any_type = true}).problem, "");
  EXPECT_THAT(matched(pattern, nest).problem, HasSubstr("u is u32"));
  const std::string bytes = "kernel @p(x: f16[8]) -> (y: f16[8]) { for l in 0..8 { y[l] = x[l] } }";
  EXPECT_NE(matched(bytes, nest, {.any_type = true}).problem, "") << "another width";
}

TEST(Unify, NarrowFloatsMayBeConverted) {
  const std::string pattern = "kernel @p(x: f32[8]) -> (y: f32[8]) { for l in 0..8 { y[l] = (y[l] + x[l]) } }";
  const std::string narrow = "for i in 0..8 { y[i] = (y[i] + cast:f32(h[i])) }";
  EXPECT_EQ(matched(pattern, narrow, {.widened = {"x"}}).problem, "");
  EXPECT_NE(matched(pattern, narrow).problem, "");
  EXPECT_NE(matched(pattern, "for i in 0..8 { y[i] = (y[i] + cast:f32(v[i])) }", {.widened = {"x"}}).problem, "")
      << "integers are no floats";
}

TEST(Unify, WhatIsOnlyReadMayBeOneBuffer) {
  const std::string pattern =
      "kernel @p(a: f32[8], b: f32[8]) -> (y: f32[8]) { for l in 0..8 { y[l] = (y[l] + (a[l] * b[l])) } }";
  EXPECT_EQ(matched(pattern, "for i in 0..8 { y[i] = (y[i] + (x[i] * x[(i + 8)])) }").problem, "");
  EXPECT_THAT(matched(pattern, "for i in 0..8 { y[i] = (y[i] + (x[i] * y[(i + 8)])) }").problem,
              HasSubstr("two different buffers"));
}

TEST(IntrinsicText, RulesStandBehindThePattern) {
  const std::string head = "kernel @p<n>(v: u32[8]) -> (u: u32[8]) { for l in 0..8 { u[l] = shr(v[l], cast:u32(n)) } }";
  const auto declared = [&](const std::string& rules) {
    return parse_intrinsics("intrinsic \"my.shift\" { pattern " + head + " " + rules + " body " + head + " }", "t");
  };
  const PatternRules rules = declared("range n 0..7 memory v register u")[0]->patterns[0].rules;
  EXPECT_EQ(rules.ranges.at("n"), std::pair(int64_t{0}, int64_t{7}));
  EXPECT_THAT(rules.in_memory, ElementsAre("v"));
  EXPECT_THAT(rules.in_registers, ElementsAre("u"));
  EXPECT_THAT([&] { declared("memory w"); }, ThrowsMessage<UserError>(HasSubstr("the pattern has no 'w'")));
  EXPECT_THAT([&] { declared("range n 7..0"); }, ThrowsMessage<UserError>(HasSubstr("ends before it begins")));
  EXPECT_THAT([&] { declared("exactly"); }, ThrowsMessage<UserError>(HasSubstr("TSR-3")));
}

}  // namespace
}  // namespace tessera
