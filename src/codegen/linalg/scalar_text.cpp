#include "codegen/linalg/scalar_text.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

#include "support/error.h"
#include "types/tensor.h"

namespace tessera::inline linalg {
namespace {

bool has_load(const Expr& e) {
  bool found = false;
  walk(e, [&](const Expr& part) { found = found || part->kind == ExprKind::kLoad; });
  return found;
}

const char* math_name(UnaryOp op) {
  switch (op) {
    case UnaryOp::kExp: return "exp";
    case UnaryOp::kLog: return "log";
    case UnaryOp::kSqrt: return "sqrt";
    case UnaryOp::kTanh: return "tanh";
    case UnaryOp::kErf: return "erf";
    case UnaryOp::kSin: return "sin";
    case UnaryOp::kCos: return "cos";
    case UnaryOp::kTan: return "tan";
    case UnaryOp::kAsin: return "asin";
    case UnaryOp::kAcos: return "acos";
    case UnaryOp::kAtan: return "atan";
    case UnaryOp::kSinh: return "sinh";
    case UnaryOp::kCosh: return "cosh";
    case UnaryOp::kAsinh: return "asinh";
    case UnaryOp::kAcosh: return "acosh";
    case UnaryOp::kAtanh: return "atanh";
    case UnaryOp::kFloor: return "floor";
    case UnaryOp::kCeil: return "ceil";
    case UnaryOp::kRound: return "roundeven";
    case UnaryOp::kTrunc: return "trunc";
    default: return nullptr;
  }
}

}  // namespace

std::string mlir_type(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "f64";
    case DType::kF32: return "f32";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
    case DType::kBool: return "i1";
    default: return is_int(dtype) ? fmt::format("i{}", dtype_bits(dtype)) : "";
  }
}

std::string mlir_number(DType dtype, double value, int64_t integer) {
  if (dtype == DType::kBool) return integer != 0 ? "true" : "false";
  if (is_int(dtype)) return fmt::format("{}", integer);
  Tensor bits(dtype, {});
  bits.set_double(0, value);
  // By its bits, which are exact for all values.
  uint64_t raw = 0;
  for (int64_t i = bits.num_bytes(); i-- > 0;) raw = raw << 8 | static_cast<uint64_t>(bits.bytes()[i]);
  return fmt::format("0x{:0{}X}", raw, dtype_bits(dtype) / 4);
}

std::string ScalarWriter::line(const std::string& text) {
  std::string name = fmt::format("%s{}", counter_++);
  out_ += fmt::format("{}{} = {}\n", indent_, name, text);
  return name;
}

std::string ScalarWriter::constant(DType dtype, double value, int64_t integer) {
  return line(fmt::format("arith.constant {}{}", mlir_number(dtype, value, integer),
                          dtype == DType::kBool ? "" : " : " + mlir_type(dtype)));
}

std::string ScalarWriter::extracted(const Expr& load) {
  std::string indices;
  for (const Expr& index : load->operands) {
    const std::string place = line(fmt::format("arith.index_cast {} : i64 to index", write(index)));
    indices += (indices.empty() ? "" : ", ") + place;
  }
  const auto [tensor, type] = loads_.tensor(load);
  return line(fmt::format("tensor.extract {}[{}] : {}", tensor, indices, type));
}

// Loads of an arm happen only when it is taken.
std::string ScalarWriter::chosen(const std::string& condition, DType dtype, const Expr& a, const Expr& b) {
  const std::string name = fmt::format("%s{}", counter_++), type = mlir_type(dtype);
  const auto around = names_;
  const std::string outer = indent_;
  out_ += fmt::format("{}{} = scf.if {} -> ({}) {{\n", outer, name, condition, type);
  bool first = true;
  for (const Expr& arm : {a, b}) {
    indent_ = outer + "  ";
    const std::string value = write(arm);
    out_ += fmt::format("{}scf.yield {} : {}\n", indent_, value, type);
    names_ = around;
    out_ += first ? outer + "} else {\n" : outer + "}\n";
    first = false;
  }
  indent_ = outer;
  return name;
}

std::string ScalarWriter::unary_text(const Expr& e) {
  const Expr& operand = e->operands[0];
  const std::string x = write(operand), type = mlir_type(operand->dtype);
  const bool real = is_float(operand->dtype);
  if (const char* name = math_name(e->unary)) return line(fmt::format("math.{} {} : {}", name, x, type));
  switch (e->unary) {
    case UnaryOp::kNeg:
      if (real) return line(fmt::format("arith.negf {} : {}", x, type));
      return line(fmt::format("arith.subi {}, {} : {}", constant(operand->dtype, 0, 0), x, type));
    case UnaryOp::kAbs:
      if (is_unsigned_int(operand->dtype)) return x;
      return line(fmt::format("math.{} {} : {}", real ? "absf" : "absi", x, type));
    case UnaryOp::kNot:
      return line(fmt::format("arith.xori {}, {} : {}", x,
                              constant(operand->dtype, 0, operand->dtype == DType::kBool ? 1 : -1), type));
    case UnaryOp::kIsNan: return line(fmt::format("arith.cmpf uno, {}, {} : {}", x, x, type));
    case UnaryOp::kIsInf: {
      const std::string size = line(fmt::format("math.absf {} : {}", x, type));
      return line(fmt::format("arith.cmpf oeq, {}, {} : {}", size,
                              constant(operand->dtype, std::numeric_limits<double>::infinity(), 0), type));
    }
    case UnaryOp::kSign: {
      const std::string zero = constant(operand->dtype, 0, 0), one = constant(operand->dtype, 1, 1);
      if (!real) {
        const bool is_unsigned = is_unsigned_int(operand->dtype);
        const std::string above =
            line(fmt::format("arith.cmpi {}, {}, {} : {}", is_unsigned ? "ugt" : "sgt", x, zero, type));
        const std::string positive = line(fmt::format("arith.select {}, {}, {} : {}", above, one, zero, type));
        if (is_unsigned) return positive;
        const std::string below = line(fmt::format("arith.cmpi slt, {}, {} : {}", x, zero, type));
        return line(
            fmt::format("arith.select {}, {}, {} : {}", below, constant(operand->dtype, -1, -1), positive, type));
      }
      const std::string with_sign = line(fmt::format("math.copysign {}, {} : {}", one, x, type));
      // Zeros and NaN are their own signs.
      const std::string plain = line(fmt::format("arith.cmpf one, {}, {} : {}", x, zero, type));
      return line(fmt::format("arith.select {}, {}, {} : {}", plain, with_sign, x, type));
    }
    case UnaryOp::kBitcast:
      if (type == mlir_type(e->dtype)) return x;  // signs are a matter of operations
      return line(fmt::format("arith.bitcast {} : {} to {}", x, type, mlir_type(e->dtype)));
    default: check(false, "a unary operation that MLIR has no name for"); return x;
  }
}

std::string ScalarWriter::binary_text(const Expr& e) {
  const Expr &a = e->operands[0], &b = e->operands[1];
  const DType dtype = a->dtype;
  const bool real = is_float(dtype), is_unsigned = is_unsigned_int(dtype) || dtype == DType::kBool;
  const std::string type = mlir_type(dtype);
  if (dtype == DType::kBool && (e->binary == BinaryOp::kAnd || e->binary == BinaryOp::kOr) && has_load(b)) {
    const Expr constant_arm = const_int(DType::kBool, e->binary == BinaryOp::kOr);
    return e->binary == BinaryOp::kAnd ? chosen(write(a), dtype, b, constant_arm)
                                       : chosen(write(a), dtype, constant_arm, b);
  }
  const std::string x = write(a), y = write(b);
  const auto plain = [&](const std::string& op) { return line(fmt::format("{} {}, {} : {}", op, x, y, type)); };
  const auto compared = [&](const char* of_reals, const char* with_sign, const char* without) {
    return line(fmt::format("arith.{} {}, {}, {} : {}", real ? "cmpf" : "cmpi",
                            real          ? of_reals
                            : is_unsigned ? without
                                          : with_sign,
                            x, y, type));
  };
  // Where the divisor is 0 the quotient is 0 and the rest is the dividend: the division is by 1, and not looked at.
  const auto divided = [&](const std::string& op, const std::string& by_zero) {
    const auto known = as_int(b);
    if (known && *known != 0 && *known != -1) return plain(op);
    const std::string is_zero = line(fmt::format("arith.cmpi eq, {}, {} : {}", y, constant(dtype, 0, 0), type));
    const std::string divisor =
        line(fmt::format("arith.select {}, {}, {} : {}", is_zero, constant(dtype, 1, 1), y, type));
    const std::string quotient = line(fmt::format("{} {}, {} : {}", op, x, divisor, type));
    return line(fmt::format("arith.select {}, {}, {} : {}", is_zero, by_zero.empty() ? constant(dtype, 0, 0) : by_zero,
                            quotient, type));
  };
  const auto shifted = [&](const char* op) {
    const std::string inside =
        line(fmt::format("arith.cmpi ult, {}, {} : {}", y, constant(dtype, 0, dtype_bits(dtype)), type));
    const std::string most = constant(dtype, 0, dtype_bits(dtype) - 1);
    const std::string amount = line(fmt::format("arith.select {}, {}, {} : {}", inside, y, most, type));
    const std::string value = line(fmt::format("{} {}, {} : {}", op, x, amount, type));
    if (e->binary == BinaryOp::kShr && !is_unsigned) return value;
    return line(fmt::format("arith.select {}, {}, {} : {}", inside, value, constant(dtype, 0, 0), type));
  };
  switch (e->binary) {
    case BinaryOp::kAdd: return plain(real ? "arith.addf" : "arith.addi");
    case BinaryOp::kSub: return plain(real ? "arith.subf" : "arith.subi");
    case BinaryOp::kMul: return plain(real ? "arith.mulf" : "arith.muli");
    case BinaryOp::kDiv: return real ? plain("arith.divf") : divided(is_unsigned ? "arith.divui" : "arith.divsi", "");
    case BinaryOp::kRem: return real ? plain("arith.remf") : divided(is_unsigned ? "arith.remui" : "arith.remsi", x);
    case BinaryOp::kFloorDiv:
    case BinaryOp::kFloorMod: {
      if (real) {
        const std::string quotient = line(fmt::format("math.floor {} : {}", plain("arith.divf"), type));
        if (e->binary == BinaryOp::kFloorDiv) return quotient;
        const std::string part = line(fmt::format("arith.mulf {}, {} : {}", quotient, y, type));
        return line(fmt::format("arith.subf {}, {} : {}", x, part, type));
      }
      const std::string quotient = divided(is_unsigned ? "arith.divui" : "arith.floordivsi", "");
      if (e->binary == BinaryOp::kFloorDiv) return quotient;
      const std::string part = line(fmt::format("arith.muli {}, {} : {}", quotient, y, type));
      return line(fmt::format("arith.subi {}, {} : {}", x, part, type));
    }
    case BinaryOp::kMin: return plain(real ? "arith.minimumf" : is_unsigned ? "arith.minui" : "arith.minsi");
    case BinaryOp::kMax: return plain(real ? "arith.maximumf" : is_unsigned ? "arith.maxui" : "arith.maxsi");
    case BinaryOp::kPow: return plain(real ? "math.powf" : "math.ipowi");
    case BinaryOp::kAnd: return plain("arith.andi");
    case BinaryOp::kOr: return plain("arith.ori");
    case BinaryOp::kXor: return plain("arith.xori");
    case BinaryOp::kShl: return shifted("arith.shli");
    case BinaryOp::kShr: return shifted(is_unsigned ? "arith.shrui" : "arith.shrsi");
    case BinaryOp::kEq: return compared("oeq", "eq", "eq");
    case BinaryOp::kNe: return compared("une", "ne", "ne");
    case BinaryOp::kLt: return compared("olt", "slt", "ult");
    case BinaryOp::kLe: return compared("ole", "sle", "ule");
    case BinaryOp::kGt: return compared("ogt", "sgt", "ugt");
    case BinaryOp::kGe: return compared("oge", "sge", "uge");
  }
  return x;
}

std::string ScalarWriter::cast_text(const Expr& e) {
  const DType from = e->operands[0]->dtype, to = e->dtype;
  const std::string source = mlir_type(from), target = mlir_type(to);
  std::string x = write(e->operands[0]);
  if (from == to) return x;
  const auto converted = [&](const std::string& op) {
    return line(fmt::format("{} {} : {} to {}", op, x, source, target));
  };
  if (to == DType::kBool) {
    if (is_float(from)) return line(fmt::format("arith.cmpf une, {}, {} : {}", x, constant(from, 0, 0), source));
    return line(fmt::format("arith.cmpi ne, {}, {} : {}", x, constant(from, 0, 0), source));
  }
  const bool is_unsigned = is_unsigned_int(from) || from == DType::kBool;
  if (is_float(to)) {
    if (!is_float(from)) return converted(is_unsigned ? "arith.uitofp" : "arith.sitofp");
    if (dtype_bits(from) == dtype_bits(to)) {
      const std::string wide = line(fmt::format("arith.extf {} : {} to f32", x, source));
      return line(fmt::format("arith.truncf {} : f32 to {}", wide, target));
    }
    return converted(dtype_bits(from) < dtype_bits(to) ? "arith.extf" : "arith.truncf");
  }
  if (!is_float(from)) {
    const int a = from == DType::kBool ? 1 : dtype_bits(from), b = dtype_bits(to);
    if (a == b) return x;
    return converted(a > b ? "arith.trunci" : is_unsigned ? "arith.extui" : "arith.extsi");
  }
  // Into the range, and 0 for NaN; f64 has the ends of all ranges up to 32 bits, and its own largest below 2^63 or
  // 2^64.
  if (from != DType::kF64) x = line(fmt::format("arith.extf {} : {} to f64", x, source));
  const int bits = dtype_bits(to);
  const bool to_unsigned = is_unsigned_int(to);
  const double low = to_unsigned ? 0 : -std::ldexp(1.0, bits - 1);
  double high = std::ldexp(1.0, to_unsigned ? bits : bits - 1);
  high = bits > 32 ? std::nextafter(high, 0) : high - 1;
  const std::string nan = line(fmt::format("arith.cmpf uno, {}, {} : f64", x, x));
  x = line(fmt::format("arith.maximumf {}, {} : f64", x, constant(DType::kF64, low, 0)));
  x = line(fmt::format("arith.minimumf {}, {} : f64", x, constant(DType::kF64, high, 0)));
  x = line(fmt::format("arith.select {}, {}, {} : f64", nan, constant(DType::kF64, 0, 0), x));
  return line(fmt::format("arith.{} {} : f64 to {}", to_unsigned ? "fptoui" : "fptosi", x, target));
}

std::string ScalarWriter::write(const Expr& e) {
  const ExprNode* key = e.operator->();
  if (const auto known = names_.find(key); known != names_.end()) return known->second;
  std::string name;
  switch (e->kind) {
    case ExprKind::kConst: name = constant(e->dtype, e->float_value, e->int_value); break;
    case ExprKind::kVar: check(false, "a variable of no axis"); break;
    case ExprKind::kLoad:
      name = loads_.argument(e);
      if (name.empty()) name = extracted(e);
      break;
    case ExprKind::kUnary: name = unary_text(e); break;
    case ExprKind::kBinary: name = binary_text(e); break;
    case ExprKind::kSelect: {
      const std::string condition = write(e->operands[0]);
      if (has_load(e->operands[1]) || has_load(e->operands[2])) {
        name = chosen(condition, e->dtype, e->operands[1], e->operands[2]);
        break;
      }
      const std::string a = write(e->operands[1]), b = write(e->operands[2]);
      name = line(fmt::format("arith.select {}, {}, {} : {}", condition, a, b, mlir_type(e->dtype)));
      break;
    }
    case ExprKind::kFma: {
      const std::string a = write(e->operands[0]), b = write(e->operands[1]), c = write(e->operands[2]);
      name = line(fmt::format("math.fma {}, {}, {} : {}", a, b, c, mlir_type(e->dtype)));
      break;
    }
    case ExprKind::kCast: name = cast_text(e); break;
  }
  return names_[key] = name;
}

}  // namespace tessera::inline linalg
