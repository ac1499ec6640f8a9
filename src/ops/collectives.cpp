// all_reduce, all_gather, reduce_scatter, all_to_all, rank_shift, send, receive: what the ranks of a mesh do together
// (types/collective.h).
//
// A node of theirs means, of one rank, what this rank gets where all have the same operand. That is what these
// functions compute: right for constants, which all ranks have alike, and for a group of one. Ranks whose operands
// differ are the business of whoever runs several of them (interp/ranks.h, runtime/comm). Of a message, one rank alone
// says nothing: what is received are zeros then.
//
// Messages have an operand `after`, of no elements, that orders them: a send gives one, so that it counts as needed
// where a graph's output, at the end of such a chain, is.
#include <algorithm>
#include <utility>

#include "graph/adjoint.h"
#include "ops/loop_util.h"
#include "ops/op_util.h"
#include "ops/primitives.h"
#include "te/body.h"
#include "types/collective.h"

namespace tessera::inline ops {
namespace {

constexpr int64_t kMostMessages = (1 << 15) - 1;  // what every MPI takes as a tag

struct Group {
  int64_t ranks = 1;
  CollectiveCombiner combiner = CollectiveCombiner::kNone;
};

Group group_of(const OpContext& ctx) {
  Group group;
  Mesh mesh;
  std::vector<std::string> axes;
  const std::string &text = ctx.attrs.get<std::string>("mesh"), &along = ctx.attrs.get<std::string>("axes");
  if (const std::string wrong = parse_mesh(text, mesh); !wrong.empty())
    ctx.fail("TSR-2037", "mesh = \"" + text + "\": " + wrong, "axes with extents, such as \"data=2,model=4\"");
  if (const std::string wrong = parse_mesh_axes(along, mesh, axes); !wrong.empty())
    ctx.fail("TSR-2037", "axes = \"" + along + "\": " + wrong, "axes of the mesh, such as \"data\"");
  group.ranks = mesh.group_size(axes);
  if (const std::string kind = ctx.attrs.get_or<std::string>("kind", ""); !kind.empty()) {
    require_word(ctx, "kind", kind, {"sum", "prod", "min", "max"});
    group.combiner = *find_collective_combiner(kind);
  }
  if (const int64_t turn = ctx.attrs.get_or<int64_t>("turn", 0); turn < 0)
    ctx.fail("TSR-2037", "turn = " + std::to_string(turn), "0 or more");
  return group;
}

int64_t rows_of(const OpContext& ctx) { return extent_of(ctx, ctx.inputs[0].shape, 0, 1); }

// Dimension 0 times `ranks`, or divided by it.
TensorType with_rows(const OpContext& ctx, int64_t ranks, bool divides) {
  TensorType type{ctx.inputs[0].dtype, ctx.inputs[0].shape, {}};
  require_rank(ctx, 0, 1, 1 << 30);
  const int64_t rows = rows_of(ctx);
  if (divides && rows % ranks != 0)
    ctx.fail("TSR-2024", describe_operand(ctx, 0) + " for " + plural(static_cast<size_t>(ranks), "rank", "ranks"),
             "a dimension 0 that the ranks divide evenly");
  type.shape[0] = divides ? rows / ranks : rows * ranks;
  return type;
}

std::vector<TensorType> infer_all_reduce(const OpContext& ctx) {
  group_of(ctx);
  require_dtype(ctx, 0, is_arithmetic, kArithmeticTypes);
  return {TensorType{ctx.inputs[0].dtype, ctx.inputs[0].shape, {}}};
}
std::vector<TensorType> infer_all_gather(const OpContext& ctx) {
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  return {with_rows(ctx, group_of(ctx).ranks, false)};
}
std::vector<TensorType> infer_reduce_scatter(const OpContext& ctx) {
  require_dtype(ctx, 0, is_arithmetic, kArithmeticTypes);
  return {with_rows(ctx, group_of(ctx).ranks, true)};
}
std::vector<TensorType> infer_all_to_all(const OpContext& ctx) {
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  with_rows(ctx, group_of(ctx).ranks, true);
  return {TensorType{ctx.inputs[0].dtype, ctx.inputs[0].shape, {}}};
}

// Where element `i` of the result comes from: of rank 0, whose parts are the first ones.
enum class Source { kSame, kRepeated, kFirstPart, kFirstPartRepeated };

Tensor moved(const OpContext& ctx, const std::vector<const Tensor*>& inputs, const TensorType& type, Source source) {
  const Group group = group_of(ctx);
  const Tensor& x = *inputs[0];
  Tensor y(type.dtype, *static_dims(type.shape));
  const int64_t n = y.num_elements();
  if (n == 0) return y;
  const int64_t part = source == Source::kFirstPartRepeated ? n / group.ranks : x.num_elements();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t from = source == Source::kSame || source == Source::kFirstPart ? i : i % part;
    const bool sums = group.combiner == CollectiveCombiner::kSum,
               multiplies = group.combiner == CollectiveCombiner::kProd;
    const int64_t more = sums || multiplies ? group.ranks - 1 : 0;
    // One after the other, each result rounded; integers wrap.
    if (is_float(type.dtype)) {
      const double one = x.get_double(from);
      y.set_double(i, one);
      for (int64_t r = 0; r < more; ++r) y.set_double(i, sums ? y.get_double(i) + one : y.get_double(i) * one);
    } else {
      const auto one = static_cast<uint64_t>(x.get_int(from));
      uint64_t value = one;
      for (int64_t r = 0; r < more; ++r) value = sums ? value + one : value * one;
      y.set_int(i, static_cast<int64_t>(value));
    }
  }
  return y;
}

LoopProgram moving_loops(const OpContext& ctx, const TensorType& type, Source source) {
  const Group group = group_of(ctx);
  const int64_t n = extent_of(ctx, type.shape, 0, type.shape.size());
  LoopProgram program = start_loops(ctx, type.dtype, n);
  const BufferPtr &x = program.params[0], &out = program.params[1];
  if (n == 0) {
    program.body = seq({});
    return program;
  }
  const bool repeats = source == Source::kRepeated || source == Source::kFirstPartRepeated;
  const int64_t times = repeats ? group.ranks : 1, part = n / times;
  const auto element = [&](const Expr& r, const Var& i) {
    const Expr one = load(x, {i});
    Expr value = one;
    if (group.combiner == CollectiveCombiner::kSum || group.combiner == CollectiveCombiner::kProd)
      for (int64_t k = 1; k < group.ranks; ++k)
        value = group.combiner == CollectiveCombiner::kSum ? value + one : value * one;
    return store(out, {r * Expr(part) + i}, value);
  };
  if (times == 1) {
    program.body = serial_loop("i", part, [&](const Var& i) { return element(Expr(0), i); });
  } else {
    program.body = serial_loop(
        "r", times, [&](const Var& r) { return serial_loop("i", part, [&](const Var& i) { return element(r, i); }); });
  }
  return program;
}

using Infer = std::vector<TensorType> (*)(const OpContext&);

template <Infer infer, Source source>
Tensor evaluate(const OpContext& ctx, const std::vector<const Tensor*>& inputs) {
  return moved(ctx, inputs, infer(ctx)[0], source);
}
template <Infer infer, Source source>
LoopProgram loops(const OpContext& ctx) {
  return moving_loops(ctx, infer(ctx)[0], source);
}

std::vector<AttrDef> attributes(bool combines) {
  std::vector<AttrDef> attrs = {{"mesh", AttrKind::kString, true, "all ranks, \"data=2,model=4\""},
                                {"axes", AttrKind::kString, true, "along which a group lies: \"data\""}};
  attrs.push_back({"turn", AttrKind::kInt, false,
                   "not 0: the collective stays in its place, and differs from those of other turns"});
  if (combines) attrs.push_back({"kind", AttrKind::kString, true, "sum, prod, min or max"});
  return attrs;
}

std::vector<AttrDef> message_attributes() {
  std::vector<AttrDef> attrs = attributes(false);
  attrs.push_back({"peer", AttrKind::kInt, true, "the other rank"});
  attrs.push_back({"message", AttrKind::kInt, true, "a number that no other message between the two has"});
  return attrs;
}
std::vector<AttrDef> receive_attributes() {
  std::vector<AttrDef> attrs = message_attributes();
  attrs.push_back({"shape", AttrKind::kSizes, true, "of what is received"});
  attrs.push_back({"dtype", AttrKind::kDType, true, "of its elements"});
  return attrs;
}

// Each rank takes the gradient of a loss of its own, and the sum of all losses is meant: what a rank gives to the
// others is in their losses.

// What each rank gives to the sum is in the losses of all. The largest, or smallest, has the gradient alone; ranks that
// have equal ones share evenly, as operands of `max` do.
std::vector<ValueId> all_reduce_gradient(Adjoint& a) {
  const auto kind = a.attrs().get<std::string>("kind");
  if (kind == "prod")
    a.fail("the product of all ranks, of which one may be zero", "kind = \"sum\", \"max\" or \"min\"");
  Attrs sum = a.attrs();
  sum.set("kind", std::string("sum"));
  const ValueId given = a.op("all_reduce", {a.gradient()}, sum);
  if (kind == "sum") return {given};
  const ValueId is_it = a.op("eq", {a.in(0), a.out()});
  const ValueId count = a.op("all_reduce", {a.cast(is_it, a.type(given).dtype)}, sum);
  return {a.select(is_it, a.div(given, count), a.scalar(0, given))};
}

// Every rank has read this rank's part.
std::vector<ValueId> all_gather_gradient(Adjoint& a) {
  Attrs sum = a.attrs();
  sum.set("kind", std::string("sum"));
  return {a.op("reduce_scatter", {a.gradient()}, sum)};
}

std::vector<ValueId> reduce_scatter_gradient(Adjoint& a) {
  if (a.attrs().get<std::string>("kind") != "sum")
    a.fail("parts that are no sums, of which each rank has one", "kind = \"sum\"; or all_reduce and a slice");
  Attrs attrs = a.attrs();
  attrs.erase("kind");
  return {a.op("all_gather", {a.gradient()}, attrs)};
}

// Part i of rank j is part j of rank i: done twice, nothing has moved.
std::vector<ValueId> all_to_all_gradient(Adjoint& a) { return {a.op("all_to_all", {a.gradient()}, a.attrs())}; }

// ---- rank_shift ----

int64_t shift_of(const OpContext& ctx) {
  const int64_t by = ctx.attrs.get_int("by");
  if (by == 0 || by > kMostRanks || by < -kMostRanks)
    ctx.fail("TSR-2037", "by = " + std::to_string(by), "a number of places, not 0");
  return by;
}

std::vector<TensorType> infer_rank_shift(const OpContext& ctx) {
  group_of(ctx);
  shift_of(ctx);
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  return {TensorType{ctx.inputs[0].dtype, ctx.inputs[0].shape, {}}};
}

// What the first rank gets: of those behind it, or nothing.
bool first_rank_gets(const OpContext& ctx) { return shift_of(ctx) < 0 && -shift_of(ctx) < group_of(ctx).ranks; }

Tensor evaluate_rank_shift(const OpContext& ctx, const std::vector<const Tensor*>& inputs) {
  const TensorType type = infer_rank_shift(ctx)[0];
  return first_rank_gets(ctx) ? *inputs[0] : Tensor(type.dtype, *static_dims(type.shape));
}
LoopProgram rank_shift_loops(const OpContext& ctx) {
  const TensorType type = infer_rank_shift(ctx)[0];
  if (first_rank_gets(ctx)) return moving_loops(ctx, type, Source::kSame);
  const int64_t n = extent_of(ctx, type.shape, 0, type.shape.size());
  LoopProgram program = start_loops(ctx, type.dtype, n);
  const BufferPtr& out = program.params[1];
  program.body =
      n == 0 ? seq({}) : serial_loop("i", n, [&](const Var& i) { return store(out, {i}, const_of(type.dtype, 0)); });
  return program;
}

std::vector<AttrDef> shift_attributes() {
  std::vector<AttrDef> attrs = attributes(false);
  attrs.push_back({"by", AttrKind::kInt, true, "how many places before it the rank stands whose operand a rank gets"});
  return attrs;
}

std::vector<ValueId> rank_shift_gradient(Adjoint& a) {
  Attrs back = a.attrs();
  back.set("by", -a.attrs().get<int64_t>("by"));
  return {a.op("rank_shift", {a.gradient()}, back)};
}

// ---- messages ----

void check_message(const OpContext& ctx, size_t after) {
  const Group group = group_of(ctx);
  if (const int64_t peer = ctx.attrs.get_int("peer"); peer < 0 || peer >= group.ranks)
    ctx.fail("TSR-2037", "peer = " + std::to_string(peer), "a rank of the mesh");
  if (const int64_t message = ctx.attrs.get_int("message"); message < 0 || message > kMostMessages)
    ctx.fail("TSR-2037", "message = " + std::to_string(message), "a number from 0 to " + std::to_string(kMostMessages));
  const Shape& order = ctx.inputs[after].shape;
  if (std::none_of(order.begin(), order.end(), [](const Expr& extent) { return as_int(extent) == 0; }))
    ctx.fail("TSR-2024", describe_operand(ctx, after), "an operand without elements, which orders messages");
}

TensorType order_type() { return {DType::kU8, make_shape({0}), {}}; }

std::vector<TensorType> infer_send(const OpContext& ctx) {
  check_message(ctx, 1);
  require_dtype(ctx, 0, is_movable, kMovableTypes);
  return {order_type()};
}
std::vector<TensorType> infer_receive(const OpContext& ctx) {
  check_message(ctx, 0);
  const Shape shape = require_sizes(ctx, "shape", ctx.attrs.get_sizes("shape").size(), 0, kMaxExtent);
  const DType dtype = ctx.attrs.get<DType>("dtype");
  if (!is_movable(dtype)) ctx.fail("TSR-2020", "dtype = " + std::string(dtype_name(dtype)), kMovableTypes);
  return {TensorType{dtype, shape, {}}};
}

Tensor evaluate_send(const OpContext&, const std::vector<const Tensor*>&) { return Tensor(DType::kU8, {0}); }
LoopProgram send_loops(const OpContext& ctx) {
  LoopProgram program = start_loops(ctx, DType::kU8, 0);
  program.body = seq({});
  return program;
}
Tensor evaluate_receive(const OpContext& ctx, const std::vector<const Tensor*>&) {
  const TensorType type = infer_receive(ctx)[0];
  return Tensor(type.dtype, *static_dims(type.shape));
}
LoopProgram receive_loops(const OpContext& ctx) {
  const TensorType type = infer_receive(ctx)[0];
  const int64_t n = extent_of(ctx, type.shape, 0, type.shape.size());
  LoopProgram program = start_loops(ctx, type.dtype, n);
  const BufferPtr& out = program.params[1];
  program.body =
      n == 0 ? seq({}) : serial_loop("i", n, [&](const Var& i) { return store(out, {i}, const_of(type.dtype, 0)); });
  return program;
}

}  // namespace

const OpDef& all_reduce_op() {
  static const OpDef op{
      .name = "all_reduce",
      .doc = "The sum, product, minimum or maximum of what all ranks of a group have.",
      .kind = OpKind::kProcedure,
      .attrs = attributes(true),
      .infer = infer_all_reduce,
      .evaluate = evaluate<infer_all_reduce, Source::kSame>,
      .loops = loops<infer_all_reduce, Source::kSame>,
      .gradient = all_reduce_gradient,
      .example = R"(
graph @main(%x: f32[3]) -> (%y: f32[3]) {
  %y = all_reduce(%x) {axes = "data", kind = "sum", mesh = "data=2"} : f32[3]
}
run x = 1 2 3 -> y = 2 4 6
)",
  };
  return op;
}

const OpDef& all_gather_op() {
  static const OpDef op{
      .name = "all_gather",
      .doc = "What all ranks of a group have, one behind the other along dimension 0.",
      .kind = OpKind::kProcedure,
      .attrs = attributes(false),
      .infer = infer_all_gather,
      .evaluate = evaluate<infer_all_gather, Source::kRepeated>,
      .loops = loops<infer_all_gather, Source::kRepeated>,
      .gradient = all_gather_gradient,
      .example = R"(
graph @main(%x: f32[1,2]) -> (%y: f32[3,2]) {
  %y = all_gather(%x) {axes = "data", mesh = "data=3"} : f32[3,2]
}
run x = 1 2 -> y = 1 2 1 2 1 2
)",
  };
  return op;
}

const OpDef& reduce_scatter_op() {
  static const OpDef op{
      .name = "reduce_scatter",
      .doc = "Each rank's part, along dimension 0, of the sum, product, minimum or maximum of what a group has.",
      .kind = OpKind::kProcedure,
      .attrs = attributes(true),
      .infer = infer_reduce_scatter,
      .evaluate = evaluate<infer_reduce_scatter, Source::kFirstPart>,
      .loops = loops<infer_reduce_scatter, Source::kFirstPart>,
      .gradient = reduce_scatter_gradient,
      .example = R"(
graph @main(%x: f32[4]) -> (%y: f32[2]) {
  %y = reduce_scatter(%x) {axes = "data", kind = "sum", mesh = "data=2"} : f32[2]
}
run x = 1 2 3 4 -> y = 2 4
)",
  };
  return op;
}

const OpDef& all_to_all_op() {
  static const OpDef op{
      .name = "all_to_all",
      .doc = "Each rank's part, along dimension 0, of what every rank of a group has, one behind the other.",
      .kind = OpKind::kProcedure,
      .attrs = attributes(false),
      .infer = infer_all_to_all,
      .evaluate = evaluate<infer_all_to_all, Source::kFirstPartRepeated>,
      .loops = loops<infer_all_to_all, Source::kFirstPartRepeated>,
      .gradient = all_to_all_gradient,
      .example = R"(
graph @main(%x: f32[4]) -> (%y: f32[4]) {
  %y = all_to_all(%x) {axes = "data", mesh = "data=2"} : f32[4]
}
run x = 1 2 3 4 -> y = 1 2 1 2
)",
  };
  return op;
}

const OpDef& rank_shift_op() {
  static const OpDef op{
      .name = "rank_shift",
      .doc = "What the rank of a group has that stands so many places before each; zeros where none does.",
      .kind = OpKind::kProcedure,
      .attrs = shift_attributes(),
      .infer = infer_rank_shift,
      .evaluate = evaluate_rank_shift,
      .loops = rank_shift_loops,
      .gradient = rank_shift_gradient,
      .example = R"(
graph @main(%x: f32[2]) -> (%y: f32[2]) {
  %y = rank_shift(%x) {axes = "rows", by = -1, mesh = "rows=4"} : f32[2]
}
run x = 1 2 -> y = 1 2
)",
  };
  return op;
}

const OpDef& send_op() {
  static const OpDef op{
      .name = "send",
      .doc = "Gives a tensor to another rank; messages stand in order behind what has no elements.",
      .kind = OpKind::kProcedure,
      .min_inputs = 2,
      .max_inputs = 2,
      .attrs = message_attributes(),
      .infer = infer_send,
      .evaluate = evaluate_send,
      .loops = send_loops,
      .gradient = no_gradient("it gives values to another rank"),
      .example = R"(
graph @main(%x: f32[2], %after: u8[0]) -> (%y: u8[0]) {
  %y = send(%x, %after) {axes = "stage", mesh = "stage=2", message = 3, peer = 1} : u8[0]
}
run x = 1 2 ; after = -> y =
)",
  };
  return op;
}

const OpDef& receive_op() {
  static const OpDef op{
      .name = "receive",
      .doc = "Gets a tensor of another rank; messages stand in order behind what has no elements.",
      .kind = OpKind::kProcedure,
      .attrs = receive_attributes(),
      .infer = infer_receive,
      .evaluate = evaluate_receive,
      .loops = receive_loops,
      .gradient = no_gradient("another rank has computed it"),
      .example = R"(
graph @main(%after: u8[0]) -> (%y: f32[2]) {
  %y = receive(%after) {axes = "stage", dtype = f32, mesh = "stage=2", message = 3, peer = 0, shape = [2]} : f32[2]
}
run after = -> y = 0 0
)",
  };
  return op;
}

}  // namespace tessera::inline ops
