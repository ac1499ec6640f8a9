// What x86-64 processors have instructions for; of several that do the same the widest first, and sums of four products
// before pairs, which are half as fast. The form: loop/intrinsic_text.h.
#include "target/intrinsic_texts.h"

namespace tessera::inline target {

const IntrinsicText kX86Intrinsics = {"x86", R"text(
intrinsic "x86.avx512.fma.f32" {
  doc "zmm fused multiply-add"
  needs "avx512f"
  registers 32
  pattern kernel @tile<V, P, A, B, C, av, ap, al, bv, bp, bl, cv, cp>(a: f32[A], b: f32[B]) -> (c: f32[C]) {
    unrolled for v in 0..V { unrolled for p in 0..P { vectorized for l in 0..16 {
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
  shape [16, 1]
  code multiply_add
}

intrinsic "x86.fma.f32" {
  doc "ymm fused multiply-add"
  needs "avx2", "fma"
  registers 16
  pattern kernel @tile<V, P, A, B, C, av, ap, al, bv, bp, bl, cv, cp>(a: f32[A], b: f32[B]) -> (c: f32[C]) {
    unrolled for v in 0..V { unrolled for p in 0..P { vectorized for l in 0..8 {
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
  shape [8, 1]
  code multiply_add
}

intrinsic "x86.sse.mul_add.f32" {
  doc "xmm multiply, then add: two roundings"
  registers 16
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

intrinsic "x86.avx512.fma.f64" {
  doc "zmm fused multiply-add"
  needs "avx512f"
  registers 32
  pattern kernel @tile<V, P, A, B, C, av, ap, al, bv, bp, bl, cv, cp>(a: f64[A], b: f64[B]) -> (c: f64[C]) {
    unrolled for v in 0..V { unrolled for p in 0..P { vectorized for l in 0..8 {
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
  shape [8, 1]
  code multiply_add
}

intrinsic "x86.fma.f64" {
  doc "ymm fused multiply-add"
  needs "avx2", "fma"
  registers 16
  pattern kernel @tile<V, P, A, B, C, av, ap, al, bv, bp, bl, cv, cp>(a: f64[A], b: f64[B]) -> (c: f64[C]) {
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

intrinsic "x86.sse.mul_add.f64" {
  doc "xmm multiply, then add: two roundings"
  registers 16
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

intrinsic "x86.avx512.dot.bf16" {
  doc "zmm sums of pairs of products of bf16"
  needs "avx512bf16"
  registers 32
  pattern kernel @dot(a: bf16[2], b: bf16[16,2]) -> (c: f32[16]) {
    vectorized for l in 0..16 { for q in 0..2 { c[l] = (c[l] + (cast:f32(a[q]) * cast:f32(b[l, q]))) } }
  }
  pattern kernel @written_out<V, P, A, B, C, av, ap, bv, bp, cv, cp>(a: bf16[A], b: bf16[B]) -> (c: f32[C]) {
    unrolled for v in 0..V { unrolled for p in 0..P { vectorized for l in 0..16 {
      c[(((v * cv) + (p * cp)) + l)] =
        fma(cast:f32(a[(((v * av) + (p * ap)) + 1)]), cast:f32(b[((((v * bv) + (p * bp)) + (l * 2)) + 1)]),
            fma(cast:f32(a[((v * av) + (p * ap))]), cast:f32(b[(((v * bv) + (p * bp)) + (l * 2))]),
                c[(((v * cv) + (p * cp)) + l)]))
    } } }
  }
  exactly
  shifted p
  register c
  open A, B, C
  code dot_of_pairs
}

intrinsic "x86.avx512.transpose.f32" {
  doc "16x16 in zmm"
  needs "avx512f"
  registers 32
  pattern kernel @turn<X, Y, xs, ys>(x: f32[X]) -> (y: f32[Y]) {
    unrolled for r in 0..16 { vectorized for l in 0..16 { y[((r * ys) + l)] = x[((l * xs) + r)] } }
  }
  exactly
  memory x, y
  moves
  open X, Y
  shape [16, 1]
  code transpose
}

intrinsic "x86.avx2.transpose.f32" {
  doc "8x8 in ymm"
  needs "avx2"
  registers 16
  pattern kernel @turn<X, Y, xs, ys>(x: f32[X]) -> (y: f32[Y]) {
    unrolled for r in 0..8 { vectorized for l in 0..8 { y[((r * ys) + l)] = x[((l * xs) + r)] } }
  }
  exactly
  memory x, y
  moves
  open X, Y
  shape [8, 1]
  code transpose
}

intrinsic "x86.sse.transpose.f32" {
  doc "4x4 in xmm"
  registers 16
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

intrinsic "x86.avx512.dot.u8i8" {
  doc "zmm sums of four products (VNNI)"
  needs "avx512vnni"
  registers 32
  pattern kernel @dot(a: u8[4], b: i8[16,4]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..4 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: u8[A], b: i8[16,4]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..4 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code quads_u8i8
}

intrinsic "x86.avx512vl.dot.u8i8" {
  doc "ymm sums of four products (VNNI)"
  needs "avx512vnni", "avx512vl"
  registers 32
  pattern kernel @dot(a: u8[4], b: i8[8,4]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..4 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: u8[A], b: i8[8,4]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..4 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code quads_u8i8
}

intrinsic "x86.avx.dot.u8i8" {
  doc "ymm sums of four products (AVX-VNNI)"
  needs "avxvnni"
  registers 32
  pattern kernel @dot(a: u8[4], b: i8[8,4]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..4 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: u8[A], b: i8[8,4]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..4 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code quads_u8i8
}

intrinsic "x86.avx512.dot.i8u8" {
  doc "zmm sums of four products, the first factor with a sign (VNNI)"
  needs "avx512vnni"
  registers 32
  pattern kernel @dot(a: i8[4], b: u8[16,4]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..4 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: i8[A], b: u8[16,4]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..4 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code quads_u8i8
}

intrinsic "x86.avx512vl.dot.i8u8" {
  doc "ymm sums of four products, the first factor with a sign (VNNI)"
  needs "avx512vnni", "avx512vl"
  registers 32
  pattern kernel @dot(a: i8[4], b: u8[8,4]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..4 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: i8[A], b: u8[8,4]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..4 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code quads_u8i8
}

intrinsic "x86.avx.dot.i8u8" {
  doc "ymm sums of four products, the first factor with a sign (AVX-VNNI)"
  needs "avxvnni"
  registers 32
  pattern kernel @dot(a: i8[4], b: u8[8,4]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..4 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: i8[A], b: u8[8,4]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..4 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code quads_u8i8
}

intrinsic "x86.avx512.dot.i16" {
  doc "zmm sums of two products"
  needs "avx512bw"
  registers 32
  pattern kernel @dot(a: i16[2], b: i16[16,2]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  code pairs_i16
}

intrinsic "x86.avx2.dot.i16" {
  doc "ymm sums of two products"
  needs "avx2"
  registers 32
  pattern kernel @dot(a: i16[2], b: i16[8,2]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  code pairs_i16
}

intrinsic "x86.sse.dot.i16" {
  doc "xmm sums of two products"
  registers 32
  pattern kernel @dot(a: i16[2], b: i16[4,2]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  code pairs_i16
}

intrinsic "x86.avx512.dot.pairs.u8i8" {
  doc "zmm sums of two products of bytes"
  needs "avx512bw"
  registers 32
  pattern kernel @dot(a: u8[2], b: i8[16,2]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: u8[A], b: i8[16,2]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.avx2.dot.pairs.u8i8" {
  doc "ymm sums of two products of bytes"
  needs "avx2"
  registers 32
  pattern kernel @dot(a: u8[2], b: i8[8,2]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: u8[A], b: i8[8,2]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.sse.dot.pairs.u8i8" {
  doc "xmm sums of two products of bytes"
  registers 32
  pattern kernel @dot(a: u8[2], b: i8[4,2]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: u8[A], b: i8[4,2]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.avx512.dot.pairs.u8u8" {
  doc "zmm sums of two products of bytes"
  needs "avx512bw"
  registers 32
  pattern kernel @dot(a: u8[2], b: u8[16,2]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: u8[A], b: u8[16,2]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.avx2.dot.pairs.u8u8" {
  doc "ymm sums of two products of bytes"
  needs "avx2"
  registers 32
  pattern kernel @dot(a: u8[2], b: u8[8,2]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: u8[A], b: u8[8,2]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.sse.dot.pairs.u8u8" {
  doc "xmm sums of two products of bytes"
  registers 32
  pattern kernel @dot(a: u8[2], b: u8[4,2]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: u8[A], b: u8[4,2]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.avx512.dot.pairs.i8i8" {
  doc "zmm sums of two products of bytes"
  needs "avx512bw"
  registers 32
  pattern kernel @dot(a: i8[2], b: i8[16,2]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: i8[A], b: i8[16,2]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.avx2.dot.pairs.i8i8" {
  doc "ymm sums of two products of bytes"
  needs "avx2"
  registers 32
  pattern kernel @dot(a: i8[2], b: i8[8,2]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: i8[A], b: i8[8,2]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.sse.dot.pairs.i8i8" {
  doc "xmm sums of two products of bytes"
  registers 32
  pattern kernel @dot(a: i8[2], b: i8[4,2]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: i8[A], b: i8[4,2]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.avx512.dot.pairs.i8u8" {
  doc "zmm sums of two products of bytes"
  needs "avx512bw"
  registers 32
  pattern kernel @dot(a: i8[2], b: u8[16,2]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: i8[A], b: u8[16,2]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.avx2.dot.pairs.i8u8" {
  doc "ymm sums of two products of bytes"
  needs "avx2"
  registers 32
  pattern kernel @dot(a: i8[2], b: u8[8,2]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: i8[A], b: u8[8,2]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.sse.dot.pairs.i8u8" {
  doc "xmm sums of two products of bytes"
  registers 32
  pattern kernel @dot(a: i8[2], b: u8[4,2]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: i8[A], b: u8[4,2]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.avx512.dot.pairs.u8i16" {
  doc "zmm sums of two products of u8 and i16, widened"
  needs "avx512bw"
  registers 32
  pattern kernel @dot(a: u8[2], b: i16[16,2]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: u8[A], b: i16[16,2]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.avx2.dot.pairs.u8i16" {
  doc "ymm sums of two products of u8 and i16, widened"
  needs "avx2"
  registers 16
  pattern kernel @dot(a: u8[2], b: i16[8,2]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: u8[A], b: i16[8,2]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.sse.dot.pairs.u8i16" {
  doc "xmm sums of two products of u8 and i16, widened"
  registers 16
  pattern kernel @dot(a: u8[2], b: i16[4,2]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: u8[A], b: i16[4,2]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.avx512.dot.pairs.i8i16" {
  doc "zmm sums of two products of i8 and i16, widened"
  needs "avx512bw"
  registers 32
  pattern kernel @dot(a: i8[2], b: i16[16,2]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: i8[A], b: i16[16,2]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.avx2.dot.pairs.i8i16" {
  doc "ymm sums of two products of i8 and i16, widened"
  needs "avx2"
  registers 16
  pattern kernel @dot(a: i8[2], b: i16[8,2]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: i8[A], b: i16[8,2]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.sse.dot.pairs.i8i16" {
  doc "xmm sums of two products of i8 and i16, widened"
  registers 16
  pattern kernel @dot(a: i8[2], b: i16[4,2]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[q]) * cast:i32(b[l, q]))) } }
  }
  pattern kernel @lanes<A, s>(a: i8[A], b: i16[4,2]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..2 { c[l] = (c[l] + (cast:i32(a[((q * s) + l)]) * cast:i32(b[l, q]))) } }
  }
  open A
  code pairs_of_bytes
}

intrinsic "x86.avx512.pack.u8" {
  doc "four zmm of floats to a zmm of bytes"
  needs "avx512bw"
  registers 32
  pattern kernel @pack(x: f32[64]) -> (y: u8[64]) {
    vectorized for l in 0..64 {
      y[l] = cast:u8(bitcast:i32((min(select((x[l] > 0:f32), x[l], 0:f32), 255:f32) + 12582912:f32)))
    }
  }
  memory x, y
  shape [64, 1]
  code pack_bytes
}

intrinsic "x86.avx2.pack.u8" {
  doc "four ymm of floats to a ymm of bytes"
  needs "avx2"
  registers 16
  pattern kernel @pack(x: f32[32]) -> (y: u8[32]) {
    vectorized for l in 0..32 {
      y[l] = cast:u8(bitcast:i32((min(select((x[l] > 0:f32), x[l], 0:f32), 255:f32) + 12582912:f32)))
    }
  }
  memory x, y
  shape [32, 1]
  code pack_bytes
}

intrinsic "x86.avx512.dot.bits" {
  doc "zmm and, count of bits, add: bit-serial products"
  needs "avx512vpopcntdq"
  registers 32
  pattern kernel @bits(a: u32[], b: u32[16]) -> (c: i32[16]) {
    vectorized for l in 0..16 { for q in 0..32 { c[l] = (c[l] + cast:i32((shr((a[] & b[l]), cast:u32(q)) & 1:u32))) } }
  }
  shape [16, 1]
  code common_bits
}

intrinsic "x86.avx2.dot.bits" {
  doc "ymm and, count of bits by a table in a register, add"
  needs "avx2"
  registers 32
  pattern kernel @bits(a: u32[], b: u32[8]) -> (c: i32[8]) {
    vectorized for l in 0..8 { for q in 0..32 { c[l] = (c[l] + cast:i32((shr((a[] & b[l]), cast:u32(q)) & 1:u32))) } }
  }
  shape [8, 1]
  code common_bits
}

intrinsic "x86.sse.dot.bits" {
  doc "xmm and, count of bits, add"
  registers 32
  pattern kernel @bits(a: u32[], b: u32[4]) -> (c: i32[4]) {
    vectorized for l in 0..4 { for q in 0..32 { c[l] = (c[l] + cast:i32((shr((a[] & b[l]), cast:u32(q)) & 1:u32))) } }
  }
  shape [4, 1]
  code common_bits
}

intrinsic "x86.amx.dot.bf16" {
  doc "tiles of 16 x 16 sums of products of bf16"
  needs "amx-tile", "amx-bf16"
  registers 8
  pattern kernel @product<P, V, A, B, C, ap, ar, bv, bk, cp, cv, cr>(a: bf16[A], b: bf16[B]) -> (c: f32[C]) {
    unrolled for p in 0..P { unrolled for v in 0..V {
    for r in 0..16 { for j in 0..16 { for k in 0..16 { for q in 0..2 {
      c[(((p * cp) + (v * cv)) + ((r * cr) + j))] =
        (c[(((p * cp) + (v * cv)) + ((r * cr) + j))] +
         (cast:f32(a[(((p * ap) + (r * ar)) + ((k * 2) + q))]) *
          cast:f32(b[(((v * bv) + (k * bk)) + ((j * 2) + q))])))
    } } } } } }
  }
  exactly
  memory a, b, c
  range P, V 1..4
  open A, B, C
  pattern kernel @written_out<P, V, A, B, C, ap, ar, bv, bk, cp, cv, cr>(a: bf16[A], b: bf16[B]) -> (c: f32[C]) {
    unrolled for p in 0..P { unrolled for v in 0..V { for r in 0..16 { for j in 0..16 { for k in 0..16 {
      c[(((p * cp) + (v * cv)) + ((r * cr) + j))] =
        fma(cast:f32(a[(((p * ap) + (r * ar)) + ((k * 2) + 1))]),
            cast:f32(b[(((v * bv) + (k * bk)) + ((j * 2) + 1))]), fma(cast:f32(a[(((p * ap) + (r * ar)) + ((k * 2) + 0))]),
            cast:f32(b[(((v * bv) + (k * bk)) + ((j * 2) + 0))]), c[(((p * cp) + (v * cv)) + ((r * cr) + j))]))
    } } } } }
  }
  exactly
  memory a, b, c
  range P, V 1..4
  open A, B, C
  clears kernel @clear<P, V, C, cp, cv, cr>() -> (c: f32[C]) {
    unrolled for p in 0..P { unrolled for v in 0..V { for r in 0..16 { for j in 0..16 {
      c[(((p * cp) + (v * cv)) + ((r * cr) + j))] = 0:f32
    } } } }
  }
  shape [16, 2]
  code tile_dot
}

intrinsic "x86.amx.dot.u8i8" {
  doc "tiles of 16 x 16 sums of products of 8 bits"
  needs "amx-tile", "amx-int8"
  registers 8
  pattern kernel @product<P, V, A, B, C, ap, ar, bv, bk, cp, cv, cr>(a: u8[A], b: i8[B]) -> (c: i32[C]) {
    unrolled for p in 0..P { unrolled for v in 0..V {
    for r in 0..16 { for j in 0..16 { for k in 0..16 { for q in 0..4 {
      c[(((p * cp) + (v * cv)) + ((r * cr) + j))] =
        (c[(((p * cp) + (v * cv)) + ((r * cr) + j))] +
         (cast:i32(a[(((p * ap) + (r * ar)) + ((k * 4) + q))]) *
          cast:i32(b[(((v * bv) + (k * bk)) + ((j * 4) + q))])))
    } } } } } }
  }
  exactly
  memory a, b, c
  range P, V 1..4
  open A, B, C
  clears kernel @clear<P, V, C, cp, cv, cr>() -> (c: i32[C]) {
    unrolled for p in 0..P { unrolled for v in 0..V { for r in 0..16 { for j in 0..16 {
      c[(((p * cp) + (v * cv)) + ((r * cr) + j))] = 0:i32
    } } } }
  }
  shape [16, 4]
  code tile_dot
}

intrinsic "x86.amx.dot.u8u8" {
  doc "tiles of 16 x 16 sums of products of 8 bits"
  needs "amx-tile", "amx-int8"
  registers 8
  pattern kernel @product<P, V, A, B, C, ap, ar, bv, bk, cp, cv, cr>(a: u8[A], b: u8[B]) -> (c: i32[C]) {
    unrolled for p in 0..P { unrolled for v in 0..V {
    for r in 0..16 { for j in 0..16 { for k in 0..16 { for q in 0..4 {
      c[(((p * cp) + (v * cv)) + ((r * cr) + j))] =
        (c[(((p * cp) + (v * cv)) + ((r * cr) + j))] +
         (cast:i32(a[(((p * ap) + (r * ar)) + ((k * 4) + q))]) *
          cast:i32(b[(((v * bv) + (k * bk)) + ((j * 4) + q))])))
    } } } } } }
  }
  exactly
  memory a, b, c
  range P, V 1..4
  open A, B, C
  clears kernel @clear<P, V, C, cp, cv, cr>() -> (c: i32[C]) {
    unrolled for p in 0..P { unrolled for v in 0..V { for r in 0..16 { for j in 0..16 {
      c[(((p * cp) + (v * cv)) + ((r * cr) + j))] = 0:i32
    } } } }
  }
  shape [16, 4]
  code tile_dot
}

intrinsic "x86.amx.dot.i8i8" {
  doc "tiles of 16 x 16 sums of products of 8 bits"
  needs "amx-tile", "amx-int8"
  registers 8
  pattern kernel @product<P, V, A, B, C, ap, ar, bv, bk, cp, cv, cr>(a: i8[A], b: i8[B]) -> (c: i32[C]) {
    unrolled for p in 0..P { unrolled for v in 0..V {
    for r in 0..16 { for j in 0..16 { for k in 0..16 { for q in 0..4 {
      c[(((p * cp) + (v * cv)) + ((r * cr) + j))] =
        (c[(((p * cp) + (v * cv)) + ((r * cr) + j))] +
         (cast:i32(a[(((p * ap) + (r * ar)) + ((k * 4) + q))]) *
          cast:i32(b[(((v * bv) + (k * bk)) + ((j * 4) + q))])))
    } } } } } }
  }
  exactly
  memory a, b, c
  range P, V 1..4
  open A, B, C
  clears kernel @clear<P, V, C, cp, cv, cr>() -> (c: i32[C]) {
    unrolled for p in 0..P { unrolled for v in 0..V { for r in 0..16 { for j in 0..16 {
      c[(((p * cp) + (v * cv)) + ((r * cr) + j))] = 0:i32
    } } } }
  }
  shape [16, 4]
  code tile_dot
}

intrinsic "x86.amx.dot.i8u8" {
  doc "tiles of 16 x 16 sums of products of 8 bits"
  needs "amx-tile", "amx-int8"
  registers 8
  pattern kernel @product<P, V, A, B, C, ap, ar, bv, bk, cp, cv, cr>(a: i8[A], b: u8[B]) -> (c: i32[C]) {
    unrolled for p in 0..P { unrolled for v in 0..V {
    for r in 0..16 { for j in 0..16 { for k in 0..16 { for q in 0..4 {
      c[(((p * cp) + (v * cv)) + ((r * cr) + j))] =
        (c[(((p * cp) + (v * cv)) + ((r * cr) + j))] +
         (cast:i32(a[(((p * ap) + (r * ar)) + ((k * 4) + q))]) *
          cast:i32(b[(((v * bv) + (k * bk)) + ((j * 4) + q))])))
    } } } } } }
  }
  exactly
  memory a, b, c
  range P, V 1..4
  open A, B, C
  clears kernel @clear<P, V, C, cp, cv, cr>() -> (c: i32[C]) {
    unrolled for p in 0..P { unrolled for v in 0..V { for r in 0..16 { for j in 0..16 {
      c[(((p * cp) + (v * cv)) + ((r * cr) + j))] = 0:i32
    } } } }
  }
  shape [16, 4]
  code tile_dot
}
)text"};

}  // namespace tessera::inline target
