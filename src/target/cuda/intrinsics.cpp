// What the GPUs of NVIDIA's have instructions for, from sm_80 on. The form: loop/intrinsic_text.h.
//
// A product of a warp's is written as what each of its 32 threads has of the sums: of a tile of 16 rows by 8 columns
// the rows lane / 4 and lane / 4 + 8, and the columns 2 * (lane % 4) and the one behind it, as mma.sync deals them.
#include "target/intrinsic_texts.h"

namespace tessera::inline target {

const IntrinsicText kCudaIntrinsics = {"cuda", R"text(
intrinsic "cuda.mma.bf16" {
  doc "mma.sync: a thread's part of tiles of 16 x 8 sums of products of bf16, 16 steps"
  pattern kernel @product<I, J, A, B, C, ai, ar, ak, bj, bc, bk, ci, cj>(a: bf16[A], b: bf16[B]) -> (c: f32[C]) {
    unrolled for i in 0..I { unrolled for j in 0..J { unrolled for h in 0..2 { unrolled for l in 0..2 {
    for k in 0..16 {
      c[(((i * ci) + (j * cj)) + ((h * 2) + l))] =
        fma(cast:f32(a[(((i * ai) + (h * ar)) + (k * ak))]), cast:f32(b[(((j * bj) + (l * bc)) + (k * bk))]),
            c[(((i * ci) + (j * cj)) + ((h * 2) + l))])
    } } } } }
  }
  exactly
  register c
  memory a, b
  range I 1..8
  range J 1..8
  open A, B, C
  shape [16, 8]
  code warp_product
}
intrinsic "cuda.mma.f16" {
  doc "mma.sync: a thread's part of tiles of 16 x 8 sums of products of f16, 16 steps"
  pattern kernel @product<I, J, A, B, C, ai, ar, ak, bj, bc, bk, ci, cj>(a: f16[A], b: f16[B]) -> (c: f32[C]) {
    unrolled for i in 0..I { unrolled for j in 0..J { unrolled for h in 0..2 { unrolled for l in 0..2 {
    for k in 0..16 {
      c[(((i * ci) + (j * cj)) + ((h * 2) + l))] =
        fma(cast:f32(a[(((i * ai) + (h * ar)) + (k * ak))]), cast:f32(b[(((j * bj) + (l * bc)) + (k * bk))]),
            c[(((i * ci) + (j * cj)) + ((h * 2) + l))])
    } } } } }
  }
  exactly
  register c
  memory a, b
  range I 1..8
  range J 1..8
  open A, B, C
  shape [16, 8]
  code warp_product
}
intrinsic "cuda.copy.b16" {
  doc "cp.async: 16 bytes that go to memory of the block while the thread goes on"
  pattern kernel @copy<A, B>(a: bf16[A]) -> (b: bf16[B]) {
    vectorized for l in 0..8 {
      b[l] = a[l]
    }
  }
  exactly
  moves
  open A, B
  code async_copy
}
intrinsic "cuda.exp.f32" {
  doc "ex2.approx: exp of a number that is not above 0, within 2^-17; 0 below -87"
  pattern kernel @exp<A, B>(a: f32[A]) -> (b: f32[B]) {
    b[0] = select((a[0] < -87:f32), 0:f32,
                  (fma(fma(fma(fma(0.0095605105:f32, fma(a[0], 1.442695:f32, neg((fma(a[0], 1.442695:f32, 12582912:f32) - 12582912:f32))),
                                   0.05591704:f32),
                               fma(a[0], 1.442695:f32, neg((fma(a[0], 1.442695:f32, 12582912:f32) - 12582912:f32))), 0.24024981:f32),
                           fma(a[0], 1.442695:f32, neg((fma(a[0], 1.442695:f32, 12582912:f32) - 12582912:f32))), 0.69312197:f32),
                       fma(a[0], 1.442695:f32, neg((fma(a[0], 1.442695:f32, 12582912:f32) - 12582912:f32))), 0.99999917:f32) *
                   bitcast:f32((shl(bitcast:i32(fma(a[0], 1.442695:f32, 12582912:f32)), 23:i32) + 1065353216:i32))))
  }
  exactly
  register a, b
  open A, B
  shape [1, 1]
  code short_exp
}
)text"};

}  // namespace tessera::inline target
