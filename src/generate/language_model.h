// A compiled language model with the keys and values of the tokens so far. docs/language-models.md, "The graph", says
// what its inputs and outputs are.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "generate/tokenizer.h"

namespace tessera::inline generate {

// Not thread-safe.
class LanguageModel {
 public:
  // Loads a module. `threads` 0: as tessera run. `trained_context`: the most tokens that the model was trained for.
  // UserError TSR-4090 where it is no language model of one sequence; UserError with the runtime's id where it cannot
  // be loaded or there is no memory.
  LanguageModel(const std::string& module_path, int threads, int64_t trained_context);
  ~LanguageModel();
  LanguageModel(const LanguageModel&) = delete;
  LanguageModel& operator=(const LanguageModel&) = delete;

  int64_t context() const { return context_; }  // the most tokens of prompt and answer
  int64_t chunk() const { return chunk_; }      // the most tokens of one run
  int64_t vocabulary() const { return vocabulary_; }
  const std::vector<Token>& tokens() const { return tokens_; }  // of which there are keys and values

  // Forgets all tokens but the first `count`.
  void truncate(size_t count) { tokens_.resize(count); }
  // Reads more tokens: the scores of what may follow each of the last `kept` ones, [kept, vocabulary], until the next
  // call. UserError as above. REQUIRES: 1 to chunk() tokens of the vocabulary, which fit the context; 1 <= kept.
  std::span<const float> read(std::span<const Token> tokens, int64_t kept);

 private:
  struct Handles;
  struct Cache;
  std::unique_ptr<Handles> handles_;
  std::vector<Cache> caches_;  // of keys and values, layer by layer
  int64_t context_ = 0, chunk_ = 0, vocabulary_ = 0;
  std::vector<Token> tokens_;
  std::vector<float> scores_;
};

}  // namespace tessera::inline generate
