// A compiled language model, which reads tokens of one sequence or several. docs/language-models.md, "The graph", says
// what its inputs and outputs are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "generate/key_value_cache.h"

namespace tessera::inline generate {

// What a run reads of one sequence.
struct SequencePiece {
  std::span<const Token> tokens;
  KeyValueCache* cache = nullptr;  // of the tokens before
  int64_t kept = 0;                // of how many of the last ones scores are wanted
};

// Not thread-safe.
class LanguageModel {
 public:
  // Loads a module out of a file, or a copy of the bytes of one. `threads` 0: as tessera run. `trained_context`: the
  // most tokens that the model was trained for. UserError TSR-4090 where it is no language model; UserError with the
  // runtime's id where it cannot be loaded or there is no memory.
  LanguageModel(const std::string& module_path, int threads, int64_t trained_context);
  LanguageModel(std::span<const std::byte> module, int threads, int64_t trained_context);
  ~LanguageModel();
  LanguageModel(const LanguageModel&) = delete;
  LanguageModel& operator=(const LanguageModel&) = delete;

  int64_t context() const { return context_; }  // the most tokens of prompt and answer
  int64_t sequences() const { return sequences_; }
  int64_t vocabulary() const { return vocabulary_; }
  int threads() const;
  // The most tokens that a run reads of a sequence. It may be set to fewer. UserError TSR-4038.
  int64_t chunk() const { return chunk_; }
  void set_chunk(int64_t chunk);

  std::unique_ptr<KeyValueCache> new_cache() const { return std::make_unique<KeyValueCache>(widths_, context_); }

  // One run: reads a piece of each of at most sequences() sequences, whose caches then have it. The scores of what may
  // follow each of the tokens that were asked for, f32[sum of kept, vocabulary], piece by piece. They are those of a
  // run for each sequence alone. UserError TSR-4038 for pieces that cannot be; as the constructor.
  std::vector<float> read(std::span<const SequencePiece> pieces);

 private:
  struct Handles;
  LanguageModel(std::unique_ptr<Handles> handles, const std::string& name, int threads, int64_t trained_context);
  void require_legal(std::span<const SequencePiece> pieces) const;

  std::unique_ptr<Handles> handles_;
  std::vector<int64_t> widths_;  // of a token's keys and values, layer by layer
  int64_t context_ = 0, sequences_ = 0, vocabulary_ = 0, longest_chunk_ = 0, chunk_ = 0;
  std::vector<std::unique_ptr<KeyValueCache>> idle_;  // of places in a run that nobody uses
};

}  // namespace tessera::inline generate
