#include "import/gguf/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "arith/simplify.h"
#include "import/common/emitter.h"

namespace tessera::inline gguf {
namespace {

using Ints = std::vector<int64_t>;

// The rows of queries or keys, head by head, such that features that are turned together are half of them apart. Scores
// are sums over the features: their order does not matter, as long as queries and keys have the same.
Tensor halves_of_neighbours(const Tensor& weight, int64_t heads, int64_t depth, int64_t turned) {
  const int64_t bytes = weight.num_bytes() / (heads * depth);  // of a row
  Tensor result(weight.dtype(), weight.dims());
  const std::byte* from = weight.bytes();
  std::byte* to = result.mutable_bytes();
  for (int64_t row = 0; row < heads * depth; ++row) {
    const int64_t head = row / depth, feature = row % depth;
    const int64_t place = feature >= turned ? feature : feature % 2 * (turned / 2) + feature / 2;
    std::copy_n(from + row * bytes, bytes, to + (head * depth + place) * bytes);
  }
  return result;
}

class Transformer : public Emitter {
 public:
  Transformer(EmitState& state, const Hyperparameters& h, Weights& weights, const Lengths& lengths)
      : Emitter(state), state_(state), h_(h), architecture_(*h.architecture), weights_(weights), lengths_(lengths) {
    Expr first = 0;
    for (const SequenceLengths& sequence : lengths.sequences) {
      sequences_.push_back({sequence.length, sequence.past, normalize_size(sequence.past + sequence.length), first});
      first = normalize_size(first + sequence.length);
    }
    tokens_ = first;
  }

  const std::string& op_type() const override { return op_type_; }
  const std::string& label() const override { return label_; }

  void build() {
    Graph& graph = state_.graph;
    std::vector<ValueId> given;
    for (size_t s = 0; s < sequences_.size(); ++s)
      given.push_back(
          graph.add_input(s == 0 ? "tokens" : fmt::format("tokens.{}", s), {DType::kI64, {sequences_[s].length}, {}}));
    const ValueId rows = graph.add_input("rows", {DType::kI64, {lengths_.kept}, {}});
    for (size_t s = 0; s < sequences_.size(); ++s)
      for (int64_t n = 0; n < h_.layers; ++n) {
        const auto past = [&](const char* what, int64_t depth) {
          return graph.add_input(cache_name(what, n, s), {DType::kF32, {sequences_[s].past, h_.key_heads * depth}, {}});
        };
        sequences_[s].keys.push_back(past("keys", h_.depth));
        sequences_[s].values.push_back(past("values", h_.value_depth));
      }
    at("token_embd");
    const ValueId tokens = each_sequence([&](size_t s) { return given[s]; });
    const ValueId embeddings = matrix("token_embd.weight", h_.vocabulary, h_.features);
    ValueId x = op("gather", {embeddings, tokens}, {{"axis", int64_t{0}}});
    if (architecture_.scaled_embeddings) x = mul(x, scalar(DType::kF32, std::sqrt(static_cast<float>(h_.features))));
    if (architecture_.learned_positions) {
      at("position_embd");
      x = add(x, rows_of_table(learned_positions()));
    }
    for (int64_t n = 0; n < h_.layers; ++n) x = layer(n, x);
    at("output_norm");
    x = norm("output_norm", op("gather", {x, rows}, {{"axis", int64_t{0}}}), h_.features);
    at("output");
    const bool has_own = weights_.has("output.weight");
    ValueId logits = product(x, has_own ? matrix("output.weight", h_.vocabulary, h_.features) : embeddings);
    if (weights_.has("output.bias")) logits = add(logits, constant_value(weights_.get("output.bias", {h_.vocabulary})));
    output("logits", logits);
    for (size_t s = 0; s < sequences_.size(); ++s)
      for (int64_t n = 0; n < h_.layers; ++n) {
        output(cache_name("all_keys", n, s), sequences_[s].all_keys[static_cast<size_t>(n)]);
        output(cache_name("all_values", n, s), sequences_[s].all_values[static_cast<size_t>(n)]);
      }
  }

 protected:
  Diagnostic malformed_diagnostic(const std::string& found, const std::string& legal,
                                  const std::string& hint) const override {
    return {.id = "TSR-1073", .message = found, .node = label_, .legal = legal, .hint = hint};
  }

 private:
  // What the layers share: tables of cosines and sines of the new tokens, and which tokens each sees.
  struct Positions {
    ValueId cosines = -1, sines = -1;  // f32[tokens, 1, turned]; the first half of the sines is negative
    std::vector<ValueId> masks;        // bool[length, past + length], of each sequence
  };
  // The tokens of all sequences are rows of one matrix, one sequence behind the other; each sees itself alone.
  struct Sequence {
    Expr length, past, total;
    Expr first;                                           // row
    std::vector<ValueId> keys, values = {};               // of the past, by layer
    std::vector<ValueId> all_keys = {}, all_values = {};  // with the new ones
  };

  std::string cache_name(const char* what, int64_t layer, size_t sequence) const {
    return sequences_.size() == 1 ? fmt::format("{}.{}", what, layer) : fmt::format("{}.{}.{}", what, layer, sequence);
  }

  // `part` of each sequence, one behind the other.
  template <typename Part>
  ValueId each_sequence(const Part& part) {
    std::vector<ValueId> parts;
    for (size_t s = 0; s < sequences_.size(); ++s) parts.push_back(part(s));
    return parts.size() == 1 ? parts[0] : op("concat", parts, {{"axis", int64_t{0}}});
  }

  // The rows of a sequence.
  ValueId rows_of(size_t s, ValueId x) {
    if (sequences_.size() == 1) return x;
    Shape begin(type(x).shape.size(), Expr(0)), size = type(x).shape;
    begin[0] = sequences_[s].first;
    size[0] = sequences_[s].length;
    return slice(x, begin, size, Ints(size.size(), 1));
  }

  void at(const std::string& label) {
    label_ = label;
    state_.builder.set_loc(label);
  }

  void output(const std::string& name, ValueId v) {
    state_.graph.outputs.push_back(v);
    state_.graph.rename(v, name);
  }

  bool has_window(int64_t n) const { return h_.window && (n + 1) % architecture_.window_period != 0; }

  ValueId rows_of_table(const Tensor& table) {
    const ValueId all = constant_value(table);
    return each_sequence(
        [&](size_t s) { return slice(all, {sequences_[s].past, 0}, {sequences_[s].length, table.dims()[1]}, {1, 1}); });
  }

  // A row for each place that a run may ask for: of those behind the model's positions nobody makes use.
  Tensor learned_positions() {
    const Tensor known = weights_.get("position_embd.weight", {h_.context, h_.features});
    Tensor table(DType::kF32, {lengths_.longest, h_.features});
    const int64_t rows = std::min(h_.context, lengths_.longest);
    std::copy_n(known.as<float>().begin(), rows * h_.features, table.as_mutable<float>().begin());
    return table;
  }

  void prepare_positions() {
    at("positions");
    for (const Sequence& sequence : sequences_) {
      const Shape scores = {sequence.length, sequence.total};
      const ValueId column = iota(scores, 1);
      const ValueId row = add(iota(scores, 0), integer(sequence.past));
      const ValueId before = op("le", {column, row});
      everywhere_.masks.push_back(before);
      if (h_.window)
        windowed_.masks.push_back(op("logical_and", {before, op("lt", {sub(row, column), integer(*h_.window)})}));
    }
    turn_by(h_.rotary_base, h_.rotary_scale, everywhere_);
    if (!h_.window) return;
    if (architecture_.window_rotary_base > 0) turn_by(architecture_.window_rotary_base, 1, windowed_);
    else turn_by(h_.rotary_base, h_.rotary_scale, windowed_);
  }

  // Tables for all positions there may be, of which a run takes its rows: cosines of large angles would lose digits in
  // f32.
  void turn_by(double base, double scale, Positions& positions) {
    if (h_.turned == 0) return;
    const int64_t half = h_.turned / 2;
    std::vector<double> frequencies;
    std::optional<Tensor> factors;
    if (weights_.has("rope_freqs.weight")) factors = weights_.get("rope_freqs.weight", {half});
    for (int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(h_.turned));
      frequencies.push_back(frequency / scale / (factors ? factors->get_double(i) : 1));
    }
    Tensor cosines(DType::kF32, {lengths_.longest, h_.turned}), sines(DType::kF32, {lengths_.longest, h_.turned});
    const auto to_cosines = cosines.as_mutable<float>(), to_sines = sines.as_mutable<float>();
    for (int64_t p = 0; p < lengths_.longest; ++p)
      for (int64_t i = 0; i < h_.turned; ++i) {
        const double angle = static_cast<double>(p) * frequencies[static_cast<size_t>(i % half)];
        const auto place = static_cast<size_t>(p * h_.turned + i);
        to_cosines[place] = static_cast<float>(std::cos(angle));
        to_sines[place] = static_cast<float>(i < half ? -std::sin(angle) : std::sin(angle));
      }
    const Shape shape = {tokens_, 1, h_.turned};
    positions.cosines = reshape(rows_of_table(cosines), shape);
    positions.sines = reshape(rows_of_table(sines), shape);
  }

  // x [length, heads, depth] with its first features turned.
  ValueId turned(ValueId x, const Positions& positions, int64_t heads) {
    if (h_.turned == 0) return x;
    const int64_t half = h_.turned / 2;
    const auto part = [&](int64_t first, int64_t count) {
      return slice(x, {0, 0, first}, {tokens_, heads, count}, {1, 1, 1});
    };
    const ValueId swapped = op("concat", {part(half, half), part(0, half)}, {{"axis", int64_t{2}}});
    const ValueId plain = h_.turned == h_.depth ? x : part(0, h_.turned);
    const ValueId result = add(mul(plain, positions.cosines), mul(swapped, positions.sines));
    if (h_.turned == h_.depth) return result;
    return op("concat", {result, part(h_.turned, h_.depth - h_.turned)}, {{"axis", int64_t{2}}});
  }

  // Weights stay as they are in the file: what is in blocks is dequantised where it is read.
  ValueId as_floats(Matrix matrix) {
    const ValueId rows = constant_value(std::move(matrix.rows));
    return matrix.format.empty() ? rows : op("dequantize_blocks", {rows}, {{"format", std::move(matrix.format)}});
  }
  ValueId matrix(const char* name, int64_t rows, int64_t columns) {
    return as_floats(weights_.matrix(name, rows, 0, rows, columns));
  }

  // x w' for a matrix [outputs, inputs].
  ValueId product(ValueId x, ValueId matrix) { return op("matmul", {x, matrix}, {{"transpose_b", true}}); }

  ValueId norm(const std::string& name, ValueId x, int64_t features) {
    const ValueId scale = constant_value(weights_.get(name + ".weight", {features}));
    const int64_t last = rank(x) - 1;
    if (architecture_.norm == Norm::kRms)
      return composite("rms_norm", {x, scale}, {{"axis", last}, {"epsilon", h_.epsilon}});
    const ValueId bias = constant_value(weights_.get(name + ".bias", {features}));
    return composite("layer_norm", {x, scale, bias}, {{"axis", last}, {"epsilon", h_.epsilon}});
  }

  // Where the file has it: the norm of each head's features, or of what a part of the layer adds.
  ValueId norm_if_any(const std::string& name, ValueId x, int64_t features) {
    return weights_.has(name + ".weight") ? norm(name, x, features) : x;
  }

  ValueId linear(const std::string& name, ValueId x, int64_t inputs, int64_t outputs) {
    return linear_rows(name, x, inputs, outputs, 0, outputs);
  }

  // `count` of the outputs of a matrix with `outputs` rows.
  ValueId linear_rows(const std::string& name, ValueId x, int64_t inputs, int64_t outputs, int64_t first, int64_t count,
                      int64_t neighbour_heads = 0) {
    at(name);
    const auto ordered = [&](const Tensor& rows) {
      return neighbour_heads == 0 ? rows : halves_of_neighbours(rows, neighbour_heads, h_.depth, h_.turned);
    };
    const std::string weight = name + ".weight", bias = name + ".bias";
    Matrix matrix = weights_.matrix(weight, outputs, first, count, inputs);
    matrix.rows = ordered(matrix.rows);
    ValueId y = product(x, as_floats(std::move(matrix)));
    if (weights_.has(bias)) y = add(y, constant_value(ordered(weights_.rows(bias, outputs, first, count, 0))));
    return y;
  }

  ValueId activated(ValueId x) {
    return architecture_.activation == Activation::kSilu
               ? composite("silu", {x})
               : composite("gelu", {x}, {{"approximate", std::string("tanh")}});
  }

  ValueId attention(int64_t n, ValueId x) {
    const std::string block = fmt::format("blk.{}.", n);
    const int64_t of_queries = h_.heads * h_.depth, of_keys = h_.key_heads * h_.depth,
                  of_values = h_.key_heads * h_.value_depth;
    const bool together = weights_.has(block + "attn_qkv.weight");
    // Queries, keys and values: matrices of their own, or the rows of one.
    const auto part = [&](const char* name, int64_t first, int64_t count, int64_t heads) {
      const int64_t neighbours = architecture_.rotary == Rotary::kNeighbours ? heads : 0;
      return together ? linear_rows(block + "attn_qkv", x, h_.features, of_queries + of_keys + of_values, first, count,
                                    neighbours)
                      : linear_rows(block + name, x, h_.features, count, 0, count, neighbours);
    };
    ValueId q = part("attn_q", 0, of_queries, h_.heads), k = part("attn_k", of_queries, of_keys, h_.key_heads),
            v = part("attn_v", of_queries + of_keys, of_values, 0);
    // Now that the weights have shown that these are the model's sizes.
    if (everywhere_.masks.empty()) prepare_positions();
    const Positions& positions = has_window(n) ? windowed_ : everywhere_;
    at(block + "attn");
    q = reshape(q, {tokens_, h_.heads, h_.depth});
    k = reshape(k, {tokens_, h_.key_heads, h_.depth});
    q = turned(norm_if_any(block + "attn_q_norm", q, h_.depth), positions, h_.heads);
    k = turned(norm_if_any(block + "attn_k_norm", k, h_.depth), positions, h_.key_heads);
    k = reshape(k, {tokens_, of_keys});
    // The largest Gemma 3, of 62 blocks, has heads of another size than it scales by.
    constexpr int64_t kLargestGemma3 = 62;
    const bool by_features = architecture_.name == "gemma3" && h_.layers == kLargestGemma3;
    const auto scaled_by = static_cast<double>(by_features ? h_.features / h_.heads : h_.depth);
    // Grouped queries are those of heads that share one of keys: these broadcast, and nothing between the copy of a
    // cache and the products that read it is a view.
    const int64_t groups = h_.heads / h_.key_heads;
    const auto by_head = [&](ValueId rows, const Expr& length, int64_t heads, int64_t group, int64_t depth) {
      return groups == 1 ? transpose(reshape(rows, {length, heads, depth}), {1, 0, 2})
                         : transpose(reshape(rows, {length, heads, group, depth}), {1, 2, 0, 3});
    };
    const ValueId by_token = each_sequence([&](size_t s) {
      Sequence& sequence = sequences_[s];
      const auto with_past = [&](ValueId past, ValueId now, int64_t depth, std::vector<ValueId>& kept) {
        const ValueId all = op("concat", {past, rows_of(s, now)}, {{"axis", int64_t{0}}});
        kept.push_back(all);
        return by_head(all, sequence.total, h_.key_heads, 1, depth);
      };
      const auto layer = static_cast<size_t>(n);
      const ValueId keys = with_past(sequence.keys[layer], k, h_.depth, sequence.all_keys);
      const ValueId values = with_past(sequence.values[layer], v, h_.value_depth, sequence.all_values);
      const ValueId result = composite(
          "attention",
          {by_head(rows_of(s, q), sequence.length, h_.key_heads, groups, h_.depth), keys, values, positions.masks[s]},
          {{"scale", 1 / std::sqrt(scaled_by)}});
      return reshape(transpose(result, groups == 1 ? Ints{1, 0, 2} : Ints{2, 0, 1, 3}),
                     {sequence.length, h_.heads * h_.value_depth});
    });
    const ValueId y = linear(block + "attn_output", by_token, h_.heads * h_.value_depth, h_.features);
    return norm_if_any(block + "post_attention_norm", y, h_.features);
  }

  ValueId feed_forward(int64_t n, ValueId x) {
    const std::string block = fmt::format("blk.{}.", n);
    const int64_t hidden = weights_.columns(block + "ffn_down.weight");
    ValueId y;
    if (architecture_.gate_inside) {
      const ValueId gate = linear_rows(block + "ffn_up", x, h_.features, 2 * hidden, 0, hidden);
      y = mul(activated(gate), linear_rows(block + "ffn_up", x, h_.features, 2 * hidden, hidden, hidden));
    } else if (weights_.has(block + "ffn_gate.weight")) {
      const ValueId gate = activated(linear(block + "ffn_gate", x, h_.features, hidden));
      y = mul(gate, linear(block + "ffn_up", x, h_.features, hidden));
    } else {
      y = activated(linear(block + "ffn_up", x, h_.features, hidden));
    }
    y = linear(block + "ffn_down", y, hidden, h_.features);
    return norm_if_any(block + "post_ffw_norm", y, h_.features);
  }

  ValueId layer(int64_t n, ValueId x) {
    const std::string block = fmt::format("blk.{}.", n);
    at(block + "attn_norm");
    const ValueId normed = norm(block + "attn_norm", x, h_.features);
    const ValueId attended = attention(n, normed);
    if (architecture_.parallel) return add(add(x, attended), feed_forward(n, normed));
    at(block + "attn_output");
    x = add(x, attended);
    at(block + "ffn_norm");
    const ValueId y = feed_forward(n, norm(block + "ffn_norm", x, h_.features));
    return add(x, y);
  }

  EmitState& state_;
  const Hyperparameters& h_;
  const LanguageArchitecture& architecture_;
  Weights& weights_;
  const Lengths& lengths_;
  std::vector<Sequence> sequences_;
  Expr tokens_;  // of all sequences
  Positions everywhere_, windowed_;
  std::string op_type_ = "the language model", label_;
};

}  // namespace

Graph transformer_graph(const Hyperparameters& h, Weights& weights, const Lengths& lengths,
                        const std::vector<SymbolRange>& symbols, const OpTable& ops, Evaluator& evaluator) {
  Graph graph;
  graph.symbols = symbols;
  const KnownSymbols known(graph.symbols);
  GraphBuilder builder(graph);
  EmitState state{ops, graph, builder, ConstantFinder(graph, evaluator)};
  Transformer(state, h, weights, lengths).build();
  return graph;
}

}  // namespace tessera::inline gguf
