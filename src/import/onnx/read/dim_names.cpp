#include "import/onnx/read/dim_names.h"

#include <cctype>
#include <cstdint>
#include <string_view>

#include "arith/simplify.h"

namespace tessera::inline onnx_import {
namespace {

// Recursive descent; a null expression says that the text has another form.
class DimNameParser {
 public:
  DimNameParser(std::string_view text, const std::map<std::string, Expr>& sizes) : text_(text), sizes_(sizes) {}

  std::optional<Expr> parse() {
    const Expr size = sum(0);
    skip_blanks();
    if (!size || at_ != text_.size() || operators_ == 0) return std::nullopt;
    return size;
  }

 private:
  static constexpr int kMaxDepth = 32;

  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool accept(std::string_view sign) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(sign)) return false;
    at_ += sign.size();
    return true;
  }

  Expr sum(int depth) {
    Expr left = product(depth);
    while (left) {
      const bool plus = accept("+");
      if (!plus && !accept("-")) break;
      ++operators_;
      const Expr right = product(depth);
      if (!right) return {};
      left = plus ? left + right : left - right;
    }
    return left;
  }

  Expr product(int depth) {
    Expr left = factor(depth);
    while (left) {
      const bool divides = accept("//");
      if (!divides && !accept("*")) break;
      ++operators_;
      const Expr right = factor(depth);
      if (!right) return {};
      if (divides && (!as_int(right) || *as_int(right) <= 0)) return {};
      left = divides ? floordiv(left, right) : left * right;
    }
    return left;
  }

  Expr factor(int depth) {
    if (depth > kMaxDepth) return {};
    if (accept("(")) {
      Expr inner = sum(depth + 1);
      return accept(")") ? inner : Expr();
    }
    skip_blanks();
    const size_t begin = at_;
    const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
    while (at_ < text_.size() && is_part(text_[at_])) ++at_;
    const std::string word(text_.substr(begin, at_ - begin));
    if (word.empty()) return {};
    if (word.find_first_not_of("0123456789") == std::string::npos)
      return word.size() > 9 ? Expr() : Expr(static_cast<int64_t>(std::stoll(word)));
    const auto it = sizes_.find(word);
    return it == sizes_.end() ? Expr() : it->second;
  }

  std::string_view text_;
  const std::map<std::string, Expr>& sizes_;
  size_t at_ = 0;
  int operators_ = 0;
};

}  // namespace

std::optional<Expr> parse_dim_name(const std::string& name, const std::map<std::string, Expr>& sizes) {
  const auto size = DimNameParser(name, sizes).parse();
  return size ? std::make_optional(normalize_size(*size)) : std::nullopt;
}

}  // namespace tessera::inline onnx_import
