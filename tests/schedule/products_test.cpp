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
#include "ops/blocked_formats.h"
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

// Two matrices of a run, each as it is or transposed; or with batches, all of f32 or f64.
Case make_run_case(const Product& p, int64_t batches, bool transpose_a, bool transpose_b, std::mt19937& random) {
  using Dims = std::vector<int64_t>;
  const Tensor a =
      random_tensor(p.dtype, transpose_a ? Dims{batches, p.terms, p.rows} : Dims{batches, p.rows, p.terms}, random);
  const Tensor b = random_tensor(
      p.dtype, transpose_b ? Dims{batches, p.columns, p.terms} : Dims{batches, p.terms, p.columns}, random);
  Graph graph;
  GraphBuilder builder(graph);
  const ValueId left = graph.add_input("a", TensorType{p.dtype, make_shape(a.dims()), {}});
  const ValueId right = graph.add_input("b", TensorType{p.dtype, make_shape(b.dims()), {}});
  ValueId y = builder.add(standard_ops().get("matmul"), {left, right},
                          {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
  if (p.has_epilogue) y = builder.add(standard_ops().get("neg"), {y}, {});
  graph.outputs = {y};
  GraphInterpreter interpreter;
  const Graph grouped = fuse_groups(graph, {standard_ops(), interpreter, parse_target("x86-64-v3"), 1});
  const Node& node = *std::find_if(grouped.nodes().begin(), grouped.nodes().end(),
                                   [&](const Node& n) { return n.outputs[0] == grouped.outputs[0]; });
  std::vector<size_t> kept;
  Case result{lower_node(grouped, node, kept), {}, Tensor(p.dtype, {batches, p.rows, p.columns})};
  for (const size_t i : kept) result.args.push_back(node.inputs[i] == grouped.inputs[0] ? a : b);
  for (int64_t n = 0; n < batches; ++n)
    for (int64_t r = 0; r < p.rows; ++r)
      for (int64_t c = 0; c < p.columns; ++c) {
        double sum = 0;
        for (int64_t k = 0; k < p.terms; ++k)
          sum += a.get_double(n * p.rows * p.terms + (transpose_a ? k * p.rows + r : r * p.terms + k)) *
                 b.get_double(n * p.columns * p.terms + (transpose_b ? c * p.terms + k : k * p.columns + c));
        result.want.set_double((n * p.rows + r) * p.columns + c, p.has_epilogue ? -sum : sum);
      }
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

// Panels of all orders of rows and columns: as they lie, turned, copied; sums of several blocks, the last of which is
// shorter, and of one; rows that are some apart and compete for the same lines of a cache.
TEST(Products, InPackedPanels) {
  std::mt19937 random(11);
  const auto pick = [&](std::initializer_list<int64_t> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random() % choices.size()));
  };
  int taken = 0;
  for (int i = 0; i < 48; ++i) {
    Product p{pick({2, 3, 8, 14, 29, 70, 300}), pick({2, 5, 31, 64, 255, 256, 257, 530, 1024}),
              pick({2, 9, 16, 17, 48, 65, 200})};
    if (i % 5 == 4) p.dtype = DType::kF64;
    p.has_epilogue = i % 3 == 0;
    const bool ta = i & 1, tb = i & 2;
    const Case test = make_run_case(p, i % 4 == 3 ? 2 : 1, ta, tb, random);
    for (const std::string& target : runnable_targets())
      for (const char* point :
           {"packed_panels", "packed_panels{vectors=1,rows=3}", "packed_panels{vectors=2,rows=5}"}) {
        std::string text;
        const auto got = run_at(test, point, target, text);
        if (!got) continue;
        ++taken;
        EXPECT_EQ(difference(*got, test.want, p.dtype == DType::kF64 ? 1e-13 : 3e-6), "")
            << p.text() << (ta ? ", a transposed" : "") << (tb ? ", b transposed " : " ") << point << " on " << target
            << "\n"
            << text;
      }
  }
  EXPECT_GT(taken, 300);
}

// Few rows by a matrix as it lies: columns that fill no vector or no chunk, steps that are fewer than are read at once.
TEST(Products, Streamed) {
  std::mt19937 random(12);
  const auto pick = [&](std::initializer_list<int64_t> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random() % choices.size()));
  };
  int taken = 0;
  for (int i = 0; i < 32; ++i) {
    Product p{pick({2, 3, 4, 5, 7, 8}), pick({2, 3, 7, 8, 9, 31, 64, 257}), pick({2, 9, 16, 17, 130, 1001, 4100})};
    if (i % 4 == 3) p.dtype = DType::kF64;
    p.has_epilogue = i % 3 == 0;
    const Case test = make_run_case(p, 1, i % 2 == 1, false, random);
    for (const std::string& target : runnable_targets())
      for (const char* point : {"streamed_product", "streamed_product{steps=1}", "streamed_product{steps=4}"}) {
        std::string text;
        const auto got = run_at(test, point, target, text);
        if (!got) continue;
        ++taken;
        EXPECT_EQ(difference(*got, test.want, p.dtype == DType::kF64 ? 1e-13 : 3e-6), "")
            << p.text() << (i % 2 == 1 ? ", a transposed " : " ") << point << " on " << target << "\n"
            << text;
      }
  }
  EXPECT_GT(taken, 150);
}

// A matrix that comes from memory, for many rows: the next rows are asked for beforehand.
TEST(Products, StreamedFromFar) {
  std::mt19937 random(13);
  for (const Product& p : {Product{5, 2048, 2051}, Product{8, 1031, 4100}, Product{7, 4099, 1027}}) {
    const Case test = make_run_case(p, 1, false, false, random);
    for (const std::string& target : runnable_targets()) {
      std::string text;
      const auto got = run_at(test, "streamed_product", target, text);
      ASSERT_TRUE(got.has_value()) << p.text() << " on " << target;
      EXPECT_NE(text.find("prefetch"), std::string::npos) << text;
      EXPECT_EQ(difference(*got, test.want, 3e-6), "") << p.text() << " on " << target;
    }
  }
}

// Bytes that are rows of blocks: any, but for the scales, which are finite and below 2.
Tensor random_blocks(const BlockedFormat& format, int64_t rows, int64_t terms, std::mt19937& random) {
  const int64_t blocks = terms / format.elements;
  Tensor result(DType::kU8, {rows, blocks * format.bytes});
  const auto bytes = result.as_mutable<uint8_t>();
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  const std::vector<size_t> scales = format.name == "bf16" || format.name == "f16" ? std::vector<size_t>{0}
                                     : format.name == "q6_k"                       ? std::vector<size_t>{208}
                                     : format.name == "q4_0" || format.name == "q5_0" || format.name == "q8_0"
                                         ? std::vector<size_t>{0}
                                         : std::vector<size_t>{0, 2};
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(format.bytes))
    for (const size_t scale : scales) bytes[at + scale + 1] &= 0xBF;
  return result;
}

// x w' with a matrix in blocks, with a bias where `has_epilogue`. With `group`, x is bytes with a scale for so many;
// with `narrow`, x and the weights are rounded to bf16.
Case make_blocked_case(const BlockedFormat& format, const Product& p, std::mt19937& random, int64_t group = 0,
                       bool narrow = false) {
  const Tensor x = random_tensor(narrow ? DType::kBF16 : group ? DType::kI8 : DType::kF32, {p.rows, p.terms}, random);
  const Tensor scales = random_tensor(DType::kF32, {p.rows, group ? p.terms / group : 1}, random);
  const Tensor blocks = random_blocks(format, p.columns, p.terms, random);
  const Tensor bias = random_tensor(DType::kF32, {p.columns}, random);
  GraphInterpreter interpreter;
  const OpTable& ops = standard_ops();
  const Attrs attrs{{"format", std::string(format.name)}};
  Graph alone;
  GraphBuilder alone_builder(alone);
  const ValueId bytes = alone.add_input("w", TensorType{DType::kU8, make_shape(blocks.dims()), {}});
  alone.outputs = {alone_builder.add(ops.get("dequantize_blocks"), {bytes}, attrs)};
  const Tensor w = interpreter.evaluate(alone, {blocks})[0];
  Graph graph;
  GraphBuilder builder(graph);
  const auto constant = [&](const Tensor& t) {
    return builder.add(ops.get("constant"), {}, {{"value", std::make_shared<const Tensor>(t)}});
  };
  const ValueId input = graph.add_input("x", TensorType{narrow ? DType::kF32 : x.dtype(), make_shape(x.dims()), {}});
  ValueId weights = builder.add(ops.get("dequantize_blocks"), {constant(blocks)}, attrs);
  const auto as = [&](ValueId v, DType dtype) { return builder.add(ops.get("cast"), {v}, {{"to", dtype}}); };
  if (narrow) weights = as(as(weights, DType::kBF16), DType::kF32);
  const ValueId scaled = group ? graph.add_input("s", TensorType{DType::kF32, make_shape(scales.dims()), {}}) : -1;
  ValueId y = group ? builder.add(ops.get("scaled_matmul"), {input, scaled, weights}, {})
                    : builder.add(ops.get("matmul"), {input, weights}, {{"transpose_b", true}});
  if (p.has_epilogue) y = builder.add(ops.get("add"), {y, constant(bias)}, {});
  graph.outputs = {y};
  const Graph grouped = fuse_groups(graph, {ops, interpreter, parse_target("x86-64-v3"), 1});
  const Node& node = *std::find_if(grouped.nodes().begin(), grouped.nodes().end(),
                                   [&](const Node& n) { return n.outputs[0] == grouped.outputs[0]; });
  std::vector<size_t> kept;
  Case result{lower_node(grouped, node, kept), {}, Tensor(DType::kF32, {p.rows, p.columns})};
  for (const size_t i : kept) {
    const Node* producer = grouped.producer(node.inputs[i]);
    const bool is_scales = grouped.value(node.inputs[i]).name == "s";
    result.args.push_back(producer ? *producer->attrs.get<TensorPtr>("value") : is_scales ? scales : x);
  }
  // Rows lie in memory as bf16, as lower/narrow_values.h has it.
  for (TensorParam& param : result.kernel.params) {
    if (!narrow || param.is_constant()) continue;
    const BufferPtr old = param.buffer;
    param.buffer = make_buffer(old->name, DType::kBF16, old->shape);
    for (Stage& stage : result.kernel.stages) {
      std::replace(stage.body.inputs.begin(), stage.body.inputs.end(), old, param.buffer);
      stage.body.value = transform(stage.body.value, [&](const Expr& node) -> Expr {
        const bool is_row = node->kind == ExprKind::kLoad && node->buffer == old;
        return is_row ? cast(DType::kF32, load(param.buffer, node->operands)) : Expr();
      });
    }
  }
  const auto scale_of = [&](int64_t r, int64_t k) { return group ? scales.get_double((r * p.terms + k) / group) : 1; };
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t c = 0; c < p.columns; ++c) {
      double sum = p.has_epilogue ? bias.get_double(c) : 0;
      for (int64_t k = 0; k < p.terms; ++k)
        sum += x.get_double(r * p.terms + k) * scale_of(r, k) * w.get_double(c * p.terms + k);
      result.want.set_double(r * p.columns + c, sum);
    }
  return result;
}

// Every format: rows that are multiplied at once and rows by a panel in scratch, columns that fill no panel, one block
// and several. Each sum is taken step by step, so a row alone is what it is among others.
TEST(Products, WeightsInBlocks) {
  std::mt19937 random(13);
  const auto pick = [&](std::initializer_list<int64_t> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random() % choices.size()));
  };
  int taken = 0;
  for (const BlockedFormat& format : blocked_formats())
    for (int i = 0; i < 2; ++i) {
      Product p{i == 0 ? pick({1, 2, 3, 5, 7}) : pick({8, 9, 13, 30, 70}),
                pick({1, 2, 3}) * std::max<int64_t>(format.elements, 7), pick({1, 3, 8, 16, 31, 33, 64, 100})};
      p.has_epilogue = i % 2 == 0;
      const Case test = make_blocked_case(format, p, random);
      for (const std::string& target : runnable_targets())
        for (const char* point :
             {"blocked_weights", "blocked_weights{vectors=1,rows=4}", "blocked_weights{vectors=4}"}) {
          std::string text;
          const auto got = run_at(test, point, target, text);
          EXPECT_TRUE(got) << format.name << " " << p.text() << ": " << text;
          if (!got) continue;
          ++taken;
          EXPECT_EQ(difference(*got, test.want, 3e-6), "")
              << format.name << " " << p.text() << " " << point << " on " << target;
        }
    }
  EXPECT_GT(taken, 35);
}

// The same of bytes with scales: where numbers of weights are made of bytes that lie together, their products are
// summed as integers; else, and where the machine does not, as floats.
TEST(Products, BytesTimesWeightsInBlocks) {
  std::mt19937 random(14);
  const auto pick = [&](std::initializer_list<int64_t> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random() % choices.size()));
  };
  std::vector<std::string> targets = runnable_targets();
  for (const char* features : {"avx512vnni", "avxvnni"})
    if (const Target host = parse_target("native"); host.has(features) && host.has("avx512f"))
      targets.push_back(std::string(features == std::string("avxvnni") ? "x86-64-v3" : "x86-64-v4") + ",+" + features);
  int by_integers = 0;
  for (const BlockedFormat& format : blocked_formats()) {
    if (format.elements == 1) continue;
    for (int i = 0; i < 2; ++i) {
      Product p{i == 0 ? pick({1, 2, 3, 5, 7}) : pick({8, 9, 13, 30, 70}), pick({1, 2, 3}) * format.elements,
                pick({1, 3, 8, 16, 31, 33, 64, 100})};
      p.has_epilogue = i % 2 == 0;
      const Case test = make_blocked_case(format, p, random, 32);
      for (const std::string& target : targets)
        for (const char* point : {"blocked_bytes", "blocked_bytes{vectors=1,rows=6}", "blocked_bytes{vectors=4,rows=2}",
                                  "blocked_weights"}) {
          std::string text;
          const auto got = run_at(test, point, target, text);
          const bool is_integer = std::string(point) != "blocked_weights";
          EXPECT_TRUE(got || is_integer) << format.name << " " << p.text() << ": " << text;
          if (!got) continue;
          by_integers += is_integer;
          EXPECT_EQ(difference(*got, test.want, 3e-6), "")
              << format.name << " " << p.text() << " " << point << " on " << target;
        }
    }
  }
  EXPECT_GT(by_integers, 50);
}

// Rounded to bf16 many rows are multiplied in tiles, and few by the weights as they are before: rests of two tiles of
// rows, of one and of less, of blocks of rows, of columns, and sums that are cut into chunks.
TEST(Products, RoundedWeightsInBlocks) {
  std::mt19937 random(15);
  const auto pick = [&](std::initializer_list<int64_t> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random() % choices.size()));
  };
  std::vector<std::string> targets = {"x86-64-v4,+portable-tiles"};
  if (const Target host = parse_target("native"); host.has("amx-bf16"))
    targets.push_back("x86-64-v4,+amx-tile,+amx-bf16");
  if (!parse_target("native").has("avx512f")) GTEST_SKIP() << "tiles of 16 columns want vectors of 16";
  int in_tiles = 0;
  for (const BlockedFormat& format : blocked_formats())
    for (int i = 0; i < 3; ++i) {
      const int64_t whole = std::max<int64_t>(format.elements, 32);
      Product p{i == 0   ? pick({1, 3, 15})
                : i == 1 ? pick({16, 17, 31, 32, 47})
                         : pick({256, 257, 300}),
                i == 2 ? whole * (1024 / whole) : pick({1, 2, 3}) * whole, pick({1, 8, 16, 31, 33, 64})};
      p.has_epilogue = i % 2 == 0;
      const Case test = make_blocked_case(format, p, random, 0, true);
      for (const std::string& target : targets)
        for (const char* point : {"blocked_weights", "blocked_weights{vectors=1}", "blocked_weights{vectors=4}"}) {
          std::string text;
          const auto got = run_at(test, point, target, text);
          ASSERT_TRUE(got) << format.name << " " << p.text() << ": " << text;
          const bool tiles = text.find("dot.bf16") != std::string::npos;
          EXPECT_EQ(tiles, p.rows >= 16 && std::string(point) != "blocked_weights{vectors=4}") << p.text() << point;
          in_tiles += tiles;
          EXPECT_EQ(difference(*got, test.want, tiles ? 0x1p-8 : 3e-6), "")
              << format.name << " " << p.text() << " " << point << " on " << target;
        }
    }
  EXPECT_GT(in_tiles, 30);
}

}  // namespace
}  // namespace tessera
