// A program as WebAssembly: one module that brings its weights and all memory of a run, imports nothing, and runs
// wherever an engine with vectors of 128 bits does (Node, browsers).
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/common/object_code.h"
#include "target/target.h"

namespace tessera::inline llvm_codegen {

// What the linked module exports (package/link_wasm.h), besides its memory: the global with the address of the memory
// that offsets below are counted from, `int32_t run()`, which reads the inputs and writes the outputs there, and of
// programs with states `void reset()`, which gives them their values of before the first run and must be called once.
inline constexpr const char* kWasmMemory = "tessera_memory";
inline constexpr const char* kWasmRun = "tessera_run";
inline constexpr const char* kWasmReset = "tessera_reset";

// Offsets in bytes.
struct WasmLayout {
  std::vector<int64_t> inputs, outputs;  // of the program's own ones, in their order
  std::vector<int64_t> checks;           // int64_t each; 0 after a run whose outputs are void
  int64_t bytes = 0;
};

struct WasmCode {
  std::vector<std::byte> object;
  WasmLayout layout;
  std::vector<std::string> remarks;
};

// REQUIRES: as generate_llvm, with a target of WebAssembly. UserError TSR-5150, which names all that has no such form:
// open sizes, steps of a flow, devices, linked intrinsics, and more than 2 GiB of weights and memory.
WasmCode generate_wasm(const Program& program, const Target& target, const CodegenOptions& options);

}  // namespace tessera::inline llvm_codegen
