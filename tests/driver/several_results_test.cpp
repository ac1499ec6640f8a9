// Kernels with several results or reductions: which groups are merged, and random graphs of them, compiled, against the
// interpreter at every level of x86-64 that runs here.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "graph/parser.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "program/in_place.h"
#include "support/compiled_graph.h"
#include "support/watched_compile.h"

namespace tessera {
namespace {

// "rule:results" of each call, in order.
std::vector<std::string> calls_of(const Program& program) {
  std::vector<std::string> calls;
  for (const KernelCall& call : program.calls) {
    const Kernel& kernel = program.kernels[static_cast<size_t>(call.kernel)];
    calls.push_back(fmt::format("{}:{}", kernel.rule, kernel.program.num_outputs));
  }
  return calls;
}

// Compiles the graph, compares its results with the interpreter's, and tells its calls.
std::string calls_of(const Graph& graph, const std::string& level, int threads) {
  DriverOptions options = options_for(level, threads);
  std::vector<std::string> calls;
  OnProgram see_program([&](std::string_view step, const Program& program) {
    if (step == "schedule") calls = calls_of(program);
  });
  options.observers.add(see_program);
  std::mt19937 numbers(5);
  std::vector<Tensor> inputs;
  for (const ValueId input : graph.inputs) inputs.push_back(random_tensor(graph.type(input), numbers, 32, 0x1p-4, 21));
  const CompiledRun got = run_compiled(graph, inputs, options);
  const std::vector<Tensor> want = GraphInterpreter().evaluate(graph, inputs);
  for (size_t i = 0; i < got.results.size(); ++i)
    EXPECT_EQ(difference(want[i], got.results[i], {.narrow = 2e-2, .least = 1}), "")
        << "result " << i << ", " << level << ", " << threads;
  return fmt::format("{}", fmt::join(calls, " "));
}

std::string calls_of(const std::string& text) { return calls_of(parse_graph(text, standard_ops()), "x86-64-v3", 1); }

// The step of Adam (Kingma and Ba 2015, algorithm 1): seven passes over memory instead of ten.
TEST(SeveralResults, AdamIsOneKernel) {
  EXPECT_EQ(calls_of(R"(graph @main(%p: f32[100,64], %g: f32[100,64], %m: f32[100,64], %v: f32[100,64])
      -> (%p1: f32[100,64], %m1: f32[100,64], %v1: f32[100,64]) {
    %b1 = constant {value = dense<f32[] 0.9>} : f32[]
    %c1 = constant {value = dense<f32[] 0.1>} : f32[]
    %b2 = constant {value = dense<f32[] 0.999>} : f32[]
    %c2 = constant {value = dense<f32[] 0.001>} : f32[]
    %eps = constant {value = dense<f32[] 1e-8>} : f32[]
    %rate = constant {value = dense<f32[] 0.01>} : f32[]
    %ma = mul(%m, %b1) : f32[100,64]
    %mb = mul(%g, %c1) : f32[100,64]
    %m1 = add(%ma, %mb) : f32[100,64]
    %va = mul(%v, %b2) : f32[100,64]
    %gg = mul(%g, %g) : f32[100,64]
    %vb = mul(%gg, %c2) : f32[100,64]
    %v0 = add(%va, %vb) : f32[100,64]
    %v1 = abs(%v0) : f32[100,64]
    %s = sqrt(%v1) : f32[100,64]
    %d = add(%s, %eps) : f32[100,64]
    %q = div(%m1, %d) : f32[100,64]
    %u = mul(%q, %rate) : f32[100,64]
    %p1 = sub(%p, %u) : f32[100,64]
  })"),
            "injective:3");
}

TEST(SeveralResults, SumsOverTheSameRowsAreOnePass) {
  EXPECT_EQ(calls_of(R"(graph @main(%x: f32[30,100]) -> (%s: f32[30], %q: f32[30]) {
    %s = reduce(%x) {axes = [1], keepdims = false, kind = "sum"} : f32[30]
    %xx = mul(%x, %x) : f32[30,100]
    %q = reduce(%xx) {axes = [1], keepdims = false, kind = "sum"} : f32[30]
  })"),
            "row_reduce:2");
}

// A batch's statistics: the mean and the mean of squares of each column.
TEST(SeveralResults, MeansAreOnePass) {
  EXPECT_EQ(calls_of(R"(graph @main(%x: f32[50,70]) -> (%m: f32[70], %v: f32[70]) {
    %n = constant {value = dense<f32[] 0.02>} : f32[]
    %s = reduce(%x) {axes = [0], keepdims = false, kind = "sum"} : f32[70]
    %m = mul(%s, %n) : f32[70]
    %xx = mul(%x, %x) : f32[50,70]
    %q = reduce(%xx) {axes = [0], keepdims = false, kind = "sum"} : f32[70]
    %qn = mul(%q, %n) : f32[70]
    %v = sqrt(%qn) : f32[70]
  })"),
            "lane_reduce:2");
}

TEST(SeveralResults, SumsOfColumnsAreOnePass) {
  EXPECT_EQ(calls_of(R"(graph @main(%x: f32[50,70]) -> (%s: f32[70], %q: f32[70]) {
    %s = reduce(%x) {axes = [0], keepdims = false, kind = "sum"} : f32[70]
    %xx = mul(%x, %x) : f32[50,70]
    %q = reduce(%xx) {axes = [0], keepdims = false, kind = "max"} : f32[70]
  })"),
            "lane_reduce:2");
}

// What an activation is computed from is stored beside it.
TEST(SeveralResults, ProductsWithWhatFollowsThem) {
  EXPECT_EQ(calls_of(R"(graph @main(%x: f32[33,70], %w: f32[70,50], %b: f32[50])
      -> (%z: f32[33,50], %y: f32[33,50], %q: f32[33,50]) {
    %p = matmul(%x, %w) : f32[33,50]
    %z = add(%p, %b) : f32[33,50]
    %y = tanh(%z) : f32[33,50]
    %e = exp(%z) : f32[33,50]
    %q = mul(%e, %y) : f32[33,50]
  })"),
            "register_tile:3");
}

// b = a - sum(a) waits for all of a: the kernels of a and b stay apart.
TEST(SeveralResults, NoKernelWaitsForItself) {
  EXPECT_EQ(calls_of(R"(graph @main(%x: f32[30,100]) -> (%a: f32[30,100], %b: f32[30,100]) {
    %a = exp(%x) : f32[30,100]
    %s = reduce(%a) {axes = [0, 1], keepdims = true, kind = "sum"} : f32[1,1]
    %d = sub(%a, %s) : f32[30,100]
    %b = mul(%d, %x) : f32[30,100]
  })"),
            "injective:1 row_reduce:1 injective:1");
}

// Chains of elementwise nodes and reductions of rows over values of one shape, with operands of other shapes that are
// broadcast; any of the values may be results. `open`: the number of rows is.
std::string random_text(unsigned seed, bool open = false) {
  std::mt19937 random(seed);
  const auto pick = [&](std::initializer_list<int64_t> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random() % choices.size()));
  };
  const char* const dtypes[] = {"f32", "f32", "f64", "f16", "bf16", "i32"};
  const std::string dtype = dtypes[random() % std::size(dtypes)];
  const bool is_int = dtype == "i32";
  const int64_t fixed_rows = pick({1, 7, 16, 33}), columns = pick({64, 100, 129, 512});
  const std::string rows = open ? "n" : std::to_string(fixed_rows);
  const std::string type = fmt::format("{}[{},{}]", dtype, rows, columns), row = fmt::format("{}[{}]", dtype, columns),
                    column = fmt::format("{}[{},1]", dtype, rows);
  std::vector<std::string> values = {"x0", "x1"}, of_rows = {"r0"}, of_columns;
  std::string body;
  const int count = 3 + static_cast<int>(random() % 12);
  for (int i = 0; i < count; ++i) {
    const std::string name = fmt::format("t{}", i), a = values[random() % values.size()];
    const std::string b = random() % 4 == 0   ? "c0"
                          : random() % 4 == 0 ? of_rows[random() % of_rows.size()]
                                              : values[random() % values.size()];
    if (!is_int && dtype != "f16" && dtype != "bf16" && random() % 10 == 0) {
      body += fmt::format("  %{} = matmul(%{}, %w0) : {}\n", name, a, type);
      values.push_back(name);
      continue;
    }
    if (random() % 8 == 0) {
      body += fmt::format("  %{} = reduce(%{}) {{axes = [0], keepdims = true, kind = \"sum\"}} : {}[1,{}]\n", name, a,
                          dtype, columns);
      of_columns.push_back(name);
      continue;
    }
    if (random() % 5 == 0) {
      const char* const kinds[] = {"sum", "max", "min"};
      body += fmt::format("  %{} = reduce(%{}) {{axes = [1], keepdims = true, kind = \"{}\"}} : {}\n", name, a,
                          kinds[random() % 3], column);
      of_rows.push_back(name);
      continue;
    }
    const char* const unary_floats[] = {"tanh", "neg", "abs"};
    const char* const binaries[] = {"add", "sub", "max", "min"};
    if (random() % 3 == 0)
      body += fmt::format("  %{} = {}(%{}) : {}\n", name, is_int ? "neg" : unary_floats[random() % 3], a, type);
    else body += fmt::format("  %{} = {}(%{}, %{}) : {}\n", name, binaries[random() % 4], a, b, type);
    values.push_back(name);
  }
  std::string results;
  const auto add_results = [&](const std::vector<std::string>& names, const std::string& of) {
    for (const std::string& name : names)
      if (name[0] == 't' && (random() % 2 == 0 || name == names.back()))
        results += fmt::format("{}%{}: {}", results.empty() ? "" : ", ", name, of);
  };
  add_results(values, type);
  add_results(of_rows, column);
  if (!of_columns.empty()) add_results(of_columns, fmt::format("{}[1,{}]", dtype, columns));
  if (results.empty()) return "";
  return fmt::format("graph @main{7}(%x0: {0}, %x1: {0}, %c0: {1}, %r0: {2}, %w0: {5}[{6},{6}]) -> ({3}) {{\n{4}}}\n",
                     type, row, column, results, body, dtype, columns, open ? "[n in 1..64]" : "");
}

TEST(SeveralResults, OfOpenSizes) {
  EXPECT_EQ(calls_of(R"(graph @main[n in 1..640](%x: f32[n,70], %z: f32[n,70]) -> (%a: f32[n,70], %b: f32[n,70]) {
    %a = add(%x, %z) : f32[n,70]
    %t = tanh(%a) : f32[n,70]
    %b = mul(%t, %x) : f32[n,70]
  })"),
            "dynamic_loops:2");
  // Statistics of a batch: the mean and the deviation of each channel, over images of any number and size.
  EXPECT_EQ(calls_of(R"(graph @main[n in 1..64, h in 4..64](%x: f32[n,8,h,h]) -> (%s: f32[8], %q: f32[8]) {
    %s = reduce(%x) {axes = [0, 2, 3], keepdims = false, kind = "sum"} : f32[8]
    %xx = mul(%x, %x) : f32[n,8,h,h]
    %p = reduce(%xx) {axes = [0, 2, 3], keepdims = false, kind = "sum"} : f32[8]
    %q = sqrt(%p) : f32[8]
  })"),
            "dynamic_loops:2");
  // And of each column.
  EXPECT_EQ(calls_of(R"(graph @main[n in 1..640](%x: f32[n,70]) -> (%s: f32[70], %q: f32[70]) {
    %s = reduce(%x) {axes = [0], keepdims = false, kind = "sum"} : f32[70]
    %xx = mul(%x, %x) : f32[n,70]
    %q = reduce(%xx) {axes = [0], keepdims = false, kind = "max"} : f32[70]
  })"),
            "dynamic_loops:2");
}

TEST(SeveralResults, RandomGraphsOfOpenSizes) {
  int with_several = 0;
  for (unsigned seed = 0; seed < 60 && !HasFailure(); ++seed) {
    const std::string text = random_text(seed, true);
    if (text.empty()) continue;
    SCOPED_TRACE(text);
    const Graph graph = parse_graph(text, standard_ops());
    const char* const levels[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
    const std::string calls = calls_of(graph, levels[seed % 3], 1 + static_cast<int>(seed / 3 % 2));
    for (const char* several : {":2", ":3", ":4", ":5"})
      with_several += calls.find(std::string("dynamic_loops") + several) != std::string::npos;
  }
  EXPECT_GT(with_several, 15);
}

// A moment takes the place of the one before, which the step reads as well: all values come before the first store.
TEST(SeveralResults, TakeThePlaceOfWhatTheyReplace) {
  const Graph graph = parse_graph(R"(graph @main(%p: f32[100,64], %g: f32[100,64], %m: f32[100,64])
      -> (%m1: f32[100,64], %p1: f32[100,64]) {
    %m1 = add(%m, %g) : f32[100,64]
    %p1 = sub(%p, %m1) : f32[100,64]
  })",
                                  standard_ops());
  DriverOptions options = options_for("x86-64-v3", 1);
  OnProgram see_program([&](std::string_view step, const Program& program) {
    if (step != "schedule") return;
    ASSERT_EQ(program.calls.size(), 1u);
    const KernelCall& call = program.calls[0];
    const LoopProgram& kernel = program.kernels[static_cast<size_t>(call.kernel)].program;
    const auto place = [&](const std::string& name) {
      for (size_t i = 0; i < call.args.size(); ++i)
        if (program.buffers[static_cast<size_t>(call.args[i])].name == name) return i;
      return call.args.size();
    };
    EXPECT_EQ(why_not_in_place(kernel, place("m"), place("m1"), 6400), "");
    EXPECT_EQ(why_not_in_place(kernel, place("p"), place("p1"), 6400), "");
    // What the first store has overwritten may not be read behind it.
    LoopProgram late = kernel;
    const BufferPtr m = kernel.params[place("m")], m1 = kernel.params[place("m1")], p1 = kernel.params[place("p1")];
    const Var i = make_var("i");
    late.body =
        for_loop(i, 0, 6400, ForKind::kSerial, seq({store(m1, {i}, load(m, {i})), store(p1, {i}, load(m, {i}))}));
    EXPECT_NE(why_not_in_place(late, place("m"), place("m1"), 6400), "");
  });
  options.observers.add(see_program);
  std::mt19937 numbers(5);
  std::vector<Tensor> inputs;
  for (const ValueId input : graph.inputs) inputs.push_back(random_tensor(graph.type(input), numbers));
  run_compiled(graph, inputs, options);
}

TEST(SeveralResults, RandomGraphs) {
  int with_several = 0, with_several_sums = 0, with_several_columns = 0, with_several_products = 0;
  for (unsigned seed = 0; seed < 120 && !HasFailure(); ++seed) {
    const std::string text = random_text(seed);
    if (text.empty()) continue;
    SCOPED_TRACE(text);
    const Graph graph = parse_graph(text, standard_ops());
    const char* const levels[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
    const std::string calls = calls_of(graph, levels[seed % 3], 1 + static_cast<int>(seed / 3 % 2));
    for (const char* several : {":2", ":3", ":4", ":5"}) {
      with_several += calls.find(std::string("injective") + several) != std::string::npos;
      with_several_sums += calls.find(std::string("row_reduce") + several) != std::string::npos;
      with_several_products += calls.find(std::string("register_tile") + several) != std::string::npos;
      with_several_columns += calls.find(std::string("lane_reduce") + several) != std::string::npos;
    }
  }
  EXPECT_GT(with_several, 30);
  EXPECT_GT(with_several_sums, 3);
  EXPECT_GT(with_several_columns, 0);
  EXPECT_GT(with_several_products, 2);
}

}  // namespace
}  // namespace tessera
