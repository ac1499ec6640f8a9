// Tensor intrinsics: a pattern in loop IR and the key by which a back end knows how to emit it. A schedule marks a
// matching nest with `tensorized<name>`; the interpreter simply runs the nest, the verifier holds it against the
// pattern, and only the back end's leaf knows what the key means.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "loop/stmt.h"
#include "types/target.h"

namespace tessera {

struct TensorIntrinsic {
  std::string name;                   // "x86.avx512.fma.f32"
  std::string emitter;                // key known to the back end: "outer_fma", "outer_dot", "transpose"
  DType dtype = DType::kF32;          // of the accumulator; of what is moved
  int lanes = 16;                     // extent of the vectorized loop
  std::vector<std::string> features;  // the target must have all of them
  // Limits of the register tile: vectors of accumulators + vectors of B + one broadcast must fit.
  int registers = 32;
  std::string doc;
  DType factors = DType::kF32;  // outer_dot: of what is multiplied
};

// The pattern shared by the multiply-add tiles ("outer_fma"):
//   unrolled v: unrolled p: vectorized l<lanes:  acc[v, p, l] = fma(a(v, p, l), b(v, p, l), acc[v, p, l])
// with constant extents (v and l from 0, p from any constant: a tile at an image's border leaves rows out), `acc` in
// register scope, a and b loads of the same dtype, or conversions of loads of 16-bit floats to it, whose index is affine
// in v, p, l with coefficient 0 or 1 in l for the flattened address.
//
// "outer_dot" adds the products of two neighbouring pairs of narrower factors, which are converted:
//   acc[v, p, l] = fma(cast(a1), cast(b1), fma(cast(a0), cast(b0), acc[v, p, l]))
// with a1 at the address behind a0 and b1 at that behind b0; a has coefficient 0 in l and b coefficient 2. The products
// may be rounded once or twice, and denormal factors and results may count as zero.
//
// The pattern of "transpose": a square tile that is moved and turned.
//   unrolled r: vectorized l<lanes>:  y[.. + r * stride + l] = x[.. + l * stride + r]
// with `lanes` iterations of both loops from 0, two different buffers in memory, and flattened addresses affine in r
// and l, with coefficient 1 in l for y and in r for x.
//
// Empty when `body` matches the intrinsic's pattern; otherwise the reason.
std::string match_intrinsic(const TensorIntrinsic& intrinsic, const Stmt& body);

std::span<const TensorIntrinsic> all_intrinsics();
const TensorIntrinsic* find_intrinsic(const std::string& name);
// The widest multiply-add tile for `dtype` that the target has; null when it has none (never for f32 on x86-64).
const TensorIntrinsic* best_fma_intrinsic(const Target& target, DType dtype);
// The widest tile of dot products of pairs of `factors` with sums of f32; null when the target has none.
const TensorIntrinsic* best_dot_intrinsic(const Target& target, DType factors);
// The widest square tile that the target can turn in registers; null when it has none.
const TensorIntrinsic* best_transpose_intrinsic(const Target& target, DType dtype);

}  // namespace tessera
