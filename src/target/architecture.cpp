#include "target/architecture.h"

#include <algorithm>
#include <array>

#include "target/wasm.h"

namespace tessera::inline target {
namespace {

constexpr std::array kX86Vectors = {
    VectorFile{.needs = "avx512f", .bits = 512, .registers = 32, .fused = true, .masked = true},
    VectorFile{.needs = "avx,fma", .bits = 256, .registers = 16, .fused = true},
    VectorFile{.needs = "avx", .bits = 256, .registers = 16},
    VectorFile{.needs = "", .bits = 128, .registers = 16},
};
constexpr std::array kNeon = {VectorFile{.needs = "", .bits = 128, .registers = 32, .fused = true}};
constexpr std::array kRiscvVectors = {
    VectorFile{.needs = "d", .bits = 128, .registers = 16, .fused = true},
    VectorFile{.needs = "", .bits = 128, .registers = 16},
};
// An engine's own registers are those of the machine that it runs on, mostly x86-64.
constexpr std::array kWasmVectors = {VectorFile{.needs = "", .bits = 128, .registers = 16}};
constexpr std::array kReferenceVectors = {VectorFile{.needs = "", .bits = 256, .registers = 16, .fused = true}};
constexpr std::array kPlainVectors = {VectorFile{}};

// The last one begins every triple.
constexpr std::array kArchitectures = {
    Architecture{Isa::kX86_64, "x86_64", "x86.", kX86Vectors},
    Architecture{Isa::kAArch64, "aarch64", "aarch64.", kNeon},
    Architecture{Isa::kRiscv64, "riscv64", "riscv64.", kRiscvVectors},
    Architecture{Isa::kOther, kWasmTriple, "wasm.", kWasmVectors},
    Architecture{Isa::kReference, kReferenceTriple, "reference.", kReferenceVectors},
    Architecture{Isa::kOther, "", "none.", kPlainVectors},
};

constexpr std::array kMatrixUnits = {
    MatrixUnit{.name = "AMX", .needs = "amx-tile"},
    MatrixUnit{.name = "memory", .needs = kPortableTiles},
};

}  // namespace

const Architecture& architecture_of(std::string_view triple) {
  return *std::find_if(kArchitectures.begin(), kArchitectures.end(),
                       [&](const Architecture& a) { return triple.starts_with(a.triple); });
}

std::span<const MatrixUnit> matrix_units() { return kMatrixUnits; }

}  // namespace tessera::inline target
