// What a program pass is, and the one list of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "program/program.h"
#include "target/target.h"

namespace tessera::inline program {

enum class ProgramPhase : uint8_t {
  kLowered,    // before kernels are scheduled: they have definitions and naive loops
  kScheduled,  // loops are final, memory is not planned
};

// What passes are asked with.
struct ProgramPassContext {
  // Implicit: most passes are asked for a machine alone.
  ProgramPassContext(const Target& machine, int64_t most_memory = 0) : target(machine), max_memory(most_memory) {}
  const Target& target;
  int64_t max_memory;  // bytes that a session may take for arena and states; 0: any
};

// Changes a verified program into one that verifies and computes the same outputs, bit for bit.
struct ProgramPass {
  std::string_view name;
  std::string_view summary;  // one sentence
  int min_level;             // the lowest optimisation level that runs it
  ProgramPhase phase;
  void (*run)(Program& program, const ProgramPassContext& context);
};

// In execution order.
std::span<const ProgramPass> program_pipeline();
// By name; null when unknown.
const ProgramPass* find_program_pass(std::string_view name);

}  // namespace tessera::inline program
