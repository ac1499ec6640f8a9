// The inner loops of machine_probe: independent chains of one instruction, and reading memory, for each instruction set
// that this processor has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera::inline diagnose {

struct ArithmeticLoop {
  std::string instructions;  // LLVM's name of the instruction set: "avx512f"
  // Does `iterations` rounds on this thread and answers how many operations one round is (multiply and add count
  // separately).
  double (*run)(int64_t iterations) = nullptr;
};

// Reads [data, data + bytes) once; `bytes` is a multiple of 4096 and `data` aligned to 64.
using ReadLoop = void (*)(const float* data, int64_t bytes);

ArithmeticLoop widest_fma_loop();
ReadLoop widest_read_loop();
// Empty where the processor or the operating system does not have the instructions.
std::optional<ArithmeticLoop> vnni_loop();
std::optional<ArithmeticLoop> amx_i8_loop();
std::optional<ArithmeticLoop> amx_bf16_loop();

}  // namespace tessera::inline diagnose
