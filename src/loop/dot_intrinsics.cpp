#include "loop/dot_intrinsics.h"

#include <fmt/format.h>

#include "loop/parser.h"
#include "target/architecture.h"

namespace tessera::inline loop {
namespace {

std::shared_ptr<const LoopProgram> parsed(const std::string& text) {
  return std::make_shared<const LoopProgram>(parse_loop_program(text, "<intrinsic>"));
}

// c[l] += a[0] * b[l, 0] + ... + a[depth - 1] * b[l, depth - 1]
std::shared_ptr<const LoopProgram> dot(std::string_view a, std::string_view b, std::string_view c, int lanes,
                                       int depth) {
  return parsed(fmt::format(
      "kernel @dot(a: {0}[{4}], b: {1}[{3},{4}]) -> (c: {2}[{3}]) {{ vectorized for l in 0..{3} {{ for q in 0..{4} {{ "
      "c[l] = (c[l] + (cast:{2}(a[q]) * cast:{2}(b[l, q]))) }} }} }}",
      a, b, c, lanes, depth));
}

// c[l] += number of bits that a and b[l] have in common: the product of two vectors of bits.
std::shared_ptr<const LoopProgram> common_bits(int lanes) {
  return parsed(fmt::format(
      "kernel @bits(a: u32[], b: u32[{0}]) -> (c: i32[{0}]) {{ vectorized for l in 0..{0} {{ for q in 0..32 {{ c[l] = "
      "(c[l] + cast:i32((shr((a[] & b[l]), cast:u32(q)) & 1:u32))) }} }} }}",
      lanes));
}

}  // namespace

std::vector<TensorIntrinsic> with_dot_intrinsics(std::vector<TensorIntrinsic> table) {
  for (TensorIntrinsic& entry : table) {
    if (entry.emitter != "outer_dot" || entry.factors != DType::kBF16) continue;
    entry.pattern = dot("bf16", "bf16", "f32", entry.lanes, 2);
    entry.depth = 2;
  }
  const auto add = [&](std::string name, const char* emitter, int lanes, int depth, std::vector<std::string> features,
                       const char* doc, std::shared_ptr<const LoopProgram> pattern) -> TensorIntrinsic& {
    TensorIntrinsic entry;
    entry.name = std::move(name);
    entry.emitter = emitter;
    entry.dtype = DType::kI32;
    entry.lanes = lanes;
    entry.depth = depth;
    entry.features = std::move(features);
    entry.doc = doc;
    entry.pattern = std::move(pattern);
    return table.emplace_back(std::move(entry));
  };
  const auto add_dot = [&](std::string name, const char* emitter, DType a, DType b, int lanes, int depth,
                           std::vector<std::string> features, const char* doc) {
    TensorIntrinsic& entry = add(std::move(name), emitter, lanes, depth, std::move(features), doc,
                                 dot(dtype_name(a), dtype_name(b), "i32", lanes, depth));
    entry.factors = a;
    entry.second_factors = b;
  };
  const auto add_bits = [&](const char* name, int lanes, std::vector<std::string> features, const char* doc) {
    add(name, "common_bits", lanes, 1, std::move(features), doc, common_bits(lanes));
  };
  add_dot("x86.avx512.dot.u8i8", "quads_u8i8", DType::kU8, DType::kI8, 16, 4, {"avx512vnni"},
          "zmm sums of four products (VNNI)");
  add_dot("x86.avx512vl.dot.u8i8", "quads_u8i8", DType::kU8, DType::kI8, 8, 4, {"avx512vnni", "avx512vl"},
          "ymm sums of four products (VNNI)");
  add_dot("x86.avx.dot.u8i8", "quads_u8i8", DType::kU8, DType::kI8, 8, 4, {"avxvnni"},
          "ymm sums of four products (AVX-VNNI)");
  add_dot("x86.avx512.dot.i16", "pairs_i16", DType::kI16, DType::kI16, 16, 2, {"avx512bw"}, "zmm sums of two products");
  add_dot("x86.avx2.dot.i16", "pairs_i16", DType::kI16, DType::kI16, 8, 2, {"avx2"}, "ymm sums of two products");
  add_dot("x86.sse.dot.i16", "pairs_i16", DType::kI16, DType::kI16, 4, 2, {}, "xmm sums of two products");
  // All pairs of types of 8 bits, widened on the way: behind the sums of four, which are twice as fast.
  for (const DType a : {DType::kU8, DType::kI8})
    for (const DType b : {DType::kI8, DType::kU8}) {
      const std::string types = fmt::format(".dot.pairs.{}{}", dtype_name(a), dtype_name(b));
      add_dot("x86.avx512" + types, "pairs_of_bytes", a, b, 16, 2, {"avx512bw"}, "zmm sums of two products of bytes");
      add_dot("x86.avx2" + types, "pairs_of_bytes", a, b, 8, 2, {"avx2"}, "ymm sums of two products of bytes");
      add_dot("x86.sse" + types, "pairs_of_bytes", a, b, 4, 2, {}, "xmm sums of two products of bytes");
    }
  add_dot("aarch64.neon.dot.i8", "quads_neon", DType::kI8, DType::kI8, 4, 4, {"dotprod"},
          "128-bit sums of four products");
  add_dot("aarch64.neon.dot.u8", "quads_neon", DType::kU8, DType::kU8, 4, 4, {"dotprod"},
          "128-bit sums of four products");
  add_bits("x86.avx512.dot.bits", 16, {"avx512vpopcntdq"}, "zmm and, count of bits, add: bit-serial products");
  add_bits("x86.avx2.dot.bits", 8, {"avx2"}, "ymm and, count of bits by a table in a register, add");
  add_bits("x86.sse.dot.bits", 4, {}, "xmm and, count of bits, add");
  add_bits("aarch64.neon.dot.bits", 4, {}, "128-bit and, count of bits, add");
  const auto add_tile = [&](const std::string& name, DType sums, DType first, DType second, int depth,
                            std::vector<std::string> features, std::string doc) {
    TensorIntrinsic entry;
    entry.name = name;
    entry.emitter = "tile_dot";
    entry.dtype = sums;
    entry.lanes = static_cast<int>(kTileSide);
    entry.depth = depth;
    entry.registers = 8;
    entry.features = std::move(features);
    entry.doc = std::move(doc);
    entry.factors = first;
    entry.second_factors = second;
    table.push_back(std::move(entry));
  };
  const std::string portable(kPortableTiles);
  add_tile("x86.amx.dot.bf16", DType::kF32, DType::kBF16, DType::kBF16, 2, {"amx-tile", "amx-bf16"},
           "tiles of 16 x 16 sums of products of bf16");
  add_tile("portable.tile.dot.bf16", DType::kF32, DType::kBF16, DType::kBF16, 2, {portable},
           "the same in plain memory");
  for (const DType first : {DType::kU8, DType::kI8})
    for (const DType second : {DType::kI8, DType::kU8}) {
      const std::string types = fmt::format("{}{}", dtype_name(first), dtype_name(second));
      add_tile("x86.amx.dot." + types, DType::kI32, first, second, 4, {"amx-tile", "amx-int8"},
               "tiles of 16 x 16 sums of products of 8 bits");
      add_tile("portable.tile.dot." + types, DType::kI32, first, second, 4, {portable}, "the same in plain memory");
    }
  return table;
}

}  // namespace tessera::inline loop
