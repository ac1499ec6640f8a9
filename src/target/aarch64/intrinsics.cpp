// What AArch64 processors have instructions for. The form: loop/intrinsic_text.h.
#include "target/intrinsic_texts.h"

namespace tessera::inline target {

const IntrinsicText kAArch64Intrinsics = {"aarch64", R"text(
intrinsic "aarch64.neon.fma.f32" {
  doc "128-bit fused multiply-add"
  registers 32
  sums f32
  shape [4, 1]
  code multiply_add
}

intrinsic "aarch64.neon.fma.f64" {
  doc "128-bit fused multiply-add"
  registers 32
  sums f64
  shape [2, 1]
  code multiply_add
}

intrinsic "aarch64.neon.transpose.f32" {
  doc "4x4 in 128 bits"
  registers 32
  sums f32
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
