#include "generate/word_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "support/error.h"

namespace tessera::inline generate {

struct WordSplitter::Expression {
  explicit Expression(const std::string& text) {
    int error = 0;
    PCRE2_SIZE place = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), PCRE2_UTF | PCRE2_UCP, &error, &place,
                         nullptr);
    check(code != nullptr, "a regular expression of a tokenizer is illegal: " + text);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where the machine has none, it is interpreted
    match = pcre2_match_data_create_from_pattern(code, nullptr);
    check(match != nullptr, "no memory for a regular expression");
  }
  ~Expression() {
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;

  void split(std::string_view text, std::vector<std::string_view>& words) const {
    size_t done = 0;
    for (size_t from = 0; from < text.size();) {
      const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                    PCRE2_NO_UTF_CHECK, match, nullptr);
      if (found < 0) break;  // nothing, or more work than PCRE2 allows: the rest is one word
      const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(match);
      if (ends[0] > done) words.push_back(text.substr(done, ends[0] - done));
      if (ends[1] > ends[0]) words.push_back(text.substr(ends[0], ends[1] - ends[0]));
      done = ends[1];
      from = ends[1] > ends[0] ? ends[1] : ends[1] + 1;
    }
    if (done < text.size()) words.push_back(text.substr(done));
  }

  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;
};

WordSplitter::WordSplitter(const std::vector<std::string>& expressions) {
  for (const std::string& text : expressions) expressions_.push_back(std::make_unique<Expression>(text));
}
WordSplitter::~WordSplitter() = default;

std::vector<std::string_view> WordSplitter::split(std::string_view text) const {
  std::vector<std::string_view> words = {text};
  for (const auto& expression : expressions_) {
    std::vector<std::string_view> shorter;
    for (const std::string_view word : words) expression->split(word, shorter);
    words = std::move(shorter);
  }
  return words;
}

}  // namespace tessera::inline generate
