#include "import/gguf/architecture.h"

#include <array>

namespace tessera::inline gguf {
namespace {

constexpr std::array kArchitectures = {
    Architecture{.name = "llama", .rotary = Rotary::kNeighbours},
    Architecture{.name = "qwen2"},
    Architecture{.name = "qwen3"},
    Architecture{.name = "gpt2",
                 .norm = Norm::kLayer,
                 .activation = Activation::kGeluTanh,
                 .rotary = Rotary::kNone,
                 .learned_positions = true},
    Architecture{.name = "phi2", .norm = Norm::kLayer, .activation = Activation::kGeluTanh, .parallel = true},
    Architecture{.name = "phi3", .gate_inside = true},
    Architecture{.name = "gemma3",
                 .activation = Activation::kGeluTanh,
                 .scaled_embeddings = true,
                 .window_period = 6,
                 .window_rotary_base = 10000},
};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture& architecture : kArchitectures)
    if (architecture.name == name) return &architecture;
  return nullptr;
}

}  // namespace tessera::inline gguf
