#include "import/common/known_sizes.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>

#include "arith/simplify.h"
#include "graph/op_def.h"

namespace tessera::inline import_common {
namespace {

using Elements = std::vector<KnownElement>;

constexpr size_t kMaxChain = 20000;  // nodes between a value and what it is computed from

constexpr std::string_view kUnary[] = {"neg", "abs", "floor", "ceil", "round", "logical_not"};
constexpr std::string_view kBinary[] = {"add", "sub", "mul", "div", "rem", "min",         "max",        "eq",
                                        "ne",  "lt",  "le",  "gt",  "ge",  "logical_and", "logical_or", "logical_xor"};

template <typename List>
bool contains(const List& names, const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool small_static(const TensorType& type) {
  const auto dims = static_dims(type.shape);
  if (!dims) return false;
  int64_t count = 1;
  for (const int64_t extent : *dims) {
    if (extent > KnownSizes::kMaxElements) return false;
    count *= extent;
    if (count > KnownSizes::kMaxElements) return false;
  }
  return true;
}

KnownElement integer(const Expr& value) { return {normalize_size(value)}; }
KnownElement truth(bool value) { return {Expr(value ? 1 : 0)}; }

bool within(const Expr& e, int64_t lo, int64_t hi) {
  const Interval range = size_range(e);
  return range.lo && range.hi && *range.lo >= lo && *range.hi <= hi;
}
bool at_least(const Expr& e, int64_t lo) {
  const Interval range = size_range(e);
  return range.lo && *range.lo >= lo;
}

// The largest integer below which every one is a value of the type; 0 for types that are not followed.
int64_t exact_range(DType dtype) {
  switch (dtype) {
    case DType::kF32: return int64_t{1} << 24;
    case DType::kF64: return int64_t{1} << 53;
    default: return 0;
  }
}

// An integer of the type; unknown when it may not fit.
KnownElement fitted(KnownElement e, DType dtype) {
  if (!e.value || dtype == DType::kI64) return e;
  if (dtype == DType::kI32 && within(e.value, INT32_MIN, INT32_MAX)) return e;
  if (dtype == DType::kBool && as_int(e.value)) return truth(*as_int(e.value) != 0);
  if (is_int(dtype) && dtype_bits(dtype) < 64 && within(e.value, 0, (int64_t{1} << (dtype_bits(dtype) - 1)) - 1))
    return e;
  return {};
}

bool power_of_two(const Expr& e) {
  const auto value = as_int(e);
  return value && *value > 0 && (*value & (*value - 1)) == 0;
}

// A float that is exactly value / divisor; unknown when the type may not hold it.
KnownElement exact(Expr value, Expr divisor, DType dtype) {
  value = normalize_size(value);
  const int64_t most = exact_range(dtype);
  if (!power_of_two(divisor) || !within(value, -most, most)) return {};
  return {value, divisor};
}

KnownElement of_double(double value, DType dtype) {
  if (!std::isfinite(value) || exact_range(dtype) == 0) return {};
  int64_t divisor = 1;
  while (value != std::floor(value) && divisor < (int64_t{1} << 30)) value *= 2, divisor *= 2;
  if (value != std::floor(value) || std::abs(value) > 0x1p53) return {};
  return {Expr(static_cast<int64_t>(value)), Expr(divisor)};
}

KnownElement quotient(const KnownElement& a, const KnownElement& b, DType dtype) {
  if (a.rounded || b.rounded) return {};
  const Expr value = normalize_size(a.value * b.divisor), divisor = normalize_size(b.value * a.divisor);
  if (power_of_two(divisor)) return exact(value, divisor, dtype);
  // A quotient of such integers is not rounded across an integer: its distance from one is at least 1 / divisor.
  const int64_t most = exact_range(dtype) - 1;
  if (!within(value, 0, most) || !within(divisor, 1, most)) return {};
  return {value, divisor, true};
}

KnownElement float_binary(const std::string& op, const KnownElement& a, const KnownElement& b, DType dtype) {
  if (op == "div") return quotient(a, b, dtype);
  if (a.rounded || b.rounded) return {};
  if (op == "mul") return exact(a.value * b.value, normalize_size(a.divisor * b.divisor), dtype);
  const auto da = as_int(a.divisor), db = as_int(b.divisor);
  if (!da || !db) return {};
  const int64_t common = std::max(*da, *db);  // both are powers of two
  const Expr x = a.value * Expr(common / *da), y = b.value * Expr(common / *db);
  if (op == "add") return exact(x + y, common, dtype);
  if (op == "sub") return exact(x - y, common, dtype);
  if (op == "min") return exact(min(x, y), common, dtype);
  if (op == "max") return exact(max(x, y), common, dtype);
  return {};
}

KnownElement integer_binary(const std::string& op, const KnownElement& a, const KnownElement& b, DType dtype) {
  const Expr &x = a.value, &y = b.value;
  if (op == "add") return fitted(integer(x + y), dtype);
  if (op == "sub") return fitted(integer(x - y), dtype);
  if (op == "mul") return fitted(integer(x * y), dtype);
  if (op == "min") return integer(min(x, y));
  if (op == "max") return integer(max(x, y));
  if (op == "div" || op == "rem") {
    // They round towards zero, as floors do where nothing is negative.
    if (const auto p = as_int(x), q = as_int(y); p && q && *q != 0 && *q != -1)
      return {Expr(op == "div" ? *p / *q : *p % *q)};
    if (!at_least(y, 1)) return {};
    Expr quotient;
    if (at_least(x, 0)) quotient = floordiv(x, y);
    else if (at_least(-x, 0)) quotient = -floordiv(-x, y);
    else return {};
    // A remainder by its quotient: sizes that are padded to a multiple are seen to be one.
    return integer(op == "div" ? quotient : x - y * quotient);
  }
  return {};
}

KnownElement compared(const std::string& op, const KnownElement& a, const KnownElement& b) {
  if (a.rounded || b.rounded) return {};
  const Expr x = normalize_size(a.value * b.divisor), y = normalize_size(b.value * a.divisor);
  const auto less = [](const Expr& p, const Expr& q) { return size_at_most(p + Expr(1), q); };
  if (op == "eq" || op == "ne") {
    if (equal_sizes(x, y)) return truth(op == "eq");
    if (sizes_differ(x, y)) return truth(op == "ne");
    return {};
  }
  if (op == "lt" || op == "ge") {
    if (less(x, y)) return truth(op == "lt");
    if (size_at_most(y, x)) return truth(op == "ge");
    return {};
  }
  if (less(y, x)) return truth(op == "gt");
  if (size_at_most(x, y)) return truth(op == "le");
  return {};
}

KnownElement logical(const std::string& op, const KnownElement& a, const KnownElement& b) {
  // One operand may decide alone.
  const auto is = [](const KnownElement& e, int64_t value) { return e.value && is_const_int(e.value, value); };
  if (op == "logical_and") {
    if (is(a, 0) || is(b, 0)) return truth(false);
    if (is(a, 1) && is(b, 1)) return truth(true);
  } else if (op == "logical_or") {
    if (is(a, 1) || is(b, 1)) return truth(true);
    if (is(a, 0) && is(b, 0)) return truth(false);
  } else if (a.value && b.value && as_int(a.value) && as_int(b.value)) {
    return truth(*as_int(a.value) != *as_int(b.value));
  }
  return {};
}

KnownElement binary_element(const std::string& op, const KnownElement& a, const KnownElement& b, DType dtype) {
  if (op.starts_with("logical_")) return logical(op, a, b);
  if (!a.value || !b.value) return {};
  if (op == "eq" || op == "ne" || op == "lt" || op == "le" || op == "gt" || op == "ge") return compared(op, a, b);
  if (is_float(dtype)) return float_binary(op, a, b, dtype);
  return is_int(dtype) ? integer_binary(op, a, b, dtype) : KnownElement{};
}

KnownElement unary_element(const std::string& op, const KnownElement& a, DType dtype) {
  if (!a.value) return {};
  if (op == "logical_not") return as_int(a.value) ? truth(*as_int(a.value) == 0) : KnownElement{};
  if (op == "neg") {
    if (a.rounded) return {};
    return is_float(dtype) ? exact(-a.value, a.divisor, dtype) : fitted(integer(-a.value), dtype);
  }
  if (op == "abs" && at_least(a.value, 0)) return a;
  if (!is_float(dtype)) return {};
  if (op == "floor") return {normalize_size(floordiv(a.value, a.divisor))};
  if (op == "ceil") return {normalize_size(floordiv(a.value + a.divisor - Expr(1), a.divisor))};
  if (op == "round" && is_const_int(a.divisor, 1)) return a;
  return {};
}

KnownElement converted(const KnownElement& a, DType from, DType to) {
  if (!a.value || from == to) return a;
  if (is_float(from)) {
    if (is_float(to)) return a.rounded ? KnownElement{} : exact(a.value, a.divisor, to);
    // Towards zero.
    if (!is_int(to) || !at_least(a.value, 0)) return {};
    return fitted(integer(floordiv(a.value, a.divisor)), to);
  }
  if (is_float(to)) return exact(a.value, 1, to);
  if (to == DType::kBool) {
    if (equal_sizes(a.value, 0)) return truth(false);
    return sizes_differ(a.value, 0) ? truth(true) : KnownElement{};
  }
  return fitted(a, to);
}

// Row-major positions of a small shape.
class Positions {
 public:
  explicit Positions(std::vector<int64_t> dims) : dims_(std::move(dims)) {}
  int64_t count() const {
    int64_t count = 1;
    for (const int64_t extent : dims_) count *= extent;
    return count;
  }
  std::vector<int64_t> index(int64_t at) const {
    std::vector<int64_t> index(dims_.size());
    for (size_t d = dims_.size(); d-- > 0;) index[d] = at % dims_[d], at /= dims_[d];
    return index;
  }
  // Of the element that `index` of a larger shape reads by numpy's rule.
  size_t place(const std::vector<int64_t>& index) const {
    const size_t skip = index.size() - dims_.size();
    int64_t place = 0;
    for (size_t d = 0; d < dims_.size(); ++d) place = place * dims_[d] + (dims_[d] == 1 ? 0 : index[skip + d]);
    return static_cast<size_t>(place);
  }
  const std::vector<int64_t>& dims() const { return dims_; }

 private:
  std::vector<int64_t> dims_;
};

Elements of_tensor(const Tensor& tensor) {
  Elements elements;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    if (is_float(tensor.dtype())) elements.push_back(of_double(tensor.get_double(i), tensor.dtype()));
    else elements.push_back({Expr(tensor.get_int(i))});
  }
  return elements;
}

}  // namespace

// The elements of one result; unknown ones where the operator is not followed.
Elements KnownSizes::compute(const Graph& graph, const Node& node, size_t result,
                             const std::vector<const Elements*>& operands) {
  const TensorType& type = graph.type(node.outputs[result]);
  const Positions out(type.dims());
  const std::string& op = node.op->name;
  Elements elements(static_cast<size_t>(out.count()));
  if (node.op->kind == OpKind::kConstant) return of_tensor(*node.attrs.get<TensorPtr>("value"));
  if (node.op->kind == OpKind::kComposite) {
    Elements computed = std::move(compute_region(*node.regions.at(0), operands).at(result));
    return computed.size() == elements.size() ? computed : elements;
  }
  if (op == "sizes") {
    const Shape sizes = node.attrs.get_sizes("sizes");
    for (size_t i = 0; i < elements.size(); ++i) elements[i] = converted(integer(sizes[i]), DType::kI64, type.dtype);
    return elements;
  }
  if (op == "bind_size") return {integer(node.attrs.get_sizes("size")[0])};
  if (op == "iota") {
    const auto axis = static_cast<size_t>(node.attrs.get_int("axis"));
    if (!is_int(type.dtype)) return elements;
    for (size_t i = 0; i < elements.size(); ++i) elements[i] = {Expr(out.index(static_cast<int64_t>(i))[axis])};
    return elements;
  }
  // The others read small operands only.
  if (std::any_of(operands.begin(), operands.end(), [](const Elements* e) { return e == nullptr; })) return elements;
  if (operands.empty()) return elements;
  const auto operand_type = [&](size_t i) -> const TensorType& { return graph.type(node.inputs[i]); };
  std::vector<Positions> in;
  for (size_t i = 0; i < operands.size(); ++i) in.emplace_back(operand_type(i).dims());
  const auto each = [&](const std::function<KnownElement(const std::vector<int64_t>& index)>& element) {
    for (size_t i = 0; i < elements.size(); ++i) elements[i] = element(out.index(static_cast<int64_t>(i)));
  };
  const auto read = [&](size_t operand, const std::vector<int64_t>& index) -> const KnownElement& {
    return (*operands[operand])[in[operand].place(index)];
  };
  if (op == "reshape") return *operands[0];
  if (op == "broadcast") {
    each([&](const auto& index) { return read(0, index); });
  } else if (op == "transpose") {
    const auto& perm = node.attrs.get_ints("perm");
    each([&](const auto& index) {
      std::vector<int64_t> source(index.size());
      for (size_t d = 0; d < index.size(); ++d) source[static_cast<size_t>(perm[d])] = index[d];
      return read(0, source);
    });
  } else if (op == "slice") {
    const auto starts = static_dims(node.attrs.get_sizes("starts"));
    if (!starts) return elements;
    const auto& steps = node.attrs.get_ints("steps");
    each([&](auto index) {
      for (size_t d = 0; d < index.size(); ++d) index[d] = (*starts)[d] + index[d] * steps[d];
      return read(0, index);
    });
  } else if (op == "concat") {
    const auto axis = static_cast<size_t>(node.attrs.get_int("axis"));
    each([&](auto index) {
      size_t part = 0;
      while (index[axis] >= in[part].dims()[axis]) index[axis] -= in[part++].dims()[axis];
      return read(part, index);
    });
  } else if (op == "gather") {
    const auto axis = static_cast<size_t>(node.attrs.get_int("axis"));
    const auto count = static_cast<ptrdiff_t>(in[1].dims().size());
    const int64_t extent = in[0].dims()[axis];
    each([&](const auto& index) -> KnownElement {
      const auto at = index.begin() + static_cast<ptrdiff_t>(axis);
      const KnownElement& chosen = read(1, std::vector<int64_t>(at, at + count));
      const auto place = chosen.value ? as_int(chosen.value) : std::nullopt;
      if (!place || extent == 0) return {};
      std::vector<int64_t> source(index.begin(), at);
      source.push_back(std::clamp<int64_t>(*place < 0 ? *place + extent : *place, 0, extent - 1));
      source.insert(source.end(), at + count, index.end());
      return read(0, source);
    });
  } else if (op == "select") {
    each([&](const auto& index) -> KnownElement {
      const KnownElement &condition = read(0, index), &yes = read(1, index), &no = read(2, index);
      if (condition.value && as_int(condition.value)) return *as_int(condition.value) != 0 ? yes : no;
      const bool same = yes.value && no.value && !yes.rounded && !no.rounded && equal_sizes(yes.value, no.value) &&
                        equal_sizes(yes.divisor, no.divisor);
      return same ? yes : KnownElement{};
    });
  } else if (op == "cast") {
    each([&](const auto& index) { return converted(read(0, index), operand_type(0).dtype, type.dtype); });
  } else if (op == "reduce") {
    const std::string kind = node.attrs.get<std::string>("kind");
    const std::string combine = kind == "sum" ? "add" : kind == "prod" ? "mul" : kind;
    const bool keepdims = node.attrs.get<bool>("keepdims");
    std::vector<bool> reduced(in[0].dims().size(), false), seen(elements.size(), false);
    for (const int64_t axis : node.attrs.get_ints("axes")) reduced[static_cast<size_t>(axis)] = true;
    for (int64_t i = 0; i < in[0].count(); ++i) {
      const std::vector<int64_t> source = in[0].index(i);
      std::vector<int64_t> index;
      for (size_t d = 0; d < source.size(); ++d)
        if (!reduced[d] || keepdims) index.push_back(reduced[d] ? 0 : source[d]);
      const size_t at = out.place(index);
      const KnownElement& element = (*operands[0])[static_cast<size_t>(i)];
      elements[at] = seen[at] ? binary_element(combine, elements[at], element, type.dtype) : element;
      seen[at] = true;
    }
    for (size_t i = 0; i < elements.size(); ++i)
      if (!seen[i]) elements[i] = kind == "sum" ? KnownElement{0} : kind == "prod" ? KnownElement{1} : KnownElement{};
  } else if (contains(kBinary, op)) {
    const DType dtype = operand_type(0).dtype;
    each([&](const auto& index) { return binary_element(op, read(0, index), read(1, index), dtype); });
  } else if (contains(kUnary, op)) {
    each([&](const auto& index) { return unary_element(op, read(0, index), operand_type(0).dtype); });
  }
  return elements;
}

std::vector<Elements> KnownSizes::compute_region(const Graph& region, const std::vector<const Elements*>& operands) {
  std::unordered_map<ValueId, Elements> values;
  for (size_t i = 0; i < region.inputs.size(); ++i)
    if (operands[i]) values[region.inputs[i]] = *operands[i];
  for (const Node& node : region.nodes()) {
    std::vector<const Elements*> inputs;
    for (const ValueId input : node.inputs) {
      const auto it = values.find(input);
      inputs.push_back(it == values.end() ? nullptr : &it->second);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (small_static(region.type(node.outputs[i]))) values[node.outputs[i]] = compute(region, node, i, inputs);
  }
  std::vector<Elements> results;
  for (const ValueId output : region.outputs) results.push_back(values[output]);
  return results;
}

std::optional<Elements> KnownSizes::find(ValueId value) {
  if (!small_static(graph_.type(value))) return std::nullopt;
  // In the order of the nodes, so that operands come first.
  std::vector<ValueId> pending{value}, needed;
  std::unordered_map<ValueId, bool> seen;
  while (!pending.empty() && needed.size() < kMaxChain) {
    const ValueId id = pending.back();
    pending.pop_back();
    if (seen[id] || known_.count(id)) continue;
    seen[id] = true;
    needed.push_back(id);
    if (const Node* node = graph_.producer(id))
      for (const ValueId input : node->inputs)
        if (small_static(graph_.type(input))) pending.push_back(input);
  }
  if (!pending.empty()) return std::nullopt;
  std::sort(needed.begin(), needed.end());
  for (const ValueId id : needed) {
    const Node* node = graph_.producer(id);
    Elements& elements = known_[id];
    if (!node) {
      elements.resize(static_cast<size_t>(graph_.type(id).num_elements()));
      continue;
    }
    std::vector<const Elements*> operands;
    for (const ValueId input : node->inputs) {
      const auto it = known_.find(input);
      operands.push_back(it == known_.end() ? nullptr : &it->second);
    }
    const auto result = std::find(node->outputs.begin(), node->outputs.end(), id) - node->outputs.begin();
    Elements computed = compute(graph_, *node, static_cast<size_t>(result), operands);
    known_[id] = std::move(computed);
  }
  return known_.at(value);
}

}  // namespace tessera::inline import_common
