#include "generate/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "support/error.h"

namespace tessera::inline generate {
namespace {

constexpr size_t kLongestContext = 3;  // tokens by which a guess is looked up

[[noreturn]] void refuse(std::string message, std::string legal) {
  throw UserError({.id = "TSR-4038", .message = std::move(message), .node = {}, .legal = std::move(legal), .hint = {}});
}

uint64_t any_seed() {
  std::random_device random;
  return static_cast<uint64_t>(random()) << 32 | random();
}

}  // namespace

std::vector<Token> guess_tokens(const std::vector<Token>& tokens, int64_t most) {
  if (most <= 0 || tokens.size() < 2) return {};
  for (size_t length = std::min(kLongestContext, tokens.size() - 1); length > 0; --length) {
    const auto last = tokens.end() - static_cast<std::ptrdiff_t>(length);
    const auto found = std::find_end(tokens.begin(), tokens.end() - 1, last, tokens.end());
    if (found == tokens.end() - 1) continue;
    const auto begin = found + static_cast<std::ptrdiff_t>(length);
    return {begin, begin + std::min<std::ptrdiff_t>(most, tokens.end() - begin)};
  }
  return {};
}

void generate_tokens(LanguageModel& model, const std::vector<Token>& prompt, const std::set<Token>& ends,
                     const GenerationOptions& options, const std::function<void(Token)>& next) {
  const Sampling& sampling = options.sampling;
  if (!(sampling.temperature >= 0 && sampling.top_k >= 0 && sampling.top_p > 0 && sampling.top_p <= 1 &&
        options.max_tokens >= 0 && options.lookup >= 0))
    refuse("sampling cannot be so", "temperature >= 0, top_k >= 0, 0 < top_p <= 1, max_tokens >= 0, lookup >= 0");
  if (prompt.empty()) refuse("the prompt is empty", "at least one token");
  if (std::ssize(prompt) > model.context())
    refuse(fmt::format("{} tokens", prompt.size()), fmt::format("at most {} (--context)", model.context()));
  for (const Token token : prompt)
    if (token < 0 || token >= model.vocabulary()) refuse("these are no tokens of the model", "those of its tokenizer");

  RandomNumbers random(options.seed ? *options.seed : any_seed());
  const int64_t lookup = std::min(options.lookup, model.chunk() - 1);
  std::vector<Token> tokens = prompt, guessed;
  int64_t left = options.max_tokens;
  while (left > 0) {
    // All that has not been read, a guess behind it.
    tokens.insert(tokens.end(), guessed.begin(), guessed.end());
    std::span<const float> scores;
    int64_t kept = 0;
    while (model.tokens().size() < tokens.size()) {
      const auto rest = std::span(tokens).subspan(model.tokens().size());
      const auto piece = rest.first(std::min(rest.size(), static_cast<size_t>(model.chunk())));
      kept = std::min(std::ssize(guessed) + 1, std::ssize(piece));
      scores = model.read(piece, kept);
    }
    tokens.resize(tokens.size() - guessed.size());
    for (int64_t row = 0; row < kept; ++row) {
      const size_t width = static_cast<size_t>(model.vocabulary());
      const Token token = choose_token(scores.subspan(static_cast<size_t>(row) * width, width), sampling, random);
      if (ends.contains(token)) return;
      next(token);
      if (--left == 0 || std::ssize(tokens) >= model.context()) return;
      tokens.push_back(token);
      if (row == std::ssize(guessed) || token != guessed[static_cast<size_t>(row)]) break;
    }
    // Of the guess what stands was read; the last token has not been.
    model.truncate(std::min(model.tokens().size(), tokens.size() - 1));
    guessed = guess_tokens(tokens, std::min({lookup, left - 1, model.context() - std::ssize(tokens)}));
  }
}

}  // namespace tessera::inline generate
