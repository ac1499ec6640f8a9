// Regular expressions that cut a text into words: what a byte-pair tokenizer joins within.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::inline generate {

// Not thread-safe.
class WordSplitter {
 public:
  // One expression after another cuts what the ones before left whole. REQUIRES: legal expressions (PCRE2).
  explicit WordSplitter(const std::vector<std::string>& expressions);
  ~WordSplitter();
  WordSplitter(const WordSplitter&) = delete;
  WordSplitter& operator=(const WordSplitter&) = delete;

  // What matches and what lies between, in order; none is empty. REQUIRES: UTF-8.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Expression;
  std::vector<std::unique_ptr<Expression>> expressions_;
};

}  // namespace tessera::inline generate
