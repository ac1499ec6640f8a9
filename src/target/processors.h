// What was measured on kinds of processors, because no feature tells it. A processor is known by the maker, the family
// and the model that it states, or by LLVM's name for it; one that no row knows has the defaults.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera::inline target {

// Arithmetic that a core does in the time in which memory moves, so that one may be weighed against the other.
struct MeasuredRatios {
  // Operations on vectors of 512 bits while a byte goes to the third level of cache, between two kernels of an inverted
  // residual block, and comes back. 3.6 on a Sapphire Rapids, at most 0.2 on a Zen 5.
  double l3_operations = 0.2;
  // The same for memory: 4 bytes in the time of 32 operations.
  double memory_operations = 8;
  // Issue slots of a vector multiply-add while a byte of weights comes from memory. Where a core has one multiply-add
  // of 512 bits a cycle instead of two (Zen 4), slots are longer.
  double memory_slots = 0.37;
};

// What a processor says of itself.
struct ProcessorId {
  std::string_view vendor;  // "GenuineIntel"
  int family = 0, model = 0;
};

MeasuredRatios ratios_of(const ProcessorId& id);
MeasuredRatios ratios_of(std::string_view llvm_cpu);
// Of the processor that this runs on.
MeasuredRatios ratios_of_this_machine();

}  // namespace tessera::inline target
