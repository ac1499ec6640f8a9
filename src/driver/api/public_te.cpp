// include/tessera/te.h: expressions are text as they grow, with the axes left open until a nest of loops names them.
#include "tessera/te.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "driver/api/api_support.h"
#include "types/dtype.h"

namespace tessera::te {

struct AxisNode {
  std::string name;
  int64_t extent = 0;  // of a reduction's axis
};
using AxisPtr = std::shared_ptr<const AxisNode>;

// Text of the loop language, up to where an axis stands, and that axis.
struct Piece {
  std::string text;
  AxisPtr axis;  // null: none; only in the last piece
};

struct ExprNode {
  DType dtype = DType::kF32;
  std::vector<Piece> pieces;
  std::vector<Tensor> reads;   // each once, in the order of the text
  std::string reduction = {};  // "sum", "max", "min"; empty: none
  std::vector<AxisPtr> axes = {};
};

struct TensorNode {
  std::string name;
  Shape shape;
  DType dtype = DType::kF32;
  std::vector<AxisPtr> axes = {};  // of a compute: one for each dimension
  std::optional<Expr> value = {};  // of a compute
};

struct Access {
  static Expr expr(ExprNode node) { return Expr(std::make_shared<const ExprNode>(std::move(node))); }
  static Tensor tensor(TensorNode node) { return Tensor(std::make_shared<const TensorNode>(std::move(node))); }
  static Axis axis(const Expr& expr, AxisPtr axis) { return {expr, std::move(axis)}; }
  static const ExprNode& of(const Expr& expr) { return *expr.node_; }
  static const TensorNode& of(const Tensor& tensor) { return *tensor.node_; }
  static const AxisPtr& of(const Axis& axis) { return axis.axis_; }
  static const auto& of(const Operand& operand) { return operand.value_; }
  static bool same(const Tensor& a, const Tensor& b) { return a.node_ == b.node_; }
};

namespace {

[[noreturn]] void wrong(std::string message, std::string legal) {
  const UserError error(
      {.id = "TSR-4035", .message = std::move(message), .node = {}, .legal = std::move(legal), .hint = {}});
  throw CompileError(error.what(), details_of(error.diagnostic()));
}

DType checked(tessera_dtype dtype) {
  using enum DType;
  static constexpr DType kLegal[] = {kF64,    kF32,    kF16, kBF16, kF8E4M3FN, kF8E4M3FNUZ, kF8E5M2, kF8E5M2FNUZ,
                                     kF8E8M0, kF4E2M1, kI64, kI32,  kI16,      kI8,         kI4,     kI2,
                                     kU64,    kU32,    kU16, kU8,   kU4,       kU2,         kBool};
  std::string legal;
  for (const DType one : kLegal) {
    if (static_cast<int>(one) == static_cast<int>(dtype)) return one;
    legal += (legal.empty() ? "" : ", ") + std::string(dtype_name(one));
  }
  wrong(dtype == TESSERA_STRING ? "there are no loops over strings"
                                : fmt::format("there is no element type {}", static_cast<int>(dtype)),
        legal);
}

void check_name(const std::string& name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool legal = !name.empty() && letter(name[0]) &&
                     std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || digit(c); });
  if (!legal) wrong(fmt::format("'{}' cannot be a name", name), "letters, digits and '_'");
}

void check_declared(const std::string& name, const Shape& shape) {
  check_name(name);
  if (std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size < 1; }))
    wrong(fmt::format("the shape ({}) of {}", fmt::join(shape, ", "), name), "sizes of 1 and more");
}

// ---- expressions

using AxisNames = std::vector<std::pair<AxisPtr, std::string>>;

std::string text_of(const ExprNode& expr, const AxisNames& names = {}) {
  std::string text;
  for (const Piece& piece : expr.pieces) {
    text += piece.text;
    if (!piece.axis) continue;
    const auto found = std::find_if(names.begin(), names.end(), [&](const auto& n) { return n.first == piece.axis; });
    text += found != names.end() ? found->second : piece.axis->name;
  }
  return text;
}

void append(ExprNode& to, std::string_view text) {
  if (to.pieces.empty() || to.pieces.back().axis) to.pieces.emplace_back();
  to.pieces.back().text += text;
}

void append_read(ExprNode& to, const Tensor& tensor) {
  if (std::none_of(to.reads.begin(), to.reads.end(), [&](const Tensor& t) { return Access::same(t, tensor); }))
    to.reads.push_back(tensor);
}

// An operand of an operation, which no reduction may be.
void append(ExprNode& to, const Expr& operand) {
  const ExprNode& node = Access::of(operand);
  if (!node.reduction.empty()) wrong("a reduction is part of an expression", "a compute of its own for the reduction");
  for (const Piece& piece : node.pieces) {
    append(to, piece.text);
    to.pieces.back().axis = piece.axis;
  }
  for (const Tensor& tensor : node.reads) append_read(to, tensor);
}

Expr axis_expr(const AxisPtr& axis) {
  return Access::expr({.dtype = DType::kI64, .pieces = {{"", axis}}, .reads = {}});
}

// `name(a, b, ..)`.
Expr called(std::string_view name, DType dtype, const std::vector<Expr>& operands) {
  ExprNode node{.dtype = dtype, .pieces = {}, .reads = {}};
  append(node, name);
  for (size_t i = 0; i < operands.size(); ++i) {
    append(node, i == 0 ? "(" : ", ");
    append(node, operands[i]);
  }
  append(node, ")");
  return Access::expr(std::move(node));
}

// A float as Python writes it: the shortest text that reads back as the same number, and never like a whole number.
std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  std::string text = fmt::format("{}", number);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

// A number as an element of a type. Indices are written without theirs.
template <std::integral Number>
std::string number_text(Number number, DType dtype) {
  if (dtype == DType::kI64) return std::to_string(number);
  if (is_float(dtype)) return fmt::format("{}:{}", float_text(static_cast<double>(number)), dtype_name(dtype));
  // The language writes the upper half of u64 as negative numbers.
  if (dtype == DType::kU64) return fmt::format("{}:u64", static_cast<int64_t>(number));
  return fmt::format("{}:{}", number, dtype_name(dtype));
}

std::string number_text(double number, DType dtype) {
  if (is_float(dtype)) return fmt::format("{}:{}", float_text(number), dtype_name(dtype));
  if (!std::isfinite(number) || number != std::trunc(number))
    wrong(fmt::format("{} is no {}", float_text(number), dtype_name(dtype)), "a whole number, or te.cast");
  if (dtype == DType::kU64 && number >= 0x1p63 && number < 0x1p64)
    return number_text(static_cast<uint64_t>(number), dtype);
  return fmt::format("{:.0f}:{}", number == 0 ? 0.0 : number, dtype_name(dtype));
}

Expr as_expr(const Operand& operand, DType dtype) {
  const auto& value = Access::of(operand);
  if (const Expr* expr = std::get_if<Expr>(&value)) return *expr;
  const auto text = [&](const auto& number) -> std::string {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(number)>>) return number_text(number, dtype);
    else return {};
  };
  return Access::expr({.dtype = dtype, .pieces = {{std::visit(text, value), nullptr}}, .reads = {}});
}

struct Pair {
  Expr a, b;
  DType dtype;
};

// Two operands of one type.
Pair operands(std::string_view what, const Operand& a, const Operand& b) {
  const Expr* known = std::get_if<Expr>(&Access::of(a));
  if (!known) known = std::get_if<Expr>(&Access::of(b));
  if (!known) wrong(fmt::format("{} two numbers", what), "one of them an expression, which has a dtype");
  const DType dtype = Access::of(*known).dtype;
  Pair pair{as_expr(a, dtype), as_expr(b, dtype), dtype};
  const auto &first = Access::of(pair.a), &second = Access::of(pair.b);
  if (!first.reduction.empty() || !second.reduction.empty())
    wrong("a reduction is part of an expression", "a compute of its own for the reduction");
  if (first.dtype != second.dtype)
    wrong(fmt::format("{} is {} and {} is {}", text_of(first), dtype_name(first.dtype), text_of(second),
                      dtype_name(second.dtype)),
          "operands of one dtype; te.cast converts");
  return pair;
}

// `(a + b)`; `comparison`: a bool.
Expr infix(std::string_view symbol, const Operand& a, const Operand& b, bool comparison = false) {
  const Pair pair = operands(fmt::format("'{}' of", symbol), a, b);
  ExprNode node{.dtype = comparison ? DType::kBool : pair.dtype, .pieces = {}, .reads = {}};
  append(node, "(");
  append(node, pair.a);
  append(node, fmt::format(" {} ", symbol));
  append(node, pair.b);
  append(node, ")");
  return Access::expr(std::move(node));
}

Expr called_with_two(std::string_view name, const Operand& a, const Operand& b) {
  const Pair pair = operands(fmt::format("{} of", name), a, b);
  return called(name, pair.dtype, {pair.a, pair.b});
}

Expr unary(std::string_view name, const Expr& value) { return called(name, Access::of(value).dtype, {value}); }

Expr reduce(std::string_view kind, const Expr& value, const std::vector<Axis>& axes) {
  ExprNode node = Access::of(value);
  if (axes.empty() || !node.reduction.empty())
    wrong("a reduction without axes, or of a reduction", "te.reduce_axis(..), and a compute for each reduction");
  if (node.dtype == DType::kBool && kind != "sum")
    wrong(fmt::format("{}_reduce of bool", kind), "numbers; te.cast converts");
  node.reduction = kind;
  for (const Axis& axis : axes) node.axes.push_back(Access::of(axis));
  return Access::expr(std::move(node));
}

// ---- axes

// The names of `count` axes where nobody gave any: i, j, k, .., leaving out those of a reduction's axes.
Names default_names(size_t count, const std::vector<AxisPtr>& others) {
  Names names;
  for (size_t number = 0; names.size() < count; ++number) {
    const std::string_view letters = "ijklmnopqrstuvwxyzabcdefgh";
    std::string name = number < letters.size() ? std::string(1, letters[number]) : fmt::format("axis{}", number);
    if (std::none_of(others.begin(), others.end(), [&](const AxisPtr& axis) { return axis->name == name; }))
      names.push_back(std::move(name));
  }
  return names;
}

// The axes of `value` are known and have names of their own.
void check_axes(const std::string& name, const std::vector<AxisPtr>& own, const ExprNode& value) {
  std::vector<AxisPtr> axes = own;
  axes.insert(axes.end(), value.axes.begin(), value.axes.end());
  std::set<std::string> names;
  for (const AxisPtr& axis : axes)
    if (!names.insert(axis->name).second)
      wrong(fmt::format("two axes of {} have the name {}", name, axis->name), "names of their own");
  for (const Piece& piece : value.pieces)
    if (piece.axis && std::find(axes.begin(), axes.end(), piece.axis) == axes.end()) {
      Names legal;
      for (const AxisPtr& axis : axes) legal.push_back(axis->name);
      wrong(fmt::format("{} is computed with the axis {}, which is not one of its own", name, piece.axis->name),
            legal.empty() ? "an axis to reduce over: te.sum"
                          : fmt::format("{}; axes to reduce over: te.sum", fmt::join(legal, ", ")));
    }
}

// ---- loops

std::string declared(const Tensor& tensor) {
  const TensorNode& node = Access::of(tensor);
  return fmt::format("{}: {}[{}]", node.name, dtype_name(node.dtype), fmt::join(node.shape, ","));
}

// What a reduction starts from.
std::string first_value(std::string_view kind, DType dtype) {
  const std::string_view name = dtype_name(dtype);
  if (kind == "sum") return fmt::format("0:{}", name);
  if (is_float(dtype)) return fmt::format("{}:{}", kind == "max" ? "-inf" : "inf", name);
  const int bits = dtype_bits(dtype);
  const uint64_t all = ~uint64_t{0} >> (64 - bits);
  if (!is_signed_int(dtype)) return kind == "max" ? fmt::format("0:{}", name) : number_text(all, dtype);
  const int64_t high = static_cast<int64_t>(all >> 1);
  return fmt::format("{}:{}", kind == "max" ? -high - 1 : high, name);
}

// The nest of loops that computes a tensor. `taken`: names in use, which get more.
std::string nest(const Tensor& tensor, std::set<std::string>& taken) {
  const TensorNode& node = Access::of(tensor);
  const ExprNode& value = Access::of(*node.value);
  AxisNames names;
  const auto named = [&](const AxisPtr& axis) {
    std::string fresh = axis->name;
    for (int number = 1; !taken.insert(fresh).second; ++number) fresh = fmt::format("{}_{}", axis->name, number);
    names.emplace_back(axis, fresh);
  };
  for (const AxisPtr& axis : node.axes) named(axis);
  const size_t own = names.size();
  for (const AxisPtr& axis : value.axes) named(axis);

  std::string lines;
  size_t depth = 1;
  const auto line = [&](std::string_view code) { lines += fmt::format("{}{}\n", std::string(2 * depth, ' '), code); };
  const auto loop = [&](const std::string& name, int64_t extent) {
    line(fmt::format("for {} in 0..{} {{", name, extent));
    ++depth;
  };
  Names index;
  for (size_t i = 0; i < own; ++i) {
    index.push_back(names[i].second);
    loop(index.back(), node.shape[i]);
  }
  const std::string place = fmt::format("{}[{}]", node.name, fmt::join(index, ", ")), text = text_of(value, names);
  const std::string& kind = value.reduction;
  if (kind.empty()) {
    line(fmt::format("{} = {}", place, text));
  } else {
    line(fmt::format("{} = {}", place, first_value(kind, node.dtype)));
    for (size_t i = own; i < names.size(); ++i) loop(names[i].second, names[i].first->extent);
    line(kind == "sum" ? fmt::format("{0} = ({0} + {1})", place, text)
                       : fmt::format("{0} = {1}({0}, {2})", place, kind, text));
  }
  while (depth > 1) {
    --depth;
    line("}");
  }
  return lines;
}

bool is_output(const Tensor& tensor) { return Access::of(tensor).value.has_value(); }
bool contains(const std::vector<Tensor>& tensors, const Tensor& tensor) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const Tensor& t) { return Access::same(t, tensor); });
}

// `tensor` behind everything that it is computed from.
void visit(const Tensor& tensor, const std::vector<Tensor>& params, std::vector<Tensor>& order) {
  if (contains(order, tensor)) return;
  if (!is_output(tensor) && !contains(params, tensor))
    wrong(fmt::format("{} is read and not among the program's tensors", tensor.name()), "every placeholder");
  if (is_output(tensor))
    for (const Tensor& read : Access::of(*Access::of(tensor).value).reads) visit(read, params, order);
  order.push_back(tensor);
}

Names names_of(const std::vector<Tensor>& tensors) {
  Names names;
  for (const Tensor& tensor : tensors) names.push_back(tensor.name());
  return names;
}

void check_parameters(const std::vector<Tensor>& tensors) {
  if (tensors.empty() || !is_output(tensors.back()) ||
      !std::is_partitioned(tensors.begin(), tensors.end(), [](const Tensor& t) { return !is_output(t); }))
    wrong(fmt::format("a program of {}", fmt::join(names_of(tensors), ", ")), "its inputs, then what it computes");
  for (size_t i = 0; i < tensors.size(); ++i)
    if (std::any_of(tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(i),
                    [&](const Tensor& t) { return Access::same(t, tensors[i]); }))
      wrong(fmt::format("{} stands twice among the program's tensors", tensors[i].name()), "each tensor once");
}

}  // namespace

tessera_dtype Expr::dtype() const { return static_cast<tessera_dtype>(node_->dtype); }
std::string Expr::text() const { return text_of(*node_); }
const std::string& Axis::name() const { return axis_->name; }
int64_t Axis::extent() const { return axis_->extent; }
const std::string& Tensor::name() const { return node_->name; }
const Shape& Tensor::shape() const { return node_->shape; }
tessera_dtype Tensor::dtype() const { return static_cast<tessera_dtype>(node_->dtype); }

Expr Tensor::at(const Index& index) const {
  if (index.size() != node_->shape.size())
    wrong(fmt::format("{} has {} dimensions and got {} indices", node_->name, node_->shape.size(), index.size()),
          "one for each");
  ExprNode node{.dtype = node_->dtype, .pieces = {}, .reads = {*this}};
  append(node, node_->name + "[");
  for (size_t i = 0; i < index.size(); ++i) {
    const Expr expr = as_expr(index[i], DType::kI64);
    if (Access::of(expr).dtype != DType::kI64)
      wrong(fmt::format("the index {} of {} is {}", expr.text(), node_->name, dtype_name(Access::of(expr).dtype)),
            "whole numbers: axes, te.cast to int64");
    if (i > 0) append(node, ", ");
    append(node, expr);
  }
  append(node, "]");
  return Access::expr(std::move(node));
}

Tensor placeholder(const Shape& shape, const std::string& name, tessera_dtype dtype) {
  check_declared(name, shape);
  return Access::tensor({.name = name, .shape = shape, .dtype = checked(dtype)});
}

Axis reduce_axis(int64_t extent, const std::string& name) {
  check_declared(name, {extent});
  const AxisPtr axis = std::make_shared<const AxisNode>(AxisNode{name, extent});
  return Access::axis(axis_expr(axis), axis);
}

Expr sum(const Expr& value, const Axis& axis) { return reduce("sum", value, {axis}); }
Expr sum(const Expr& value, const std::vector<Axis>& axes) { return reduce("sum", value, axes); }
Expr max_reduce(const Expr& value, const Axis& axis) { return reduce("max", value, {axis}); }
Expr max_reduce(const Expr& value, const std::vector<Axis>& axes) { return reduce("max", value, axes); }
Expr min_reduce(const Expr& value, const Axis& axis) { return reduce("min", value, {axis}); }
Expr min_reduce(const Expr& value, const std::vector<Axis>& axes) { return reduce("min", value, axes); }

Expr operator+(const Operand& a, const Operand& b) { return infix("+", a, b); }
Expr operator-(const Operand& a, const Operand& b) { return infix("-", a, b); }
Expr operator*(const Operand& a, const Operand& b) { return infix("*", a, b); }
Expr operator/(const Operand& a, const Operand& b) { return infix("/", a, b); }
Expr operator&(const Operand& a, const Operand& b) { return infix("&", a, b); }
Expr operator|(const Operand& a, const Operand& b) { return infix("|", a, b); }
Expr operator^(const Operand& a, const Operand& b) { return infix("^", a, b); }
Expr operator<(const Operand& a, const Operand& b) { return infix("<", a, b, true); }
Expr operator<=(const Operand& a, const Operand& b) { return infix("<=", a, b, true); }
Expr operator>(const Operand& a, const Operand& b) { return infix(">", a, b, true); }
Expr operator>=(const Operand& a, const Operand& b) { return infix(">=", a, b, true); }
Expr floordiv(const Operand& a, const Operand& b) { return called_with_two("floordiv", a, b); }
Expr floormod(const Operand& a, const Operand& b) { return called_with_two("floormod", a, b); }
Expr max(const Operand& a, const Operand& b) { return called_with_two("max", a, b); }
Expr min(const Operand& a, const Operand& b) { return called_with_two("min", a, b); }
Expr operator-(const Expr& value) { return unary("neg", value); }
Expr exp(const Expr& value) { return unary("exp", value); }
Expr log(const Expr& value) { return unary("log", value); }
Expr sqrt(const Expr& value) { return unary("sqrt", value); }
Expr tanh(const Expr& value) { return unary("tanh", value); }
Expr erf(const Expr& value) { return unary("erf", value); }

Expr select(const Expr& condition, const Operand& a, const Operand& b) {
  const Pair pair = operands("select between", a, b);
  if (Access::of(condition).dtype != DType::kBool)
    wrong(fmt::format("the condition {} is {}", condition.text(), dtype_name(Access::of(condition).dtype)),
          "a comparison, which is bool");
  return called("select", pair.dtype, {condition, pair.a, pair.b});
}

Expr cast(const Expr& value, tessera_dtype dtype) {
  const DType to = checked(dtype);
  return called(fmt::format("cast:{}", dtype_name(to)), to, {value});
}

Expr fma(const Expr& a, const Expr& b, const Expr& c) {
  const Pair product = operands("fma of", a, b);
  operands("fma of", b, c);
  return called("fma", product.dtype, {a, b, c});
}

Tensor detail::compute(const Shape& shape, const std::string& name, const AnyRank<Expr>& value, size_t taken,
                       const Names& axes) {
  check_declared(name, shape);
  if (!axes.empty() && axes.size() != shape.size())
    wrong(fmt::format("{} has {} dimensions and names of {} axes", name, shape.size(), axes.size()), "one for each");
  for (const std::string& axis : axes) check_name(axis);
  const Names provisional = axes.empty() ? default_names(shape.size(), {}) : axes;
  std::vector<std::shared_ptr<AxisNode>> own;
  std::vector<Expr> arguments;
  for (const std::string& axis : provisional) {
    own.push_back(std::make_shared<AxisNode>(AxisNode{axis}));
    arguments.push_back(axis_expr(own.back()));
  }
  const std::optional<Expr> result = value(arguments);
  if (!result)
    wrong(fmt::format("{} has {} dimensions and a function of {} axes", name, shape.size(), taken), "one for each");
  const ExprNode& node = Access::of(*result);
  if (axes.empty()) {
    const Names names = default_names(shape.size(), node.axes);
    for (size_t i = 0; i < own.size(); ++i) own[i]->name = names[i];
  }
  const std::vector<AxisPtr> fixed(own.begin(), own.end());
  check_axes(name, fixed, node);
  return Access::tensor({.name = name, .shape = shape, .dtype = node.dtype, .axes = fixed, .value = result});
}

std::string detail::index_mapping(const AnyRank<Index>& mapping, size_t taken, const Names& axes) {
  const Names names = axes.empty() ? default_names(taken, {}) : axes;
  std::vector<Expr> arguments;
  for (const std::string& name : names)
    arguments.push_back(axis_expr(std::make_shared<const AxisNode>(AxisNode{name})));
  const std::optional<Index> index = mapping(arguments);
  if (!index) wrong(fmt::format("names of {} axes and a function of {}", names.size(), taken), "one for each");
  Names texts;
  for (const Operand& one : *index) texts.push_back(as_expr(one, DType::kI64).text());
  return fmt::format("({}) -> [{}]", fmt::join(names, ", "), fmt::join(texts, ", "));
}

std::string lower(const std::vector<Tensor>& tensors, const std::string& name) {
  check_name(name);
  check_parameters(tensors);
  std::vector<Tensor> order;
  for (const Tensor& tensor : tensors) visit(tensor, tensors, order);
  const Names names = names_of(order);
  std::set<std::string> taken(names.begin(), names.end());
  if (taken.size() != names.size())
    wrong(fmt::format("two tensors of {} have one name", fmt::join(names, ", ")), "names of their own");

  Names inputs, outputs;
  for (const Tensor& tensor : tensors) (is_output(tensor) ? outputs : inputs).push_back(declared(tensor));
  std::string text =
      fmt::format("kernel @{}({}) -> ({}) {{\n", name, fmt::join(inputs, ", "), fmt::join(outputs, ", "));
  for (const Tensor& tensor : order)
    if (is_output(tensor) && !contains(tensors, tensor)) text += fmt::format("  alloc {} local\n", declared(tensor));
  for (const Tensor& tensor : order)
    if (is_output(tensor)) text += nest(tensor, taken);
  return text + "}\n";
}

Schedule::Schedule(const std::vector<Tensor>& tensors, const Options& options)
    : LoopSchedule(lower(tensors), options) {}

}  // namespace tessera::te
