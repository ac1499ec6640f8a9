#include "arith/expr.h"

#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <unordered_set>

#include "arith/int_ops.h"
#include "support/error.h"
#include "support/text_reader.h"
#include "types/tensor.h"

namespace tessera::inline arith {
namespace {

std::shared_ptr<ExprNode> new_node(ExprKind kind, DType dtype) {
  auto node = std::make_shared<ExprNode>();
  node->kind = kind;
  node->dtype = dtype;
  return node;
}

bool int_like(DType dtype) { return is_int(dtype) || dtype == DType::kBool; }

// x op constant and constant op x where the result is one of the operands or a constant.
Expr fold_identity(BinaryOp op, const Expr& a, const Expr& b) {
  const auto ca = as_int(a);
  const auto cb = as_int(b);
  const bool boolean = a.dtype() == DType::kBool;
  switch (op) {
    case BinaryOp::kAdd:
      if (cb == 0) return a;
      if (ca == 0) return b;
      break;
    case BinaryOp::kSub:
      if (cb == 0) return a;
      break;
    case BinaryOp::kMul:
      if (cb == 1 || ca == 0) return a;
      if (ca == 1 || cb == 0) return b;
      break;
    case BinaryOp::kFloorDiv:
    case BinaryOp::kDiv:
      if (cb == 1) return a;
      break;
    case BinaryOp::kFloorMod:
      if (cb == 1) return const_int(a.dtype(), 0);
      break;
    case BinaryOp::kAnd:
      if (boolean && (cb == 1 || ca == 0)) return a;
      if (boolean && ca == 1) return b;
      if (boolean && cb == 0) return b;
      break;
    case BinaryOp::kOr:
      if (boolean && (cb == 0 || ca == 1)) return a;
      if (boolean && ca == 0) return b;
      if (boolean && cb == 1) return b;
      break;
    default: break;
  }
  return {};
}

struct OpName {
  const char* name;
  const char* infix;
};

OpName binary_spelling(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd: return {"add", "+"};
    case BinaryOp::kSub: return {"sub", "-"};
    case BinaryOp::kMul: return {"mul", "*"};
    case BinaryOp::kDiv: return {"div", "/"};
    case BinaryOp::kRem: return {"rem", nullptr};
    case BinaryOp::kFloorDiv: return {"floordiv", nullptr};
    case BinaryOp::kFloorMod: return {"floormod", nullptr};
    case BinaryOp::kMin: return {"min", nullptr};
    case BinaryOp::kMax: return {"max", nullptr};
    case BinaryOp::kPow: return {"pow", nullptr};
    case BinaryOp::kAnd: return {"and", "&"};
    case BinaryOp::kOr: return {"or", "|"};
    case BinaryOp::kXor: return {"xor", "^"};
    case BinaryOp::kShl: return {"shl", nullptr};
    case BinaryOp::kShr: return {"shr", nullptr};
    case BinaryOp::kEq: return {"eq", "=="};
    case BinaryOp::kNe: return {"ne", "!="};
    case BinaryOp::kLt: return {"lt", "<"};
    case BinaryOp::kLe: return {"le", "<="};
    case BinaryOp::kGt: return {"gt", ">"};
    case BinaryOp::kGe: return {"ge", ">="};
  }
  return {"?", nullptr};
}

std::string float_text(DType dtype, double value) {
  const std::string_view type = dtype_name(dtype);
  if (std::isnan(value)) return fmt::format("nan:{}", type);
  if (std::isinf(value)) return fmt::format("{}inf:{}", value < 0 ? "-" : "", type);
  // The shortest digits that read back as the same value of the type.
  if (dtype == DType::kF32) return fmt::format("{}:{}", static_cast<float>(value), type);
  return fmt::format("{}:{}", value, type);
}

void print(const Expr& e, const NameMap& names, std::string& out);

void print_list(const std::vector<Expr>& list, const NameMap& names, std::string& out) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (i) out += ", ";
    print(list[i], names, out);
  }
}

void print(const Expr& e, const NameMap& names, std::string& out) {
  if (const auto it = names.find(e.get()); it != names.end()) {
    out += it->second;
    return;
  }
  switch (e->kind) {
    case ExprKind::kConst:
      if (e->dtype == DType::kI64) out += fmt::format("{}", e->int_value);
      else if (e->dtype == DType::kBool) out += e->int_value ? "true" : "false";
      else if (is_float(e->dtype)) out += float_text(e->dtype, e->float_value);
      else out += fmt::format("{}:{}", e->int_value, dtype_name(e->dtype));
      return;
    case ExprKind::kVar: out += symbol_text(e->name); return;
    case ExprKind::kLoad: {
      const auto it = names.find(e->buffer.get());
      out += it == names.end() ? e->buffer->name : it->second;
      out += '[';
      print_list(e->operands, names, out);
      out += ']';
      return;
    }
    case ExprKind::kBinary:
      if (const OpName op = binary_spelling(e->binary); op.infix) {
        out += '(';
        print(e->operands[0], names, out);
        out += fmt::format(" {} ", op.infix);
        print(e->operands[1], names, out);
        out += ')';
        return;
      }
      out += binary_name(e->binary);
      break;
    case ExprKind::kUnary:
      out += unary_name(e->unary);
      if (e->unary == UnaryOp::kBitcast) out += fmt::format(":{}", dtype_name(e->dtype));
      break;
    case ExprKind::kSelect: out += "select"; break;
    case ExprKind::kFma: out += "fma"; break;
    case ExprKind::kCast: out += fmt::format("cast:{}", dtype_name(e->dtype)); break;
  }
  out += '(';
  print_list(e->operands, names, out);
  out += ')';
}

}  // namespace

const char* unary_name(UnaryOp op) {
  static constexpr const char* kNames[] = {"neg",   "abs",   "not",   "exp",   "log",   "sqrt",   "tanh",
                                           "erf",   "sin",   "cos",   "tan",   "asin",  "acos",   "atan",
                                           "sinh",  "cosh",  "asinh", "acosh", "atanh", "floor",  "ceil",
                                           "round", "trunc", "sign",  "isnan", "isinf", "bitcast"};
  return kNames[static_cast<int>(op)];
}

const char* binary_name(BinaryOp op) { return binary_spelling(op).name; }

bool is_comparison(BinaryOp op) { return op >= BinaryOp::kEq; }

const char* scope_name(MemoryScope scope) {
  static constexpr const char* kNames[] = {"global", "local", "register"};
  return kNames[static_cast<int>(scope)];
}

Expr::Expr(int64_t value) : Expr(const_int(DType::kI64, value)) {}

DType Expr::dtype() const { return node_->dtype; }

BufferPtr make_buffer(std::string name, DType dtype, std::vector<Expr> shape, MemoryScope scope) {
  return std::make_shared<const Buffer>(Buffer{std::move(name), dtype, std::move(shape), scope});
}

Var make_var(std::string name, DType dtype) {
  // Creation order is what sorts variables of equal names, so one compile prints the same text every time.
  static std::atomic<int64_t> next_id{0};
  auto node = new_node(ExprKind::kVar, dtype);
  node->int_value = next_id.fetch_add(1, std::memory_order_relaxed);
  node->name = std::move(name);
  return Expr(std::move(node));
}

Expr const_int(DType dtype, int64_t value) {
  auto node = new_node(ExprKind::kConst, dtype);
  node->int_value = canonical_int(dtype, value);
  return Expr(std::move(node));
}

Expr const_float(DType dtype, double value) {
  auto node = new_node(ExprKind::kConst, dtype);
  if (dtype == DType::kF64) node->float_value = value;
  else if (dtype == DType::kF32) node->float_value = static_cast<float>(value);
  else node->float_value = decode_float(dtype, encode_float(dtype, value));
  return Expr(std::move(node));
}

Expr const_of(DType dtype, double value) {
  return is_float(dtype) ? const_float(dtype, value) : const_int(dtype, static_cast<int64_t>(value));
}

Expr unary(UnaryOp op, Expr a) {
  const bool predicate = op == UnaryOp::kIsNan || op == UnaryOp::kIsInf || op == UnaryOp::kNot;
  if (const auto c = as_int(a); c && op == UnaryOp::kNot && a.dtype() == DType::kBool)
    return const_int(DType::kBool, !*c);
  auto node = new_node(ExprKind::kUnary,
                       predicate && !(op == UnaryOp::kNot && a.dtype() != DType::kBool) ? DType::kBool : a.dtype());
  node->unary = op;
  node->operands = {std::move(a)};
  return Expr(std::move(node));
}

Expr bitcast(DType dtype, Expr a) {
  check(dtype_bits(dtype) == dtype_bits(a.dtype()), "bitcast between widths");
  auto node = new_node(ExprKind::kUnary, dtype);
  node->unary = UnaryOp::kBitcast;
  node->operands = {std::move(a)};
  return Expr(std::move(node));
}

Expr binary(BinaryOp op, Expr a, Expr b) {
  check(a && b, "null operand");
  if (a.dtype() != b.dtype())
    throw InternalError(fmt::format("operands of {} differ in type: {} {} and {} {}", binary_name(op), to_string(a),
                                    dtype_name(a.dtype()), to_string(b), dtype_name(b.dtype())));
  const DType result = is_comparison(op) ? DType::kBool : a.dtype();
  if (int_like(a.dtype())) {
    const auto ca = as_int(a);
    const auto cb = as_int(b);
    if (ca && cb) return const_int(result, int_binary(op, a.dtype(), *ca, *cb));
    if (Expr same = fold_identity(op, a, b)) return same;
  }
  auto node = new_node(ExprKind::kBinary, result);
  node->binary = op;
  node->operands = {std::move(a), std::move(b)};
  return Expr(std::move(node));
}

Expr select(Expr condition, Expr if_true, Expr if_false) {
  check(condition.dtype() == DType::kBool, "select on a condition that is not bool");
  check(if_true.dtype() == if_false.dtype(), "select between different types");
  if (is_true(condition)) return if_true;
  if (is_false(condition)) return if_false;
  auto node = new_node(ExprKind::kSelect, if_true.dtype());
  node->operands = {std::move(condition), std::move(if_true), std::move(if_false)};
  return Expr(std::move(node));
}

Expr fma(Expr a, Expr b, Expr c) {
  check(a.dtype() == b.dtype() && b.dtype() == c.dtype() && is_float(a.dtype()), "fma needs equal float types");
  auto node = new_node(ExprKind::kFma, a.dtype());
  node->operands = {std::move(a), std::move(b), std::move(c)};
  return Expr(std::move(node));
}

Expr cast(DType dtype, Expr a) {
  if (a.dtype() == dtype) return a;
  if (const auto c = as_int(a); c && int_like(dtype)) return const_int(dtype, *c);
  if (a->kind == ExprKind::kConst && is_float(dtype) && (dtype == DType::kF32 || dtype == DType::kF64) &&
      a.dtype() != DType::kU64)
    return const_float(dtype, as_int(a) ? static_cast<double>(*as_int(a)) : a->float_value);
  auto node = new_node(ExprKind::kCast, dtype);
  node->operands = {std::move(a)};
  return Expr(std::move(node));
}

Expr load(BufferPtr buffer, std::vector<Expr> indices) {
  check(buffer->shape.size() == indices.size(), "load with a wrong number of indices from " + buffer->name);
  auto node = new_node(ExprKind::kLoad, buffer->dtype);
  node->buffer = std::move(buffer);
  node->operands = std::move(indices);
  return Expr(std::move(node));
}

Expr operator+(Expr a, Expr b) { return binary(BinaryOp::kAdd, std::move(a), std::move(b)); }
Expr operator-(Expr a, Expr b) { return binary(BinaryOp::kSub, std::move(a), std::move(b)); }
Expr operator*(Expr a, Expr b) { return binary(BinaryOp::kMul, std::move(a), std::move(b)); }
Expr operator-(Expr a) { return unary(UnaryOp::kNeg, std::move(a)); }
Expr floordiv(Expr a, Expr b) { return binary(BinaryOp::kFloorDiv, std::move(a), std::move(b)); }
Expr floormod(Expr a, Expr b) { return binary(BinaryOp::kFloorMod, std::move(a), std::move(b)); }
Expr min(Expr a, Expr b) { return binary(BinaryOp::kMin, std::move(a), std::move(b)); }
Expr max(Expr a, Expr b) { return binary(BinaryOp::kMax, std::move(a), std::move(b)); }
Expr operator<(Expr a, Expr b) { return binary(BinaryOp::kLt, std::move(a), std::move(b)); }
Expr operator<=(Expr a, Expr b) { return binary(BinaryOp::kLe, std::move(a), std::move(b)); }
Expr operator>(Expr a, Expr b) { return binary(BinaryOp::kGt, std::move(a), std::move(b)); }
Expr operator>=(Expr a, Expr b) { return binary(BinaryOp::kGe, std::move(a), std::move(b)); }
Expr logical_and(Expr a, Expr b) { return binary(BinaryOp::kAnd, std::move(a), std::move(b)); }
Expr logical_or(Expr a, Expr b) { return binary(BinaryOp::kOr, std::move(a), std::move(b)); }
Expr equal(Expr a, Expr b) { return binary(BinaryOp::kEq, std::move(a), std::move(b)); }
Expr ceildiv(Expr a, Expr b) { return floordiv(a + (b - Expr(1)), b); }

std::optional<int64_t> as_int(const Expr& e) {
  if (e && e->kind == ExprKind::kConst && int_like(e->dtype)) return e->int_value;
  return std::nullopt;
}

bool is_const_int(const Expr& e, int64_t value) { return as_int(e) == value; }
bool is_true(const Expr& e) { return e && e.dtype() == DType::kBool && as_int(e) == 1; }
bool is_false(const Expr& e) { return e && e.dtype() == DType::kBool && as_int(e) == 0; }

bool structurally_equal(const Expr& a, const Expr& b) {
  if (a.same_node(b)) return true;
  if (!a || !b || a->kind != b->kind || a->dtype != b->dtype) return false;
  if (a->kind == ExprKind::kVar) return false;
  if (a->kind == ExprKind::kConst)
    return a->int_value == b->int_value &&
           (a->float_value == b->float_value || (std::isnan(a->float_value) && std::isnan(b->float_value))) &&
           std::signbit(a->float_value) == std::signbit(b->float_value);
  if (a->unary != b->unary || a->binary != b->binary || a->buffer != b->buffer) return false;
  if (a->operands.size() != b->operands.size()) return false;
  for (size_t i = 0; i < a->operands.size(); ++i)
    if (!structurally_equal(a->operands[i], b->operands[i])) return false;
  return true;
}

namespace {

void walk_once(const Expr& e, const std::function<void(const Expr&)>& visit,
               std::unordered_set<const ExprNode*>& seen) {
  if (!e || !seen.insert(e.get()).second) return;
  visit(e);
  for (const Expr& operand : e->operands) walk_once(operand, visit, seen);
}

Expr rebuild(const Expr& e, std::vector<Expr> operands) {
  switch (e->kind) {
    case ExprKind::kConst:
    case ExprKind::kVar: return e;
    case ExprKind::kLoad: return load(e->buffer, std::move(operands));
    case ExprKind::kUnary:
      return e->unary == UnaryOp::kBitcast ? bitcast(e->dtype, operands[0]) : unary(e->unary, operands[0]);
    case ExprKind::kBinary: return binary(e->binary, operands[0], operands[1]);
    case ExprKind::kSelect: return select(operands[0], operands[1], operands[2]);
    case ExprKind::kFma: return fma(operands[0], operands[1], operands[2]);
    case ExprKind::kCast: return cast(e->dtype, operands[0]);
  }
  throw InternalError("unknown expression kind");
}

Expr transform_once(const Expr& e, const std::function<Expr(const Expr&)>& rewrite,
                    std::unordered_map<const ExprNode*, Expr>& done) {
  if (const auto it = done.find(e.get()); it != done.end()) return it->second;
  Expr result = e;
  if (!e->operands.empty()) {
    std::vector<Expr> operands;
    operands.reserve(e->operands.size());
    bool changed = false;
    for (const Expr& operand : e->operands) {
      operands.push_back(transform_once(operand, rewrite, done));
      changed |= !operands.back().same_node(operand);
    }
    if (changed) result = rebuild(e, std::move(operands));
  }
  if (Expr replacement = rewrite(result)) result = replacement;
  done.emplace(e.get(), result);
  return result;
}

}  // namespace

void walk(const Expr& e, const std::function<void(const Expr&)>& visit) {
  std::unordered_set<const ExprNode*> seen;
  walk_once(e, visit, seen);
}

bool uses_var(const Expr& e, const Var& var) {
  bool found = false;
  walk(e, [&](const Expr& node) { found |= node.same_node(var); });
  return found;
}

Expr transform(const Expr& e, const std::function<Expr(const Expr&)>& rewrite) {
  std::unordered_map<const ExprNode*, Expr> done;
  return transform_once(e, rewrite, done);
}

Expr substitute(const Expr& e, const VarMap& map) {
  return transform(e, [&](const Expr& node) -> Expr {
    if (node->kind != ExprKind::kVar) return {};
    const auto it = map.find(node.get());
    return it == map.end() ? Expr() : it->second;
  });
}

std::string to_string(const Expr& e, const NameMap& names) {
  if (!e) return "<null>";
  std::string out;
  print(e, names, out);
  return out;
}

std::string to_string(const Expr& e) { return to_string(e, NameMap()); }

}  // namespace tessera::inline arith
