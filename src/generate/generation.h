// From prompts to the tokens that follow them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "generate/language_model.h"
#include "generate/sampler.h"

namespace tessera::inline generate {

struct GenerationOptions {
  int64_t max_tokens = 128;
  Sampling sampling;
  std::optional<uint64_t> seed;  // none: another one each time
  // So many tokens are guessed at a time, those that followed where the last words stood before; one run tries them
  // all, and what is drawn decides how many stand, so that the text is the same as without.
  int64_t lookup = 0;
  std::set<Token> ends;  // tokens that end an answer
};

// An answer on its way. It is done with a token of `ends`, the last of max_tokens, or the end of the context. Not
// thread-safe.
class Generation {
 public:
  // Borrows model and cache. What the cache has of the prompt's beginning is not read again; what else it has is
  // forgotten. UserError TSR-4038 for an empty prompt, one that is too long for the context, and options that cannot
  // be.
  Generation(const LanguageModel& model, KeyValueCache& cache, std::vector<Token> prompt, GenerationOptions options);

  bool is_done() const { return done_; }
  const LanguageModel& model() const { return model_; }

  // What the model reads next: of a prompt at most `most` tokens (0: as many as a run takes). Borrows the generation,
  // until `accept`. REQUIRES: not done.
  SequencePiece next_piece(int64_t most = 0);
  // The tokens that the scores of this piece decide; none while the prompt is not through.
  std::vector<Token> accept(std::span<const float> scores);

 private:
  const LanguageModel& model_;
  KeyValueCache& cache_;
  GenerationOptions options_;
  int64_t left_;
  RandomNumbers random_;
  std::vector<Token> tokens_;  // prompt and answer, and behind them what is guessed
  size_t num_guessed_ = 0;
  bool done_;
};

// One run, which reads a piece of each, a prompt's of at most `most` tokens (0: as many as a run takes). The tokens
// that are decided of each. UserError TSR-4038 for one that is done or another model's; as LanguageModel::read.
std::vector<std::vector<Token>> step(LanguageModel& model, std::span<Generation* const> generations, int64_t most = 0);

struct GenerationRequest {
  std::vector<Token> prompt;
  GenerationOptions options;
};

// The tokens that follow each of several prompts, sequences() of which are in work at a time. They are those that
// follow it alone. Calls `before_run` before each run. UserError as Generation and LanguageModel::read.
std::vector<std::vector<Token>> generate_all(LanguageModel& model, std::span<const GenerationRequest> requests,
                                             const std::function<void()>& before_run);

// What followed the last tokens where they stood before, at most `most` of it: of the most tokens that did, three at
// most, and of the last such place.
std::vector<Token> guess_tokens(const std::vector<Token>& tokens, int64_t most);

}  // namespace tessera::inline generate
