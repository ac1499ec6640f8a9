// Tensor intrinsics: a pattern in loop IR and the kind of code that a back end has for it. A schedule marks a
// matching nest with `tensorized<name>`; the interpreter simply runs the nest, the verifier holds it against the
// pattern, and only the back end's leaf knows the instructions. Those of each architecture are text in target/, of the
// form in intrinsic_text.h, and users declare more of them; loop/unify.h is the one matcher, and says what matches.
// Instructions for 16-bit floats may round products once or twice, take sums in another order, and count denormal
// factors and results as zero; sums of integers wrap.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loop/stmt.h"
#include "loop/unify.h"
#include "target/target.h"

namespace tessera::inline loop {

// How a back end makes code of one.
enum class IntrinsicCode : uint8_t {
  kNone,          // of declared ones, which have a body or a function
  kMultiplyAdd,   // tiles of multiply-adds of vectors
  kDotOfPairs,    // sums of pairs of products of 16-bit floats
  kQuadsU8I8,     // sums of four products of bytes, the first one's without a sign
  kQuadsNeon,     // sums of four products of bytes of one type
  kPairsI16,      // sums of two products of i16
  kPairsOfBytes,  // the same of bytes, which are widened
  kCommonBits,    // numbers of bits that two vectors have in common
  kTileDot,       // products of tiles of two dimensions
  kPackBytes,     // four vectors of floats, rounded to bytes with saturation
  kTranspose,     // square tiles that are turned
  kWarpProduct,   // a thread's part of products of tiles by the 32 threads of a warp
  kAsyncCopy,     // 16 bytes that go to memory of the block while the thread goes on (device/barriers.h)
  kShortExp,      // exp of a number that is not above 0, as exact as 16 bits show
  kBlock,         // a nest that is left alone
};
// The names in texts: "multiply_add".
const char* intrinsic_code_name(IntrinsicCode code);
std::optional<IntrinsicCode> parse_intrinsic_code(const std::string& name);

// What a nest is held against (loop/unify.h).
struct IntrinsicPattern {
  std::shared_ptr<const LoopProgram> program;
  PatternRules rules = {};
};

struct TensorIntrinsic {
  std::string name;  // "x86.avx512.fma.f32"
  IntrinsicCode code = IntrinsicCode::kNone;
  DType dtype = DType::kF32;          // of the accumulator; of what is moved
  int lanes = 16;                     // extent of the vectorized loop
  std::vector<std::string> features;  // the target must have all of them
  // Limits of the register tile: vectors of accumulators + vectors of B + one broadcast must fit.
  int registers = 32;
  std::string doc;
  DType factors = DType::kF32;  // of dot products: of what is multiplied, or of the first factor

  // Products that one lane sums up, which lie together in memory: what a schedule packs by (1: none).
  int depth = 1;
  // The nests that are this, in loop IR: one of these. A nest of a pattern that is not exact may stand in unrolled
  // loops, and code is made for each of the copies.
  std::vector<IntrinsicPattern> patterns = {};
  // The first one where it is not exact; else null.
  const LoopProgram* pattern() const {
    return patterns.empty() || patterns[0].rules.exact ? nullptr : patterns[0].program.get();
  }
  // kTileDot: the nest that may stand in front of the steps (TileDot), which clears the sums.
  std::optional<IntrinsicPattern> clear = {};
  // Of a declared one, instead of an emitter: what runs in the nest's place. The same parameters as the pattern's.
  std::shared_ptr<const LoopProgram> body = nullptr;
  // Or a C function, and the object files and libraries it is in:
  //   void call(const float* a, const float* b, float* c, int64_t s0, ...);
  // a pointer to each parameter's first element, then the value of each of the pattern's symbols.
  std::string call = {};
  std::vector<std::string> link = {};
  // Of a declared one that has a table entry's emitter: that entry's name.
  std::string like = {};
  bool always = false;  // of one that is a call: even where it is not measured faster than our own kernel
  DType second_factors = DType::kF32;  // of dot products of integers: of the second factor
};

// Empty when `body` matches the intrinsic's pattern; otherwise the reason.
std::string match_intrinsic(const TensorIntrinsic& intrinsic, const Stmt& body);

// What kTileDot is about: products of tiles, each of the intrinsic's pattern, in a serial loop over steps of the
// reduction. The products of a step, of which there may be several, add to the same sums, at most four tiles of them.
struct TileProduct {
  int64_t down = 1, across = 1;  // extents of p and v
  Var p, v, r, c, k;             // the pattern's loops from the outside: tiles, rows, columns, and groups of factors
  Stmt update;
  Expr a, b;  // the loads of the first of the products that belong together
};
struct TileDot {
  bool clears = false;  // the sums, at first
  Stmt steps;           // the loop s
  std::vector<TileProduct> products;
};
// Empty when `body` matches; otherwise the reason.
std::string match_tile_dot(const TensorIntrinsic& intrinsic, const Stmt& body, TileDot& dot);

// Rows and columns of a tile, and groups of factors in a step.
inline constexpr int64_t kTileSide = 16;
// The nest inside unrolled loops that an intrinsic stands for whose pattern is not exact: `body` itself, or what
// follows on as many unrolled loops as the pattern does not have. `around` receives those loops, outermost first.
Stmt intrinsic_nest(const TensorIntrinsic& intrinsic, const Stmt& body, std::vector<Stmt>& around);

// Whether it sums up products of bytes in the lanes of a vector.
bool is_byte_dot(const TensorIntrinsic& intrinsic);

// Whether code for the target may use it: the same architecture, and all features.
bool has_intrinsic(const Target& target, const TensorIntrinsic& intrinsic);

// Declared intrinsics besides those of the table, in order of declaration.
using Intrinsics = std::vector<const TensorIntrinsic*>;

std::span<const TensorIntrinsic> all_intrinsics();
const TensorIntrinsic* find_intrinsic(const std::string& name, const Intrinsics& declared = {});
// The widest multiply-add tile for `dtype` that the target has; null when it has none (never for f32 on x86-64).
const TensorIntrinsic* best_fma_intrinsic(const Target& target, DType dtype);
// The widest tile of dot products of pairs of `factors` with sums of f32; null when the target has none.
const TensorIntrinsic* best_dot_intrinsic(const Target& target, DType factors);
// The two-dimensional tile of dot products of these factors (two of bf16, or each of i8 or u8); null when the target
// has none.
const TensorIntrinsic* best_tile_intrinsic(const Target& target, DType first = DType::kBF16,
                                           DType second = DType::kBF16);
// The dot product of groups of bytes of these types, sums of i32 in vectors of the target's width, whose first factor
// all lanes share; null when the target has none.
const TensorIntrinsic* byte_dot_intrinsic(const Target& target, DType first, DType second);
// Whether the target multiplies bytes, in tiles or in vectors.
bool multiplies_bytes(const Target& target);
// What packs most numbers to bytes at once; null when the target has none.
const TensorIntrinsic* best_pack_intrinsic(const Target& target);
// The widest square tile that the target can turn in registers; null when it has none.
const TensorIntrinsic* best_transpose_intrinsic(const Target& target, DType dtype);

}  // namespace tessera::inline loop
