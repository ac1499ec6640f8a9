// Attention and what stands around it in transformers: ONNX's own operators and those of com.microsoft that exporters
// write. All are made of matrix products and softmax, which later passes recognise.
#include <fmt/format.h>

#include <cmath>

#include "arith/simplify.h"
#include "import/common/equal_sizes.h"
#include "import/onnx/operators/attention_heads.h"
#include "import/onnx/operators/handlers.h"
#include "import/onnx/read/dtypes.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

void import_attention(NodeContext& c) {
  c.require_inputs(3, 7);
  ValueId q = c.in(0), k = c.in(1), v = c.in(2);
  const DType dtype = c.dtype(q);
  const bool flat = c.rank(q) == 3;
  if ((!flat && c.rank(q) != 4) || c.rank(k) != c.rank(q) || c.rank(v) != c.rank(q))
    c.malformed(fmt::format("operands of types {}, {} and {}", c.type(q).to_string(), c.type(k).to_string(),
                            c.type(v).to_string()),
                "rank 3 or 4, the same for all");
  const int64_t q_heads_given = c.attrs.get_int("q_num_heads", 0), kv_heads_given = c.attrs.get_int("kv_num_heads", 0);
  if (flat) {
    q = split_heads(c, q, q_heads_given);
    k = split_heads(c, k, kv_heads_given);
    v = split_heads(c, v, kv_heads_given);
  }
  const bool past = c.has(4);
  if (past && (!c.has(5) || c.rank(c.in(4)) != 4 || c.rank(c.in(5)) != 4))
    c.malformed(fmt::format("past keys of type {} and {}", c.type(c.in(4)).to_string(),
                            c.has(5) ? "past values of type " + c.type(c.in(5)).to_string() : "no past values"),
                "both, of rank 4");
  const Expr past_length = past ? c.shape(c.in(4))[2] : Expr(0);
  if (past) {
    k = c.op("concat", {c.in(4), k}, {{"axis", int64_t{2}}});
    v = c.op("concat", {c.in(5), v}, {{"axis", int64_t{2}}});
  }
  c.out(1, k);
  c.out(2, v);
  const Shape q_dims = c.shape(q), k_dims = c.shape(k), v_dims = c.shape(v);
  const Expr batch = q_dims[0], queries = q_dims[2], keys = k_dims[2];
  for (const Expr& fixed : {q_dims[1], k_dims[1], v_dims[1], q_dims[3]})
    if (!as_int(fixed)) c.unsupported(fmt::format("an extent {} of heads or features", to_string(fixed)));
  const int64_t heads = *as_int(q_dims[1]), kv_heads = *as_int(k_dims[1]), v_heads = *as_int(v_dims[1]);
  if (kv_heads < 1 || heads % kv_heads != 0 || v_heads != kv_heads)
    c.malformed(fmt::format("{} heads of queries, {} of keys, {} of values", heads, kv_heads, v_heads),
                "as many heads of keys as of values, and a multiple of them for the queries");

  const bool plain = !c.has(3) && !c.has(6) && !c.wants(3) && c.attrs.get_int("is_causal", 0) == 0 &&
                     c.attrs.get_float("softcap", 0) == 0 && c.attrs.get_int("softmax_precision", 0) == 0 &&
                     c.attrs.get_int("left_window_size", -1) < 0 && c.attrs.get_int("right_window_size", -1) < 0;
  // Scores. The scale is shared between both factors, as the standard has it.
  double scale = c.attrs.get_float("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(*as_int(q_dims[3])));
  if (plain) {
    c.attrs.ignore("qk_matmul_output_mode");
    // Scores of 16-bit floats would lose digits before the softmax spreads their differences.
    const DType wide = dtype_bits(dtype) < 32 ? DType::kF32 : dtype;
    const ValueId y = c.cast(
        c.composite("attention", {c.cast(q, wide), c.cast(k, wide), c.cast(v, wide)}, {{"scale", scale}}), dtype);
    return c.out(0, flat ? merge_heads(c, y) : y);
  }
  const double root = std::sqrt(scale);
  const auto scaled = [&](ValueId x) { return c.mul(x, c.scalar(dtype, root)); };
  const Expr group = heads / kv_heads;
  // Queries that share keys become rows of one matrix.
  const ValueId rows = c.reshape(scaled(q), {batch, kv_heads, group * queries, q_dims[3]});
  ValueId scores = c.reshape(c.op("matmul", {rows, scaled(k)}, {{"transpose_b", true}}), {batch, heads, queries, keys});
  const int64_t mode = c.attrs.get_int("qk_matmul_output_mode", 0);
  if (mode == 0) c.out(3, scores);
  if (const double cap = c.attrs.get_float("softcap", 0); cap > 0)
    scores = c.mul(c.op("tanh", {c.div(scores, c.scalar(dtype, cap))}), c.scalar(dtype, cap));
  if (mode == 1) c.out(3, scores);

  ScoreBias mask;
  if (c.has(3)) {
    ValueId given = c.in(3);
    const bool is_bool = c.dtype(given) == DType::kBool;
    const Shape dims = c.shape(given);
    const bool whole = dims.empty() || is_const_int(dims.back(), 1) || size_at_most(keys, dims.back());
    if (!whole && !size_at_most(dims.back() + Expr(1), keys) && !equal_sizes(dims.back(), keys)) {
      make_equal(dims.back(), keys, c.state().graph.symbols);  // before opset 24 there may not be fewer
      c.unsupported(
          fmt::format("a mask of {} keys of {}, which may be fewer or not", to_string(dims.back()), to_string(keys)));
    }
    if (!whole) {
      Shape low(dims.size(), 0), high(dims.size(), 0);
      high.back() = keys - dims.back();
      given = c.op("pad", {given, c.scalar(c.dtype(given), is_bool ? 0 : -std::numeric_limits<double>::infinity())},
                   {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
    }
    mask.add(c, is_bool ? minus_infinity_unless(c, given, dtype) : c.cast(given, dtype));
  }
  // Of each pair, how far the query stands behind the key. Keys that were there before count.
  const auto distance = [&]() -> ValueId {
    const ValueId row = c.iota({queries, keys}, 0), column = c.iota({queries, keys}, 1);
    if (!past && c.has(6)) {
      const ValueId valid = c.reshape(c.cast(c.in(6), DType::kI64), {batch, 1, 1, 1});
      const ValueId offset = c.sub(valid, c.integer(queries));
      return c.sub(c.add(row, offset), column);
    }
    return c.sub(c.add(row, c.integer(past_length)), column);
  };
  const auto allow = [&](const char* comparison, ValueId a, int64_t limit) {
    mask.add(c, minus_infinity_unless(c, c.op(comparison, {a, c.integer(limit)}), dtype));
  };
  if (c.attrs.get_int("is_causal", 0) != 0) allow("ge", distance(), 0);
  const int64_t left = c.attrs.get_int("left_window_size", -1), right = c.attrs.get_int("right_window_size", -1);
  if (left >= 0) allow("le", distance(), static_cast<double>(left));
  if (right >= 0) allow("ge", distance(), static_cast<double>(-right));
  if (c.has(6)) {
    const ValueId valid = c.reshape(c.cast(c.in(6), DType::kI64), {batch, 1, 1, 1});
    mask.add(c, minus_infinity_unless(c, c.op("lt", {c.iota({1, 1, 1, keys}, 3), valid}), dtype));
  }
  if (mask.value) scores = c.add(scores, *mask.value);
  if (mode == 2) c.out(3, scores);

  ValueId weights;
  const auto precision = dtype_of_onnx(c.attrs.get_int("softmax_precision", 0));
  const ValueId wide = precision ? c.cast(scores, *precision) : scores;
  if (mask.value) weights = guarded_softmax(c, wide);
  else weights = c.composite("softmax", {wide}, {{"axis", int64_t{3}}});
  weights = c.cast(weights, dtype);
  if (mode == 3) c.out(3, weights);
  const ValueId by_key_head = c.reshape(weights, {batch, kv_heads, group * queries, keys});
  const ValueId y = c.reshape(c.op("matmul", {by_key_head, c.cast(v, dtype)}), {batch, heads, queries, v_dims[3]});
  c.out(0, flat ? merge_heads(c, y) : y);
}

// Attention whose scores and probabilities go through subgraphs.
void import_flex_attention(NodeContext& c) {
  c.require_inputs(3, 3);
  const ValueId q = c.in(0), k = c.in(1), v = c.in(2);
  const Ints q_dims = c.dims(q), k_dims = c.dims(k), v_dims = c.dims(v);
  if (q_dims.size() != 4 || k_dims.size() != 4 || v_dims.size() != 4 || k_dims[1] < 1 || q_dims[1] % k_dims[1] != 0 ||
      v_dims[1] != k_dims[1])
    c.malformed(fmt::format("operands of types {}, {} and {}", c.type(q).to_string(), c.type(k).to_string(),
                            c.type(v).to_string()),
                "rank 4, and a number of heads that those of the keys and values divide");
  const int64_t batch = q_dims[0], heads = q_dims[1], kv_heads = k_dims[1], queries = q_dims[2], keys = k_dims[2];
  const DType dtype = c.dtype(q);
  double scale = c.attrs.get_float("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(q_dims[3]));
  const auto precision = dtype_of_onnx(c.attrs.get_int("softmax_precision", 0));
  const DType wide = precision ? *precision : dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const auto scaled = [&](ValueId x) { return c.mul(x, c.scalar(dtype, std::sqrt(scale))); };
  const ValueId rows = c.reshape(scaled(q), {batch, kv_heads, heads / kv_heads * queries, q_dims[3]});
  const ValueId product = c.op("matmul", {rows, scaled(k)}, {{"transpose_b", true}});
  const auto modified = [&](const char* name, ValueId x) {
    const onnx::GraphProto* graph = c.attrs.get_graph(name);
    if (!graph) return x;
    if (graph->input_size() != 1 || graph->output_size() != 1)
      c.malformed(fmt::format("{} has {} inputs and {} outputs", name, graph->input_size(), graph->output_size()),
                  "one of each");
    const ValueId y = c.open(*graph, {x}).at(0);
    if (c.dims(y) != c.dims(x) || c.dtype(y) != wide)
      c.malformed(fmt::format("{} gives {} for {}", name, c.type(y).to_string(), c.type(x).to_string()),
                  "the type that it is given");
    return y;
  };
  const ValueId scores = modified("score_mod", c.cast(c.reshape(product, {batch, heads, queries, keys}), wide));
  const ValueId weights = modified("prob_mod", c.composite("softmax", {scores}, {{"axis", int64_t{3}}}));
  const ValueId by_key_head = c.reshape(weights, {batch, kv_heads, heads / kv_heads * queries, keys});
  const ValueId y = c.op("matmul", {by_key_head, c.cast(v, wide)});
  c.out(0, c.cast(c.reshape(y, {batch, heads, queries, v_dims[3]}), dtype));
}

// Pairs of features are turned by angles that depend on the position.
void import_rotary_embedding(NodeContext& c) {
  c.require_inputs(3, 4);
  const ValueId given = c.in(0);
  ValueId cosine = c.in(1), sine = c.in(2);
  const bool flat = c.rank(given) == 3;
  const int64_t heads = c.attrs.get_int("num_heads", 0);
  const bool interleaved = c.attrs.get_int("interleaved", 0) != 0;
  if (!flat && c.rank(given) != 4)
    c.malformed(fmt::format("an operand of type {}", c.type(given).to_string()), "rank 3 or 4");
  const ValueId x = flat ? split_heads(c, given, heads) : given;  // [B, heads, S, D]
  const Shape dims = c.shape(x);
  const int64_t features = as_int(dims[3]) ? *as_int(dims[3]) : c.dims(x)[3];
  int64_t turned = c.attrs.get_int("rotary_embedding_dim", 0);
  if (turned == 0) turned = features;
  if (turned < 0 || turned > features || turned % 2 != 0)
    c.malformed(fmt::format("rotary_embedding_dim = {} for {} features", turned, features),
                "an even number up to the features");
  const int64_t half = turned / 2;
  // The caches as [B or 1, 1, S, half].
  if (c.has(3)) {
    cosine = c.op("gather", {cosine, c.in(3)}, {{"axis", int64_t{0}}});
    sine = c.op("gather", {sine, c.in(3)}, {{"axis", int64_t{0}}});
  }
  const auto with_heads = [&](ValueId cache) {
    Shape shape = c.shape(cache);
    if (shape.size() == 2) shape.insert(shape.begin(), 1);
    if (shape.size() != 3 || !equal_sizes(shape[1], dims[2]) || !equal_sizes(shape[2], half))
      c.malformed(fmt::format("a cache of type {}", c.type(cache).to_string()),
                  fmt::format("[batch, {}, {}]", to_string(dims[2]), half));
    return c.reshape(cache, {shape[0], 1, shape[1], shape[2]});
  };
  cosine = with_heads(cosine);
  sine = with_heads(sine);
  const ValueId y = rotated(c, x, cosine, sine, interleaved);
  c.out(0, flat ? merge_heads(c, y) : y);
}

// ---- com.microsoft ----

void import_fused_matmul(NodeContext& c) {
  c.require_inputs(2, 2);
  if (c.attrs.get_int("transBatchA", 0) != 0 || c.attrs.get_int("transBatchB", 0) != 0)
    c.unsupported("transBatchA and transBatchB");
  const bool a = c.attrs.get_int("transA", 0) != 0, b = c.attrs.get_int("transB", 0) != 0;
  const ValueId y = c.op("matmul", {c.in(0), c.in(1)}, {{"transpose_a", a}, {"transpose_b", b}});
  const double alpha = c.attrs.get_float("alpha", 1);
  c.out(0, alpha == 1 ? y : c.mul(y, c.scalar_like(y, alpha)));
}

// Gelu, FastGelu (the approximation by tanh) and BiasGelu; a second operand is added first.
void import_fused_gelu(NodeContext& c) {
  c.require_inputs(1, 2);
  const ValueId x = c.has(1) ? c.add(c.in(0), c.in(1)) : c.in(0);
  c.out(0, c.composite("gelu", {x}, {{"approximate", c.primitive()}}));
}

void import_quick_gelu(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const ValueId gate = c.composite("sigmoid", {c.mul(x, c.scalar_like(x, c.attrs.get_float("alpha", 1.702)))});
  c.out(0, c.mul(x, gate));
}

// The layer norm (or, by `primitive`, the RMS norm) of a sum of two or three operands.
void import_skip_normalization(NodeContext& c) {
  const bool rms = c.primitive() == "rms_norm";
  c.require_inputs(3, rms ? 4 : 5);
  const int bias = rms ? 3 : 4;
  ValueId x = c.add(c.in(0), c.in(1));
  if (c.has(bias)) x = c.add(x, c.in(bias));
  const int64_t axis = c.rank(x) - 1;
  const double epsilon = c.attrs.get_float("epsilon", rms ? 1e-6 : 1e-12);
  if (rms) {
    c.out(0, c.composite("rms_norm", {x, c.in(2)}, {{"axis", axis}, {"epsilon", epsilon}}));
  } else {
    std::vector<ValueId> operands = {x, c.in(2)};
    if (c.has(3)) operands.push_back(c.in(3));
    c.out(0, c.composite("layer_norm", operands, {{"axis", axis}, {"epsilon", epsilon}}));
  }
  c.out(3, x);
  if (c.wants(1) || c.wants(2)) c.unsupported("outputs 1 and 2 (mean and inverse deviation)");
}

// Embeddings of words, of their places and of their segments, summed and normalised: [batch, words] to
// [batch, words, features]. Then how many words of each text a mask counts, and the sum.
void import_embed_layer_normalization(NodeContext& c) {
  c.require_inputs(1, 9);
  const auto table = [&](int i) {
    if (c.rank(c.in(i)) != 2) c.malformed(fmt::format("a table of type {}", c.type(c.in(i)).to_string()), "rank 2");
    return c.in(i);
  };
  const auto rows = [&](int i, ValueId indices) { return c.op("gather", {table(i), indices}, {{"axis", int64_t{0}}}); };
  const ValueId words = c.in(0);
  if (c.rank(words) != 2) c.malformed(fmt::format("words of type {}", c.type(words).to_string()), "[batch, words]");
  const Shape dims = c.shape(words);
  ValueId sum = rows(2, words);
  if (c.has(8)) {
    sum = c.add(sum, rows(3, c.in(8)));
  } else {
    const Expr features = c.shape(table(3))[1];
    sum = c.add(sum, c.slice(c.in(3), {0, 0}, {dims[1], features}, {1, 1}));
  }
  if (c.has(1)) sum = c.add(sum, rows(4, c.in(1)));
  Attrs attrs = {{"axis", int64_t{2}}, {"epsilon", c.attrs.get_float("epsilon", static_cast<double>(1e-12f))}};
  if (dtype_bits(c.dtype(sum)) < 32) attrs.set("stash", DType::kF32);
  c.out(0, c.composite("layer_norm", {sum, c.in(5), c.in(6)}, attrs));
  c.attrs.get_int("mask_index_type", 0);  // says whether there is a mask, which the operands say as well
  if (c.wants(1)) {
    const ValueId counts =
        c.has(7) ? c.cast(c.op("eq", {c.in(7), c.scalar_like(c.in(7), 1)}), DType::kI32) : c.zeros(DType::kI32, dims);
    c.out(1, c.reduce("sum", counts, {1}, false));
  }
  c.out(2, sum);
}

}  // namespace

OperatorFamily attention_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"Attention", 23, import_attention},
      OperatorImporter{"RotaryEmbedding", 23, import_rotary_embedding},
  };
  static constexpr OperatorImporter contrib[] = {
      OperatorImporter{"BiasGelu", 1, import_fused_gelu, "none"},
      OperatorImporter{"EmbedLayerNormalization", 1, import_embed_layer_normalization},
      OperatorImporter{"FastGelu", 1, import_fused_gelu, "tanh"},
      OperatorImporter{"FusedMatMul", 1, import_fused_matmul},
      OperatorImporter{"Gelu", 1, import_fused_gelu, "none"},
      OperatorImporter{"QuickGelu", 1, import_quick_gelu},
      OperatorImporter{"SkipLayerNormalization", 1, import_skip_normalization, "layer_norm"},
      OperatorImporter{"SkipSimplifiedLayerNormalization", 1, import_skip_normalization, "rms_norm"},
  };
  static constexpr OperatorImporter preview[] = {
      OperatorImporter{"FlexAttention", 1, import_flex_attention},
  };
  return {{"", standard}, {kContribDomain, contrib}, {kPreviewDomain, preview}};
}

}  // namespace tessera::inline onnx_import
