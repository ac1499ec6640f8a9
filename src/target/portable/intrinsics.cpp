// What needs no instruction: tiles in plain memory, which run what is made for tiles anywhere, and nests that are left
// alone. The form: loop/intrinsic_text.h.
#include "target/intrinsic_texts.h"

namespace tessera::inline target {

const IntrinsicText kPortableIntrinsics = {"portable", R"text(
intrinsic "portable.tile.dot.bf16" {
  doc "the same in plain memory"
  needs "portable-tiles"
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

intrinsic "portable.tile.dot.u8i8" {
  doc "the same in plain memory"
  needs "portable-tiles"
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

intrinsic "portable.tile.dot.u8u8" {
  doc "the same in plain memory"
  needs "portable-tiles"
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

intrinsic "portable.tile.dot.i8i8" {
  doc "the same in plain memory"
  needs "portable-tiles"
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

intrinsic "portable.tile.dot.i8u8" {
  doc "the same in plain memory"
  needs "portable-tiles"
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

intrinsic "block" {
  doc "a nest that is left as it is"
  sums f32
  shape [1, 1]
  code block
}
)text"};

}  // namespace tessera::inline target
