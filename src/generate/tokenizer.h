// Text as the tokens of a language model, out of a GGUF file's metadata: byte pairs (`gpt2`), or the pieces of
// SentencePiece (`llama`). tests/python/generate_test.py holds the tokens against those of the package tokenizers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "import/gguf/gguf_file.h"

namespace tessera::inline generate {

using Token = int32_t;

// Not thread-safe.
class Tokenizer {
 public:
  // Borrows the file. UserError TSR-4037 where it has no tokenizer that is read.
  explicit Tokenizer(const GgufFile& file);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // The tokens of a text in UTF-8; with `begin`, behind the token that a model may want in front. What is no UTF-8 is
  // read as U+FFFD.
  std::vector<Token> encode(std::string_view text, bool begin = true) const;
  // The text of tokens, without those that only control.
  std::string decode(std::span<const Token> tokens) const;

  // The bytes that a token stands for; none of those that only control. `first`: it is the first one of a text.
  std::string bytes_of(Token token, bool first) const;

 private:
  class Pieces;
  std::unique_ptr<Pieces> pieces_;
};

// Text that comes in bytes, of which a character may be in several pieces.
class CharacterStream {
 public:
  // The characters that are complete; what can be none is U+FFFD.
  std::string add(std::string_view bytes);
  // What an end in the middle of a character leaves.
  std::string rest();

 private:
  std::string pending_;
};

// The text of tokens that come one after another. Not thread-safe.
class Detokenizer {
 public:
  // Borrows the tokenizer.
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // What there is to say now: the characters that are complete.
  std::string add(Token token);
  // What an end in the middle of a character leaves.
  std::string rest() { return characters_.rest(); }

 private:
  const Tokenizer& tokenizer_;
  CharacterStream characters_;
  bool is_first_ = true;
};

}  // namespace tessera::inline generate
