// Where the values of a graph stand in memory while a planned program runs, and after which call they are whole: how a
// run is compared with another one, value by value, without changing what is compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"
#include "types/tensor.h"

namespace tessera::inline program {

struct ValuePlace {
  std::string name;                      // of the value
  TensorType type;                       // static, with the layout in memory
  BufferKind kind = BufferKind::kArena;  // or kOutput
  int32_t index = -1;                    // kOutput: which
  int64_t offset = 0;                    // in bytes, from the begin of the arena or of the output
  int32_t call = 0;                      // the last that writes to it
};

// In the order of calls. Values that are written in parts count once the last part is there; values that no call writes
// (inputs, weights, views of those), that a call writes which need not take place, or that a block writes or a loop
// carries, have no place. REQUIRES: a planned program.
std::vector<ValuePlace> value_locations(const Program& program);

// The value whose buffer of type `type` begins at `bytes`, in logical, row-major order.
Tensor read_value(const TensorType& type, const std::byte* bytes);

}  // namespace tessera::inline program
