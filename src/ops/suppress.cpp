// suppress: of overlapping boxes the one with the highest score.
#include <algorithm>
#include <array>
#include <numeric>

#include "graph/adjoint.h"
#include "ops/op_util.h"
#include "ops/primitives.h"
#include "ops/sort_loops.h"

namespace tessera::inline ops {
namespace {

constexpr int64_t kLanes = 16;  // chosen boxes that a candidate is compared with at a time

bool is_coordinate(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

std::vector<TensorType> infer(const OpContext& ctx) {
  const TensorType &boxes = ctx.inputs[0], &scores = ctx.inputs[1];
  for (const size_t operand : {0, 1, 3}) require_dtype(ctx, operand, is_coordinate, "f64, f32");
  require_dtype(ctx, 2, [](DType dtype) { return dtype == DType::kI64; }, "i64");
  require_rank(ctx, 0, 3, 3);
  require_rank(ctx, 1, 3, 3);
  for (size_t operand = 2; operand < ctx.inputs.size(); ++operand) require_rank(ctx, operand, 0, 0);
  if (boxes.dtype != ctx.inputs[3].dtype || (ctx.inputs.size() > 4 && ctx.inputs[4].dtype != scores.dtype))
    ctx.fail("TSR-2021", "thresholds of other types than what they bound", "equal element types");
  if (!equal_extents(boxes.shape[0], scores.shape[0]) || !equal_extents(boxes.shape[1], scores.shape[2]) ||
      !is_const_int(boxes.shape[2], 4))
    ctx.fail("TSR-2024", describe_operand(ctx, 1) + " for " + describe_operand(ctx, 0),
             "boxes [images, boxes, 4] and scores [images, classes, boxes]");
  require_sortable(ctx, 1, 2);
  require_int(ctx, "most", 0, kMaxExtent);
  return {TensorType{DType::kI64, {scores.shape[0], scores.shape[1], ctx.attrs.get_int("most")}, {}}};
}

template <typename T>
struct PlainBox {
  T low_y, low_x, high_y, high_x;

  PlainBox(std::array<T, 4> v, bool centres) {
    if (centres) {
      low_y = v[1] - v[3] * T(0.5), low_x = v[0] - v[2] * T(0.5);
      high_y = v[1] + v[3] * T(0.5), high_x = v[0] + v[2] * T(0.5);
    } else {
      low_y = std::min(v[0], v[2]), low_x = std::min(v[1], v[3]);
      high_y = std::max(v[0], v[2]), high_x = std::max(v[1], v[3]);
    }
  }
  T area() const { return (high_y - low_y) * (high_x - low_x); }
  bool overlaps(const PlainBox& o, T threshold) const {
    const T shared = std::max(std::min(high_y, o.high_y) - std::max(low_y, o.low_y), T(0)) *
                     std::max(std::min(high_x, o.high_x) - std::max(low_x, o.low_x), T(0));
    const T both = area() + o.area() - shared;
    return (both > 0 ? shared / both : T(0)) > threshold;
  }
};

template <typename T>
void choose(const Tensor& boxes, int64_t image, std::vector<int64_t> order, int64_t limit, T threshold, bool centres,
            Tensor& y, int64_t row) {
  std::vector<PlainBox<T>> chosen;
  for (const int64_t i : order) {
    if (std::ssize(chosen) >= limit) break;
    std::array<T, 4> v;
    for (int64_t k = 0; k < 4; ++k)
      v[static_cast<size_t>(k)] = static_cast<T>(boxes.get_double((image * boxes.dims()[1] + i) * 4 + k));
    const PlainBox<T> box(v, centres);
    if (std::any_of(chosen.begin(), chosen.end(), [&](const auto& c) { return box.overlaps(c, threshold); })) continue;
    y.set_int(row + std::ssize(chosen), i);
    chosen.push_back(box);
  }
}

Tensor evaluate(const OpContext& ctx, const std::vector<const Tensor*>& inputs) {
  const Tensor &boxes = *inputs[0], &scores = *inputs[1];
  const int64_t images = scores.dims()[0], classes = scores.dims()[1], n = scores.dims()[2];
  const int64_t most = ctx.attrs.get_int("most"), limit = std::min(most, inputs[2]->get_int(0));
  const double threshold = inputs[3]->get_double(0);
  const bool centres = ctx.attrs.get_or<bool>("centres", false);
  Tensor y(DType::kI64, {images, classes, most});
  for (int64_t i = 0; i < y.num_elements(); ++i) y.set_int(i, -1);
  for (int64_t group = 0; group < images * classes; ++group) {
    std::vector<int64_t> order;
    const auto score = [&](int64_t i) { return scores.get_double(group * n + i); };
    for (int64_t i = 0; i < n; ++i)
      if (inputs.size() > 4 ? score(i) > inputs[4]->get_double(0) : score(i) == score(i)) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return score(a) > score(b); });
    if (boxes.dtype() == DType::kF64)
      choose<double>(boxes, group / classes, order, limit, threshold, centres, y, group * most);
    else choose<float>(boxes, group / classes, order, limit, static_cast<float>(threshold), centres, y, group * most);
  }
  return y;
}

// Edges of a box, from whatever gives its four numbers.
struct Edges {
  std::array<Expr, 4> at;  // low_y, low_x, high_y, high_x
  Expr area() const { return (at[2] - at[0]) * (at[3] - at[1]); }
};

Edges edges_of(const std::array<Expr, 4>& v, bool centres) {
  if (!centres) return {{min(v[0], v[2]), min(v[1], v[3]), max(v[0], v[2]), max(v[1], v[3])}};
  const Expr half = constant(v[0].dtype(), 0.5);
  return {{v[1] - v[3] * half, v[0] - v[2] * half, v[1] + v[3] * half, v[0] + v[2] * half}};
}

LoopProgram loops(const OpContext& ctx) {
  const Shape& shape = ctx.inputs[1].shape;
  const int64_t images = extent_of(ctx, shape, 0, 1), classes = extent_of(ctx, shape, 1, 2),
                n = extent_of(ctx, shape, 2, 3);
  const int64_t most = std::min(ctx.attrs.get_int("most"), n), places = ctx.attrs.get_int("most");
  const bool centres = ctx.attrs.get_or<bool>("centres", false);
  LoopProgram program = start_loops(ctx, DType::kI64, images * classes * places);
  const BufferPtr &boxes = program.params[0], &scores = program.params[1], &limit = program.params[2],
                  &threshold = program.params[3], &out = program.params.back();
  const BufferPtr lowest = ctx.inputs.size() > 4 ? program.params[4] : nullptr;
  const DType dtype = boxes->dtype;
  const auto group = [&](const Var& row) {
    const Stmt nothing =
        vector_loop("p", places, [&](const Var& p) { return store(out, {row * Expr(places) + p}, Expr(-1)); });
    if (most == 0) return nothing;
    const RadixSort sort(sort_key_type(scores->dtype), n);
    const Cell kept("kept", DType::kI64), chosen("chosen", DType::kI64), hit("hit", DType::kI32),
        number("number", DType::kI64), area("area", dtype);
    // What is chosen, by edge, in whole vectors; behind the four edges the area.
    const BufferPtr edges = local_buffer("edges", dtype, {5, (most + kLanes - 1) / kLanes * kLanes});
    std::vector<Cell> candidate;
    for (const char* name : {"low_y", "low_x", "high_y", "high_x"}) candidate.emplace_back(name, dtype);
    const auto score = [&](const Expr& e) { return load(scores, {row * Expr(n) + e}); };
    const auto counts = [&](const Expr& e) {
      return lowest ? load(lowest, {0}) < score(e) : equal(score(e), score(e));
    };
    const Stmt read = [&] {
      std::array<Expr, 4> v;
      const Expr image = classes == 1 ? Expr(row) : floordiv(row, Expr(classes));
      for (int64_t k = 0; k < 4; ++k)
        v[static_cast<size_t>(k)] = load(boxes, {(image * Expr(n) + number.get()) * Expr(4) + Expr(k)});
      const Edges box = edges_of(v, centres);
      std::vector<Stmt> sets;
      for (size_t k = 0; k < 4; ++k) sets.push_back(candidate[k].set(box.at[k]));
      return seq(sets);
    }();
    const Edges box{{candidate[0].get(), candidate[1].get(), candidate[2].get(), candidate[3].get()}};
    const auto overlaps = [&](const Expr& p) {
      const auto edge = [&](int64_t k) { return load(edges, {k, p}); };
      const Expr zero = constant(dtype, 0);
      const Expr shared = max(min(box.at[2], edge(2)) - max(box.at[0], edge(0)), zero) *
                          max(min(box.at[3], edge(3)) - max(box.at[1], edge(1)), zero);
      const Expr both = area.get() + edge(4) - shared;
      const Expr ratio = select(zero < both, binary(BinaryOp::kDiv, shared, both), zero);
      return logical_and(p < chosen.get(), load(threshold, {0}) < ratio);
    };
    const Stmt compare = serial_loop("v", floordiv(chosen.get() + Expr(kLanes - 1), Expr(kLanes)), [&](const Var& v) {
      return if_then(equal(hit.get(), const_int(DType::kI32, 0)), vector_loop("l", kLanes, [&](const Var& l) {
                       return hit.set(max(hit.get(), cast(DType::kI32, overlaps(v * Expr(kLanes) + l))));
                     }));
    });
    std::vector<Stmt> take;
    for (size_t k = 0; k < 4; ++k)
      take.push_back(store(edges, {static_cast<int64_t>(k), chosen.get()}, candidate[k].get()));
    take.push_back(store(edges, {4, chosen.get()}, area.get()));
    take.push_back(store(out, {row * Expr(places) + chosen.get()}, number.get()));
    take.push_back(chosen.set(chosen.get() + Expr(1)));
    std::vector<BufferPtr> buffers = {kept.buffer, chosen.buffer, hit.buffer, number.buffer, area.buffer, edges};
    for (const Cell& cell : candidate) buffers.push_back(cell.buffer);
    return sort.around({with(buffers, {nothing, kept.set(Expr(0)), chosen.set(Expr(0)),
                                       serial_loop("e", n,
                                                   [&](const Var& e) {
                                                     return seq({sort.put(kept.get(), sort_key(score(e), true), e),
                                                                 kept.set(kept.get() + index_of(counts(e)))});
                                                   }),
                                       sort.sort(kept.get()), serial_loop("e", kept.get(), [&](const Var& e) {
                                         return if_then(
                                             chosen.get() < min(load(limit, {0}), Expr(most)),
                                             seq({number.set(sort.number(e)), read, area.set(box.area()),
                                                  hit.set(const_int(DType::kI32, 0)), compare,
                                                  if_then(equal(hit.get(), const_int(DType::kI32, 0)), seq(take))}));
                                       })})});
  };
  program.body = images * classes * places == 0 ? seq({}) : parallel_loop("row", images * classes, group);
  return program;
}

}  // namespace

const OpDef& suppress_op() {
  static const OpDef op{
      .name = "suppress",
      .doc =
          "Numbers of boxes [images, boxes, 4] for each class of scores [images, classes, boxes]: the one with the "
          "highest score, the next one whose overlap (intersection over union) with those before is not above a "
          "threshold, and so on, up to a limit; -1 behind them. With a fifth operand only boxes whose scores are above "
          "it; never those whose scores are NaN.",
      .kind = OpKind::kProcedure,
      .min_inputs = 4,
      .max_inputs = 5,
      .attrs = {{"most", AttrKind::kInt, true, "places for each class"},
                {"centres", AttrKind::kBool, false,
                 "boxes are x, y of the centre, width, height; else two corners as y, x, y, x (the default)"}},
      .infer = infer,
      .evaluate = evaluate,
      .loops = loops,
      .gradient = no_gradient("its results are integers"),
      .example = R"(
graph @main(%b: f32[1,3,4], %s: f32[1,1,3], %n: i64[], %t: f32[]) -> (%y: i64[1,1,3]) {
  %y = suppress(%b, %s, %n, %t) {most = 3} : i64[1,1,3]
}
run b = 0 0 1 1 0 0 1 0.9 0 2 1 3 ; s = 0.5 0.9 0.7 ; n = 9 ; t = 0.5 -> y = 1 2 -1
)",
  };
  return op;
}

}  // namespace tessera::inline ops
