// A stream of instructions of an accelerator, what it may touch, and its two forms: text for people, bits for machines.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "accel/description.h"

namespace tessera::inline accel {

// Where an operand lies: bytes from the beginning of its memory, or of its segment in DRAM, and how many bytes each of
// the instruction's loops moves it by. `base` is where it lies in the first step, of a padded one in the first step
// that reads it.
struct UnitOperand {
  int64_t base = 0;
  std::vector<int64_t> strides;
  int segment = -1;  // in DRAM
  // Of a padded operand: the steps of each loop in which it is read; in all others it is zeros.
  std::vector<std::pair<int64_t, int64_t>> inside;

  bool operator==(const UnitOperand&) const = default;
};

struct StreamInstruction {
  int kind = 0;                  // in Accelerator::instructions
  std::vector<int64_t> extents;  // of its loops, outermost first; as many as the hardware has
  std::vector<UnitOperand> operands;
  std::vector<int64_t> immediates;
  // Tokens: one for each bit, a queue. It begins when it has got one from each queue of `waits`, and gives one to each
  // queue of `signals` when it is done.
  uint32_t waits = 0, signals = 0;

  bool operator==(const StreamInstruction&) const = default;
};

// A parameter of the program.
struct DramSegment {
  std::string name;
  int64_t bytes = 0;
  bool output = false;
};

struct InstructionStream {
  std::vector<DramSegment> segments;
  std::vector<StreamInstruction> instructions;
};

// Of an instruction of a stream that is expanded or proven: every step of it is looked at.
inline constexpr int64_t kMostSteps = int64_t{1} << 24;
// Steps of all its loops; the largest number where that is larger still.
int64_t steps_of(const StreamInstruction& instruction);
// Calls `visit(operand, address)` with the byte address of each operand in each step. Padded steps are left out.
void for_each_access(const Accelerator& unit, const StreamInstruction& instruction,
                     const std::function<void(size_t, int64_t)>& visit);
// Calls `visit` with the byte address of each place that an operand has in some step, most of them once.
void for_each_place(const UnitInstruction& kind, const StreamInstruction& instruction, size_t operand,
                    const std::function<void(int64_t address)>& visit);
// Whether an operand is stored to.
bool is_written(const UnitInstruction& kind, size_t operand);

std::string print(const Accelerator& unit, const InstructionStream& stream);

// Bits of the fields that say where in DRAM an operand lies.
inline constexpr int kDramSegmentBits = 5, kDramAddressBits = 34;

// A field of an instruction's bits, in the order in which they are laid out, from bit 0.
struct EncodedField {
  std::string name;
  int bits = 0;
  bool is_signed = false;
};
// kind, waits, signals; the extents; for each operand its segment (in DRAM), base, strides and, where it is padded, the
// box; the immediates. Addresses count elements of their memory, in DRAM bytes. Widths follow from the description.
std::vector<EncodedField> fields_of(const Accelerator& unit, const UnitInstruction& kind);
// Bits of one instruction: the widest kind's, in whole words of 64.
int64_t instruction_bits(const Accelerator& unit);

// UserError TSR-3506 for a number that does not fit its field.
std::vector<uint64_t> encode(const Accelerator& unit, const InstructionStream& stream);
// The instructions of encode's words. UserError TSR-3507 for words that are no instructions.
std::vector<StreamInstruction> decode(const Accelerator& unit, const std::vector<uint64_t>& words);

}  // namespace tessera::inline accel
