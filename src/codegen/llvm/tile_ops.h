// Operations on two-dimensional tiles of 16 rows of 64 bytes: AMX's instructions, or the same in plain memory.
#pragma once

#include <cstdint>
#include <memory>

#include "codegen/llvm/llvm_headers.h"
#include "types/dtype.h"

namespace tessera::inline llvm_codegen {

// The eight tiles of one function. Tiles are numbers, 0 to 7; what a tile holds is unspecified until it is loaded.
class TileOps {
 public:
  virtual ~TileOps() = default;
  // At the function's entry, and at its end; released before a call of another function and configured after it.
  virtual void configure(llvm::IRBuilder<>& b) = 0;
  virtual void release(llvm::IRBuilder<>& b) = 0;
  // 16 rows of 64 bytes from or to `pointer`, `stride` bytes apart.
  virtual void load(llvm::IRBuilder<>& b, int tile, llvm::Value* pointer, llvm::Value* stride) = 0;
  virtual void store(llvm::IRBuilder<>& b, int tile, llvm::Value* pointer, llvm::Value* stride) = 0;
  virtual void clear(llvm::IRBuilder<>& b, int tile) = 0;
  // acc[r, c] += the sum over k < 16 and i < n of a[r, nk + i] * b[k, nc + i]: with n = 2 of bf16 in f32, with n = 4 of
  // i8 or u8 in i32.
  virtual void dot(llvm::IRBuilder<>& b, DType a_type, DType b_type, int acc, int a, int b_tile) = 0;
};

// Instructions of x86's amx-tile, amx-bf16 and amx-int8, with fixed tile numbers.
std::unique_ptr<TileOps> amx_tiles();
// 1 KiB of stack for each tile; `entry` is the function's entry block.
std::unique_ptr<TileOps> portable_tiles(llvm::BasicBlock* entry);

}  // namespace tessera::inline llvm_codegen
