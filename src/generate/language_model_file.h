// What a language model's file says beside its weights: how text becomes tokens, which of them end an answer, and how a
// conversation is written down.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "generate/tokenizer.h"
#include "import/gguf/gguf_file.h"
#include "support/mapped_file.h"

namespace tessera::inline generate {

// Not thread-safe.
class LanguageModelFile {
 public:
  // Reads no weights. UserError TSR-1001 when there is no such file, TSR-1070 to TSR-1073 where it is no language
  // model.
  explicit LanguageModelFile(const std::string& path);

  int64_t context() const { return context_; }           // the most tokens that the model was trained for
  const std::set<Token>& ends() const { return ends_; }  // tokens that end an answer
  // Made when it is first asked for. UserError TSR-4037 where the file has none that is read.
  const Tokenizer& tokenizer();

  // A Jinja template that writes a conversation as a prompt, and what it may name: the texts of the tokens that begin
  // and end a text, "" where there are none. Views into the file.
  std::optional<std::string_view> chat_template() const;
  std::string_view begin_text() const { return text_of("bos_token_id"); }
  std::string_view end_text() const { return text_of("eos_token_id"); }

 private:
  std::string_view text_of(const char* key) const;

  std::shared_ptr<const MappedFile> mapped_;
  GgufFile file_;
  int64_t context_;
  std::set<Token> ends_;
  std::optional<Tokenizer> tokenizer_;
};

}  // namespace tessera::inline generate
