#include "import/common/emitter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "arith/data_symbols.h"
#include "arith/simplify.h"
#include "import/common/equal_sizes.h"
#include "import/common/limits.h"
#include "import/common/options.h"
#include "ops/composites/composites.h"
#include "support/error.h"
#include "support/operator_rule_error.h"
#include "support/symbolic_shape_error.h"

namespace tessera::inline import_common {
namespace {

// What is certain of a shape: its constant extents, and the smallest values of the others.
std::vector<int64_t> least_dims(const Shape& shape) {
  std::vector<int64_t> dims;
  for (const Expr& extent : shape) dims.push_back(as_int(extent).value_or(size_range(extent).lo.value_or(0)));
  return dims;
}

Shape normalized(const SizeList& list) {
  Shape sizes;
  for (const Expr& size : list.sizes()) sizes.push_back(as_int(size) ? size : normalize_size(size));
  return sizes;
}

}  // namespace

UnsupportedNode refused_form(Refusal refusal, const std::string& reason, const std::string& cause) {
  const auto known_by_a_run = [&] {
    switch (refusal) {
      case Refusal::kOperator: return "";
      case Refusal::kOpenDimensions: return "dimensions that only a run knows: ";
      case Refusal::kOpenLength: return "a length that only a run knows: ";
      case Refusal::kOpenElements: return "elements of a shape that only a run knows: ";
    }
    return "";
  };
  return {known_by_a_run() + reason, refusal, cause};
}

void Emitter::malformed(const std::string& found, const std::string& legal, const std::string& hint) const {
  Diagnostic diagnostic = malformed_diagnostic(found, legal, hint);
  if (!emit_.graph.symbols.empty()) throw SymbolicShapeError(std::move(diagnostic));
  throw OperatorRuleError(std::move(diagnostic));
}

void Emitter::needs_fixed_sizes(ValueId v) const {
  unsupported(fmt::format("{} needs the extents of %{}, {}, as numbers", op_type(), emit_.graph.value(v).name,
                          type(v).to_string()));
}

std::vector<int64_t> Emitter::dims(ValueId v) const {
  if (auto dims = static_dims(shape(v))) return *std::move(dims);
  needs_fixed_sizes(v);
}

int64_t Emitter::num_elements(ValueId v) const {
  int64_t count = 1;
  for (const int64_t extent : dims(v)) count *= extent;
  return count;
}

bool Emitter::has_one_element(ValueId v) const {
  const Shape& extents = type(v).shape;
  return std::all_of(extents.begin(), extents.end(), [](const Expr& extent) { return is_const_int(extent, 1); });
}

Expr Emitter::count(const Shape& shape) {
  Expr count = 1;
  for (const Expr& extent : shape) count = count * extent;
  return normalize_size(count);
}

int Emitter::axis(int64_t axis, int rank, const std::string& name) {
  if (axis < -rank || axis >= rank)
    malformed(fmt::format("{} is {} for a tensor of rank {}", name, axis, rank),
              rank == 0 ? "a tensor with dimensions" : fmt::format("{} to {}", -rank, rank - 1));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int64_t> Emitter::axes(std::vector<int64_t> axes, int rank) {
  std::vector<bool> seen(static_cast<size_t>(rank), false);
  for (int64_t& a : axes) {
    a = axis(a, rank, "an entry of axes");
    if (seen[static_cast<size_t>(a)]) malformed(fmt::format("axis {} is named twice", a), "each axis once");
    seen[static_cast<size_t>(a)] = true;
  }
  return axes;
}

std::optional<Shape> Emitter::known_sizes(ValueId v) {
  if (rank(v) > 1 || !is_static(v) || !is_int(dtype(v))) return std::nullopt;
  if (const auto tensor = constant(v)) {
    Shape sizes;
    for (int64_t i = 0; i < tensor->num_elements(); ++i) sizes.push_back(tensor->get_int(i));
    return sizes;
  }
  return emit_.constants.find_sizes(v);
}

ValueId Emitter::size_values(const Shape& sizes) {
  Shape values = normalized(sizes);
  if (auto known = static_dims(values)) return ints(*std::move(known));
  return op("sizes", {}, {{"sizes", std::move(values)}, {"dtype", DType::kI64}});
}

void Emitter::check_shape(const Shape& shape) const {
  if (!checked_num_elements(least_dims(shape)))
    malformed(fmt::format("a result would have the shape {}", to_string(shape)), "at most 2^40 elements");
}

void Emitter::check_size(ValueId v) const {
  const Shape& shape = type(v).shape;
  if (shape.size() > kMostDims)
    throw UserError({"TSR-1023", fmt::format("a result of {} has {} dimensions", op_type(), shape.size()), label(),
                     fmt::format("at most {} dimensions", kMostDims), ""});
  if (!checked_num_elements(least_dims(shape)))
    throw UserError({"TSR-1023", fmt::format("a result of {} has the shape {}", op_type(), to_string(shape)), label(),
                     "at most 2^40 elements",
                     "give the model smaller inputs, with --dim or --shape where they are open"});
}

namespace {

constexpr std::string_view kBroadcasting[] = {
    "add",         "sub",        "mul",         "div",        "rem",         "pow",         "min",        "max",
    "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right", "logical_and", "logical_or", "logical_xor",
    "eq",          "ne",         "lt",          "le",         "gt",          "ge",          "select",
};

// The symbol that is an expression of others where a and b are equal.
std::optional<EqualSizes> solve(const Expr& a, const Expr& b, const std::vector<SymbolRange>& symbols) {
  const Expr difference = normalize_size(a - b);
  if (uses_data_symbols(difference, symbols)) return std::nullopt;  // inputs cannot say what a run will find
  for (auto symbol = symbols.rbegin(); symbol != symbols.rend(); ++symbol) {
    const auto factor = linear_coefficient(difference, symbol->var);
    if (!factor || (*factor != 1 && *factor != -1)) continue;
    const Expr size = normalize_size(*factor == 1 ? Expr(symbol->var) - difference : Expr(symbol->var) + difference);
    // A dimension that must be one number is no symbol.
    const Interval range = size_range(size);
    if (!as_int(size) && range.lo && *range.lo >= std::min<int64_t>(symbol->lo, 1))
      return EqualSizes{symbol->var->name, size};
  }
  return std::nullopt;
}

}  // namespace

void make_equal(const Expr& a, const Expr& b, const std::vector<SymbolRange>& symbols) {
  if (const auto equal = solve(a, b, symbols)) throw EqualSizes(*equal);
}

// Throws EqualSizes for the first two extents that the operator wants to be equal and that can be made so.
void Emitter::find_equal_sizes(std::string_view name, const std::vector<ValueId>& inputs, const Attrs& attrs) const {
  const bool broadcasts =
      std::find(std::begin(kBroadcasting), std::end(kBroadcasting), name) != std::end(kBroadcasting);
  if (emit_.graph.symbols.empty() || (!broadcasts && name != "concat" && name != "matmul")) return;
  const auto require = [&](const Expr& a, const Expr& b, bool one_fits) {
    if (one_fits && (is_const_int(a, 1) || is_const_int(b, 1))) return;
    if (as_int(a) && as_int(b)) return;
    if (equal_sizes(a, b)) return;
    make_equal(a, b, emit_.graph.symbols);
  };
  for (size_t i = 1; i < inputs.size(); ++i) {
    const Shape a = shape(inputs[0]), b = shape(inputs[i]);
    if (name == "concat") {
      for (size_t d = 0; d < std::min(a.size(), b.size()); ++d)
        if (static_cast<int64_t>(d) != attrs.get_int("axis")) require(a[d], b[d], false);
      continue;
    }
    const size_t matrix = name == "matmul" && a.size() > 1 && b.size() > 1 ? 2 : 0;
    if (matrix) require(a[a.size() - 1], b[b.size() - 2], false);
    for (size_t d = matrix + 1; d <= std::min(a.size(), b.size()); ++d) require(a[a.size() - d], b[b.size() - d], true);
  }
}

ValueId Emitter::op(std::string_view name, std::vector<ValueId> inputs, Attrs attrs) {
  try {
    const ValueId result = emit_.builder.add(emit_.ops.get(name), inputs, attrs);
    check_size(result);
    return result;
  } catch (const SymbolicShapeError&) {
    find_equal_sizes(name, inputs, attrs);
    throw;
  }
}

std::vector<ValueId> Emitter::composite_results(std::string_view name, std::vector<ValueId> inputs, Attrs attrs) {
  std::vector<ValueId> results = add_composite(emit_.builder, emit_.ops, name, std::move(inputs), std::move(attrs));
  for (const ValueId result : results) check_size(result);
  return results;
}

std::vector<ValueId> Emitter::with_regions(std::string_view name, std::vector<ValueId> inputs, Attrs attrs,
                                           std::vector<GraphPtr> regions) {
  const std::vector<ValueId> results =
      emit_.builder.add_multi(emit_.ops.get(name), std::move(inputs), std::move(attrs), std::move(regions));
  for (const ValueId result : results) check_size(result);
  return results;
}

ValueId Emitter::constant_value(Tensor tensor) {
  return op("constant", {}, {{"value", std::make_shared<const Tensor>(std::move(tensor))}});
}

ValueId Emitter::scalar(DType dtype, double value) {
  Tensor tensor(dtype, {});
  tensor.set_double(0, value);
  if (dtype == DType::kI64) return integer(tensor.get_int(0));
  const auto key = std::make_pair(dtype, std::bit_cast<uint64_t>(value));
  if (const auto it = emit_.scalars.find(key); it != emit_.scalars.end()) return it->second;
  return emit_.scalars[key] = constant_value(std::move(tensor));
}

ValueId Emitter::integer(int64_t value) {
  const auto key = std::make_pair(DType::kI64, static_cast<uint64_t>(value));
  if (const auto it = emit_.scalars.find(key); it != emit_.scalars.end()) return it->second;
  Tensor tensor(DType::kI64, {});
  tensor.set_int(0, value);
  return emit_.scalars[key] = constant_value(std::move(tensor));
}

ValueId Emitter::integer(const Expr& value) {
  const Expr size = normalize_size(value);
  if (const auto known = as_int(size)) return integer(*known);
  return reshape(size_values({size}), {});
}

ValueId Emitter::reshape(ValueId v, const SizeList& list) {
  Shape sizes = normalized(list);
  if (same_shape(shape(v), sizes)) return v;
  check_shape(sizes);
  const Node* producer = emit_.graph.producer(v);
  const auto dims = static_dims(sizes);
  if (dims && producer && producer->op->kind == OpKind::kConstant && checked_num_elements(*dims) == num_elements(v)) {
    const TensorPtr data = producer->attrs.get<TensorPtr>("value");
    return constant_value(Tensor(data->dtype(), *dims, data, data->bytes()));
  }
  return op("reshape", {v}, {{"shape", std::move(sizes)}});
}

ValueId Emitter::cast(ValueId v, DType to) { return dtype(v) == to ? v : op("cast", {v}, {{"to", to}}); }

ValueId Emitter::transpose(ValueId v, std::vector<int64_t> perm) {
  if (std::is_sorted(perm.begin(), perm.end())) return v;
  return op("transpose", {v}, {{"perm", std::move(perm)}});
}

ValueId Emitter::broadcast(ValueId v, const SizeList& list) {
  Shape sizes = normalized(list);
  if (same_shape(shape(v), sizes)) return v;
  check_shape(sizes);
  return op("broadcast", {v}, {{"shape", std::move(sizes)}});
}

ValueId Emitter::slice(ValueId v, const SizeList& start_list, const SizeList& size_list, std::vector<int64_t> steps) {
  Shape starts = normalized(start_list), sizes = normalized(size_list);
  const bool whole =
      std::all_of(starts.begin(), starts.end(), [](const Expr& start) { return is_const_int(start, 0); }) &&
      same_shape(sizes, shape(v)) && std::all_of(steps.begin(), steps.end(), [](int64_t s) { return s == 1; });
  if (whole) return v;
  return op("slice", {v}, {{"starts", std::move(starts)}, {"sizes", std::move(sizes)}, {"steps", std::move(steps)}});
}

ValueId Emitter::reduce(const std::string& kind, ValueId v, std::vector<int64_t> axes, bool keepdims) {
  std::sort(axes.begin(), axes.end());
  return op("reduce", {v}, {{"kind", kind}, {"axes", std::move(axes)}, {"keepdims", keepdims}});
}

ValueId Emitter::iota(const SizeList& list, int64_t axis, DType dtype) {
  Shape sizes = normalized(list);
  check_shape(sizes);
  return op("iota", {}, {{"shape", std::move(sizes)}, {"axis", axis}, {"dtype", dtype}});
}

ValueId Emitter::zeros(DType dtype, const SizeList& list) {
  constexpr int64_t kMostStored = int64_t{1} << 20;
  const Shape sizes = normalized(list);
  check_shape(sizes);
  if (auto dims = static_dims(sizes); dims && *checked_num_elements(*dims) <= kMostStored)
    return constant_value(Tensor(dtype, *std::move(dims)));
  return broadcast(scalar(dtype, 0), sizes);
}

ValueId Emitter::matrix_product(ValueId a, ValueId b) {
  const int rank_a = rank(a), rank_b = rank(b);
  if (rank_a == 0 || rank_b == 0)
    malformed(fmt::format("operands of type {} and {}", type(a).to_string(), type(b).to_string()),
              "vectors, matrices or batches of matrices");
  if (rank_a == 1) a = reshape(a, {1, shape(a)[0]});
  if (rank_b == 1) b = reshape(b, {shape(b)[0], 1});
  const ValueId y = op("matmul", {a, b});
  Shape sizes = shape(y);
  if (rank_b == 1) sizes.pop_back();
  if (rank_a == 1) sizes.erase(sizes.end() - (rank_b == 1 ? 1 : 2));
  return reshape(y, sizes);
}

ValueId Emitter::per_channel(ValueId vector, int rank) {
  if (this->rank(vector) != 1)
    malformed(fmt::format("a per-channel operand has the shape {}", to_string(shape(vector))), "one dimension");
  Shape sizes(static_cast<size_t>(std::max(rank, 2)), 1);
  sizes[1] = shape(vector)[0];
  return reshape(vector, sizes);
}

}  // namespace tessera::inline import_common
