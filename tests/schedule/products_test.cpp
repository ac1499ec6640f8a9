// Products with weights whose columns are no whole number of vectors, as register_tile makes them: dot products or a
// vector whose last lanes are not stored. Compiled for every level of instructions that runs here, against sums of f64;
// operands lie against unmapped pages.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "codegen_harness.h"
#include "graph/op_def.h"
#include "graph_passes/fusion/fuse_groups.h"
#include "interp/graph_interp.h"
#include "loop/printer.h"
#include "loop_passes/expand_math.h"
#include "lower/lower.h"
#include "ops/op_table.h"
#include "schedule/choose.h"
#include "schedule/kernel/pack.h"

namespace tessera {
namespace {

// max(x w + b, 0), of f32 or f64.
struct Product {
  int64_t rows, terms, columns;
  DType dtype = DType::kF32;
  bool has_epilogue = false;

  std::string text() const {
    return std::to_string(rows) + "x" + std::to_string(terms) + "x" + std::to_string(columns) +
           (has_epilogue ? " with an epilogue" : "") + (dtype == DType::kF64 ? " of f64" : "");
  }
};

struct Case {
  TensorProgram kernel;
  std::vector<Tensor> args;  // of the kernel
  Tensor want;
};

Case make_case(const Product& p, std::mt19937& random, const std::function<void(Tensor& x)>& change_input) {
  Tensor x = random_tensor(p.dtype, {p.rows, p.terms}, random);
  const Tensor w = random_tensor(p.dtype, {p.terms, p.columns}, random);
  const Tensor bias = random_tensor(p.dtype, {p.columns}, random);
  change_input(x);
  Graph graph;
  GraphBuilder builder(graph);
  const OpTable& ops = standard_ops();
  const auto constant = [&](const Tensor& t) {
    return builder.add(ops.get("constant"), {}, {{"value", std::make_shared<const Tensor>(t)}});
  };
  const ValueId input = graph.add_input("x", TensorType{p.dtype, make_shape(x.dims()), {}});
  ValueId y = builder.add(ops.get("matmul"), {input, constant(w)}, {});
  if (p.has_epilogue) {
    y = builder.add(ops.get("add"), {y, constant(bias)}, {});
    y = builder.add(ops.get("max"), {y, constant(Tensor(p.dtype, {1}))}, {});
  }
  graph.outputs = {y};
  GraphInterpreter interpreter;
  const Graph grouped = fuse_groups(graph, {standard_ops(), interpreter, parse_target("x86-64-v3"), 1});
  const Node& node = *std::find_if(grouped.nodes().begin(), grouped.nodes().end(),
                                   [&](const Node& n) { return n.outputs[0] == grouped.outputs[0]; });
  std::vector<size_t> kept;
  Case result{lower_node(grouped, node, kept), {}, Tensor(p.dtype, {p.rows, p.columns})};
  for (const size_t i : kept) {
    const Node* producer = nullptr;
    for (const Node& n : grouped.nodes())
      if (n.outputs[0] == node.inputs[i]) producer = &n;
    result.args.push_back(producer ? *producer->attrs.get<TensorPtr>("value") : x);
  }
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t c = 0; c < p.columns; ++c) {
      double sum = 0;
      for (int64_t k = 0; k < p.terms; ++k) sum += x.get_double(r * p.terms + k) * w.get_double(k * p.columns + c);
      if (p.has_epilogue) sum = std::isnan(sum) ? sum : std::max(sum + bias.get_double(c), 0.0);
      result.want.set_double(r * p.columns + c, sum);
    }
  return result;
}

// The kernel's result at a point of the rule, on one target; `text` receives the loops.
std::optional<Tensor> run_at(const Case& test, const std::string& point_text, const std::string& target_name,
                             std::string& text) {
  const Target target = parse_target(target_name);
  std::string why;
  const auto point = parse_knob_point(point_text, why);
  EXPECT_TRUE(point) << why;
  const auto answer = apply_point(*point, test.kernel, target);
  if (const auto* declined = std::get_if<Declined>(&answer)) {
    text = declined->reason;
    return std::nullopt;
  }
  const auto& scheduled = std::get<ScheduledKernel>(answer);
  text = print(scheduled.program);
  std::vector<Tensor> args = test.args;
  for (const PackedParam& packed : scheduled.packed) args[packed.param] = pack(args[packed.param], packed);
  for (size_t i = 0; i < args.size(); ++i) {
    Tensor flat(args[i].dtype(), *static_dims(scheduled.program.params[i]->shape));
    EXPECT_EQ(flat.num_elements(), args[i].num_elements());
    std::copy_n(args[i].bytes(), args[i].num_bytes(), flat.mutable_bytes());
    args[i] = flat;
  }
  const LoopProgram loops = expand_math(scheduled.program);
  const Tensor got = NativeModule(program_of(loops), target).run(args)[0];
  Tensor result(got.dtype(), test.want.dims());
  std::copy_n(got.bytes(), got.num_bytes(), result.mutable_bytes());
  return result;
}

bool has_dots(const std::string& text) { return text.find("sums") != std::string::npos; }
bool is_split(const std::string& text) { return text.find("half") != std::string::npos; }

TEST(Products, ColumnsBehindWholeVectors) {
  std::mt19937 random(7);
  const auto pick = [&](std::initializer_list<int64_t> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random() % choices.size()));
  };
  int with_dots = 0, split = 0, neither = 0;
  for (int i = 0; i < 24; ++i) {
    Product p{pick({1, 2, 13, 14, 15, 29, 43}), pick({1, 2, 16, 31, 32, 33, 64, 100, 128, 257}),
              pick({1, 2, 3, 5, 8, 15, 17, 18, 33, 49, 65, 70})};
    if (random() % 4 == 0) p.dtype = DType::kF64;
    p.has_epilogue = random() % 2 == 0;
    const Case test = make_case(p, random, [](Tensor&) {});
    for (const std::string& target : runnable_targets())
      for (const char* point : {"register_tile", "register_tile{dots=1}", "register_tile{dots=0,split=0}",
                                "register_tile{dots=0,split=1}", "register_tile{pack=0}"}) {
        std::string text;
        const auto got = run_at(test, point, target, text);
        if (!got) continue;  // no such knob here, or one column
        ++(has_dots(text) ? with_dots : is_split(text) ? split : neither);
        EXPECT_EQ(difference(*got, test.want, p.dtype == DType::kF64 ? 1e-13 : 3e-6), "")
            << p.text() << " " << point << " on " << target << "\n"
            << text;
      }
  }
  EXPECT_GT(with_dots, 30);
  EXPECT_GT(split, 10);
  EXPECT_GT(neither, 30);
}

// Five to twenty rows use a group of weights about as fast as it comes from memory: each step asks for its share of the
// next group, which is more than a line for a single tile and for two.
TEST(Products, FewRowsAskForTheNextWeights) {
  std::mt19937 random(9);
  for (const int64_t rows : {4, 5, 8, 9, 16, 20, 21}) {
    const Product p{rows, 300, 400};
    const Case test = make_case(p, random, [](Tensor&) {});
    for (const std::string& target : runnable_targets()) {
      std::string text;
      const auto got = run_at(test, "register_tile", target, text);
      ASSERT_TRUE(got);
      EXPECT_EQ(difference(*got, test.want, 3e-6), "") << p.text() << " on " << target << "\n" << text;
      if (target != "x86-64-v4") continue;
      const bool asks = text.find(" prefetch ") != std::string::npos;
      const bool asks_for_lines = text.find("in 0..1 prefetch ") != std::string::npos;
      EXPECT_EQ(asks, rows > 4) << p.text() << "\n" << text;
      if (rows <= 16) EXPECT_EQ(asks_for_lines, rows > 4) << p.text() << "\n" << text;
    }
  }
}

// Lanes behind a row's end lie in the next row: what stands there reaches no sum.
TEST(Products, RowsDoNotTouchEachOther) {
  std::mt19937 random(8);
  for (const int64_t columns : {3, 17, 65}) {
    const Product p{15, 35, columns};
    const Case test = make_case(p, random, [&](Tensor& x) {
      for (int64_t r = 0; r < p.rows; r += 2) x.set_double(r * p.terms, r % 4 == 0 ? NAN : INFINITY);
    });
    for (const std::string& target : runnable_targets())
      for (const char* point : {"register_tile{dots=1}", "register_tile{dots=0}"}) {
        std::string text;
        const auto got = run_at(test, point, target, text);
        if (!got) continue;
        for (int64_t r = 0; r < p.rows; ++r)
          for (int64_t c = 0; c < columns; ++c)
            EXPECT_EQ(std::isfinite(got->get_double(r * columns + c)), r % 2 == 1)
                << p.text() << " " << point << " on " << target << ": row " << r << ", column " << c;
        EXPECT_EQ(difference(*got, test.want, 3e-6), "") << p.text() << " " << point << " on " << target;
      }
  }
}

// Few columns of long rows are dot products; many columns behind few vectors, and short sums, are not.
TEST(Products, DotProductsWhereTheyPay) {
  std::mt19937 random(9);
  const auto rule_has_dots = [&](const Product& p) {
    std::string text;
    EXPECT_TRUE(run_at(make_case(p, random, [](Tensor&) {}), "register_tile", "x86-64-v3", text));
    return has_dots(text);
  };
  EXPECT_TRUE(rule_has_dots({20, 300, 65}));
  EXPECT_TRUE(rule_has_dots({20, 300, 2}));
  EXPECT_TRUE(rule_has_dots({1, 300, 2}));
  EXPECT_FALSE(rule_has_dots({20, 300, 64}));
  EXPECT_FALSE(rule_has_dots({20, 8, 65}));
  EXPECT_FALSE(rule_has_dots({20, 300, 8 * 100 + 7}));
}

}  // namespace
}  // namespace tessera
