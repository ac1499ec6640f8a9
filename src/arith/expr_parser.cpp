#include "arith/expr_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "support/error.h"

namespace tessera::inline arith {
namespace {

constexpr int kMaxDepth = 400;  // of nested expressions; what the printers write stays far below
constexpr size_t kMaxRank = 32;
constexpr int64_t kMaxElements = int64_t{1} << 48;

struct Infix {
  std::string_view sign;  // longer signs stand before their prefixes
  BinaryOp op;
  int precedence;
};
constexpr std::array kInfix = {
    Infix{"==", BinaryOp::kEq, 4}, Infix{"!=", BinaryOp::kNe, 4}, Infix{"<=", BinaryOp::kLe, 4},
    Infix{">=", BinaryOp::kGe, 4}, Infix{"<", BinaryOp::kLt, 4},  Infix{">", BinaryOp::kGt, 4},
    Infix{"+", BinaryOp::kAdd, 5}, Infix{"-", BinaryOp::kSub, 5}, Infix{"*", BinaryOp::kMul, 6},
    Infix{"/", BinaryOp::kDiv, 6}, Infix{"&", BinaryOp::kAnd, 3}, Infix{"^", BinaryOp::kXor, 2},
    Infix{"|", BinaryOp::kOr, 1},
};

constexpr int kNumUnary = static_cast<int>(UnaryOp::kBitcast);  // bitcast is spelled with a type
constexpr int kNumBinary = static_cast<int>(BinaryOp::kGe) + 1;

bool is_word_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Does the operation exist for the type?
bool has_binary(BinaryOp op, DType dtype) {
  switch (op) {
    case BinaryOp::kAnd:
    case BinaryOp::kOr:
    case BinaryOp::kXor: return !is_float(dtype);
    case BinaryOp::kShl:
    case BinaryOp::kShr:
    case BinaryOp::kFloorDiv:
    case BinaryOp::kFloorMod: return is_int(dtype);
    case BinaryOp::kAdd:
    case BinaryOp::kSub:
    case BinaryOp::kMul:
    case BinaryOp::kDiv:
    case BinaryOp::kRem:
    case BinaryOp::kPow: return dtype != DType::kBool;
    default: return true;
  }
}

bool has_unary(UnaryOp op, DType dtype) {
  if (op == UnaryOp::kNeg || op == UnaryOp::kAbs || op == UnaryOp::kSign) return is_float(dtype) || is_int(dtype);
  if (op == UnaryOp::kNot) return !is_float(dtype);
  return is_float(dtype);
}

class ExprParser {
 public:
  ExprParser(TextReader& reader, const ExprScope& scope) : reader_(reader), scope_(scope) {}

  Expr parse(int min_precedence = 0) {
    if (++depth_ > kMaxDepth)
      reader_.fail("TSR-3101", fmt::format("the expression is nested more than {} deep", kMaxDepth));
    const TextReader start = reader_;
    Expr left = operand();
    while (const Infix* infix = next_infix(min_precedence)) {
      reader_.accept(infix->sign);
      const Expr right = parse(infix->precedence + 1);
      left = make_binary(start, infix->op, left, right);
    }
    --depth_;
    return left;
  }

 private:
  const Infix* next_infix(int min_precedence) {
    for (const Infix& infix : kInfix)
      if (reader_.peek_is(infix.sign)) return infix.precedence >= min_precedence ? &infix : nullptr;
    return nullptr;
  }

  Expr operand() {
    const char c = reader_.peek();
    if (reader_.accept("(")) {
      Expr inner = parse();
      reader_.expect(")");
      return inner;
    }
    const TextReader start = reader_;  // where complaints about this operand point
    if (is_digit(c) || c == '-') return number(start);
    if (reader_.accept("$")) return find_name(start, fmt::format("${}", reader_.integer("a number after '$'")));
    if (!is_word_start(c) && c != '"') reader_.fail_expected("an expression");
    const std::string name = reader_.symbol("an expression");
    if (c == '"') return find_name(start, name);
    if (name == "true" || name == "false") return const_int(DType::kBool, name == "true");
    if (name == "inf" || name == "nan") {
      reader_ = start;
      return number(start);
    }
    if (reader_.peek_is("[")) return parse_load(start, name);
    if (reader_.peek_is("(") || reader_.peek_is(":")) return call(start, name);
    return find_name(start, name);
  }

  [[noreturn]] static void fail(TextReader at, const std::string& id, const std::string& message,
                                const std::string& legal = "") {
    at.fail(id, message, legal);
  }

  Expr find_name(const TextReader& start, const std::string& name) {
    const auto it = scope_.names.find(name);
    if (it != scope_.names.end()) return it->second;
    if (scope_.buffers.count(name) != 0)
      fail(start, "TSR-3103", fmt::format("buffer '{}' is used without indices", name), name + "[...]");
    unknown(start, "variable", name);
  }

  [[noreturn]] void unknown(const TextReader& start, const char* kind, const std::string& name) {
    fail(start, "TSR-3102", fmt::format("there is no {} '{}' here", kind, name),
         "symbols, parameters, and what the loops and allocations around this place define");
  }

  Expr number(const TextReader& start) {
    const std::string_view spelling = reader_.number("an expression");
    const DType dtype = reader_.accept(":") ? parse_dtype_word(reader_) : DType::kI64;
    const char* const last = spelling.data() + spelling.size();
    const auto scan = [&](auto value) {
      const auto result = std::from_chars(spelling.data(), last, value);
      if (result.ec != std::errc() || result.ptr != last)
        fail(start, "TSR-3104", fmt::format("{} is no constant of type {}", spelling, dtype_name(dtype)),
             "integers in range, floats with their type: 0.5:f32");
      return value;
    };
    if (dtype == DType::kF32) return const_float(dtype, scan(float{}));  // straight to float: no second rounding
    if (is_float(dtype)) return const_float(dtype, scan(double{}));
    const int64_t value = scan(int64_t{});
    // An unsigned 64-bit constant is written as the signed one with the same bits.
    Expr constant = const_int(dtype, value);
    if (as_int(constant) != value)
      fail(start, "TSR-3104", fmt::format("{} is no constant of type {}", spelling, dtype_name(dtype)));
    return constant;
  }

  Expr parse_load(const TextReader& start, const std::string& name) {
    const auto it = scope_.buffers.find(name);
    if (it == scope_.buffers.end()) unknown(start, "buffer", name);
    std::vector<Expr> indices = index_list();
    if (indices.size() != it->second->shape.size())
      fail(start, "TSR-3103",
           fmt::format("buffer '{}' has {} dimensions, found {} indices", name, it->second->shape.size(),
                       indices.size()));
    return load(it->second, std::move(indices));
  }

 public:
  std::vector<Expr> index_list() {
    std::vector<Expr> indices;
    reader_.expect("[");
    if (reader_.accept("]")) return indices;
    do {
      const TextReader start = reader_;
      indices.push_back(parse());
      if (indices.back().dtype() != DType::kI64)
        fail(start, "TSR-3105", fmt::format("an index or dimension is {}", dtype_name(indices.back().dtype())), "i64");
    } while (reader_.accept(","));
    reader_.expect("]");
    return indices;
  }

 private:
  std::vector<Expr> arguments(const TextReader& start, const std::string& name, size_t count) {
    reader_.expect("(");
    std::vector<Expr> args;
    if (!reader_.accept(")")) {
      do {
        args.push_back(parse());
      } while (reader_.accept(","));
      reader_.expect(")");
    }
    if (args.size() != count)
      fail(start, "TSR-3103", fmt::format("{} takes {} operands, found {}", name, count, args.size()));
    return args;
  }

  Expr make_binary(const TextReader& start, BinaryOp op, const Expr& a, const Expr& b) {
    if (a.dtype() != b.dtype())
      fail(start, "TSR-3105",
           fmt::format("the operands of {} are {} and {}", binary_name(op), dtype_name(a.dtype()),
                       dtype_name(b.dtype())),
           "operands of one type; constants name theirs: 1:i32, 0.5:f32");
    if (!has_binary(op, a.dtype()))
      fail(start, "TSR-3105", fmt::format("{} does not exist on {}", binary_name(op), dtype_name(a.dtype())));
    return binary(op, a, b);
  }

  Expr call(const TextReader& start, const std::string& name) {
    if (name == "cast" || name == "bitcast") {
      reader_.expect(":");
      const DType dtype = parse_dtype_word(reader_);
      const Expr a = arguments(start, name, 1)[0];
      if (name == "cast") return cast(dtype, a);
      if (dtype_bits(dtype) != dtype_bits(a.dtype()))
        fail(start, "TSR-3105", fmt::format("bitcast from {} to {}", dtype_name(a.dtype()), dtype_name(dtype)),
             "types of the same width");
      return bitcast(dtype, a);
    }
    if (name == "select") {
      const std::vector<Expr> args = arguments(start, name, 3);
      if (args[0].dtype() != DType::kBool || args[1].dtype() != args[2].dtype())
        fail(start, "TSR-3105",
             fmt::format("select of {}, {} and {}", dtype_name(args[0].dtype()), dtype_name(args[1].dtype()),
                         dtype_name(args[2].dtype())),
             "a bool and two operands of one type");
      return select(args[0], args[1], args[2]);
    }
    if (name == "fma") {
      const std::vector<Expr> args = arguments(start, name, 3);
      if (args[0].dtype() != args[1].dtype() || args[1].dtype() != args[2].dtype() || !is_float(args[0].dtype()))
        fail(start, "TSR-3105", "the operands of fma differ in type or are no floats", "three floats of one type");
      return fma(args[0], args[1], args[2]);
    }
    for (int op = 0; op < kNumUnary; ++op)
      if (name == unary_name(static_cast<UnaryOp>(op))) return make_unary(start, static_cast<UnaryOp>(op));
    for (int op = 0; op < kNumBinary; ++op)
      if (name == binary_name(static_cast<BinaryOp>(op))) {
        const std::vector<Expr> args = arguments(start, name, 2);
        return make_binary(start, static_cast<BinaryOp>(op), args[0], args[1]);
      }
    unknown(start, "function", name);
  }

  Expr make_unary(const TextReader& start, UnaryOp op) {
    const Expr a = arguments(start, unary_name(op), 1)[0];
    if (!has_unary(op, a.dtype()))
      fail(start, "TSR-3105", fmt::format("{} does not exist on {}", unary_name(op), dtype_name(a.dtype())));
    return unary(op, a);
  }

  TextReader& reader_;
  const ExprScope& scope_;
  int depth_ = 0;
};

}  // namespace

Expr parse_expr(TextReader& reader, const ExprScope& scope) { return ExprParser(reader, scope).parse(); }

std::vector<Expr> parse_indices(TextReader& reader, const ExprScope& scope) {
  return ExprParser(reader, scope).index_list();
}

Shape parse_shape(TextReader& reader, const ExprScope& scope) {
  TextReader start = reader;
  Shape shape = parse_indices(reader, scope);
  if (shape.size() > kMaxRank)
    start.fail("TSR-3106", fmt::format("a shape of {} dimensions", shape.size()), fmt::format("at most {}", kMaxRank));
  int64_t elements = 1;
  for (const Expr& dim : shape) {
    const auto value = as_int(dim);
    if (!value) continue;
    if (*value < 0 || *value > kMaxElements / elements)
      start.fail("TSR-3106", "a dimension is negative or the shape has too many elements",
                 fmt::format("0 to {} elements", kMaxElements));
    if (*value != 0) elements *= *value;
  }
  return shape;
}

DType parse_dtype_word(TextReader& reader) {
  TextReader start = reader;
  const std::string name = reader.word("an element type");
  const auto dtype = parse_dtype(name);
  if (!dtype || *dtype == DType::kString)
    start.fail("TSR-3107", fmt::format("'{}' is no element type", name),
               "f32, f64, f16, bf16, i64, i32, i8, u8, bool, ...");
  return *dtype;
}

bool is_reserved_word(std::string_view word) {
  static constexpr std::string_view kWords[] = {"true",     "false",  "inf",    "nan",       "for",      "in",
                                                "if",       "else",   "alloc",  "let",       "parallel", "vectorized",
                                                "unrolled", "serial", "kernel", "tensorized"};
  return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords);
}

}  // namespace tessera::inline arith
