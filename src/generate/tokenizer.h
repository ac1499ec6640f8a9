// Text as the tokens of a language model, out of a GGUF file's metadata: byte pairs (`gpt2`), or the pieces of
// SentencePiece (`llama`). The tokens are those of the package tokenizers as tessera/_tokenizer.py sets it up.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
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

  // The tokens of a text in UTF-8, behind the token that a model may want in front. What is no UTF-8 is read as U+FFFD.
  std::vector<Token> encode(std::string_view text) const;

  // The bytes that a token stands for; none of those that only control. `first`: it is the first one of an answer.
  std::string bytes_of(Token token, bool first) const;

  // Tokens that end an answer.
  const std::set<Token>& ends() const;

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

}  // namespace tessera::inline generate
