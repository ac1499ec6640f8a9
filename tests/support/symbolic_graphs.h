// Graphs with symbols for tests: networks, things that models do with sizes, random chains of operators.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "arith/simplify.h"
#include "graph/parser.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"
#include "types/tensor.h"

namespace tessera::symbolic_graphs {

using Ints = std::vector<int64_t>;

inline std::vector<Tensor> inputs_at(const Graph& bound, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> real(-1, 1);
  std::vector<Tensor> inputs;
  for (const ValueId id : bound.inputs) {
    Tensor tensor(bound.type(id).dtype, bound.type(id).dims());
    for (int64_t i = 0; i < tensor.num_elements(); ++i)
      if (is_float(tensor.dtype())) tensor.set_double(i, real(random));
      else tensor.set_int(i, static_cast<int64_t>(random() % 3));
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

inline std::vector<Ints> points_of(const Graph& graph, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Ints> points(2);
  for (const SymbolRange& s : graph.symbols) {
    points[0].push_back(s.lo);
    points[1].push_back(s.hi);
  }
  while (points.size() < count) {
    Ints point;
    for (const SymbolRange& s : graph.symbols)
      point.push_back(s.lo +
                      static_cast<int64_t>(random() % static_cast<uint64_t>((s.hi - s.lo) / s.step + 1)) * s.step);
    points.push_back(point);
  }
  return points;
}

// A graph that is built: its symbols are known while that goes on.
class Builder {
 public:
  explicit Builder(std::vector<SymbolRange> symbols) : known_(symbols), builder_(graph_) {
    graph_.symbols = std::move(symbols);
  }
  Expr symbol(size_t i) const { return graph_.symbols[i].var; }
  ValueId input(const std::string& name, Shape shape, DType dtype = DType::kF32) {
    for (Expr& dim : shape) dim = normalize_size(dim);
    return graph_.add_input(name, {dtype, std::move(shape), {}});
  }
  ValueId weights(const Ints& dims, double size = 1) {
    Tensor tensor(DType::kF32, dims);
    for (int64_t i = 0; i < tensor.num_elements(); ++i)
      tensor.set_double(i, size * (static_cast<double>(random_() % 2001) / 1000 - 1));
    return add("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
  }
  ValueId add(const std::string& op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    builder_.set_loc(fmt::format("{}{}", op, ++count_));
    return builder_.add(standard_ops().get(op), std::move(inputs), std::move(attrs));
  }
  ValueId composite(const std::string& name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    builder_.set_loc(fmt::format("{}{}", name, ++count_));
    return add_composite(builder_, standard_ops(), name, std::move(inputs), std::move(attrs)).at(0);
  }
  ValueId conv(ValueId x, int64_t in, int64_t out, int64_t k, int64_t stride, int64_t pad, int64_t groups = 1) {
    return add("conv",
               {x, weights({out, in / groups, k, k}, 1.0 / std::sqrt(static_cast<double>(in / groups * k * k)))},
               {{"strides", Ints{stride, stride}},
                {"dilations", Ints{1, 1}},
                {"input_dilations", Ints{1, 1}},
                {"pads_begin", Ints{pad, pad}},
                {"pads_end", Ints{pad, pad}},
                {"groups", groups}});
  }
  ValueId reshape(ValueId x, Shape shape) { return add("reshape", {x}, {{"shape", std::move(shape)}}); }
  ValueId dense(ValueId x, int64_t in, int64_t out) {
    return add("add",
               {add("matmul", {x, weights({in, out}, 1.0 / std::sqrt(static_cast<double>(in)))}), weights({out}, 0.1)});
  }
  const Shape& shape(ValueId id) const { return graph_.type(id).shape; }
  Graph result(std::vector<ValueId> outputs) {
    graph_.outputs = std::move(outputs);
    return graph_;
  }
  std::mt19937_64& random() { return random_; }

 private:
  KnownSymbols known_;
  Graph graph_;
  GraphBuilder builder_;
  std::mt19937_64 random_{5};
  int count_ = 0;
};

inline SymbolRange range(const char* name, int64_t lo, int64_t hi, int64_t step = 1) {
  return {make_var(name), lo, hi, step};
}

inline Graph residual_network(int64_t step, int64_t most = 96) {
  Builder b({range("n", 1, 5), range("h", 32, most, step), range("w", 32, most, step)});
  ValueId x = b.input("x", {b.symbol(0), 3, b.symbol(1), b.symbol(2)});
  const auto norm = [&](ValueId v, int64_t channels) {
    return b.composite(
        "batch_norm",
        {v, b.weights({channels}), b.weights({channels}), b.weights({channels}), b.add("abs", {b.weights({channels})})},
        {{"epsilon", 0.5}});
  };
  const auto relu = [&](ValueId v) { return b.add("max", {v, b.weights({}, 0)}); };
  x = relu(norm(b.conv(x, 3, 16, 7, 2, 3), 16));
  x = b.composite("max_pool", {x},
                  {{"window", Ints{3, 3}},
                   {"strides", Ints{2, 2}},
                   {"pads_begin", Ints{1, 1}},
                   {"pads_end", Ints{1, 1}},
                   {"dilations", Ints{1, 1}}});
  ValueId y = relu(norm(b.conv(x, 16, 16, 3, 1, 1), 16));
  x = relu(b.add("add", {norm(b.conv(y, 16, 16, 3, 1, 1), 16), x}));
  y = relu(norm(b.conv(x, 16, 32, 3, 2, 1), 32));
  x = relu(b.add("add", {norm(b.conv(y, 32, 32, 3, 1, 1), 32), norm(b.conv(x, 16, 32, 1, 2, 0), 32)}));
  x = b.composite("global_average_pool", {x});
  return b.result({b.dense(b.reshape(x, {b.symbol(0), 32}), 32, 10)});
}

inline Graph encoder() {
  Builder b({range("n", 1, 4), range("l", 1, 40)});
  const Expr n = b.symbol(0), l = b.symbol(1);
  ValueId x = b.input("x", {n, l, 48});
  const ValueId mask = b.input("mask", {n, 1, 1, l});
  for (int layer = 0; layer < 2; ++layer) {
    const auto heads = [&](ValueId v) {
      return b.add("transpose", {b.reshape(v, {n, l, 4, 12})}, {{"perm", Ints{0, 2, 1, 3}}});
    };
    const ValueId q = heads(b.dense(x, 48, 48)), k = heads(b.dense(x, 48, 48)), v = heads(b.dense(x, 48, 48));
    ValueId y = b.composite("attention", {q, k, v, mask}, {{"scale", 0.3}});
    y = b.reshape(b.add("transpose", {y}, {{"perm", Ints{0, 2, 1, 3}}}), {n, l, 48});
    x = b.composite("layer_norm", {b.add("add", {x, b.dense(y, 48, 48)}), b.weights({48}), b.weights({48})},
                    {{"axis", int64_t{2}}, {"epsilon", 1e-3}});
    y = b.dense(b.composite("gelu", {b.dense(x, 48, 96)}), 96, 48);
    x = b.composite("layer_norm", {b.add("add", {x, y}), b.weights({48}), b.weights({48})},
                    {{"axis", int64_t{2}}, {"epsilon", 1e-3}});
  }
  return b.result(
      {x, b.add("slice", {x},
                {{"starts", Shape{0, l - Expr(1), 0}}, {"sizes", Shape{n, 1, 48}}, {"steps", Ints{1, 1, 1}}})});
}

// Sizes as values, tables cut to a length, borders, parts, interpolation.
inline std::vector<Graph> graphs_about_sizes() {
  const char* texts[] = {
      R"(graph @main[n in 1..7, l in 2..30](%x: f32[n,l]) -> (%y: f32[n,l], %s: i64[2], %m: f32[n,1]) {
    %t = iota {axis = 0, dtype = f32, shape = [64]} : f32[64]
    %p = slice(%t) {sizes = [l], starts = [0], steps = [1]} : f32[l]
    %y = add(%x, %p) : f32[n,l]
    %s = sizes {dtype = i64, sizes = [n, (l * 2)]} : i64[2]
    %u = reduce(%x) {axes = [1], keepdims = true, kind = "sum"} : f32[n,1]
    %c = sizes {dtype = f32, sizes = [l]} : f32[1]
    %m = div(%u, %c) : f32[n,1]
  })",
      R"(graph @main[n in 1..7, l in 2..30](%x: f32[n,l,6])
      -> (%y: f32[n,((l * 2) + 3),6], %z: f32[(n * l),6]) {
    %zero = constant {value = dense<f32[] 0.5>} : f32[]
    %p = pad(%x, %zero) {high = [0, 2, 0], low = [0, 1, 0], mode = "constant"} : f32[n,(l + 3),6]
    %y = concat(%p, %x) {axis = 1} : f32[n,((l * 2) + 3),6]
    %r = slice(%x) {sizes = [n, l, 6], starts = [0, (l - 1), 0], steps = [1, -1, 1]} : f32[n,l,6]
    %z = reshape(%r) {shape = [(n * l), 6]} : f32[(n * l),6]
  })",
      // Procedures.
      R"(graph @main[n in 1..5, l in 3..300](%x: f32[n,l,1], %i: i64[n,2], %u: f32[n,2,1])
      -> (%o: i64[n,3], %c: f32[n,l,1], %s: f32[n,l,1], %t: f32[l,n,3]) {
    %o = order(%x) {count = 3, descending = true} : i64[n,3]
    %c = cumulate(%x) {axis = 1, kind = "sum"} : f32[n,l,1]
    %s = scatter(%x, %i, %u) {join = "add"} : f32[n,l,1]
    %a = constant {value = dense<f32[3] 1 2 3>} : f32[3]
    %p = transpose(%x) {perm = [1, 0, 2]} : f32[l,n,1]
    %q = mul(%p, %a) : f32[l,n,3]
    %t = cumulate(%q) {axis = 1, kind = "sum", reverse = true} : f32[l,n,3]
  })"};
  std::vector<Graph> graphs;
  for (const char* text : texts) graphs.push_back(parse_graph(text, standard_ops(), "symbolic"));
  return graphs;
}

// Chains of operators that fit each other's shapes, on symbols of two kinds of range.
inline Graph random_symbolic_graph(uint64_t seed) {
  Builder b({range("n", 1, 6), range("h", seed % 2 ? 8 : 4, seed % 2 ? 48 : 23, seed % 2 ? 8 : 1)});
  std::mt19937_64& random = b.random();
  random.seed(seed);
  const Expr n = b.symbol(0), h = b.symbol(1);
  std::vector<ValueId> values = {b.input("a", {n, 8, h, 6}), b.input("b", {n, h, 16}), b.input("c", {h, 12})};
  std::vector<bool> used(1000, false);
  const auto pick = [&] {
    const size_t i = values.size() - 1 - random() % std::min<size_t>(values.size(), 4);
    used[i] = true;
    return values[i];
  };
  for (int step = 0; step < 9; ++step) {
    const ValueId x = pick();
    const Shape shape = b.shape(x);
    const auto rank = static_cast<int64_t>(shape.size());
    const auto last = as_int(shape.back());
    ValueId y = -1;
    switch (random() % 15) {
      case 0: y = b.add("tanh", {x}); break;
      case 1: y = b.add("mul", {x, b.weights({last.value_or(1)})}); break;
      case 2: {
        const auto same = std::find_if(values.begin(), values.end(),
                                       [&](ValueId v) { return v != x && same_shape(b.shape(v), shape); });
        y = b.add("add", {x, same == values.end() ? x : *same});
        break;
      }
      case 3:
        if (last) y = b.dense(x, *last, 16);
        break;
      case 4: y = b.composite("softmax", {x}, {{"axis", rank - 1}}); break;
      case 5: y = b.composite("layer_norm", {x}, {{"axis", rank - 1}, {"epsilon", 0.1}}); break;
      case 6:
      case 7:
        if (rank == 4 && as_int(shape[1]) && size_at_most(3, shape[2]) && size_at_most(3, shape[3]))
          y = b.conv(x, *as_int(shape[1]), 16, 3, random() % 2 ? 2 : 1, 1);
        break;
      case 8:
        if (rank == 4 && size_at_most(3, shape[2]) && size_at_most(3, shape[3]))
          y = b.composite(random() % 2 ? "average_pool" : "max_pool", {x},
                          {{"window", Ints{3, 3}},
                           {"strides", Ints{2, 2}},
                           {"pads_begin", Ints{1, 1}},
                           {"pads_end", Ints{1, 1}},
                           {"dilations", Ints{1, 1}},
                           {"ceil_mode", random() % 2 == 0}});
        break;
      case 9: {
        Ints perm;
        for (int64_t d = 0; d < rank; ++d) perm.push_back(d);
        std::shuffle(perm.begin(), perm.end(), random);
        y = b.add("transpose", {x}, {{"perm", perm}});
        break;
      }
      case 10: {
        if (rank < 2) break;
        Shape merged(shape.begin() + 1, shape.end());
        merged[0] = normalize_size(shape[0] * shape[1]);
        y = b.reshape(x, merged);
        break;
      }
      case 11:
        if (last && *last % 2 == 0 && rank < 5) {
          Shape split = shape;
          split.back() = *last / 2;
          split.push_back(2);
          y = b.reshape(x, split);
        }
        break;
      case 12:
        y = b.add("concat", {x, x}, {{"axis", static_cast<int64_t>(random() % static_cast<uint64_t>(rank))}});
        break;
      case 13: {
        const auto axis = static_cast<size_t>(random() % static_cast<uint64_t>(rank));
        Shape sizes = shape, starts(shape.size(), Expr(0));
        if (!size_at_most(2, shape[axis])) break;
        sizes[axis] = normalize_size(floordiv(shape[axis], 2));
        starts[axis] = normalize_size(shape[axis] - sizes[axis]);
        y = b.add("slice", {x}, {{"starts", starts}, {"sizes", sizes}, {"steps", Ints(shape.size(), 1)}});
        break;
      }
      case 14:
        y = b.composite(
            "reduce_mean", {x},
            {{"axes", Ints{static_cast<int64_t>(random() % static_cast<uint64_t>(rank))}}, {"keepdims", true}});
        break;
    }
    if (y < 0) continue;
    // Small enough for the interpreter.
    Expr count = 1;
    for (const Expr& dim : b.shape(y)) count = count * dim;
    if (size_at_most(count, 60000)) values.push_back(y);
  }
  std::vector<ValueId> outputs;
  for (size_t i = 3; i < values.size(); ++i)
    if (!used[i]) outputs.push_back(values[i]);
  if (outputs.empty()) outputs.push_back(b.add("neg", {values[0]}));
  return b.result(outputs);
}

}  // namespace tessera::symbolic_graphs
