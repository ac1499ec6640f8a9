// merge_kernels: kernels that differ in names only become one, called from several places: the layers of a transformer
// are scheduled, generated and stored once. Calls keep the locations of their nodes.
//
// before:
//   program @main(%x) -> (%y) {
//     plan arena 0 weights 0 scratch 0
//     buffer %x: f32[8] input 0
//     buffer %y: f32[8] output 0
//     buffer %t: f32[8] arena
//     define rule "naive" loc("Relu_0")
//     kernel @relu_0(x: f32[8]) -> (y: f32[8]) {
//       for i in 0..8 { y[i] = max(x[i], 0:f32) }
//     }
//     define rule "naive" loc("Relu_1")
//     kernel @relu_1(t: f32[8]) -> (u: f32[8]) {
//       for j in 0..8 { u[j] = max(t[j], 0:f32) }
//     }
//     call @relu_0(%x, %t) loc("Relu_0")
//     call @relu_1(%t, %y) loc("Relu_1")
//   }
// after:
//   program @main(%x) -> (%y) {
//     plan arena 0 weights 0 scratch 0
//     buffer %x: f32[8] input 0
//     buffer %y: f32[8] output 0
//     buffer %t: f32[8] arena
//     define rule "naive" loc("Relu_0")
//     kernel @relu_0(x: f32[8]) -> (y: f32[8]) {
//       for i in 0..8 { y[i] = max(x[i], 0:f32) }
//     }
//     call @relu_0(%x, %t) loc("Relu_0")
//     call @relu_0(%t, %y) loc("Relu_1")
//   }
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"

namespace tessera::inline program {

void merge_kernels(Program& program);

// Removes kernels that no call names. By old number: the new one; -1 of those that are gone.
std::vector<int32_t> drop_uncalled_kernels(Program& program);

// What the kernel computes and how, without names: equal keys mean equal kernels. Bytes, not for people.
std::string kernel_key(const Kernel& kernel);

}  // namespace tessera::inline program
