#include "import/gguf/architecture.h"

#include <array>

namespace tessera::inline gguf {
namespace {

constexpr std::array kArchitectures = {
    LanguageArchitecture{.name = "llama", .rotary = Rotary::kNeighbours},
    LanguageArchitecture{.name = "qwen2"},
    LanguageArchitecture{.name = "qwen3"},
    LanguageArchitecture{.name = "gpt2",
                         .norm = Norm::kLayer,
                         .activation = Activation::kGeluTanh,
                         .rotary = Rotary::kNone,
                         .learned_positions = true},
    LanguageArchitecture{.name = "phi2", .norm = Norm::kLayer, .activation = Activation::kGeluTanh, .parallel = true},
    LanguageArchitecture{.name = "phi3", .gate_inside = true},
    LanguageArchitecture{.name = "gemma3",
                         .activation = Activation::kGeluTanh,
                         .scaled_embeddings = true,
                         .window_period = 6,
                         .window_rotary_base = 10000},
};

}  // namespace

std::span<const LanguageArchitecture> architectures() { return kArchitectures; }

const LanguageArchitecture* find_architecture(std::string_view name) {
  for (const LanguageArchitecture& architecture : kArchitectures)
    if (architecture.name == name) return &architecture;
  return nullptr;
}

}  // namespace tessera::inline gguf
