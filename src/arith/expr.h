// Scalar expressions: the one expression language of shapes, operator bodies and loop programs.
//
// Semantics (every evaluator and back end follows these; the interpreter is the definition):
// - Every expression has a dtype. Operands of a binary operator have the same dtype; `cast` converts.
// - Integers wrap modulo 2^bits. kDiv and kRem on integers truncate towards zero; kFloorDiv and kFloorMod round
//   towards minus infinity. Integer division by zero yields 0 (kRem, kFloorMod: the dividend); INT_MIN / -1 wraps.
// - Floats are IEEE 754 in their own precision, except that a kFma may be rounded once or twice (the target decides).
//   kMin and kMax return NaN when either operand is NaN. kRound rounds halves to even.
// - Float to integer casts truncate towards zero and saturate; NaN gives 0. Integer casts wrap. Casts to bool
//   test != 0. Casts to a narrower float round to nearest even.
// - Comparisons give bool; with a NaN only kNe is true.
// - kSelect evaluates its condition, then only the chosen operand: a load in the other arm does not happen. kAnd/kOr
//   on bool evaluate the right side only when needed.
// - A load outside its buffer is an error of the program (the verifier and the interpreter report it).
// Nodes are immutable and shared; two equal sub-expressions may be one node.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "types/dtype.h"
#include "types/layout.h"

namespace tessera::inline arith {

enum class ExprKind : uint8_t { kConst, kVar, kLoad, kUnary, kBinary, kSelect, kFma, kCast };

enum class UnaryOp : uint8_t {
  kNeg,
  kAbs,
  kNot,
  kExp,
  kLog,
  kSqrt,
  kTanh,
  kErf,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kAsinh,
  kAcosh,
  kAtanh,
  kFloor,
  kCeil,
  kRound,
  kTrunc,
  kSign,
  kIsNan,
  kIsInf,
  kBitcast,  // reinterpret the bits as `dtype` of the same width
};

enum class BinaryOp : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kRem,
  kFloorDiv,
  kFloorMod,
  kMin,
  kMax,
  kPow,
  kAnd,
  kOr,
  kXor,  // bitwise; logical on bool
  kShl,
  kShr,  // kShr is arithmetic on signed types
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
};

const char* unary_name(UnaryOp op);    // "exp"
const char* binary_name(BinaryOp op);  // "add"; the printer uses infix signs where they exist
bool is_comparison(BinaryOp op);

struct ExprNode;
struct Buffer;
using BufferPtr = std::shared_ptr<const Buffer>;

// A reference to an immutable expression node; may be null (`if (expr)`).
class Expr {
 public:
  Expr() = default;
  Expr(int64_t value);                                    // NOLINT: an i64 constant, so that indices read naturally
  Expr(int value) : Expr(static_cast<int64_t>(value)) {}  // NOLINT
  Expr(bool value) = delete;                              // a truth constant is const_int(DType::kBool, ...)
  explicit Expr(std::shared_ptr<const ExprNode> node) : node_(std::move(node)) {}

  explicit operator bool() const { return node_ != nullptr; }
  const ExprNode* operator->() const { return node_.get(); }
  const ExprNode& operator*() const { return *node_; }
  const ExprNode* get() const { return node_.get(); }
  DType dtype() const;
  bool same_node(const Expr& other) const { return node_ == other.node_; }

 private:
  std::shared_ptr<const ExprNode> node_;
};

struct ExprNode {
  ExprKind kind;
  DType dtype;
  UnaryOp unary{};             // kUnary
  BinaryOp binary{};           // kBinary
  int64_t int_value = 0;       // kConst of integer or bool dtype; kVar: its number in creation order
  double float_value = 0;      // kConst of float dtype
  std::string name;            // kVar: for printing only; identity is the node
  BufferPtr buffer;            // kLoad
  std::vector<Expr> operands;  // kLoad: one index (i64) per dimension; others: their operands in order
};

using Var = Expr;  // an Expr whose node is a kVar

enum class MemoryScope : uint8_t {
  kGlobal,    // parameters and arena: visible to all threads
  kLocal,     // per-thread scratch in memory
  kRegister,  // must be kept in registers: constant extents, indexed by constants after unrolling
};
const char* scope_name(MemoryScope scope);

// A dense tensor that expressions load from and statements store to. In operator bodies `shape` is the logical
// shape; in loop programs it is the physical one (layout applied). Identity is the object; the name is for printing
// and unique within a program.
struct Buffer {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<Expr> shape;
  MemoryScope scope = MemoryScope::kGlobal;
};
BufferPtr make_buffer(std::string name, DType dtype, std::vector<Expr> shape, MemoryScope scope = MemoryScope::kGlobal);

// ---- construction; folds constants and trivial identities of integer expressions on the way ----
Var make_var(std::string name, DType dtype = DType::kI64);
Expr const_int(DType dtype, int64_t value);  // also bool
Expr const_float(DType dtype, double value);
Expr const_of(DType dtype, double value);  // float or integer constant of any dtype
Expr unary(UnaryOp op, Expr a);
Expr bitcast(DType dtype, Expr a);
Expr binary(BinaryOp op, Expr a, Expr b);
Expr select(Expr condition, Expr if_true, Expr if_false);
Expr fma(Expr a, Expr b, Expr c);  // a * b + c
Expr cast(DType dtype, Expr a);
Expr load(BufferPtr buffer, std::vector<Expr> indices);

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator-(Expr a);
Expr floordiv(Expr a, Expr b);
Expr floormod(Expr a, Expr b);
Expr min(Expr a, Expr b);
Expr max(Expr a, Expr b);
Expr operator<(Expr a, Expr b);
Expr operator<=(Expr a, Expr b);
Expr operator>(Expr a, Expr b);
Expr operator>=(Expr a, Expr b);
// Named, since && and || on C++ values would not short-circuit and would take an Expr for "is it null?".
Expr logical_and(Expr a, Expr b);
Expr logical_or(Expr a, Expr b);
Expr equal(Expr a, Expr b);
Expr ceildiv(Expr a, Expr b);

// ---- inspection ----
std::optional<int64_t> as_int(const Expr& e);  // the value of an integer or bool constant
bool is_const_int(const Expr& e, int64_t value);
bool is_true(const Expr& e);
bool is_false(const Expr& e);
// Structural equality: same operators, constants, buffers and (by identity) variables.
bool structurally_equal(const Expr& a, const Expr& b);
// Calls `visit` on every node reachable from `e`, parents before children, each shared node once.
void walk(const Expr& e, const std::function<void(const Expr&)>& visit);
bool uses_var(const Expr& e, const Var& var);

// ---- rewriting ----
// Rebuilds `e` bottom-up; `rewrite` sees each rebuilt node and returns its replacement, or a null Expr to keep it.
// Shared nodes are rewritten once.
Expr transform(const Expr& e, const std::function<Expr(const Expr&)>& rewrite);
using VarMap = std::unordered_map<const ExprNode*, Expr>;
Expr substitute(const Expr& e, const VarMap& map);

std::string to_string(const Expr& e);
// The same with other names for some variables, buffers (keyed by object) or whole sub-expressions: what the printers
// of programs use to keep the names of one text apart.
using NameMap = std::unordered_map<const void*, std::string>;
std::string to_string(const Expr& e, const NameMap& names);

}  // namespace tessera::inline arith
