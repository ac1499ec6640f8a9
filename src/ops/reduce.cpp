// reduce: sum, product, minimum or maximum over some dimensions.
#include <algorithm>

#include "graph/adjoint.h"
#include "ops/index_gradients.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

constexpr Combiner kCombiners[] = {Combiner::kSum, Combiner::kProd, Combiner::kMin, Combiner::kMax};

Combiner combiner_of(const OpContext& ctx) {
  return kCombiners[require_word(ctx, "kind", ctx.attrs.get<std::string>("kind"), {"sum", "prod", "min", "max"})];
}

bool is_ordered(DType dtype) { return is_arithmetic(dtype) || dtype == DType::kBool; }

std::vector<bool> reduced_dims(const OpContext& ctx) {
  std::vector<bool> reduced(ctx.inputs[0].shape.size(), false);
  for (int64_t axis : ctx.attrs.get_ints("axes")) reduced[static_cast<size_t>(axis)] = true;
  return reduced;
}

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType& x = ctx.inputs[0];
  const Combiner combiner = combiner_of(ctx);
  if (combiner == Combiner::kMin || combiner == Combiner::kMax) {
    require_dtype(ctx, 0, is_ordered, "f64, f32, f16, bf16, i8 to i64, u8 to u64, bool");
  } else {
    require_dtype(ctx, 0, is_arithmetic, kArithmeticTypes);
  }
  require_axes(ctx, "axes", x.rank());
  const std::vector<bool> reduced = reduced_dims(ctx);
  const bool keepdims = ctx.attrs.get<bool>("keepdims");
  Shape shape;
  for (size_t d = 0; d < x.shape.size(); ++d) {
    if (!reduced[d]) {
      shape.push_back(x.shape[d]);
    } else if (keepdims) {
      shape.push_back(1);
    }
  }
  return {TensorType{x.dtype, shape, {}}};
}

Body body(const OpContext& ctx) {
  Body body = start_body(ctx);
  const Shape& x = ctx.inputs[0].shape;
  const std::vector<bool> reduced = reduced_dims(ctx);
  const bool keepdims = ctx.attrs.get<bool>("keepdims");
  std::vector<Expr> index;
  size_t out = 0;
  for (size_t d = 0; d < x.size(); ++d) {
    if (!reduced[d]) {
      index.push_back(body.axes[out++].var);
      continue;
    }
    if (keepdims) ++out;
    body.reduce_axes.push_back({make_var("r" + std::to_string(d)), x[d]});
    index.push_back(body.reduce_axes.back().var);
  }
  body.combiner = combiner_of(ctx);
  body.value = load(body.inputs[0], index);
  return body;
}

// Of each element, the product of the others: of those in front of it and those behind it, since no quotient would be
// right where one is 0.
ValueId product_of_others(Adjoint& a, ValueId x, const std::vector<int64_t>& axes) {
  const Shape shape = a.type(x).shape;
  std::vector<int64_t> perm;
  for (size_t d = 0; d < shape.size(); ++d)
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) == axes.end())
      perm.push_back(static_cast<int64_t>(d));
  const size_t kept = perm.size();
  for (size_t d = 0; d < shape.size(); ++d)
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end())
      perm.push_back(static_cast<int64_t>(d));
  Shape moved;
  for (const int64_t d : perm) moved.push_back(shape[static_cast<size_t>(d)]);
  const ValueId lines =
      a.reshape(a.transpose(x, perm), {elements_of(moved, 0, kept), elements_of(moved, kept, moved.size())});
  const auto others = [&](bool behind) {
    return a.op("cumulate", {lines},
                {{"axis", int64_t{1}}, {"kind", std::string("prod")}, {"exclusive", true}, {"reverse", behind}});
  };
  return a.transpose(a.reshape(a.mul(others(false), others(true)), moved), inverse_of(perm));
}

// Of minima and maxima, the elements that are equal to the result share the gradient evenly.
std::vector<ValueId> gradient(Adjoint& a) {
  const std::string& kind = a.attrs().get<std::string>("kind");
  const ValueId x = a.in(0);
  const Shape shape = a.type(x).shape;
  Shape kept = shape;
  for (const int64_t axis : a.attrs().get_ints("axes")) kept[static_cast<size_t>(axis)] = 1;
  const ValueId g = a.reshape(a.gradient(), kept);
  if (kind == "sum") return {a.broadcast(g, shape)};
  if (kind == "prod") return {a.mul(a.broadcast(g, shape), product_of_others(a, x, a.attrs().get_ints("axes")))};
  const ValueId taken = a.op("eq", {x, a.reshape(a.out(), kept)}), one = a.scalar(1, x), zero = a.scalar(0, x);
  const ValueId count = a.op("reduce", {a.op("select", {taken, one, zero})},
                             {{"axes", a.attrs().get_ints("axes")}, {"keepdims", true}, {"kind", std::string("sum")}});
  return {a.broadcast(a.op("select", {taken, a.div(g, count), zero}), shape)};
}

}  // namespace

const OpDef& reduce_op() {
  static const OpDef op{
      .name = "reduce",
      .doc =
          "The elements of x combined over the dimensions in `axes`; over no elements, the combiner's identity (0, 1, "
          "the largest or the smallest value).",
      .min_inputs = 1,
      .max_inputs = 1,
      .attrs = {{"kind", AttrKind::kString, true, "sum, prod, min or max"},
                {"axes", AttrKind::kInts, true, "the dimensions to reduce"},
                {"keepdims", AttrKind::kBool, true, "whether a reduced dimension stays with extent 1"}},
      .infer = infer,
      .body = body,
      .gradient = gradient,
      .example = R"(
graph @main(%x: f32[2,3]) -> (%y: f32[2,1]) {
  %y = reduce(%x) {axes = [1], keepdims = true, kind = "sum"} : f32[2,1]
}
run x = 1 2 3 4 5 6 -> y = 6 15
)",
  };
  return op;
}

}  // namespace tessera::inline ops
