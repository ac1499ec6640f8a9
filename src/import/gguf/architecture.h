// What the reader knows of each family of language models, as data. Sizes, biases, norms of queries and keys, gates,
// norms behind a part: all that follows from a file's metadata and from which tensors it has.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tessera::inline gguf {

enum class Norm : uint8_t { kRms, kLayer };
enum class Activation : uint8_t { kSilu, kGeluTanh };
// Which two features of a head are turned together: neighbours, or one of the first half with one of the second.
enum class Rotary : uint8_t { kNone, kNeighbours, kHalves };

struct LanguageArchitecture {
  std::string_view name;  // general.architecture
  Norm norm = Norm::kRms;
  Activation activation = Activation::kSilu;
  Rotary rotary = Rotary::kHalves;
  bool learned_positions = false;  // position_embd is added to the embeddings
  bool parallel = false;           // attention and feed-forward read the same norm
  bool scaled_embeddings = false;  // by sqrt(features)
  bool gate_inside = false;        // ffn_up holds the gate, then the other factor
  int64_t window_period = 0;       // every so many layers one sees all tokens, the others a window; 0: all see all
  double window_rotary_base = 0;   // of the layers with a window; 0: as the others
};

std::span<const LanguageArchitecture> architectures();
const LanguageArchitecture* find_architecture(std::string_view name);

}  // namespace tessera::inline gguf
