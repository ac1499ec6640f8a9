// What the loop interpreter executes: a flat code over slots. A slot holds the value of one constant, variable,
// address or expression; which member of Slot is meant follows from the instruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "loop/stmt.h"

namespace tessera::inline interp {

// Integers and bools are in `i` in canonical form (scalar_ops.h), f32 in `s`, all other floats in `d`.
union Slot {
  int64_t i;
  double d;
  float s;
};

enum class LoopOp : uint8_t {
  // addresses, in elements; always i64
  kMulAdd,  // dst = a + b * imm
  kCheck,   // 0 <= a < imm, else the index error of access `b` in dimension `c`
  // loads and stores: slot `a` is the address in buffer `b`; `imm` is the access (for messages)
  kLoadF32,
  kLoadI64,
  kLoadFloat,
  kLoadInt,
  kStoreF32,
  kStoreI64,
  kStoreFloat,
  kStoreInt,      // value in dst
  kCheckWritten,  // an allocation's element was stored to
  // values
  kMove,
  kSelect,  // dst = a ? b : c, both already there
  kAddF32,
  kSubF32,
  kMulF32,
  kDivF32,
  kMinF32,
  kMaxF32,
  kFmaF32,
  kAddI64,
  kSubI64,
  kMulI64,
  kLtI64,
  kLeI64,
  kAnd,
  kUnary,
  kBinary,
  kCompareFloat,
  kFma,
  kCast,
  kBitcast,  // `sub` is the UnaryOp or BinaryOp; `from` the operand's type
  // control; jump targets are relative to the next instruction
  kJump,       // by imm
  kJumpIfNot,  // by imm when a is 0
  kLoopEnter,  // var dst = a, end c = a + b; jumps by imm when there is nothing to do
  kLoopNext,   // ++dst; jumps by imm while dst < c
  kAlloc,      // buffer b: all elements unwritten
};

struct LoopInstr {
  LoopOp op{};
  DType dtype = DType::kI64;  // of the result; of the buffer for loads and stores
  DType from = DType::kI64;   // of the operands
  uint8_t sub = 0;
  int32_t dst = 0, a = 0, b = 0, c = 0;
  int64_t imm = 0;
};

// A buffer of the program with its constant shape. Parameters come first, in order.
struct LoopCodeBuffer {
  BufferPtr buffer;
  std::vector<int64_t> dims;
  int64_t elements = 1;
  bool is_param = false;
};

// One load or store of the source, for messages.
struct LoopCodeAccess {
  int32_t buffer = 0;
  bool is_store = false;
  std::vector<Expr> indices;
};

struct LoopCode {
  std::string kernel;
  std::vector<LoopInstr> instrs;
  std::vector<Slot> slots;  // initial values: constants are in place
  std::vector<LoopCodeBuffer> buffers;
  std::vector<LoopCodeAccess> accesses;
};

// REQUIRES: symbols.size() == program.symbols.size(). The symbols become constants of the code. InternalError for
// programs that no input could make legal: unknown variables and buffers, stores to read-only parameters
// (`writable[i]` false), shapes that depend on loop variables.
LoopCode compile_loop_code(const LoopProgram& program, const std::vector<int64_t>& symbols,
                           const std::vector<bool>& writable);

}  // namespace tessera::inline interp
