#include "loop/arithmetic_unit.h"

#include "loop/intrinsic.h"

namespace tessera::inline loop {
namespace {

// Of an instruction; empty where it has no unit of its own.
std::string unit_of(const TensorIntrinsic& intrinsic) {
  if (intrinsic.code == IntrinsicCode::kTileDot) {
    if (intrinsic.name.starts_with("portable.")) return "";  // multiply-adds that stand for tiles
    return intrinsic.factors == DType::kBF16 ? "bf16 tiles" : "i8 tiles";
  }
  if (intrinsic.code == IntrinsicCode::kDotOfPairs)
    return intrinsic.factors == DType::kBF16 ? "bf16 dot products" : "f16 dot products";
  if (intrinsic.code == IntrinsicCode::kPairsI16 || intrinsic.code == IntrinsicCode::kPairsOfBytes)
    return "i16 dot products";
  return is_byte_dot(intrinsic) ? "i8 dot products" : "";
}

}  // namespace

std::string arithmetic_unit(const LoopProgram& program) {
  if (!program.body) return "f32 multiply-add";
  std::string tiles, dots;
  bool f32 = false, f64 = false;
  const auto product = [&](const Expr& e) {
    if (e->kind != ExprKind::kFma && !(e->kind == ExprKind::kBinary && e->binary == BinaryOp::kMul)) return;
    f32 |= e.dtype() == DType::kF32;
    f64 |= e.dtype() == DType::kF64;
  };
  walk(
      program.body,
      [&](const Stmt& s) {
        if (s->kind != StmtKind::kTensorized) return;
        const std::string unit = unit_of(*s->intrinsic);
        if (!unit.empty()) (s->intrinsic->code == IntrinsicCode::kTileDot ? tiles : dots) = unit;
      },
      product);
  if (!tiles.empty()) return tiles;
  if (!dots.empty()) return dots;
  return f64 && !f32 ? "f64 multiply-add" : "f32 multiply-add";
}

}  // namespace tessera::inline loop
