#include "import/aten/read/size_expr.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "arith/simplify.h"

namespace tessera::inline aten {
namespace {

using Lookup = std::function<std::optional<Expr>(const std::string& name)>;

constexpr int kMostDepth = 64;

class SizeParser {
 public:
  SizeParser(std::string_view text, const Lookup& symbol) : text_(text), symbol_(symbol) {}

  std::optional<Expr> whole() {
    const auto result = expression(0);
    skip_spaces();
    return result && at_ == text_.size() ? std::make_optional(simplify(*result)) : std::nullopt;
  }

 private:
  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string word() {
    skip_spaces();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_' || text_[at_] == '.'))
      ++at_;
    // Classes of torch's own may have the module in front.
    std::string name(text_.substr(begin, at_ - begin));
    return name.substr(name.rfind('.') == std::string::npos ? 0 : name.rfind('.') + 1);
  }

  std::optional<Expr> expression(int depth) {
    if (depth > kMostDepth) return std::nullopt;
    const std::string kind = word();
    if (!take('(')) return std::nullopt;
    if (kind == "Integer") return number();
    if (kind == "Symbol") return symbol();
    std::vector<Expr> operands;
    do {
      auto operand = expression(depth + 1);
      if (!operand) return std::nullopt;
      operands.push_back(*operand);
    } while (take(','));
    if (!take(')')) return std::nullopt;
    if (kind == "Add" || kind == "Mul") {
      Expr result = operands[0];
      for (size_t i = 1; i < operands.size(); ++i) result = kind == "Add" ? result + operands[i] : result * operands[i];
      return result;
    }
    if ((kind == "FloorDiv" || kind == "CleanDiv") && operands.size() == 2) return floordiv(operands[0], operands[1]);
    if ((kind == "Mod" || kind == "PythonMod") && operands.size() == 2) return floormod(operands[0], operands[1]);
    if (kind == "Pow" && operands.size() == 2) return power(operands[0], as_int(operands[1]).value_or(-1));
    if (kind == "Max" || kind == "Min") {
      Expr result = operands[0];
      for (size_t i = 1; i < operands.size(); ++i)
        result = kind == "Max" ? max(result, operands[i]) : min(result, operands[i]);
      return result;
    }
    return std::nullopt;
  }

  // Powers of powers would grow without bounds.
  static std::optional<Expr> power(const Expr& base, int64_t exponent) {
    constexpr int64_t kMost = 8;
    if (exponent < 0 || exponent > kMost || (base->kind != ExprKind::kVar && !as_int(base))) return std::nullopt;
    Expr result = 1;
    for (int64_t i = 0; i < exponent; ++i) result = result * base;
    return result;
  }

  std::optional<Expr> number() {
    int64_t value = 0;
    skip_spaces();
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    at_ = static_cast<size_t>(end - text_.data());
    return error == std::errc() && take(')') ? std::make_optional(Expr(value)) : std::nullopt;
  }

  std::optional<Expr> symbol() {
    if (!take('\'')) return std::nullopt;
    const size_t end = text_.find('\'', at_);
    const size_t close = end == std::string_view::npos ? end : text_.find(')', end);
    if (close == std::string_view::npos) return std::nullopt;
    const std::string name(text_.substr(at_, end - at_));
    at_ = close + 1;
    return symbol_(name);
  }

  std::string_view text_;
  const Lookup& symbol_;
  size_t at_ = 0;
};

}  // namespace

std::optional<Expr> parse_size(std::string_view text, const Lookup& symbol) { return SizeParser(text, symbol).whole(); }

std::vector<std::string> symbols_of(std::string_view text) {
  std::vector<std::string> names;
  parse_size(text, [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    return std::make_optional(Expr(1));
  });
  return names;
}

std::string lone_symbol(std::string_view text) {
  constexpr std::string_view kBegin = "Symbol('";
  const size_t end = text.find('\'', kBegin.size());
  if (!text.starts_with(kBegin) || end == std::string_view::npos || text.find('(', end) != std::string_view::npos)
    return {};
  return std::string(text.substr(kBegin.size(), end - kBegin.size()));
}

}  // namespace tessera::inline aten
