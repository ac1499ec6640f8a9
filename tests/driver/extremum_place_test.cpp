// Places of extrema (arg max and arg min): which kernels find them in one pass, and random ones, compiled for every
// level of x86-64 that runs here, against a search element by element.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <random>

#include "graph/parser.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "support/compiled_graph.h"
#include "support/watched_compile.h"

namespace tessera {
namespace {

struct Search {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  int axis = 0;
  bool largest = true, last = false, takes_nan = false;
  bool keeps_extremum = false;  // which is a result then
  bool goes_on = false;         // something is computed from the place in the same kernel
  int open = -1;                // the dimension that has no fixed size
};

std::string text_of(const Search& s) {
  std::vector<std::string> dims, reduced;
  for (int d = 0; d < static_cast<int>(s.dims.size()); ++d) {
    dims.push_back(d == s.open ? "n" : std::to_string(s.dims[static_cast<size_t>(d)]));
    reduced.push_back(d == s.axis ? "1" : dims.back());
  }
  const std::string type = fmt::format("{}[{}]", dtype_name(s.dtype), fmt::join(dims, ",")),
                    row = fmt::format("[{}]", fmt::join(reduced, ","));
  const std::string none = s.last ? "-1" : std::to_string(s.dims[static_cast<size_t>(s.axis)]);
  std::string text =
      fmt::format("graph @main{}(%x: {}) -> (%p: i64{}{}) {{\n", s.open >= 0 ? "[n in 1..300]" : "", type, row,
                  s.keeps_extremum ? fmt::format(", %m: {}{}", dtype_name(s.dtype), row) : "");
  const std::string reduce = fmt::format("{{axes = [{}], keepdims = true, kind", s.axis);
  text += fmt::format("  %m = reduce(%x) {} = \"{}\"}} : {}{}\n", reduce, s.largest ? "max" : "min",
                      dtype_name(s.dtype), row);
  text += fmt::format("  %same = eq(%x, %m) : bool[{}]\n", fmt::join(dims, ","));
  if (s.takes_nan)
    text += fmt::format("  %nan = is_nan(%x) : bool[{0}]\n  %found = logical_or(%same, %nan) : bool[{0}]\n",
                        fmt::join(dims, ","));
  text += fmt::format("  %i = iota {{axis = {}, dtype = i64, shape = [{}]}} : i64[{}]\n", s.axis, fmt::join(dims, ", "),
                      fmt::join(dims, ","));
  text += fmt::format("  %none = constant {{value = dense<i64[] {}>}} : i64[]\n", none);
  text +=
      fmt::format("  %s = select(%{}, %i, %none) : i64[{}]\n", s.takes_nan ? "found" : "same", fmt::join(dims, ","));
  text += fmt::format("  %{} = reduce(%s) {} = \"{}\"}} : i64{}\n", s.goes_on ? "p0" : "p", reduce,
                      s.last ? "max" : "min", row);
  if (s.goes_on) text += fmt::format("  %p = mul(%p0, %p0) : i64{}\n", row);
  return text + "}\n";
}

// Few different numbers, so that there are ties; among floats zeros of both signs, infinities and NaN.
Tensor elements(const Search& s, std::mt19937& random) {
  Tensor x(s.dtype, s.dims);
  const int spread = static_cast<int>(random() % 3) * 3 + 1;
  const bool odd = is_float(s.dtype) && random() % 2 == 0;
  const double infinity = std::numeric_limits<double>::infinity();
  const double worst = s.largest ? -infinity : infinity;
  const bool all_worst = odd && random() % 4 == 0;
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    const int value = static_cast<int>(random() % (2 * static_cast<unsigned>(spread) + 1)) - spread;
    if (!is_float(s.dtype)) {
      x.set_int(i, is_signed_int(s.dtype) ? value : value + spread);
      continue;
    }
    const auto kind = random() % 200;
    const double zero = random() % 2 == 0 ? 0.0 : -0.0;
    x.set_double(i, !odd         ? value
                    : kind == 0  ? std::numeric_limits<double>::quiet_NaN()
                    : all_worst  ? worst
                    : kind < 20  ? zero
                    : kind < 30  ? worst
                    : kind == 30 ? -worst
                                 : value);
  }
  return x;
}

std::vector<Tensor> wanted(const Search& s, const Tensor& x) {
  std::vector<int64_t> shape = s.dims;
  const int64_t extent = std::exchange(shape[static_cast<size_t>(s.axis)], 1);
  Tensor places(DType::kI64, shape), extrema(s.dtype, shape);
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(s.axis) + 1; d < s.dims.size(); ++d) inner *= s.dims[d];
  for (int64_t o = 0; o < places.num_elements(); ++o) {
    const int64_t base = o / inner * inner * extent + o % inner;
    int64_t best = -1, nan = -1;
    const auto at = [&](int64_t r) { return x.get_double(base + r * inner); };
    for (int64_t r = 0; r < extent; ++r) {
      if (std::isnan(at(r))) {
        if (nan < 0 || s.last) nan = r;
        continue;
      }
      const bool better = best < 0 || (s.largest ? at(r) > at(best) : at(r) < at(best));
      if (better || (s.last && at(r) == at(best))) best = r;
    }
    const int64_t place = nan < 0 ? best : s.takes_nan ? nan : s.last ? -1 : extent;
    places.set_int(o, s.goes_on ? place * place : place);
    if (is_float(s.dtype)) extrema.set_double(o, at(nan < 0 ? best : nan));
    else extrema.set_int(o, x.get_int(base + best * inner));
  }
  std::vector<Tensor> result = {places};
  if (s.keeps_extremum) result.push_back(extrema);
  return result;
}

// Zeros of both signs are equal, and so are NaN.
bool same(const Tensor& a, const Tensor& b) {
  if (a.num_elements() != b.num_elements()) return false;
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    const double x = a.get_double(i), y = b.get_double(i);
    if (x != y && !(std::isnan(x) && std::isnan(y))) return false;
  }
  return true;
}

// Compiles and compares; "rule:results" of each call.
std::string calls_of(const Search& s, const std::string& level, int threads, unsigned seed = 1) {
  const Graph graph = parse_graph(text_of(s), standard_ops());
  DriverOptions options = options_for(level, threads);
  std::vector<std::string> calls;
  OnProgram see_program([&](std::string_view step, const Program& program) {
    if (step != "schedule") return;
    for (const KernelCall& call : program.calls) {
      const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
      calls.push_back(fmt::format("{}:{}", kernel.rule, kernel.program.num_outputs));
    }
  });
  options.observers.add(see_program);
  std::mt19937 random(seed);
  const Tensor x = elements(s, random);
  const std::vector<Tensor> want = wanted(s, x), interpreted = GraphInterpreter().evaluate(graph, {x});
  const CompiledRun got = run_compiled(graph, {x}, options);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(same(want[i], interpreted[i])) << "the interpreter's result " << i;
    if (!got.results.empty()) EXPECT_TRUE(same(want[i], got.results[i])) << "result " << i << ", " << level;
  }
  return fmt::format("{}", fmt::join(calls, " "));
}

TEST(ExtremumPlace, RowsAreOnePass) {
  EXPECT_EQ(calls_of({.dims = {30, 100}, .axis = 1}, "x86-64-v3", 1), "row_reduce:1");
  EXPECT_EQ(calls_of({.dims = {30, 100}, .axis = 1, .last = true}, "x86-64-v3", 1), "row_reduce:1");
  EXPECT_EQ(calls_of({.dims = {30, 100}, .axis = 1, .largest = false, .takes_nan = true}, "x86-64-v3", 1),
            "row_reduce:1");
}

TEST(ExtremumPlace, ColumnsAreOnePass) {
  EXPECT_EQ(calls_of({.dims = {50, 70}, .axis = 0}, "x86-64-v3", 1), "lane_reduce:1");
  EXPECT_EQ(calls_of({.dims = {4, 19, 21, 8}, .axis = 1}, "x86-64-v3", 1), "lane_reduce:1");
}

TEST(ExtremumPlace, TheExtremumMayBeAResultBesideIt) {
  EXPECT_EQ(calls_of({.dims = {30, 100}, .axis = 1, .keeps_extremum = true}, "x86-64-v3", 1), "row_reduce:2");
}

TEST(ExtremumPlace, WhatFollowsIsPartOfThePass) {
  EXPECT_EQ(calls_of({.dims = {30, 100}, .axis = 1, .goes_on = true}, "x86-64-v3", 1), "row_reduce:1");
  // The extremum would be a result behind what is computed from it.
  EXPECT_EQ(calls_of({.dims = {30, 100}, .axis = 1, .keeps_extremum = true, .goes_on = true}, "x86-64-v3", 1)
                .find("row_reduce:2"),
            std::string::npos);
}

TEST(ExtremumPlace, OfOpenSizes) {
  EXPECT_EQ(calls_of({.dims = {129, 70}, .axis = 1, .open = 0}, "x86-64-v3", 1), "dynamic_loops:1");
}

// Parts of few long rows, which threads share.
TEST(ExtremumPlace, LongRows) {
  for (const bool last : {false, true})
    for (const int threads : {1, 2})
      EXPECT_EQ(calls_of({.dims = {2, 200'003}, .axis = 1, .last = last}, "x86-64-v3", threads), "row_reduce:1");
}

TEST(ExtremumPlace, Random) {
  const std::vector<std::string> levels = levels_that_run();
  const DType dtypes[] = {DType::kF32, DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8,
                          DType::kU8,  DType::kI16, DType::kI32, DType::kI64, DType::kU64};
  int in_one_pass = 0;
  for (unsigned seed = 0; seed < 200 && !HasFailure(); ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](std::initializer_list<int64_t> choices) {
      return *(choices.begin() + static_cast<std::ptrdiff_t>(random() % choices.size()));
    };
    Search s;
    s.dtype = dtypes[random() % std::size(dtypes)];
    const int rank = 1 + static_cast<int>(random() % 4);
    for (int d = 0; d < rank; ++d) s.dims.push_back(pick({1, 2, 3, 5, 8, 16, 17, 33}));
    s.axis = static_cast<int>(random() % static_cast<unsigned>(rank));
    if (random() % 2 == 0) s.dims[static_cast<size_t>(s.axis)] = pick({64, 100, 127, 128, 1000, 1031});
    s.largest = random() % 2 == 0;
    s.last = random() % 2 == 0;
    s.takes_nan = is_float(s.dtype) && random() % 2 == 0;
    s.keeps_extremum = random() % 3 == 0;
    s.goes_on = random() % 4 == 0;
    if (rank > 1 && random() % 4 == 0) s.open = s.axis == 0 ? 1 : 0;
    SCOPED_TRACE(text_of(s));
    const std::string calls = calls_of(s, levels[seed % levels.size()], 1 + static_cast<int>(seed / 3 % 2), seed);
    in_one_pass += calls.find(' ') == std::string::npos && calls.find("fuse_rows") == std::string::npos;
  }
  EXPECT_GT(in_one_pass, 60);
}

}  // namespace
}  // namespace tessera
