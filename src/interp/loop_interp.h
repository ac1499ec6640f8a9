// Runs loop programs: the definition of what loop IR means, obvious before fast. Loops of every kind run in order.
// A program is translated to a flat code over numbered slots first (loop_code.h), so that a simple statement takes
// some tens of nanoseconds.
//
// Every access outside its buffer and every read of an element of an allocation that was never stored to is a LoopFault
// that names the kernel, the buffer and the index: a bug of the program, and of ours when we wrote it. A store to a
// parameter that is not writable, and parameters of another type or shape than the program's are InternalErrors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "loop/stmt.h"
#include "support/error.h"
#include "types/tensor.h"

namespace tessera::inline interp {

class LoopFault : public InternalError {
 public:
  enum class Kind : uint8_t {
    kLoad,       // outside its buffer
    kStore,      // outside its buffer
    kUnwritten,  // a load of an element that was never stored to
    kRace,       // threads that touch an element in either order (thread_interp.h)
  };
  LoopFault(Kind kind, const std::string& message) : InternalError(message), kind_(kind), message_(message) {}
  Kind kind() const { return kind_; }
  // Without where it was found.
  const std::string& message() const { return message_; }

 private:
  Kind kind_;
  std::string message_;
};

// Memory of one parameter: row-major over its physical shape. Two parameters may share memory.
struct BufferView {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  std::byte* data = nullptr;
  bool writable = false;
};

// `params` in the program's order, `symbols` the values of program.symbols. Thread-safe: all state is local.
void interpret(const LoopProgram& program, std::span<const BufferView> params, std::span<const int64_t> symbols = {});

// The same on tensors; those of the program's outputs need memory of their own (Tensor::mutable_bytes).
void interpret(const LoopProgram& program, std::span<Tensor* const> params, std::span<const int64_t> symbols = {});

}  // namespace tessera::inline interp
