// cumulate: running totals along an axis.
//
// Along a long contiguous axis the additions would wait for each other. There the axis is cut into equal parts: first
// the total of each part, which is a vector reduction, then all parts side by side, each from where the one before
// ends. The loops are the same for every extent, so that one kernel can serve a range of them.
#include "arith/simplify.h"
#include "graph/adjoint.h"
#include "ops/loop_util.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

constexpr int64_t kParts = 8;     // running totals side by side
constexpr int64_t kLanes = 64;    // running totals in registers where the axis is not the last one
constexpr int64_t kFewLanes = 8;  // of those that are left over, where only a run knows how many there are

struct Plan {
  BinaryOp op;
  DType dtype, wide;  // of the elements, of the totals
  bool exclusive, reverse;
  Expr outer, extent, inner;
};

DType wide_type(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16 ? DType::kF32 : dtype; }

Plan plan_of(const OpContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  const auto axis = static_cast<size_t>(ctx.attrs.get_int("axis"));
  return {ctx.attrs.get<std::string>("kind") == "sum" ? BinaryOp::kAdd : BinaryOp::kMul,
          x.dtype,
          wide_type(x.dtype),
          ctx.attrs.get_or<bool>("exclusive", false),
          ctx.attrs.get_or<bool>("reverse", false),
          size_of(x.shape, 0, axis),
          size_of(x.shape, axis, axis + 1),
          size_of(x.shape, axis + 1, x.shape.size())};
}

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  require_dtype(ctx, 0, is_arithmetic, kArithmeticTypes);
  require_rank(ctx, 0, 1, 1 << 30);
  require_int(ctx, "axis", 0, x.rank() - 1);
  require_word(ctx, "kind", ctx.attrs.get<std::string>("kind"), {"sum", "prod"});
  return {TensorType{x.dtype, x.shape, {}}};
}

Tensor evaluate(const OpContext& ctx, const std::vector<const Tensor*>& inputs) {
  const Tensor& x = *inputs[0];
  const auto axis = static_cast<size_t>(ctx.attrs.get_int("axis"));
  const bool sum = ctx.attrs.get<std::string>("kind") == "sum";
  const bool exclusive = ctx.attrs.get_or<bool>("exclusive", false), reverse = ctx.attrs.get_or<bool>("reverse", false);
  Tensor y(x.dtype(), x.dims());
  int64_t inner = 1;
  for (size_t d = axis + 1; d < x.dims().size(); ++d) inner *= x.dims()[d];
  const int64_t extent = x.dims()[axis];
  for (int64_t start = 0; start < x.num_elements(); ++start) {
    if (start / inner % extent != 0) continue;  // the first element of a line along the axis
    double real = sum ? 0 : 1;
    uint64_t whole = sum ? 0 : 1;
    for (int64_t i = 0; i < extent; ++i) {
      const int64_t at = start + (reverse ? extent - 1 - i : i) * inner;
      const auto put = [&] {
        if (is_float(x.dtype())) y.set_double(at, real);
        else y.set_int(at, static_cast<int64_t>(whole));
      };
      if (exclusive) put();
      if (is_float(x.dtype())) {
        real = sum ? real + x.get_double(at) : real * x.get_double(at);
      } else {
        const auto value = static_cast<uint64_t>(x.get_int(at));
        whole = sum ? whole + value : whole * value;
      }
      if (!exclusive) put();
    }
  }
  return y;
}

// out[at] becomes the total in `total`, which takes in x[at].
Stmt step(const Plan& plan, const BufferPtr& x, const BufferPtr& out, const BufferPtr& total, const Expr& which,
          const Expr& at) {
  const Expr sum = load(total, {which});
  const Stmt put = store(out, {at}, cast(plan.dtype, sum));
  const Stmt add = store(total, {which}, binary(plan.op, sum, cast(plan.wide, load(x, {at}))));
  return plan.exclusive ? seq({put, add}) : seq({add, put});
}

// `lanes` neighbouring lines from `start` on.
Stmt beside(const Plan& plan, const BufferPtr& x, const BufferPtr& out, const Expr& start, int64_t lanes) {
  const BufferPtr total = make_buffer("total", plan.wide, {lanes}, MemoryScope::kRegister);
  const Expr identity = constant(plan.wide, plan.op == BinaryOp::kAdd ? 0 : 1);
  const auto at = [&](const Var& i) {
    return start + (plan.reverse ? (plan.extent - Expr(1)) - i : Expr(i)) * plan.inner;
  };
  return with({total}, {vector_loop("l", lanes, [&](const Var& l) { return store(total, {l}, identity); }),
                        serial_loop("i", plan.extent, [&](const Var& i) {
                          return vector_loop("l", lanes,
                                             [&](const Var& l) { return step(plan, x, out, total, l, at(i) + l); });
                        })});
}

// One contiguous line from `start` on.
Stmt along(const Plan& plan, const BufferPtr& x, const BufferPtr& out, const Expr& start) {
  const Expr length = floordiv(plan.extent, kParts);
  const BufferPtr total = make_buffer("total", plan.wide, {kParts}, MemoryScope::kRegister);
  const Expr identity = constant(plan.wide, plan.op == BinaryOp::kAdd ? 0 : 1);
  const auto at = [&](const Expr& i) { return start + (plan.reverse ? (plan.extent - Expr(1)) - i : i); };
  std::vector<Stmt> body = {store(total, {0}, identity)};
  for (int64_t p = 1; p < kParts; ++p) {
    body.push_back(store(total, {p}, identity));
    body.push_back(vector_loop("i", length, [&](const Var& i) {
      // Of the part before, whichever way it runs: a reduction has no order.
      const Expr first = plan.reverse ? at(Expr(p) * length - Expr(1)) : at(Expr(p - 1) * length);
      return store(total, {p}, binary(plan.op, load(total, {p}), cast(plan.wide, load(x, {first + i}))));
    }));
    body.push_back(store(total, {p}, binary(plan.op, load(total, {p - 1}), load(total, {p}))));
  }
  body.push_back(serial_loop("i", length, [&](const Var& i) {
    return unrolled_loop("p", kParts, [&](const Var& p) { return step(plan, x, out, total, p, at(p * length + i)); });
  }));
  body.push_back(serial_loop("i", kParts - 1, [&](const Var& i) {
    const Expr place = Expr(kParts) * length + i;
    return if_then(place < plan.extent, step(plan, x, out, total, kParts - 1, at(place)));
  }));
  return with({total}, body);
}

LoopProgram loops(const OpContext& ctx) {
  const Plan plan = plan_of(ctx);
  const Expr elements = normalize_size(plan.outer * plan.extent * plan.inner);
  LoopProgram program = start_loops(ctx, plan.dtype, elements);
  const BufferPtr &x = program.params[0], &out = program.params[1];
  if (is_const_int(elements, 0)) {
    program.body = seq({});
  } else if (is_const_int(plan.inner, 1)) {
    program.body = parallel_loop("o", plan.outer, [&](const Var& o) { return along(plan, x, out, o * plan.extent); });
  } else {
    const Expr line = plan.extent * plan.inner;
    std::vector<Stmt> parts;
    // Lines `first` to `first` + `count` * `lanes`, of those beside each other.
    const auto blocks = [&](const Expr& first, const Expr& count, int64_t lanes) {
      parts.push_back(parallel_loop("t", plan.outer * count, [&](const Var& t) {
        const Expr start = floordiv(t, count) * line + floormod(t, count) * Expr(lanes);
        return beside(plan, x, out, start + first, lanes);
      }));
    };
    const Expr whole = floordiv(plan.inner, kLanes);
    if (const auto inner = as_int(plan.inner)) {
      const int64_t rest = *inner % kLanes;
      if (*inner >= kLanes) blocks(0, whole, kLanes);
      if (rest > 0)
        parts.push_back(parallel_loop("o", plan.outer, [&](const Var& o) {
          return beside(plan, x, out, o * line + whole * Expr(kLanes), rest);
        }));
    } else {
      const Expr rest = floormod(plan.inner, kLanes), few = floordiv(rest, kFewLanes);
      blocks(0, whole, kLanes);
      blocks(whole * Expr(kLanes), few, kFewLanes);
      blocks(whole * Expr(kLanes) + few * Expr(kFewLanes), floormod(rest, kFewLanes), 1);
    }
    program.body = seq(parts);
  }
  return program;
}

// Of a product: up to the first zero of a line, each partial product is divided by the element; that zero gets the
// products that it alone makes 0, and what lies behind it nothing.
std::vector<ValueId> gradient(Adjoint& a) {
  const ValueId x = a.in(0), g = a.gradient(), zero = a.scalar(0, x), one = a.scalar(1, x);
  const bool exclusive = a.attrs().get_or<bool>("exclusive", false), reverse = a.attrs().get_or<bool>("reverse", false);
  const auto along = [&](const char* kind, bool without_own, bool backwards) -> Attrs {
    return {{"axis", a.attrs().get_int("axis")},
            {"kind", std::string(kind)},
            {"exclusive", without_own},
            {"reverse", backwards}};
  };
  const auto behind = [&](ValueId v) { return a.op("cumulate", {v}, along("sum", exclusive, !reverse)); };
  if (a.attrs().get<std::string>("kind") == "sum") return {behind(g)};
  const ValueId is_zero = a.op("eq", {x, zero});
  const ValueId zeros = a.op("cumulate", {a.select(is_zero, one, zero)}, along("sum", false, reverse));
  const ValueId before = a.op("eq", {zeros, zero}), first = a.op("logical_and", {is_zero, a.op("eq", {zeros, one})});
  const ValueId others = a.op("cumulate", {a.select(first, one, x)}, along("prod", exclusive, reverse));
  const ValueId at_zero = a.select(first, behind(a.mul(g, others)), zero);
  const ValueId divided = a.div(behind(a.mul(g, a.out())), a.select(is_zero, one, x));
  return {a.select(before, divided, at_zero)};
}

}  // namespace

const OpDef& cumulate_op() {
  static const OpDef op{
      .name = "cumulate",
      .doc = "The running sum or product along an axis. f16 and bf16 are accumulated in f32.",
      .kind = OpKind::kProcedure,
      .min_inputs = 1,
      .max_inputs = 1,
      .attrs = {{"axis", AttrKind::kInt, true, "the dimension along which it runs"},
                {"kind", AttrKind::kString, true, "sum or prod"},
                {"exclusive", AttrKind::kBool, false, "without the element itself; default false"},
                {"reverse", AttrKind::kBool, false, "from the end; default false"}},
      .infer = infer,
      .evaluate = evaluate,
      .loops = loops,
      .gradient = gradient,
      .example = R"(
graph @main(%x: f32[4]) -> (%y: f32[4]) {
  %y = cumulate(%x) {axis = 0, exclusive = true, kind = "sum"} : f32[4]
}
run x = 1 2 3 4 -> y = 0 1 3 6
)",
  };
  return op;
}

}  // namespace tessera::inline ops
