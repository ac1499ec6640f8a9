// loop: a region again and again, counted, as long as a condition holds, or over the slices of operands. What its parts
// mean stands in graph/control_flow.h.
#include <fmt/format.h>

#include "graph/control_flow.h"
#include "ops/control_flow.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

void require_flags(const OpContext& ctx, const std::string& name, size_t count) {
  if (ctx.attrs.has(name)) require_ints(ctx, name, count, 0, 1);
}

void require_scalar(const OpContext& ctx, size_t operand, DType dtype, const char* what) {
  const TensorType& type = ctx.inputs[operand];
  if (type.dtype != dtype || !type.is_static() || type.num_elements() != 1)
    ctx.fail("TSR-2020", fmt::format("the {} is {}", what, type.to_string()), fmt::format("one {}", dtype_name(dtype)));
}

// Input `input` of the body against what an iteration gives it.
void require_input(const OpContext& ctx, const Graph& body, size_t input, const TensorType& given, const char* what) {
  const TensorType& type = body.type(body.inputs[input]);
  if (!same_types(type, given))
    ctx.fail("TSR-2005",
             fmt::format("input %{} of the region is {}", body.value(body.inputs[input]).name, type.to_string()),
             fmt::format("{}, {}", given.to_string(), what));
}

TensorType without_first(const OpContext& ctx, size_t operand) {
  require_rank(ctx, operand, 1, 1 << 30);
  TensorType type = ctx.inputs[operand];
  type.shape.erase(type.shape.begin());
  return type;
}

LoopParts checked_parts(const OpContext& ctx) {
  const Graph& body = *ctx.regions[0];
  for (const char* name : {"num_carried", "num_scanned"})
    if (ctx.attrs.has(name)) require_int(ctx, name, 0, 1 << 20);
  if (ctx.attrs.has("max_trip")) require_sizes(ctx, "max_trip", 1, 0, std::numeric_limits<int64_t>::max());
  const LoopParts parts = loop_parts(ctx.attrs, ctx.inputs.size(), body);
  if (ctx.inputs.size() < parts.first_invariant())
    ctx.fail("TSR-2001", fmt::format("{} operands", ctx.inputs.size()),
             fmt::format("{} or more, as the attributes say", parts.first_invariant()));
  if (body.inputs.size() != parts.first_invariant_input() + parts.invariants)
    ctx.fail(
        "TSR-2005", fmt::format("a region of {} inputs", body.inputs.size()),
        fmt::format("{}: the iteration's number, {} carried values, {} slices, {} invariants",
                    parts.first_invariant_input() + parts.invariants, parts.carried, parts.scanned, parts.invariants));
  if (body.outputs.size() < parts.first_stacked_result())
    ctx.fail("TSR-2005", fmt::format("a region of {} results", body.outputs.size()),
             fmt::format("{} or more: {}the {} carried values, and what is stacked", parts.first_stacked_result(),
                         parts.has_condition ? "the condition, " : "", parts.carried));
  if (parts.carried + parts.stacked == 0)
    ctx.fail("TSR-2005", "a loop without results", "a carried value or a stacked result");
  require_flags(ctx, "scan_reversed", parts.scanned);
  require_flags(ctx, "stack_reversed", parts.stacked);
  if (!parts.counted && !parts.has_condition && parts.scanned == 0 && !parts.max_trip)
    ctx.fail("TSR-2005", "a loop without an end", "max_trip, counted, has_condition or a scanned operand");
  return parts;
}

std::vector<TensorType> infer(const OpContext& ctx) {
  const Graph& body = *ctx.regions[0];
  const LoopParts parts = checked_parts(ctx);
  if (parts.counted) require_scalar(ctx, 0, DType::kI64, "count");
  if (parts.has_condition) require_scalar(ctx, parts.condition(), DType::kBool, "condition");
  require_input(ctx, body, 0, {DType::kI64, {}, {}}, "the number of the iteration");
  for (size_t i = 0; i < parts.carried; ++i)
    require_input(ctx, body, parts.kFirstCarriedInput + i, ctx.inputs[parts.first_carried() + i], "as it is carried");
  std::optional<Expr> trip;
  if (parts.max_trip) trip = *parts.max_trip;
  for (size_t i = 0; i < parts.scanned; ++i) {
    const size_t operand = parts.first_scanned() + i;
    require_input(ctx, body, parts.first_slice() + i, without_first(ctx, operand), "a slice of the scanned operand");
    const Expr& extent = ctx.inputs[operand].shape[0];
    if (trip && !equal_extents(*trip, extent))
      ctx.fail("TSR-2024",
               fmt::format("{} has the extent {} of dimension 0", describe_operand(ctx, operand), to_string(extent)),
               fmt::format("{}, as other scanned operands or max_trip say", to_string(*trip)));
    if (!trip) trip = extent;
  }
  for (size_t i = 0; i < parts.invariants; ++i)
    require_input(ctx, body, parts.first_invariant_input() + i, ctx.inputs[parts.first_invariant() + i],
                  "as the operand");

  const std::vector<TensorType> results = region_results(body);
  if (parts.has_condition &&
      (results[0].dtype != DType::kBool || !results[0].is_static() || results[0].num_elements() != 1))
    ctx.fail("TSR-2005", fmt::format("the region's condition is {}", results[0].to_string()), "one bool");
  std::vector<TensorType> types;
  for (size_t i = 0; i < parts.carried; ++i) {
    const TensorType &given = ctx.inputs[parts.first_carried() + i], &next = results[parts.first_carried_result() + i];
    if (!same_types(given, next))
      ctx.fail("TSR-2005",
               fmt::format("carried value {} is {} before an iteration and {} behind it", i, given.to_string(),
                           next.to_string()),
               "the same type");
    types.push_back(given);
  }
  if (parts.stacked > 0 && !trip)
    ctx.fail("TSR-2030", "stacked results of a loop that nothing bounds", "a bound",
             "give attribute max_trip, or operands that are scanned");
  if (parts.stacked > 0 && as_int(*trip).value_or(0) > kMaxExtent)
    ctx.fail("TSR-2025", fmt::format("stacked results of {} iterations", to_string(*trip)),
             fmt::format("at most {}", kMaxExtent));
  for (size_t i = 0; i < parts.stacked; ++i) {
    types.push_back(results[parts.first_stacked_result() + i]);
    types.back().shape.insert(types.back().shape.begin(), *trip);
  }
  return types;
}

}  // namespace

const OpDef& loop_op() {
  static const OpDef op{
      .name = "loop",
      .doc = "Evaluates its region for each iteration: counted, as long as a condition holds, or for each slice.",
      .kind = OpKind::kLoop,
      .min_inputs = 0,
      .max_inputs = -1,
      .attrs = {{"num_carried", AttrKind::kInt, false, "values that one iteration hands to the next; default 0"},
                {"num_scanned", AttrKind::kInt, false, "operands that are read slice by slice; default 0"},
                {"counted", AttrKind::kBool, false, "operand 0 is the number of iterations; default false"},
                {"has_condition", AttrKind::kBool, false, "it ends when a condition is false; default false"},
                {"max_trip", AttrKind::kSizes, false, "at most so many iterations: a list of one size"},
                {"scan_reversed", AttrKind::kInts, false, "1 for each scanned operand that is read backwards"},
                {"stack_reversed", AttrKind::kInts, false, "1 for each stacked result that is written backwards"}},
      .infer = infer,
      .body = {},
      .example = R"(
graph @main(%n: i64[], %c: bool[], %s: f32[], %x: f32[3], %k: f32[]) -> (%t: f32[], %y: f32[3]) {
  %t, %y = loop(%n, %c, %s, %x, %k) {counted = true, has_condition = true, num_carried = 1, num_scanned = 1} ({
    graph @body(%i: i64[], %a: f32[], %e: f32[], %m: f32[]) -> (%go: bool[], %b: f32[], %p: f32[]) {
      %p = mul(%e, %m) : f32[]
      %b = add(%a, %p) : f32[]
      %limit = constant {value = dense<f32[] 10>} : f32[]
      %go = lt(%b, %limit) : bool[]
    }
  }) : f32[], f32[3]
}
run n = 5 ; c = 1 ; s = 0 ; x = 1 2 3 ; k = 2 -> t = 12 ; y = 2 4 6
run n = 2 ; c = 1 ; s = 0 ; x = 1 2 3 ; k = 2 -> t = 6 ; y = 2 4 0
run n = 3 ; c = 1 ; s = 9 ; x = 1 2 3 ; k = 2 -> t = 11 ; y = 2 0 0
run n = 3 ; c = 0 ; s = 9 ; x = 1 2 3 ; k = 2 -> t = 9 ; y = 0 0 0
)",
  };
  return op;
}

}  // namespace tessera::inline ops
