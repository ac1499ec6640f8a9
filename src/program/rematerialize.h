// rematerialize: makes a program fit into a given amount of memory. Values that live while most memory is needed, and
// are not used just then, are dropped and computed again before their next use, by the same kernels from the same
// operands, so that no bit of a result changes. Which ones is decided greedily, as in compilers that spill registers
// (Briggs, Cooper and Torczon, "Rematerialization", PLDI 1992) and in Chen et al., "Training Deep Nets with Sublinear
// Memory Cost" (2016): the values whose absence saves most, over all the calls that need more than is allowed, for the
// least time. A call whose own operands are gone is repeated with the calls before it; what such a chain computes
// serves all later uses, so chains become the segments between checkpoints when memory gets scarce.
//
// Calls in branches and loops stay, and what such steps touch is not computed again; what they need counts.
//
// before (640 bytes are needed at the second @first; 384 are allowed):
//   program @main(%x) -> (%y) {
//     plan arena 0 weights 0 scratch 0
//     buffer %x: f32[64] input 0
//     buffer %y: f32[1] output 0
//     buffer %a: f32[64] arena
//     buffer %b: f32[1] arena
//     buffer %c: f32[64] arena
//     buffer %d: f32[1] arena
//     define rule "naive"
//     kernel @copy(x: f32[64]) -> (y: f32[64]) {
//       for i in 0..64 { y[i] = x[i] }
//     }
//     define rule "naive"
//     kernel @first(x: f32[64]) -> (y: f32[1]) {
//       y[0] = x[0]
//     }
//     define rule "naive"
//     kernel @last(x: f32[64], b: f32[1], d: f32[1]) -> (y: f32[1]) {
//       y[0] = ((x[63] + b[0]) + d[0])
//     }
//     call @copy(%x, %a)
//     call @first(%a, %b)
//     call @copy(%x, %c)
//     call @first(%c, %d)
//     call @last(%a, %b, %d, %y)
//   }
// after: another buffer and the calls
//     buffer %a.again6: f32[64] arena
//     call @copy(%x, %a)
//     call @first(%a, %b)
//     call @copy(%x, %c)
//     call @first(%c, %d)
//     call @copy(%x, %a.again6)
//     call @last(%a.again6, %b, %d, %y)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"

namespace tessera::inline program {

// Repeats calls until the host's arena and its states take at most `max_bytes`, or nothing helps any more. Programs
// with pieces or devices stay as they are. Behind order_calls, before reuse_buffers.
void rematerialize(Program& program, int64_t max_bytes);

// What a session keeps for a program with a memory plan: the arena, and the states, in two places each where the new
// value cannot be written over the old one.
int64_t session_bytes(const Program& program);

// The moment at which most of the arena is needed, and what lives then, largest first.
struct MemoryPeak {
  struct Value {
    std::string name;
    int64_t bytes = 0;
    std::string why;  // it is not computed again
  };
  std::string at;  // the nodes of the call, or the kind of step
  int64_t bytes = 0;
  std::vector<Value> values;
};
MemoryPeak memory_peak(const Program& program);

}  // namespace tessera::inline program
