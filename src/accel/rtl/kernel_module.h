// What an instruction computes in one step, as a combinational module in SystemVerilog.
#pragma once

#include <string>
#include <vector>

#include "accel/description.h"

namespace tessera::inline rtl {

// `module kernel_NAME`: for each parameter of the kernel an input `op_PARAMETER` of its bits, element 0 lowest; for
// each symbol a signed input `imm_SYMBOL` of 64 bits; for each parameter that is written an output `out_PARAMETER`. It
// computes while `enable` is set. Where each element of the result is computed of the same elements of operands, it is
// made of `kernel_NAME_lane`, one for each.
struct KernelModule {
  std::string text;
  std::vector<bool>
      reads;  // of each parameter: whether there is an input, as there is of outputs that are not wholly overwritten
};

// UserError TSR-3510 for element types and operators of which no hardware is made.
KernelModule kernel_module(const Accelerator& unit, const UnitInstruction& kind);

// Bits of an operand in one step.
int64_t operand_bits(const UnitInstruction& kind, size_t operand);

}  // namespace tessera::inline rtl
