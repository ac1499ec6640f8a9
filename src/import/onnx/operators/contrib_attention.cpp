// Attention of the domain com.microsoft, as ONNX Runtime's transformer optimiser and its model builder write it.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "import/onnx/operators/attention_heads.h"
#include "import/onnx/operators/handlers.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// Queries [B, heads, S, D], keys [B, kv_heads, T, D], values [B, kv_heads, T, E] with heads a multiple of kv_heads:
// [B, heads, S, E].
struct Scores {
  ValueId q, k, v;
  double scale = 1;
  ScoreBias bias = {};
  double softcap = 0;
  bool may_mask_all = false;  // a row may have no key at all; it gives zeros

  ValueId attend(NodeContext& c) const {
    const Ints q_dims = c.dims(q), k_dims = c.dims(k), v_dims = c.dims(v);
    const int64_t batch = q_dims[0], heads = q_dims[1], queries = q_dims[2], keys = k_dims[2], kv_heads = k_dims[1];
    if (kv_heads < 1 || heads % kv_heads != 0)
      c.malformed(fmt::format("{} heads of queries and {} of keys", heads, kv_heads), "a multiple");
    const DType dtype = c.dtype(q);
    const DType wide = dtype_bits(dtype) < 32 ? DType::kF32 : dtype;
    if (!bias.value && softcap == 0 && heads == kv_heads)
      return c.cast(c.composite("attention", {c.cast(q, wide), c.cast(k, wide), c.cast(v, wide)}, {{"scale", scale}}),
                    dtype);
    // Queries that share keys become rows of one matrix.
    const int64_t group = heads / kv_heads;
    const ValueId rows = c.reshape(c.cast(q, wide), {batch, kv_heads, group * queries, q_dims[3]});
    ValueId scores =
        c.reshape(c.op("matmul", {rows, c.cast(k, wide)}, {{"transpose_b", true}}), {batch, heads, queries, keys});
    scores = c.mul(scores, c.scalar_like(scores, scale));
    if (softcap > 0) {
      const ValueId cap = c.scalar_like(scores, softcap);
      scores = c.mul(c.op("tanh", {c.div(scores, cap)}), cap);
    }
    if (bias.value) scores = c.add(scores, c.cast(*bias.value, wide));
    const ValueId weights =
        may_mask_all ? guarded_softmax(c, scores) : c.composite("softmax", {scores}, {{"axis", int64_t{3}}});
    const ValueId y = c.op("matmul", {c.reshape(weights, {batch, kv_heads, group * queries, keys}), c.cast(v, wide)});
    return c.cast(c.reshape(y, {batch, heads, queries, v_dims[3]}), dtype);
  }
};

// Keys that each query of a batch member may see, as ONNX Runtime's masks say it: the number of keys [B], the ends and
// the beginnings [2 * B], 1 for the keys that count [B, T], or that for each query [B, S, T].
ValueId mask_bias(NodeContext& c, ValueId mask, int64_t batch, int64_t queries, int64_t keys, double filter) {
  const Ints dims = c.dims(mask);
  const auto choose = [&](ValueId allowed) {
    return c.op("select", {allowed, c.scalar(DType::kF32, 0), c.scalar(DType::kF32, filter)});
  };
  const auto positive = [&](ValueId x) { return c.op("gt", {x, c.scalar_like(x, 0)}); };
  if (dims == Ints{batch, keys}) return choose(positive(c.reshape(mask, {batch, 1, 1, keys})));
  if (dims == Ints{batch, queries, keys}) return choose(positive(c.reshape(mask, {batch, 1, queries, keys})));
  if (dims == Ints{batch} || dims == Ints{2 * batch}) {
    const ValueId place = c.iota({1, 1, 1, keys}, 3), wide = c.cast(mask, DType::kI64);
    const auto part = [&](int64_t start) { return c.reshape(c.slice(wide, {start}, {batch}, {1}), {batch, 1, 1, 1}); };
    ValueId allowed = c.op("lt", {place, part(0)});
    if (dims[0] == 2 * batch) allowed = c.op("logical_and", {allowed, c.op("ge", {place, part(batch)})});
    return choose(allowed);
  }
  c.unsupported(fmt::format("a mask of type {} for {} queries and {} keys", c.type(mask).to_string(), queries, keys));
}

// Later keys than the query's own; the queries are the last ones.
ValueId causal_bias(NodeContext& c, int64_t queries, int64_t keys) {
  const ValueId own = c.add(c.iota({queries, keys}, 0), c.integer(keys - queries));
  return minus_infinity_unless(c, c.op("ge", {own, c.iota({queries, keys}, 1)}), DType::kF32);
}

double scale_or(NodeContext& c, int64_t features) {
  const double scale = c.attrs.get_float("scale", 0);
  return scale == 0 ? 1 / std::sqrt(static_cast<double>(features)) : scale;
}

void require_rank(NodeContext& c, int i, int rank) {
  if (c.rank(c.in(i)) != rank)
    c.malformed(fmt::format("input {} of type {}", i, c.type(c.in(i)).to_string()), fmt::format("rank {}", rank));
}

ValueId joined(NodeContext& c, ValueId a, ValueId b, int64_t axis) { return c.op("concat", {a, b}, {{"axis", axis}}); }

// Self-attention with the projection in front: x [B, S, I], weights [I, hidden of q, k and v], their bias, a mask, past
// keys and values [2, B, heads, P, D], a bias of the scores.
void import_fused_attention(NodeContext& c) {
  c.require_inputs(2, 7);
  require_rank(c, 0, 3);
  if (c.has(6)) c.unsupported("past_sequence_length: keys and values in a buffer of the caller's");
  if (c.attrs.get_int("do_rotary", 0) != 0) c.unsupported("do_rotary = 1");
  const int64_t heads = c.attrs.require_int("num_heads");
  const bool causal = c.attrs.get_int("unidirectional", 0) != 0;
  const double filter = c.attrs.get_float("mask_filter_value", -10000);
  ValueId product = c.op("matmul", {c.in(0), c.in(1)});
  if (c.has(2)) product = c.add(product, c.in(2));
  const Ints dims = c.dims(product);
  Ints sizes = c.attrs.get_ints("qkv_hidden_sizes");
  if (sizes.empty()) sizes = Ints(3, dims[2] / 3);
  if (sizes.size() != 3 || sizes[0] < 1 || sizes[2] < 1 || sizes[0] != sizes[1] || sizes[0] > dims[2] ||
      sizes[2] != dims[2] - 2 * sizes[0])
    c.malformed(fmt::format("a projection of type {}", c.type(product).to_string()),
                "the hidden sizes of queries, keys and values side by side");
  int64_t start = 0;
  const auto part = [&](size_t i) {
    const ValueId slice = c.slice(product, {0, 0, start}, {dims[0], dims[1], sizes[i]}, {1, 1, 1});
    start += sizes[i];
    return split_heads(c, slice, heads);
  };
  Scores scores{part(0), part(1), part(2)};
  scores.scale = scale_or(c, sizes[0] / heads);
  if (c.has(4)) {
    require_rank(c, 4, 5);
    Ints past = c.dims(c.in(4));
    const auto half = [&](int64_t i) {
      Ints one = past, starts(5, 0);
      starts[0] = i;
      one[0] = 1;
      return c.reshape(c.slice(c.in(4), starts, one, Ints(5, 1)), {past[1], past[2], past[3], past[4]});
    };
    scores.k = joined(c, half(0), scores.k, 2);
    scores.v = joined(c, half(1), scores.v, 2);
  }
  const int64_t keys = c.dims(scores.k)[2];
  if (c.has(3)) scores.bias.add(c, mask_bias(c, c.in(3), dims[0], dims[1], keys, filter));
  if (causal) scores.bias.add(c, causal_bias(c, dims[1], keys));
  if (c.has(5)) scores.bias.add(c, c.cast(c.in(5), DType::kF32));
  c.out(0, merge_heads(c, scores.attend(c)));
  if (!c.wants(1)) return;
  const auto apart = [&](ValueId x) {
    Ints shape = c.dims(x);
    shape.insert(shape.begin(), 1);
    return c.reshape(x, shape);
  };
  c.out(1, joined(c, apart(scores.k), apart(scores.v), 0));
}

// Queries [B, S, H], or all three as [B, S, heads, 3, D]; keys and values [B, T, ...], [B, heads, T, D], or both as
// [B, T, heads, 2, D]; a bias of all three, a mask, a bias of the scores, past keys and values [B, heads, P, D].
void import_multi_head_attention(NodeContext& c) {
  c.require_inputs(1, 10);
  if (c.has(8) || c.has(9)) c.unsupported("keys and values in a buffer of the caller's");
  if (c.wants(3)) c.unsupported("output 3 (the scores)");
  const int64_t heads = c.attrs.require_int("num_heads");
  const double filter = c.attrs.get_float("mask_filter_value", -10000);
  const bool causal = c.attrs.get_int("unidirectional", 0) != 0;
  const ValueId query = c.in(0);
  // Part i of the last dimension but one of x [B, S, heads, parts, D], as [B, heads, S, D].
  const auto packed = [&](ValueId x, int64_t i) {
    Ints dims = c.dims(x), starts(5, 0), one = dims;
    starts[3] = i;
    one[3] = 1;
    return c.transpose(c.reshape(c.slice(x, starts, one, Ints(5, 1)), {dims[0], dims[1], dims[2], dims[4]}),
                       {0, 2, 1, 3});
  };
  // A third of the bias, for the heads of x.
  int64_t biased = 0;
  const auto with_bias = [&](ValueId x) {
    if (!c.has(3)) return x;
    const Ints dims = c.dims(x);
    const int64_t size = dims[1] * dims[3];
    if (c.rank(c.in(3)) != 1 || biased + size > c.dims(c.in(3))[0])
      c.malformed(fmt::format("a bias of type {}", c.type(c.in(3)).to_string()),
                  "one value for each feature of queries, keys and values");
    const ValueId part = c.slice(c.in(3), {biased}, {size}, {1});
    biased += size;
    return c.add(x, c.reshape(part, {1, dims[1], 1, dims[3]}));
  };
  Scores scores{};
  if (c.rank(query) == 5) {
    scores.q = with_bias(packed(query, 0));
    scores.k = with_bias(packed(query, 1));
    scores.v = with_bias(packed(query, 2));
  } else {
    require_rank(c, 0, 3);
    if (!c.has(1)) c.malformed("neither keys nor packed queries", "both");
    scores.q = with_bias(split_heads(c, query, heads));
    if (c.rank(c.in(1)) == 5) {
      scores.k = with_bias(packed(c.in(1), 0));
      scores.v = with_bias(packed(c.in(1), 1));
    } else {
      const auto read = [&](int i) { return c.rank(c.in(i)) == 4 ? c.in(i) : split_heads(c, c.in(i), heads); };
      const bool ready = c.rank(c.in(1)) == 4;  // of cross attention: with their bias
      scores.k = ready ? read(1) : with_bias(read(1));
      if (ready) biased += heads * c.dims(scores.q)[3];
      scores.v = c.rank(c.in(2)) == 4 ? read(2) : with_bias(read(2));
    }
  }
  const Ints q_dims = c.dims(scores.q);
  if (c.has(6)) {
    require_rank(c, 6, 4);
    require_rank(c, 7, 4);
    scores.k = joined(c, c.in(6), scores.k, 2);
    scores.v = joined(c, c.in(7), scores.v, 2);
  }
  c.out(1, scores.k);
  c.out(2, scores.v);
  const int64_t keys = c.dims(scores.k)[2];
  scores.scale = scale_or(c, q_dims[3]);
  if (c.has(4)) scores.bias.add(c, mask_bias(c, c.in(4), q_dims[0], q_dims[2], keys, filter));
  if (c.has(5)) scores.bias.add(c, c.cast(c.in(5), DType::kF32));
  if (causal) scores.bias.add(c, causal_bias(c, q_dims[2], keys));
  c.out(0, merge_heads(c, scores.attend(c)));
}

// x [B, S, H] or [B, heads, S, D], positions [1] (of the first) or [B, S], caches [positions, half].
void import_contrib_rotary_embedding(NodeContext& c) {
  c.require_inputs(4, 4);
  if (c.attrs.get_int("is_packed_batching", 0) != 0) c.unsupported("is_packed_batching = 1");
  if (const double scale = c.attrs.get_float("scale", 1); scale != 1) c.unsupported(fmt::format("scale = {}", scale));
  const ValueId given = c.in(0);
  const bool interleaved = c.attrs.get_int("interleaved", 0) != 0, flat = c.rank(given) == 3;
  if (!flat && c.rank(given) != 4)
    c.malformed(fmt::format("an operand of type {}", c.type(given).to_string()), "rank 3 or 4");
  const Ints cache = c.dims(c.in(2));
  if (cache.size() != 2 || c.dims(c.in(3)) != cache)
    c.malformed(fmt::format("caches of types {} and {}", c.type(c.in(2)).to_string(), c.type(c.in(3)).to_string()),
                "[positions, half of the features] for both");
  const int64_t turned = c.attrs.get_int("rotary_embedding_dim", 0);
  int64_t heads = c.attrs.get_int("num_heads", 0);
  if (heads == 0 && flat) {
    if (turned > 0 || cache[1] < 1) c.malformed("rotary_embedding_dim without num_heads", "both");
    heads = c.dims(given)[2] / (2 * cache[1]);
  }
  const ValueId x = flat ? split_heads(c, given, heads) : given;
  const Ints dims = c.dims(x);
  if (2 * cache[1] != (turned > 0 ? turned : dims[3]) || 2 * cache[1] > dims[3])
    c.malformed(fmt::format("a cache of type {} for {} features", c.type(c.in(2)).to_string(), dims[3]),
                "half as many values as features are turned");
  ValueId positions = c.cast(c.in(1), DType::kI64);
  if (c.dims(positions) == Ints{dims[0], dims[2]}) {
  } else if (c.num_elements(positions) == 1) {
    positions = c.add(c.reshape(positions, {1, 1}), c.iota({1, dims[2]}, 1));
  } else {
    c.malformed(fmt::format("positions of type {}", c.type(positions).to_string()),
                fmt::format("one, or [{},{}]", dims[0], dims[2]));
  }
  const auto angles = [&](int i) {
    const ValueId rows = c.op("gather", {c.in(i), positions}, {{"axis", int64_t{0}}});
    const Ints shape = c.dims(rows);
    return c.reshape(rows, {shape[0], 1, shape[1], shape[2]});
  };
  const ValueId y = rotated(c, x, angles(2), angles(3), interleaved);
  c.out(0, flat ? merge_heads(c, y) : y);
}

// Causal attention whose keys and values are appended to a cache: queries [B, S, heads * D] (or all three side by
// side), keys and values [B, S, kv_heads * D], the cache [B, kv_heads, P, D] twice, the number of keys less one of each
// member [B], the most keys of all, caches of cosines and sines.
void import_group_query_attention(NodeContext& c) {
  c.require_inputs(1, 12);
  if (c.has(10) || c.has(11)) c.unsupported("a bias of the scores or sinks of the heads");
  if (c.attrs.get_int("smooth_softmax", 0) > 0) c.unsupported("smooth_softmax = 1");
  for (const char* name : {"qk_output", "kv_cache_bit_width"})
    if (c.attrs.get_int(name, 0) != 0) c.unsupported(fmt::format("attribute '{}'", name));
  const int64_t heads = c.attrs.require_int("num_heads"), kv_heads = c.attrs.require_int("kv_num_heads");
  const bool rotary = c.attrs.get_int("do_rotary", 0) != 0;
  const bool interleaved = c.attrs.get_int("rotary_interleaved", 0) != 0;
  const int64_t window = c.attrs.get_int("local_window_size", -1);
  constexpr int64_t kMostHeads = 1 << 20;
  if (heads < 1 || kv_heads < 1 || heads > kMostHeads || heads % kv_heads != 0)
    c.malformed(fmt::format("{} heads of queries and {} of keys", heads, kv_heads), "a multiple");
  require_rank(c, 0, 3);
  Scores scores{};
  if (c.has(1)) {
    if (!c.has(2)) c.malformed("keys without values", "both, or neither");
    require_rank(c, 1, 3);
    require_rank(c, 2, 3);
    scores.q = split_heads(c, c.in(0), heads);
    scores.k = split_heads(c, c.in(1), kv_heads);
    scores.v = split_heads(c, c.in(2), kv_heads);
  } else {
    const ValueId all = split_heads(c, c.in(0), heads + 2 * kv_heads);
    const Ints dims = c.dims(all);
    const auto part = [&](int64_t first, int64_t count) {
      return c.slice(all, {0, first, 0, 0}, {dims[0], count, dims[2], dims[3]}, Ints(4, 1));
    };
    scores.q = part(0, heads);
    scores.k = part(heads, kv_heads);
    scores.v = part(heads + kv_heads, kv_heads);
  }
  const Ints q_dims = c.dims(scores.q);
  const int64_t batch = q_dims[0], queries = q_dims[2], features = q_dims[3];
  scores.scale = scale_or(c, features);
  scores.softcap = c.attrs.get_float("softcap", 0);
  if (!c.has(5) || !c.has(6)) c.malformed("no lengths of the keys", "seqlens_k and total_sequence_length");
  if (c.num_elements(c.in(5)) != batch || c.num_elements(c.in(6)) != 1)
    c.malformed(fmt::format("lengths of types {} and {}", c.type(c.in(5)).to_string(), c.type(c.in(6)).to_string()),
                "one for each member of the batch, and one");
  const ValueId last = c.reshape(c.cast(c.in(5), DType::kI64), {batch, 1});  // the place of the last key
  const ValueId most = c.reshape(c.cast(c.in(6), DType::kI64), {1, 1});
  // Where the new keys begin: at 0 when they are all there are.
  const ValueId begin = c.op("select", {c.op("eq", {most, c.integer(queries)}), c.mul(last, c.integer(0)),
                                        c.sub(last, c.integer(queries - 1))});

  if (c.has(3) && c.rank(c.in(3)) != 4)
    c.malformed(fmt::format("past keys of type {}", c.type(c.in(3)).to_string()), "rank 4");
  const int64_t past = c.has(3) ? c.dims(c.in(3))[2] : 0;
  int64_t keys = past + queries;
  if (const auto total = c.constant(most)) keys = std::max(past, total->get_int(0));
  else if (const auto declared = c.declared_dims(1); declared && declared->size() == 4) keys = (*declared)[2];
  if (keys < queries || keys < past)
    c.malformed(fmt::format("{} keys with {} in the cache and {} new ones", keys, past, queries), "room for all");
  c.check_when_run(6, "total_sequence_length", c.op("le", {c.reshape(most, {}), c.integer(keys)}), most,
                   fmt::format("at most {} keys", keys));
  const ValueId furthest = c.reduce("max", c.add(begin, c.integer(queries)), {0, 1}, false);
  c.check_when_run(5, "seqlens_k",
                   c.op("logical_and", {c.op("le", {furthest, c.integer(keys)}),
                                        c.op("ge", {c.reduce("min", begin, {0, 1}, false), c.integer(0)})}),
                   furthest, fmt::format("{} to {} keys", queries, keys));

  if (rotary) {
    if (!c.has(7) || !c.has(8)) c.malformed("do_rotary = 1 without the caches of cosines and sines", "both");
    const ValueId positions = c.has(9) ? c.cast(c.in(9), DType::kI64) : c.add(begin, c.iota({1, queries}, 1));
    const auto angles = [&](int i) {
      const ValueId rows = c.op("gather", {c.in(i), positions}, {{"axis", int64_t{0}}});
      const Ints shape = c.dims(rows);
      if (shape.size() != 3 || 2 * shape[2] > features)
        c.malformed(fmt::format("a cache of type {}", c.type(c.in(i)).to_string()),
                    "[positions, half of the features]");
      return c.reshape(rows, {shape[0], 1, shape[1], shape[2]});
    };
    const ValueId cosine = angles(7), sine = angles(8);
    scores.q = rotated(c, scores.q, cosine, sine, interleaved);
    scores.k = rotated(c, scores.k, cosine, sine, interleaved);
  }
  // The cache with the new ones in their places: row t of member b is new row t - begin[b] where there is one, and zero
  // behind it.
  const ValueId place = c.iota({1, keys}, 1);
  const ValueId offset = c.sub(place, begin);  // [B, T]
  const ValueId is_new =
      c.op("logical_and", {c.op("ge", {offset, c.integer(0)}), c.op("lt", {offset, c.integer(queries)})});
  const ValueId nearest = c.op("max", {c.op("min", {offset, c.integer(queries - 1)}), c.integer(0)});
  const ValueId row = c.reshape(c.add(nearest, c.mul(c.iota({batch, 1}, 0), c.integer(queries))), {batch * keys});
  const auto cached = [&](int i, ValueId fresh) {
    const ValueId flat = c.reshape(c.transpose(fresh, {0, 2, 1, 3}), {batch * queries, kv_heads * features});
    const ValueId rows = c.op("gather", {flat, row}, {{"axis", int64_t{0}}});
    const ValueId spread = c.transpose(c.reshape(rows, {batch, keys, kv_heads, features}), {0, 2, 1, 3});
    ValueId old = c.scalar_like(fresh, 0);
    if (past > 0) {
      const Ints more = {0, 0, keys - past, 0};
      const ValueId store = past == keys
                                ? c.in(i)
                                : c.op("pad", {c.in(i), c.scalar_like(c.in(i), 0)},
                                       {{"low", Ints(4, 0)}, {"high", more}, {"mode", std::string("constant")}});
      old = c.op("select", {c.reshape(c.op("lt", {place, begin}), {batch, 1, keys, 1}), store, old});
    }
    return c.op("select", {c.reshape(is_new, {batch, 1, keys, 1}), spread, old});
  };
  scores.k = cached(3, scores.k);
  scores.v = cached(4, scores.v);
  c.out(1, scores.k);
  c.out(2, scores.v);

  const ValueId own = c.reshape(c.add(begin, c.iota({1, queries}, 1)), {batch, 1, queries, 1});
  const ValueId other = c.iota({1, 1, 1, keys}, 3);
  ValueId allowed = c.op("le", {other, own});
  if (window >= 0) allowed = c.op("logical_and", {allowed, c.op("gt", {other, c.sub(own, c.integer(window))})});
  scores.bias.add(c, minus_infinity_unless(c, allowed, DType::kF32));
  c.out(0, merge_heads(c, scores.attend(c)));
}

}  // namespace

OperatorFamily contrib_attention_operators() {
  static constexpr OperatorImporter contrib[] = {
      OperatorImporter{"Attention", 1, import_fused_attention},
      OperatorImporter{"GroupQueryAttention", 1, import_group_query_attention},
      OperatorImporter{"MultiHeadAttention", 1, import_multi_head_attention},
      OperatorImporter{"RotaryEmbedding", 1, import_contrib_rotary_embedding},
  };
  return {{kContribDomain, contrib}};
}

}  // namespace tessera::inline onnx_import
