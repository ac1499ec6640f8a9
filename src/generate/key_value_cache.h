// Keys and values of the tokens that a language model has read of one sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "generate/tokenizer.h"

namespace tessera::inline generate {

// Has addresses for a whole context; the system gives memory as rows are written. Not thread-safe.
class KeyValueCache {
 public:
  // `widths`: how many floats each of a model's caches has for a token. UserError TSR-7016 where there are no
  // addresses.
  KeyValueCache(const std::vector<int64_t>& widths, int64_t context);
  ~KeyValueCache();
  KeyValueCache(const KeyValueCache&) = delete;
  KeyValueCache& operator=(const KeyValueCache&) = delete;

  const std::vector<Token>& tokens() const { return tokens_; }
  // With how many of its tokens `tokens` begins.
  size_t shared_prefix(std::span<const Token> tokens) const;
  // Forgets all tokens but the first `count`; all are kept where there are fewer.
  void truncate(size_t count);
  int64_t bytes_per_token() const;
  const std::vector<int64_t>& widths() const { return widths_; }
  int64_t context() const { return context_; }

  // f32[tokens, widths[number]], with room for those to come up to the context.
  float* rows(size_t number) const { return rows_[number]; }
  // Whose rows were written just now.
  void append(std::span<const Token> tokens) { tokens_.insert(tokens_.end(), tokens.begin(), tokens.end()); }

 private:
  std::vector<int64_t> widths_;
  int64_t context_;
  std::vector<float*> rows_;
  std::vector<Token> tokens_;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace tessera::inline generate
