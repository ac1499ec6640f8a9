// What AArch64 processors have instructions for. The form: loop/intrinsic_text.h.
#include "target/intrinsic_texts.h"

namespace tessera::inline target {

const IntrinsicText kAArch64Intrinsics = {"aarch64", R"text(
intrinsic "aarch64.neon.fma.f32" {
  doc "128-bit fused multiply-add"
  registers 32
  pattern kernel @tile<V, P, A, B, C, av, ap, al, bv, bp, bl, cv, cp>(a: f32[A], b: f32[B]) -> (c: f32[C]) {
    unrolled for v in 0..V { unrolled for p in 0..P { vectorized for l in 0..4 {
      c[(((v * cv) + (p * cp)) + l)] =
        fma(a[(((v * av) + (p * ap)) + (l * al))], b[(((v * bv) + (p * bp)) + (l * bl))], c[(((v * cv) + (p * cp)) + l)])
    } } }
  }
  exactly
  shifted p
  register c
  widened a, b
  range al, bl 0..1
  open A, B, C
  shape [4, 1]
  code multiply_add
}

intrinsic "aarch64.neon.fma.f64" {
  doc "128-bit fused multiply-add"
  registers 32
  pattern kernel @tile<V, P, A, B, C, av, ap, al, bv, bp, bl, cv, cp>(a: f64[A], b: f64[B]) -> (c: f64[C]) {
    unrolled for v in 0..V { unrolled for p in 0..P { vectorized for l in 0..2 {
      c[(((v * cv) + (p * cp)) + l)] =
        fma(a[(((v * av) + (p * ap)) + (l * al))], b[(((v * bv) + (p * bp)) + (l * bl))], c[(((v * cv) + (p * cp)) + l)])
    } } }
  }
  exactly
  shifted p
  register c
  widened a, b
  range al, bl 0..1
  open A, B, C
  shape [2, 1]
  code multiply_add
}

intrinsic "aarch64.neon.transpose.f32" {
  doc "4x4 in 128 bits"
  registers 32
  pattern kernel @turn<X, Y, xs, ys>(x: f32[X]) -> (y: f32[Y]) {
    unrolled for r in 0..4 { vectorized for l in 0..4 { y[((r * ys) + l)] = x[((l * xs) + r)] } }
  }
  exactly
  memory x, y
  moves
  open X, Y
  shape [4, 1]
  code transpose
}

intrinsic "aarch64.neon.dot.i8" {
  doc "128-bit sums of four products"
  needs "dotprod"
  registers 32
  pattern kernel @dot(a: i8[4], b: i8[4,4]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..4 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  code quads_neon
}

intrinsic "aarch64.neon.dot.u8" {
  doc "128-bit sums of four products"
  needs "dotprod"
  registers 32
  pattern kernel @dot(a: u8[4], b: u8[4,4]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..4 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  code quads_neon
}

intrinsic "aarch64.neon.dot.bits" {
  doc "128-bit and, count of bits, add"
  registers 32
  pattern kernel @bits(a: u32[], b: u32[4]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..32 { c[l] = (c[l] + cast:i32((shr((a[] & b[l]), cast:u32(q)) & 1:u32))) } }
  }
  shape [4, 1]
  code common_bits
}
)text"};

}  // namespace tessera::inline target
