// Attention of open batch and length (schedule/fusion/open_attention.h): one kernel, which computes what the graph says
// at every size.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "../support/module_session.h"
#include "../support/symbolic_graphs.h"
#include "codegen/llvm/target.h"
#include "driver/compile.h"
#include "graph/bind_symbols.h"
#include "graph/printer.h"
#include "interp/graph_interp.h"
#include "support/test_data.h"

namespace tessera {
namespace {

using namespace symbolic_graphs;

enum class Mask : uint8_t { kNone, kColumns, kPlaces, kHeads, kBoolColumns, kBoolPlaces };

struct Case {
  int64_t heads = 2, depth = 16, out = 16;
  int64_t groups = 1;  // heads of queries for each one of keys, of heads that stand behind words
  Mask mask = Mask::kNone;
  bool by_words = false;  // heads stand behind words in memory, as linear layers make them
  bool open_batch = true;
  bool as_many = true;  // keys as queries
  int64_t longest = 150;

  std::string text() const {
    return fmt::format("{} heads of {} and {}, {} groups, mask {}, by words {}, open batch {}, as many {}", heads,
                       depth, out, groups, static_cast<int>(mask), by_words, open_batch, as_many);
  }
};

Graph graph_of(const Case& c) {
  std::vector<SymbolRange> symbols = {range("l", 1, c.longest)};
  if (!c.as_many) symbols.push_back(range("k", 1, c.longest));
  if (c.open_batch) symbols.push_back(range("n", 1, 4));
  Builder b(symbols);
  const Expr l = b.symbol(0), k = c.as_many ? l : b.symbol(1), n = c.open_batch ? symbols.back().var : Expr(2);
  const auto operand = [&](const char* name, const Expr& places, int64_t depth, int64_t groups) {
    if (!c.by_words) return b.input(name, {n, c.heads, places, depth});
    if (c.groups > 1) {
      const ValueId x = b.input(name, {n, places, c.heads * groups * depth});
      return b.add("transpose", {b.reshape(x, {n, places, c.heads, groups, depth})}, {{"perm", Ints{0, 2, 3, 1, 4}}});
    }
    const ValueId x = b.input(name, {n, places, c.heads * depth});
    return b.add("transpose", {b.reshape(x, {n, places, c.heads, depth})}, {{"perm", Ints{0, 2, 1, 3}}});
  };
  std::vector<ValueId> operands = {operand("q", l, c.depth, c.groups), operand("k", k, c.depth, 1),
                                   operand("v", k, c.out, 1)};
  const bool is_bool = c.mask == Mask::kBoolColumns || c.mask == Mask::kBoolPlaces;
  const DType dtype = is_bool ? DType::kBool : DType::kF32;
  if (c.mask == Mask::kColumns || c.mask == Mask::kBoolColumns)
    operands.push_back(b.input("mask", {n, 1, 1, k}, dtype));
  if (c.mask == Mask::kPlaces || c.mask == Mask::kBoolPlaces) operands.push_back(b.input("mask", {l, k}, dtype));
  if (c.mask == Mask::kHeads) operands.push_back(b.input("mask", {n, c.heads, l, k}, dtype));
  ValueId y = b.composite("attention", operands, {{"scale", 0.7}});
  if (c.by_words)
    y = b.reshape(b.add("transpose", {y}, {{"perm", c.groups > 1 ? Ints{0, 3, 1, 2, 4} : Ints{0, 2, 1, 3}}}),
                  {n, l, c.heads * c.groups * c.out});
  return b.result({y});
}

// The values of the symbols that the case has, of queries, keys and batch.
Ints point_of(const Case& c, const Ints& sizes) {
  Ints point = {sizes[0]};
  if (!c.as_many) point.push_back(sizes[1]);
  if (c.open_batch) point.push_back(sizes[2]);
  return point;
}

// Values of some size; masks hide some columns, but not all of a row.
std::vector<Tensor> operands_at(const Graph& bound, uint64_t seed) {
  std::vector<Tensor> inputs = inputs_at(bound, seed);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensor& tensor = inputs[i];
    const int64_t row = tensor.dims().back();
    for (int64_t e = 0; e < tensor.num_elements(); ++e) {
      const bool hidden = e % row != 0 && (e * 7 + static_cast<int64_t>(seed)) % 5 == 0;
      if (i < 3) tensor.set_double(e, tensor.get_double(e) * 3);
      else if (tensor.dtype() == DType::kBool) tensor.set_int(e, hidden ? 0 : 1);
      else if (hidden) tensor.set_double(e, -std::numeric_limits<double>::infinity());
    }
  }
  return inputs;
}

size_t joined_kernels(const Program& program) {
  return static_cast<size_t>(std::count_if(program.kernels.begin(), program.kernels.end(),
                                           [](const Kernel& kernel) { return kernel.rule == "fuse_rows"; }));
}

// What a record would say of the joined kernel.
class OnePoint : public Decisions {
 public:
  explicit OnePoint(KnobPoint point) : point_(std::move(point)) {}
  TunedChoice choose_schedule(const Kernel& kernel) override {
    return kernel.joined ? TunedChoice{point_, ""} : TunedChoice();
  }

 private:
  KnobPoint point_;
};

void check(const Case& c, const std::string& target, int threads, const std::vector<Ints>& points,
           const std::optional<KnobPoint>& at = {}) {
  const Graph graph = graph_of(c);
  DriverOptions options;
  if (at) options.decisions = std::make_shared<OnePoint>(*at);
  options.compile.target = target;
  options.compile.num_threads = threads;
  options.runner.verify_each = true;
  PassRunner runner(options);
  const Compiled compiled = compile_graph(graph, options, runner);
  EXPECT_EQ(compiled.program.calls.size(), 1U) << c.text();
  if (at) EXPECT_EQ(compiled.program.kernels[0].rule, to_string(*at)) << compiled.program.kernels[0].refused_tuning;
  else EXPECT_EQ(joined_kernels(compiled.program), 1U) << c.text();
  const AnonymousFile file = module_in_memory(compiled);
  ModuleSession session(file.contents());
  for (const Ints& point : points) {
    const Graph bound = bind_symbols(graph, point);
    const std::vector<Tensor> inputs = operands_at(bound, static_cast<uint64_t>(point[0]));
    const Tensor want = GraphInterpreter().evaluate(bound, inputs)[0];
    std::vector<Tensor> found = {Tensor(want.dtype(), want.dims())};
    ASSERT_EQ(session.run(inputs, found), "");
    ASSERT_TRUE(tensors_agree(found[0], want)) << c.text() << " at " << fmt::format("{}", fmt::join(point, ", "))
                                               << " for " << target << ", " << threads << " threads";
  }
}

// Rests of blocks of 32, 8 and 1 rows, of 64 and 16 columns.
const std::vector<Ints> kSizes = {{1, 1, 1},   {2, 9, 2},   {7, 16, 1},   {8, 1, 3},   {31, 17, 1},   {33, 63, 2},
                                  {40, 64, 1}, {63, 65, 1}, {64, 127, 2}, {65, 80, 1}, {150, 150, 1}, {97, 129, 4}};

TEST(OpenAttention, IsOneKernelAtEverySize) {
  for (const Mask mask :
       {Mask::kNone, Mask::kColumns, Mask::kPlaces, Mask::kHeads, Mask::kBoolColumns, Mask::kBoolPlaces})
    for (const bool by_words : {false, true}) {
      Case c;
      c.mask = mask;
      c.by_words = by_words;
      c.as_many = by_words;
      std::vector<Ints> points;
      for (const Ints& sizes : kSizes) points.push_back(point_of(c, sizes));
      check(c, "native", 1, points);
      if (testing::Test::HasFatalFailure()) return;
    }
}

// Blocks of other sizes, as the tuner tries them.
TEST(OpenAttention, AtOtherPoints) {
  std::mt19937_64 random(3);
  const auto pick = [&](std::vector<int64_t> of) { return of[random() % of.size()]; };
  for (int i = 0; i < 8; ++i) {
    Case c;
    c.mask = static_cast<Mask>(random() % 6);
    c.by_words = i % 2 == 0;
    c.as_many = random() % 2 == 0;
    c.depth = pick({5, 16, 32});
    std::vector<Ints> points;
    for (const Ints& sizes : kSizes) points.push_back(point_of(c, sizes));
    check(c, "native", 1 + i % 2, points,
          KnobPoint{"fuse_rows", {{"block", pick({8, 16, 24, 48, 96})}, {"columns", pick({32, 96, 128, 256})}}});
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Heads of queries that share one of keys are rows of the same blocks.
TEST(OpenAttention, GroupedQueries) {
  std::mt19937_64 random(5);
  const auto pick = [&](std::vector<int64_t> of) { return of[random() % of.size()]; };
  for (const Mask mask : {Mask::kNone, Mask::kColumns, Mask::kPlaces, Mask::kBoolPlaces}) {
    Case c;
    c.heads = pick({1, 2, 3});
    c.groups = pick({2, 3, 4, 7});
    c.depth = pick({5, 16, 64});
    c.out = pick({5, 16, 64});
    c.mask = mask;
    c.by_words = true;
    c.as_many = random() % 2 == 0;
    c.open_batch = random() % 2 == 0;
    std::vector<Ints> points;
    for (const Ints& sizes : kSizes) points.push_back(point_of(c, sizes));
    const bool is_native = mask != Mask::kPlaces || !runs_here(parse_target("x86-64-v2"));
    check(c, is_native ? "native" : "x86-64-v2", 1 + static_cast<int>(random() % 3), points);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(OpenAttention, RandomShapes) {
  const char* asked = std::getenv("TESSERA_TEST_CASES");
  const int count = asked ? std::atoi(asked) : 6;
  std::mt19937_64 random(11);
  const auto pick = [&](std::vector<int64_t> of) { return of[random() % of.size()]; };
  for (int i = 0; i < count; ++i) {
    Case c;
    c.heads = pick({2, 3, 5});
    c.depth = pick({1, 4, 7, 16, 33, 64});
    c.out = pick({1, 5, 16, 24, 64});
    c.mask = static_cast<Mask>(random() % 6);
    c.by_words = random() % 2 == 0;
    c.open_batch = random() % 2 == 0;
    c.as_many = random() % 2 == 0;
    std::vector<Ints> points = points_of(graph_of(c), 6, random());
    const char* target = i % 3 == 2 && runs_here(parse_target("x86-64-v2")) ? "x86-64-v2" : "native";
    check(c, target, i % 2 == 0 ? 1 : 3, points);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// A row that is hidden as a whole is NaN, and no other row is.
TEST(OpenAttention, HiddenRows) {
  Case c;
  c.mask = Mask::kBoolPlaces;
  const Graph graph = graph_of(c);
  const DriverOptions options;
  PassRunner runner(options);
  const Compiled compiled = compile_graph(graph, options, runner);
  ASSERT_EQ(joined_kernels(compiled.program), 1U);
  const AnonymousFile file = module_in_memory(compiled);
  ModuleSession session(file.contents());
  const Graph bound = bind_symbols(graph, point_of(c, {70, 70, 1}));
  std::vector<Tensor> inputs = operands_at(bound, 3);
  for (int64_t column = 0; column < 70; ++column) inputs[3].set_int(41 * 70 + column, 0);
  std::vector<Tensor> found = {Tensor(DType::kF32, {1, c.heads, 70, c.out})};
  ASSERT_EQ(session.run(inputs, found), "");
  for (int64_t e = 0; e < found[0].num_elements(); ++e)
    ASSERT_EQ(std::isnan(found[0].get_double(e)), e / c.out % 70 == 41) << e;
}

}  // namespace
}  // namespace tessera
