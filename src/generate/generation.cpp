#include "generate/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

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

Generation::Generation(const LanguageModel& model, KeyValueCache& cache, std::vector<Token> prompt,
                       GenerationOptions options)
    : model_(model),
      cache_(cache),
      options_(std::move(options)),
      left_(options_.max_tokens),
      random_(options_.seed ? *options_.seed : any_seed()),
      tokens_(std::move(prompt)),
      done_(left_ == 0) {
  const Sampling& sampling = options_.sampling;
  if (!(sampling.temperature >= 0 && sampling.top_k >= 0 && sampling.top_p > 0 && sampling.top_p <= 1 && left_ >= 0 &&
        options_.lookup >= 0))
    refuse("sampling cannot be so", "temperature >= 0, top_k >= 0, 0 < top_p <= 1, max_tokens >= 0, lookup >= 0");
  if (tokens_.empty()) refuse("the prompt is empty", "at least one token");
  if (std::ssize(tokens_) > model_.context())
    refuse(fmt::format("{} tokens", tokens_.size()), fmt::format("at most {}, the context", model_.context()));
  if (!std::ranges::all_of(tokens_, [&](Token token) { return token >= 0 && token < model_.vocabulary(); }))
    refuse("these are no tokens of the model", fmt::format("0 to {}", model_.vocabulary() - 1));
  options_.lookup = std::min(options_.lookup, model_.chunk() - 1);
}

SequencePiece Generation::next_piece(int64_t most) {
  // What the cache begins with as well need not be computed again, but for one token.
  cache_.truncate(std::min(cache_.shared_prefix(tokens_), tokens_.size() - num_guessed_ - 1));
  if (cache_.tokens().size() + num_guessed_ + 1 <
      tokens_.size()) {  // a prompt, or a cache that was another's meanwhile
    tokens_.resize(tokens_.size() - std::exchange(num_guessed_, 0));
    const auto rest = std::span(tokens_).subspan(cache_.tokens().size());
    const auto longest = static_cast<size_t>(most > 0 ? std::min(most, model_.chunk()) : model_.chunk());
    return {rest.first(std::min(rest.size(), longest)), &cache_, 1};
  }
  return {std::span(tokens_).subspan(cache_.tokens().size()), &cache_, static_cast<int64_t>(num_guessed_) + 1};
}

std::vector<Token> Generation::accept(std::span<const float> scores) {
  if (cache_.tokens().size() < tokens_.size()) return {};
  const std::vector<Token> guessed(tokens_.end() - static_cast<std::ptrdiff_t>(num_guessed_), tokens_.end());
  tokens_.resize(tokens_.size() - guessed.size());
  std::vector<Token> decided;
  const auto width = static_cast<size_t>(model_.vocabulary());
  for (size_t row = 0; row <= guessed.size(); ++row) {
    const Token token = choose_token(scores.subspan(row * width, width), options_.sampling, random_);
    if (options_.ends.contains(token)) {
      done_ = true;
      break;
    }
    decided.push_back(token);
    done_ = --left_ == 0 || std::ssize(tokens_) >= model_.context();
    if (done_) break;
    tokens_.push_back(token);
    if (row < guessed.size() && token != guessed[row]) break;
  }
  const int64_t room = std::min({options_.lookup, left_ - 1, model_.context() - std::ssize(tokens_)});
  const std::vector<Token> next = done_ ? std::vector<Token>() : guess_tokens(tokens_, room);
  tokens_.insert(tokens_.end(), next.begin(), next.end());
  num_guessed_ = next.size();
  return decided;
}

std::vector<std::vector<Token>> step(LanguageModel& model, std::span<Generation* const> generations, int64_t most) {
  std::vector<SequencePiece> pieces;
  for (const Generation* generation : generations) {
    if (generation->is_done()) refuse("the answer is done", "one that is not");
    if (&generation->model() != &model) refuse("the answer is another model's", "one that this model began");
  }
  for (Generation* generation : generations) pieces.push_back(generation->next_piece(most));
  const std::vector<float> scores = model.read(pieces);
  std::vector<std::vector<Token>> decided;
  std::span<const float> rest = scores;
  for (size_t i = 0; i < generations.size(); ++i) {
    const auto count = static_cast<size_t>(pieces[i].kept * model.vocabulary());
    decided.push_back(generations[i]->accept(rest.first(count)));
    rest = rest.subspan(count);
  }
  return decided;
}

std::vector<std::vector<Token>> generate_all(LanguageModel& model, std::span<const GenerationRequest> requests,
                                             const std::function<void()>& before_run) {
  struct Place {
    std::unique_ptr<KeyValueCache> cache;
    std::optional<Generation> generation;
    size_t number = 0;  // of the request
  };
  std::vector<Place> places(std::min(static_cast<size_t>(model.sequences()), requests.size()));
  for (Place& place : places) place.cache = model.new_cache();
  std::vector<std::vector<Token>> found(requests.size());
  for (size_t next = 0;;) {
    std::vector<Generation*> going;
    std::vector<size_t> numbers;
    for (Place& place : places) {
      while (next < requests.size() && (!place.generation || place.generation->is_done())) {
        place.number = next++;
        const GenerationRequest& request = requests[place.number];
        place.generation.emplace(model, *place.cache, request.prompt, request.options);
      }
      if (!place.generation || place.generation->is_done()) continue;
      going.push_back(&*place.generation);
      numbers.push_back(place.number);
    }
    if (going.empty()) return found;
    before_run();
    const auto decided = step(model, going);
    for (size_t i = 0; i < going.size(); ++i)
      found[numbers[i]].insert(found[numbers[i]].end(), decided[i].begin(), decided[i].end());
  }
}

}  // namespace tessera::inline generate
