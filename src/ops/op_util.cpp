#include "ops/op_util.h"

#include <fmt/format.h>

#include <algorithm>

#include "arith/simplify.h"

namespace tessera::inline ops {

bool is_real(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}
bool is_integral(DType dtype) { return is_int(dtype) && dtype_bits(dtype) >= 8; }
bool is_arithmetic(DType dtype) { return is_real(dtype) || is_integral(dtype); }
bool is_index(DType dtype) { return dtype == DType::kI32 || dtype == DType::kI64; }
bool is_movable(DType dtype) { return dtype != DType::kString; }

std::string describe_operand(const OpContext& ctx, size_t operand) {
  return fmt::format("operand {} of type {}{}", operand + 1, dtype_name(ctx.inputs[operand].dtype),
                     to_string(ctx.inputs[operand].shape));
}

void require_dtype(const OpContext& ctx, size_t operand, bool (*accepted)(DType), const char* legal) {
  if (!accepted(ctx.inputs[operand].dtype))
    ctx.fail("TSR-2020", describe_operand(ctx, operand), legal,
             ctx.inputs[operand].dtype == DType::kString ? "" : "insert a cast to one of these types");
}

void require_same_dtype(const OpContext& ctx, size_t first) {
  for (size_t i = first + 1; i < ctx.inputs.size(); ++i)
    if (ctx.inputs[i].dtype != ctx.inputs[first].dtype)
      ctx.fail("TSR-2021", fmt::format("{} and {}", describe_operand(ctx, first), describe_operand(ctx, i)),
               "operands of the same element type", "insert a cast");
}

void require_rank(const OpContext& ctx, size_t operand, int lo, int hi) {
  const int rank = ctx.inputs[operand].rank();
  if (rank >= lo && rank <= hi) return;
  ctx.fail("TSR-2022", describe_operand(ctx, operand),
           lo == hi                                ? fmt::format("rank {}", lo)
           : hi == std::numeric_limits<int>::max() ? fmt::format("rank {} or more", lo)
                                                   : fmt::format("rank {} to {}", lo, hi));
}

int64_t require_int(const OpContext& ctx, const std::string& attr, int64_t lo, int64_t hi) {
  const int64_t value = ctx.attrs.get_int(attr);
  if (value < lo || value > hi)
    ctx.fail("TSR-2025", fmt::format("{} = {}", attr, value),
             hi < lo    ? "nothing: the operand has rank 0"
             : hi == lo ? fmt::format("{}", lo)
                        : fmt::format("{} to {}", lo, hi));
  return value;
}

std::string plural(size_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string join(const Shape& sizes) {
  std::vector<std::string> texts;
  for (const Expr& size : sizes) texts.push_back(to_string(size));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::string join(const std::vector<int64_t>& values) { return fmt::format("[{}]", fmt::join(values, ", ")); }

const std::vector<int64_t>& require_ints(const OpContext& ctx, const std::string& attr, size_t count, int64_t lo,
                                         int64_t hi) {
  const auto& values = ctx.attrs.get_ints(attr);
  if (values.size() != count)
    ctx.fail("TSR-2027", fmt::format("{} = {} ({})", attr, join(values), plural(values.size(), "entry", "entries")),
             plural(count, "entry", "entries"));
  for (int64_t value : values)
    if (value < lo || value > hi)
      ctx.fail("TSR-2025", fmt::format("{} = {}", attr, join(values)), fmt::format("entries from {} to {}", lo, hi));
  return values;
}

Shape require_sizes(const OpContext& ctx, const std::string& attr, size_t count, int64_t lo, int64_t hi) {
  const auto it = ctx.attrs.all().find(attr);
  if (it == ctx.attrs.all().end() || !std::holds_alternative<Shape>(it->second))
    return make_shape(require_ints(ctx, attr, count, lo, hi));
  const Shape& sizes = std::get<Shape>(it->second);
  if (sizes.size() != count)
    ctx.fail("TSR-2027", fmt::format("{} = {} ({})", attr, join(sizes), plural(sizes.size(), "entry", "entries")),
             plural(count, "entry", "entries"));
  for (const Expr& size : sizes) {
    const Interval range = size_range(size);
    if ((range.hi && *range.hi < lo) || (range.lo && *range.lo > hi))
      ctx.fail("TSR-2025", fmt::format("{} = {}", attr, join(sizes)), fmt::format("entries from {} to {}", lo, hi));
  }
  return sizes;
}

const std::vector<int64_t>& require_axes(const OpContext& ctx, const std::string& attr, int rank) {
  const auto& axes = ctx.attrs.get_ints(attr);
  std::vector<bool> seen(static_cast<size_t>(rank), false);
  for (int64_t axis : axes) {
    if (axis < 0 || axis >= rank || seen[static_cast<size_t>(axis)])
      ctx.fail("TSR-2025", fmt::format("{} = {} of a tensor of rank {}", attr, join(axes), rank),
               rank == 0 ? "an empty list" : fmt::format("each of 0 to {} at most once", rank - 1));
    seen[static_cast<size_t>(axis)] = true;
  }
  return axes;
}

size_t require_word(const OpContext& ctx, const std::string& attr, const std::string& value,
                    const std::vector<std::string_view>& words) {
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i] == value) return i;
  ctx.fail("TSR-2031", fmt::format("{} = \"{}\"", attr, value), fmt::format("{}", fmt::join(words, ", ")));
}

void require_elements(const OpContext& ctx, size_t axis, const Shape& indices) {
  for (const Expr& dim : indices)
    if (is_const_int(dim, 0)) return;
  const auto least = value_at_least_sizes(ctx.inputs[0].shape[axis]);
  const auto any_index = [](const Expr& dim) { return value_at_least_sizes(dim).value_or(0) > 0; };
  const bool symbolic = !as_int(ctx.inputs[0].shape[axis]);
  if (least == 0 && (!symbolic || std::all_of(indices.begin(), indices.end(), any_index)))
    ctx.fail("TSR-2024", fmt::format("dimension {} of {}, which has no elements", axis, describe_operand(ctx, 0)),
             "a dimension with elements to choose from");
}

bool equal_extents(const Expr& a, const Expr& b) { return equal_sizes(a, b); }

Shape broadcast_shapes(const OpContext& ctx, const Shape& a, const Shape& b) {
  const size_t rank = std::max(a.size(), b.size());
  Shape result(rank);
  for (size_t i = 0; i < rank; ++i) {
    const Expr da = i < rank - a.size() ? Expr(1) : a[i - (rank - a.size())];
    const Expr db = i < rank - b.size() ? Expr(1) : b[i - (rank - b.size())];
    if (is_const_int(da, 1)) {
      result[i] = db;
    } else if (is_const_int(db, 1) || equal_extents(da, db)) {
      result[i] = da;
    } else {
      ctx.fail("TSR-2023", fmt::format("shapes {} and {}", to_string(a), to_string(b)),
               "extents that are equal or 1, aligned at the last dimension",
               fmt::format("dimension {} from the end has extents {} and {}", rank - i, to_string(da), to_string(db)));
    }
  }
  return result;
}

std::vector<Expr> broadcast_index(const Shape& operand, const Shape& out, const std::vector<Expr>& out_index) {
  const size_t skip = out.size() - operand.size();
  std::vector<Expr> index;
  for (size_t i = 0; i < operand.size(); ++i) {
    const bool stretched = is_const_int(operand[i], 1) && !is_const_int(out[skip + i], 1);
    index.push_back(stretched ? Expr(0) : out_index[skip + i]);
  }
  return index;
}

std::vector<BufferPtr> input_buffers(const OpContext& ctx) {
  std::vector<BufferPtr> buffers;
  for (size_t i = 0; i < ctx.inputs.size(); ++i)
    buffers.push_back(make_buffer(fmt::format("in{}", i), ctx.inputs[i].dtype, ctx.inputs[i].shape));
  return buffers;
}

Expr index_in_range(const Expr& raw, const Expr& extent) {
  const Expr i = cast(DType::kI64, raw);
  return max(min(select(i < 0, i + extent, i), extent - Expr(1)), 0);
}

Body start_body(const OpContext& ctx) {
  Body body;
  body.inputs = input_buffers(ctx);
  body.axes = make_axes("i", ctx.op.infer(ctx).front().shape);
  return body;
}

Body elementwise_body(const OpContext& ctx, const std::function<Expr(const std::vector<Expr>&)>& f) {
  Body body = start_body(ctx);
  Shape out;
  for (const Axis& axis : body.axes) out.push_back(axis.extent);
  std::vector<Expr> operands;
  for (const BufferPtr& buffer : body.inputs)
    operands.push_back(load(buffer, broadcast_index(buffer->shape, out, body.axis_vars())));
  body.value = f(operands);
  return body;
}

}  // namespace tessera::inline ops
