// scatter: updates that arrive at places which other values name.
#include <algorithm>

#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/loop_util.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

constexpr int64_t kParts = 16;              // of a copy, for threads
constexpr int64_t kWorthThreads = 1 << 15;  // elements
constexpr int64_t kMostShares = 4;          // of places, for threads
constexpr int64_t kShareElements = 128;     // of a row, for each share: all of them look at all places
constexpr int64_t kFarElements = 1 << 20;   // more stay in no cache of one core; fewer are updated in no time

constexpr std::string_view kJoins[] = {"none", "add", "mul", "min", "max"};

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType &x = ctx.inputs[0], &places = ctx.inputs[1], &updates = ctx.inputs[2];
  const std::string& join = ctx.attrs.get<std::string>("join");
  require_word(ctx, "join", join, {std::begin(kJoins), std::end(kJoins)});
  if (join == "none") require_dtype(ctx, 0, is_movable, kMovableTypes);
  else require_dtype(ctx, 0, is_arithmetic, kArithmeticTypes);
  require_dtype(ctx, 1, is_index, kIndexTypes);
  if (updates.dtype != x.dtype)
    ctx.fail("TSR-2021", describe_operand(ctx, 2) + " for " + describe_operand(ctx, 0), "equal element types");
  require_rank(ctx, 0, 3, 3);
  require_rank(ctx, 1, 2, 2);
  require_rank(ctx, 2, 3, 3);
  const bool fits = equal_extents(x.shape[0], places.shape[0]) && equal_extents(x.shape[0], updates.shape[0]) &&
                    equal_extents(places.shape[1], updates.shape[1]) && equal_extents(x.shape[2], updates.shape[2]);
  if (!fits)
    ctx.fail("TSR-2024",
             describe_operand(ctx, 1) + " and " + describe_operand(ctx, 2) + " for " + describe_operand(ctx, 0),
             "x [B, P, I], places [B, U] and updates [B, U, I]");
  return {TensorType{x.dtype, x.shape, {}}};
}

Tensor evaluate(const OpContext& ctx, const std::vector<const Tensor*>& inputs) {
  const Tensor &x = *inputs[0], &places = *inputs[1], &updates = *inputs[2];
  const std::string& join = ctx.attrs.get<std::string>("join");
  const bool real = is_float(x.dtype());
  const int64_t batch = x.dims()[0], extent = x.dims()[1], inner = x.dims()[2], count = places.dims()[1];
  Tensor y(x.dtype(), x.dims());
  const auto copy = [&](Tensor& to, int64_t at, const Tensor& from, int64_t source) {
    if (real) to.set_double(at, from.get_double(source));
    else to.set_int(at, from.get_int(source));
  };
  for (int64_t i = 0; i < x.num_elements(); ++i) copy(y, i, x, i);
  const auto joined = [&](auto old, auto update) {
    if (join == "add") return old + update;
    if (join == "mul") return old * update;
    if (update != update || old != old) return old != old ? old : update;  // NaN wins
    return (join == "min") == (update < old) ? update : old;
  };
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t u = 0; u < count; ++u) {
      const int64_t place = places.get_int(b * count + u);
      if (place < 0 || place >= extent) continue;
      for (int64_t i = 0; i < inner; ++i) {
        const int64_t at = (b * extent + place) * inner + i, source = (b * count + u) * inner + i;
        if (join == "none") copy(y, at, updates, source);
        else if (real) y.set_double(at, joined(y.get_double(at), updates.get_double(source)));
        else if (x.dtype() == DType::kU64 && (join == "min" || join == "max"))
          y.set_int(at, static_cast<int64_t>(joined(static_cast<uint64_t>(y.get_int(at)),
                                                    static_cast<uint64_t>(updates.get_int(source)))));
        else if (join == "add" || join == "mul")  // wrapping
          y.set_int(at, static_cast<int64_t>(joined(static_cast<uint64_t>(y.get_int(at)),
                                                    static_cast<uint64_t>(updates.get_int(source)))));
        else y.set_int(at, joined(y.get_int(at), updates.get_int(source)));
      }
    }
  return y;
}

// out[begin ..] = x[begin ..]
Stmt copied(const BufferPtr& x, const BufferPtr& out, const Expr& begin, const Expr& count) {
  return vector_loop("e", count, [&](const Var& e) { return store(out, {begin + e}, load(x, {begin + e})); });
}

LoopProgram loops(const OpContext& ctx) {
  const TensorType& x_type = ctx.inputs[0];
  const Expr &batch = x_type.shape[0], &extent = x_type.shape[1], &inner = x_type.shape[2],
             &count = ctx.inputs[1].shape[1];
  const std::string& join = ctx.attrs.get<std::string>("join");
  LoopProgram program = start_loops(ctx, x_type.dtype, batch * extent * inner);
  const BufferPtr &x = program.params[0], &places = program.params[1], &updates = program.params[2],
                  &out = program.params[3];
  const Expr member = normalize_size(extent * inner);
  if (is_const_int(batch, 0) || is_const_int(member, 0)) {
    program.body = seq({});
    return program;
  }
  const auto combined = [&](const Expr& old, const Expr& update) {
    if (join == "add") return binary(BinaryOp::kAdd, old, update);
    if (join == "mul") return binary(BinaryOp::kMul, old, update);
    if (join == "min") return binary(BinaryOp::kMin, old, update);
    if (join == "max") return binary(BinaryOp::kMax, old, update);
    return update;
  };
  // In order: the last of the updates of a place stays. Of `shares`, the places of number `share`.
  const auto updated = [&](const Expr& b, int64_t shares, const Expr& share) {
    return serial_loop("u", count, [&](const Var& u) {
      const Cell place("place", DType::kI64);
      const Expr from = (b * count + u) * inner;
      const Expr to = b * member + place.get() * inner;
      Expr mine = logical_and(Expr(0) <= place.get(), place.get() < extent);
      if (shares > 1) mine = logical_and(mine, equal(floormod(place.get(), Expr(shares)), share));
      return with({place.buffer}, {place.set(index_of(load(places, {b * count + u}))),
                                   if_then(mine, vector_loop("i", inner, [&](const Var& i) {
                                             return store(out, {to + i},
                                                          combined(load(out, {to + i}), load(updates, {from + i})));
                                           }))});
    });
  };
  const bool bytes = dtype_bits(x_type.dtype) >= 8;  // threads would share bytes otherwise
  if (!is_const_int(batch, 1)) {
    program.body = parallel_loop(
        "b", batch, [&](const Var& b) { return seq({copied(x, out, b * member, member), updated(b, 1, 0)}); }, bytes);
  } else {
    // The same loops for every extent, so that one kernel can serve a range of them.
    const Expr rows = floordiv(extent, kParts);
    const bool pays = bytes && typical_size(member) >= kWorthThreads;
    std::vector<Stmt> parts;
    parts.push_back(
        parallel_loop("p", kParts, [&](const Var& p) { return copied(x, out, p * rows * inner, rows * inner); }, pays));
    parts.push_back(parallel_loop(
        "r", kParts - 1,
        [&](const Var& r) {
          const Expr row = Expr(kParts) * rows + r;
          return if_then(row < extent, copied(x, out, row * inner, inner));
        },
        pays));
    // Every so many places are a share: neighbours are often named alike often.
    const int64_t shares = std::min(kMostShares, as_int(inner).value_or(0) / kShareElements);
    if (shares > 1 && bytes && typical_size(member) >= kFarElements &&
        typical_size(normalize_size(count * inner)) >= kWorthThreads)
      parts.push_back(parallel_loop("s", shares, [&](const Var& s) { return updated(0, shares, s); }));
    else parts.push_back(updated(0, 1, 0));
    program.body = seq(parts);
  }
  return program;
}

// The elements of v [B, P, I] at the places of the updates, zeros for places that do not exist.
ValueId read_at(Adjoint& a, ValueId v) {
  const Shape shape = a.type(v).shape;
  const ValueId places = a.cast(a.in(1), DType::kI64);
  const Shape named = a.type(places).shape;
  const ValueId exists =
      a.op("logical_and", {a.op("ge", {places, a.integer(0)}), a.op("lt", {places, a.integer(shape[1])})});
  const Shape all = {named[0], named[1], shape[2]};
  const auto spread = [&](ValueId of_places) {
    return a.broadcast(a.reshape(of_places, {named[0], named[1], 1}), all);
  };
  if (is_const_int(shape[1], 0)) return a.filled(0, a.type(v).dtype, all);
  const ValueId read =
      a.op("gather_elements", {v, spread(a.select(exists, places, a.integer(0)))}, {{"axis", int64_t{1}}});
  return a.select(spread(exists), read, a.filled(0, a.type(v).dtype, {}));
}

ValueId scattered(Adjoint& a, ValueId x, ValueId updates, const char* join) {
  return a.op("scatter", {x, a.in(1), updates}, {{"join", std::string(join)}});
}

// An update that a later one replaces has no part in the result. Where equal elements could be the minimum or maximum,
// they share evenly. A factor's gradient is the product of the others, which is not found by dividing by a zero.
std::vector<ValueId> gradient(Adjoint& a) {
  const std::string& join = a.attrs().get<std::string>("join");
  const ValueId x = a.in(0), updates = a.in(2), g = a.gradient(), zero = a.scalar(0, g), one = a.scalar(1, g);
  const Shape x_shape = a.type(x).shape, u_shape = a.type(updates).shape;
  const auto answer = [&](const auto& of_x, const auto& of_updates) -> std::vector<ValueId> {
    return {a.wants(0) ? of_x() : Adjoint::kNone, Adjoint::kNone, a.wants(2) ? of_updates() : Adjoint::kNone};
  };
  const auto zeros_like = [&](const Shape& shape) { return a.filled(0, a.type(g).dtype, shape); };
  const auto mask = [&](ValueId condition) { return a.select(condition, one, zero); };
  if (join == "add") return answer([&] { return g; }, [&] { return read_at(a, g); });
  if (join == "none")
    return answer([&] { return scattered(a, g, zeros_like(u_shape), "none"); },
                  [&] {
                    const ValueId number = a.op(
                        "iota", {},
                        {{"shape", Shape{u_shape[0], u_shape[1], 1}}, {"axis", int64_t{1}}, {"dtype", DType::kI64}});
                    const ValueId numbers = a.broadcast(number, u_shape);
                    const ValueId last = scattered(a, a.filled(-1, DType::kI64, x_shape), numbers, "none");
                    return a.select(a.op("eq", {read_at(a, last), numbers}), read_at(a, g), zero);
                  });
  if (join == "mul") {
    const ValueId x_is_zero = a.op("eq", {x, zero}), u_is_zero = a.op("eq", {updates, zero});
    const ValueId product = scattered(a, a.select(x_is_zero, one, x), a.select(u_is_zero, one, updates), "mul");
    const ValueId zeros = scattered(a, mask(x_is_zero), mask(u_is_zero), "add");
    const auto others = [&](ValueId own, ValueId is_zero, ValueId factors, ValueId count, ValueId of) {
      const ValueId divided = a.div(factors, a.select(is_zero, one, own));
      const ValueId rest = a.sub(count, mask(is_zero));
      return a.select(a.op("eq", {rest, zero}), a.mul(of, divided), zero);
    };
    return answer([&] { return others(x, x_is_zero, product, zeros, g); },
                  [&] { return others(updates, u_is_zero, read_at(a, product), read_at(a, zeros), read_at(a, g)); });
  }
  const ValueId x_taken = a.op("eq", {x, a.out()}), u_taken = a.op("eq", {updates, read_at(a, a.out())});
  const ValueId share = a.div(g, scattered(a, mask(x_taken), mask(u_taken), "add"));
  return answer([&] { return a.select(x_taken, share, zero); },
                [&] { return a.select(u_taken, read_at(a, share), zero); });
}

}  // namespace

const OpDef& scatter_op() {
  static const OpDef op{
      .name = "scatter",
      .doc =
          "x [B, P, I] with updates [B, U, I] at places [B, U] of dimension 1, one after the other; a place that does "
          "not exist takes none.",
      .kind = OpKind::kProcedure,
      .min_inputs = 3,
      .max_inputs = 3,
      .attrs = {{"join", AttrKind::kString, true,
                 "none (the update replaces what is there), add, mul, min or max (NaN wins)"}},
      .infer = infer,
      .evaluate = evaluate,
      .loops = loops,
      .gradient = gradient,
      .example = R"(
graph @main(%x: f32[1,4,1], %p: i64[1,3], %u: f32[1,3,1]) -> (%y: f32[1,4,1]) {
  %y = scatter(%x, %p, %u) {join = "add"} : f32[1,4,1]
}
run x = 1 2 3 4 ; p = 1 -1 1 ; u = 10 20 30 -> y = 1 42 3 4
)",
  };
  return op;
}

}  // namespace tessera::inline ops
