#include "generate/language_model_file.h"

#include <algorithm>
#include <array>
#include <vector>

#include "import/gguf/hyperparameters.h"

namespace tessera::inline generate {
namespace {

const GgufValue* find(const GgufFile& file, const std::string& key) { return file.find("tokenizer.ggml." + key); }

std::optional<size_t> number_of(const GgufFile& file, const char* key) {
  const GgufValue* value = find(file, key);
  const auto* number = value ? std::get_if<int64_t>(value) : nullptr;
  return number && *number >= 0 ? std::optional(static_cast<size_t>(*number)) : std::nullopt;
}

std::vector<std::string_view> texts_of_tokens(const GgufFile& file) {
  const GgufValue* value = find(file, "tokens");
  const auto* tokens = value ? std::get_if<GgufArray>(value) : nullptr;
  return tokens && tokens->kind == GgufKind::kString ? strings_of(*tokens) : std::vector<std::string_view>();
}

std::set<Token> end_tokens(const GgufFile& file) {
  static constexpr std::array<std::string_view, 4> kNames = {"<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>"};
  std::set<Token> ends;
  for (const char* key : {"eos_token_id", "eot_token_id"})
    if (const auto number = number_of(file, key)) ends.insert(static_cast<Token>(*number));
  const std::vector<std::string_view> texts = texts_of_tokens(file);
  for (size_t i = 0; i < texts.size(); ++i)
    if (texts[i].starts_with('<') && std::ranges::find(kNames, texts[i]) != kNames.end())
      ends.insert(static_cast<Token>(i));
  return ends;
}

}  // namespace

LanguageModelFile::LanguageModelFile(const std::string& path)
    : mapped_(MappedFile::open(path, "model", "TSR-1001")),
      file_(mapped_->text(), path),
      context_(hyperparameters_of(file_).context),
      ends_(end_tokens(file_)) {}

const Tokenizer& LanguageModelFile::tokenizer() {
  if (!tokenizer_) tokenizer_.emplace(file_);
  return *tokenizer_;
}

std::optional<std::string_view> LanguageModelFile::chat_template() const {
  const GgufValue* value = file_.find("tokenizer.chat_template");
  const auto* text = value ? std::get_if<std::string_view>(value) : nullptr;
  return text ? std::optional(*text) : std::nullopt;
}

std::string_view LanguageModelFile::text_of(const char* key) const {
  const std::vector<std::string_view> texts = texts_of_tokens(file_);
  const auto number = number_of(file_, key);
  return number && *number < texts.size() ? texts[*number] : std::string_view();
}

}  // namespace tessera::inline generate
