// What a kernel's products go through, by the names that the probe of the machine has for its peaks
// (diagnose/machine_probe.h): "f32 multiply-add", "i8 dot products", "i8 tiles", "bf16 tiles"; and those that it does
// not measure: "f64 multiply-add", "bf16 dot products", "f16 dot products", "i16 dot products".
#pragma once

#include <string>

#include "loop/stmt.h"

namespace tessera::inline loop {

// That of the densest products in the program; of one without products "f32 multiply-add".
std::string arithmetic_unit(const LoopProgram& program);

}  // namespace tessera::inline loop
