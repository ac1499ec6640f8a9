#include "loop/intrinsic.h"

#include <fmt/format.h>

#include <array>

#include "arith/simplify.h"

namespace tessera {
namespace {

// Widest first within a type: best_fma_intrinsic takes the first that the target has.
const std::vector<TensorIntrinsic>& table() {
  static const std::vector<TensorIntrinsic> kTable = {
      {"x86.avx512.fma.f32", "outer_fma", DType::kF32, 16, {"avx512f"}, 32, "zmm fused multiply-add"},
      {"x86.fma.f32", "outer_fma", DType::kF32, 8, {"avx2", "fma"}, 16, "ymm fused multiply-add"},
      {"x86.sse.mul_add.f32", "outer_fma", DType::kF32, 4, {}, 16, "xmm multiply, then add: two roundings"},
      {"x86.avx512.fma.f64", "outer_fma", DType::kF64, 8, {"avx512f"}, 32, "zmm fused multiply-add"},
      {"x86.fma.f64", "outer_fma", DType::kF64, 4, {"avx2", "fma"}, 16, "ymm fused multiply-add"},
      {"x86.sse.mul_add.f64", "outer_fma", DType::kF64, 2, {}, 16, "xmm multiply, then add: two roundings"},
      {"aarch64.neon.fma.f32", "outer_fma", DType::kF32, 4, {}, 32, "128-bit fused multiply-add"},
      {"aarch64.neon.fma.f64", "outer_fma", DType::kF64, 2, {}, 32, "128-bit fused multiply-add"},
      {"x86.avx512.transpose.f32", "transpose", DType::kF32, 16, {"avx512f"}, 32, "16x16 in zmm"},
      {"x86.avx2.transpose.f32", "transpose", DType::kF32, 8, {"avx2"}, 16, "8x8 in ymm"},
      {"x86.sse.transpose.f32", "transpose", DType::kF32, 4, {}, 16, "4x4 in xmm"},
      {"aarch64.neon.transpose.f32", "transpose", DType::kF32, 4, {}, 32, "4x4 in 128 bits"},
  };
  return kTable;
}

bool same_architecture(const TensorIntrinsic& intrinsic, const Target& target) {
  const std::string_view triple = target.triple;
  if (intrinsic.name.starts_with("x86.")) return triple.starts_with("x86_64");
  if (intrinsic.name.starts_with("aarch64.")) return triple.starts_with("aarch64");
  return false;
}

// The flattened address of a load or store, for the coefficients of its loop variables.
Expr flat_address(const Buffer& buffer, const std::vector<Expr>& indices) {
  Expr address = 0;
  for (size_t i = 0; i < indices.size(); ++i) address = address * buffer.shape[i] + indices[i];
  return address;
}

// Why `operand` is no operand of the multiply-add; empty when it is one.
std::string operand_problem(const char* which, const Expr& operand, DType dtype, const std::array<Var, 3>& vars) {
  if (operand->kind != ExprKind::kLoad) return fmt::format("operand {} is not a load", which);
  if (operand.dtype() != dtype) return fmt::format("operand {} is {}", which, dtype_name(operand.dtype()));
  const Expr address = flat_address(*operand->buffer, operand->operands);
  for (size_t i = 0; i < vars.size(); ++i) {
    const auto coefficient = linear_coefficient(address, vars[i]);
    if (!coefficient) return fmt::format("the address of {} is not affine in {}", operand->buffer->name, vars[i]->name);
    if (i == 2 && *coefficient != 0 && *coefficient != 1)
      return fmt::format("{} steps by {} in the vector variable {}; 0 or 1 is legal", operand->buffer->name,
                         *coefficient, vars[i]->name);
  }
  return "";
}

std::string match_transpose(const TensorIntrinsic& intrinsic, const Stmt& body) {
  static constexpr ForKind kKinds[] = {ForKind::kUnrolled, ForKind::kVectorized};
  std::array<Var, 2> vars;
  Stmt s = body;
  for (size_t level = 0; level < 2; ++level) {
    if (s->kind != StmtKind::kFor || s->for_kind != kKinds[level])
      return fmt::format("level {} is not one {} loop", level, for_kind_name(kKinds[level]));
    if (as_int(s->begin) != 0 || as_int(s->extent) != intrinsic.lanes)
      return fmt::format("loop {} does not run over 0..{}", s->var->name, intrinsic.lanes);
    vars[level] = s->var;
    s = s->stmts[0];
  }
  if (s->kind != StmtKind::kStore || s->value->kind != ExprKind::kLoad) return "the innermost statement is not a move";
  const Buffer &to = *s->buffer, &from = *s->value->buffer;
  if (to.dtype != intrinsic.dtype) return fmt::format("{} is {}", to.name, dtype_name(to.dtype));
  if (&to == &from || to.scope == MemoryScope::kRegister || from.scope == MemoryScope::kRegister)
    return "it does not move from one buffer in memory to another";
  const auto problem = [&](const Buffer& buffer, const std::vector<Expr>& indices, const Var& row,
                           const Var& contiguous) {
    const Expr address = flat_address(buffer, indices);
    if (linear_coefficient(address, contiguous) != 1)
      return fmt::format("{} is not contiguous in {}", buffer.name, contiguous->name);
    if (!linear_coefficient(address, row))
      return fmt::format("the address of {} is not affine in {}", buffer.name, row->name);
    return std::string();
  };
  std::string reason = problem(to, s->indices, vars[0], vars[1]);
  if (reason.empty()) reason = problem(from, s->value->operands, vars[1], vars[0]);
  return reason;
}

std::string match_multiply_add(const TensorIntrinsic& intrinsic, const Stmt& body) {
  static constexpr ForKind kKinds[] = {ForKind::kUnrolled, ForKind::kUnrolled, ForKind::kVectorized};
  std::array<Var, 3> vars;
  std::array<int64_t, 3> extents{};
  Stmt s = body;
  for (size_t level = 0; level < 3; ++level) {
    if (s->kind != StmtKind::kFor || s->for_kind != kKinds[level])
      return fmt::format("level {} is not one {} loop", level, for_kind_name(kKinds[level]));
    const auto extent = as_int(s->extent);
    const auto begin = as_int(s->begin);
    if (!extent || *extent < 1 || !begin || *begin < 0 || (level != 1 && *begin != 0))
      return fmt::format("loop {} does not run from {} over a constant extent", s->var->name,
                         level == 1 ? "a constant" : "0");
    vars[level] = s->var;
    extents[level] = *extent;
    s = s->stmts[0];
  }
  if (extents[2] != intrinsic.lanes)
    return fmt::format("loop {} has {} lanes instead of {}", vars[2]->name, extents[2], intrinsic.lanes);
  if (s->kind != StmtKind::kStore) return "the innermost statement is not a store";
  if (s->buffer->dtype != intrinsic.dtype) return fmt::format("the accumulator is {}", dtype_name(s->buffer->dtype));
  if (s->buffer->scope != MemoryScope::kRegister)
    return fmt::format("the accumulator {} is not in register scope", s->buffer->name);
  if (s->indices.size() != 3) return fmt::format("the accumulator {} is not indexed [v, p, l]", s->buffer->name);
  for (size_t i = 0; i < 3; ++i)
    if (!s->indices[i].same_node(vars[i]))
      return fmt::format("the accumulator {} is not indexed [v, p, l]", s->buffer->name);
  if (s->value->kind != ExprKind::kFma) return "the stored value is not an fma";
  const Expr& c = s->value->operands[2];
  const bool same = c->kind == ExprKind::kLoad && c->buffer == s->buffer && c->operands.size() == 3 &&
                    c->operands[0].same_node(vars[0]) && c->operands[1].same_node(vars[1]) &&
                    c->operands[2].same_node(vars[2]);
  if (!same) return "the fma does not add to the element that it stores";
  std::string problem = operand_problem("a", s->value->operands[0], intrinsic.dtype, vars);
  if (problem.empty()) problem = operand_problem("b", s->value->operands[1], intrinsic.dtype, vars);
  return problem;
}

const TensorIntrinsic* best_intrinsic(std::string_view emitter, const Target& target, DType dtype) {
  for (const TensorIntrinsic& intrinsic : table()) {
    if (intrinsic.emitter != emitter || intrinsic.dtype != dtype || !same_architecture(intrinsic, target)) continue;
    bool has_all = true;
    for (const std::string& feature : intrinsic.features) has_all = has_all && target.has(feature);
    if (has_all) return &intrinsic;
  }
  return nullptr;
}

}  // namespace

std::string match_intrinsic(const TensorIntrinsic& intrinsic, const Stmt& body) {
  return intrinsic.emitter == "transpose" ? match_transpose(intrinsic, body) : match_multiply_add(intrinsic, body);
}

std::span<const TensorIntrinsic> all_intrinsics() { return table(); }

const TensorIntrinsic* find_intrinsic(const std::string& name) {
  for (const TensorIntrinsic& intrinsic : table())
    if (intrinsic.name == name) return &intrinsic;
  return nullptr;
}

const TensorIntrinsic* best_fma_intrinsic(const Target& target, DType dtype) {
  return best_intrinsic("outer_fma", target, dtype);
}

const TensorIntrinsic* best_transpose_intrinsic(const Target& target, DType dtype) {
  return best_intrinsic("transpose", target, dtype);
}

}  // namespace tessera
