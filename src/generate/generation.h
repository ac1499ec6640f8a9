// From a prompt to the tokens that follow it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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
};

// Calls `next` with each token that follows the prompt until a token of `ends`, the last of max_tokens, or the end of
// the context. UserError TSR-4038 for an empty prompt, one that is too long for the context, and options that cannot
// be; as LanguageModel::read.
void generate_tokens(LanguageModel& model, const std::vector<Token>& prompt, const std::set<Token>& ends,
                     const GenerationOptions& options, const std::function<void(Token)>& next);

// What followed the last tokens where they stood before, at most `most` of it: of the most tokens that did, three at
// most, and of the last such place.
std::vector<Token> guess_tokens(const std::vector<Token>& tokens, int64_t most);

}  // namespace tessera::inline generate
