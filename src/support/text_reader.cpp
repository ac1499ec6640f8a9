#include "support/text_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "support/error.h"

namespace tessera::inline support {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word(char c) { return is_letter(c) || is_digit(c); }
bool is_name(char c) { return is_word(c) || c == '.' || c == '/'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
int hex_value(char c) { return is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10; }

}  // namespace

void TextReader::skip() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      ++at_;
    } else if (c == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '/') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else {
      return;
    }
  }
}

bool TextReader::at_end() {
  skip();
  return at_ == text_.size();
}

char TextReader::peek() { return at_end() ? '\0' : text_[at_]; }

bool TextReader::peek_is(std::string_view token) {
  skip();
  if (text_.substr(at_, token.size()) != token) return false;
  const size_t end = at_ + token.size();
  return !is_word(token.back()) || end == text_.size() || !is_word(text_[end]);
}

bool TextReader::accept(std::string_view token) {
  if (!peek_is(token)) return false;
  at_ += token.size();
  return true;
}

void TextReader::expect(std::string_view token) {
  if (!accept(token)) fail_expected(fmt::format("'{}'", token));
}

std::string TextReader::word(std::string_view what) {
  if (!is_letter(peek())) fail_expected(what);
  const size_t start = at_;
  while (at_ < text_.size() && is_word(text_[at_])) ++at_;
  return std::string(text_.substr(start, at_ - start));
}

std::string_view TextReader::word_characters(std::string_view what) {
  if (!is_word(peek())) fail_expected(what);
  const size_t start = at_;
  while (at_ < text_.size() && is_word(text_[at_])) ++at_;
  return text_.substr(start, at_ - start);
}

std::string TextReader::symbol(std::string_view what) {
  if (peek() == '"') return quoted(what);
  std::string result = word(what);
  while (at_ + 1 < text_.size() && text_[at_] == '.' && is_word(text_[at_ + 1])) {
    const size_t start = at_++;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    result += text_.substr(start, at_ - start);
  }
  return result;
}

std::string TextReader::name(char sigil, std::string_view what) {
  if (peek() != sigil) fail_expected(fmt::format("{} ('{}name')", what, sigil));
  ++at_;
  if (at_ < text_.size() && text_[at_] == '"') return quoted(what);
  const size_t start = at_;
  while (at_ < text_.size() && is_name(text_[at_])) {
    if (text_.substr(at_, 2) == "//") break;
    ++at_;
  }
  if (at_ == start) fail_expected(fmt::format("the name of {} after '{}'", what, sigil));
  return std::string(text_.substr(start, at_ - start));
}

std::string TextReader::quoted(std::string_view what) {
  if (peek() != '"') fail_expected(fmt::format("{} in double quotes", what));
  const size_t start = at_++;
  std::string result;
  while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
    char c = text_[at_++];
    if (c == '\\') {
      const char e = at_ < text_.size() ? text_[at_++] : '\0';
      if (e == 'n') {
        c = '\n';
      } else if (e == 't') {
        c = '\t';
      } else if (e == '"' || e == '\\') {
        c = e;
      } else if (e == 'x' && at_ + 1 < text_.size() && is_hex(text_[at_]) && is_hex(text_[at_ + 1])) {
        c = static_cast<char>(hex_value(text_[at_]) * 16 + hex_value(text_[at_ + 1]));
        at_ += 2;
      } else if (is_hex(e) && at_ < text_.size() && is_hex(text_[at_])) {
        c = static_cast<char>(hex_value(e) * 16 + hex_value(text_[at_++]));
      } else {
        at_ = start;
        fail("TSR-3001", fmt::format("{} has an unknown escape", what), R"(\" \\ \n \t \xHH)");
      }
    }
    result += c;
  }
  if (at_ == text_.size() || text_[at_] != '"') {
    at_ = start;
    fail("TSR-3001", fmt::format("{} has no closing quote on its line", what), "\"...\"");
  }
  ++at_;
  return result;
}

std::string_view TextReader::number(std::string_view what) {
  skip();
  const size_t start = at_;
  const auto here = [&] { return at_ < text_.size() ? text_[at_] : '\0'; };
  const auto digits = [&] {
    const size_t first = at_;
    while (is_digit(here())) ++at_;
    return at_ != first;
  };
  if (here() == '-') ++at_;
  bool ok = false;
  if (text_.substr(at_, 3) == "inf" || text_.substr(at_, 3) == "nan") {
    at_ += 3;
    ok = !is_word(here());
  } else {
    ok = digits();
    if (ok && here() == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1])) {
      ++at_;
      digits();
    }
    if (ok && (here() == 'e' || here() == 'E')) {
      ++at_;
      if (here() == '-' || here() == '+') ++at_;
      ok = digits();
    }
    ok = ok && !is_letter(here());
  }
  if (!ok) {
    at_ = start;
    fail_expected(what);
  }
  return text_.substr(start, at_ - start);
}

int64_t TextReader::integer(std::string_view what) {
  skip();
  const size_t start = at_;
  const std::string_view text = number(what);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  at_ = start;
  fail("TSR-3001", fmt::format("{} is not a 64-bit integer: {}", what, text),
       "-9223372036854775808 to 9223372036854775807");
}

std::string_view TextReader::hex_digits(std::string_view what) {
  skip();
  if (text_.substr(at_, 2) != "0x") fail_expected(fmt::format("{} (0x...)", what));
  at_ += 2;
  const size_t start = at_;
  while (at_ < text_.size() && is_hex(text_[at_])) ++at_;
  return text_.substr(start, at_ - start);
}

std::string_view TextReader::hex_number() {
  skip();
  const size_t start = at_;
  if (text_.substr(at_, 2) != "0x") return {};
  hex_digits("a number");
  return text_.substr(start, at_ - start);
}

std::string TextReader::position() {
  skip();
  // Every token of a large file is asked for its place: lines are counted on from the last one.
  if (at_ < counted_to_) counted_to_ = line_begin_ = 0, line_ = 1;
  const std::string_view since = text_.substr(counted_to_, at_ - counted_to_);
  line_ += std::count(since.begin(), since.end(), '\n');
  if (const size_t newline = since.rfind('\n'); newline != std::string_view::npos)
    line_begin_ = counted_to_ + newline + 1;
  counted_to_ = at_;
  return fmt::format("{}:{}:{}", file_, line_, at_ - line_begin_ + 1);
}

void TextReader::fail(const std::string& id, const std::string& message, const std::string& legal) {
  throw UserError({id, message, position(), legal, ""});
}

void TextReader::fail_expected(std::string_view what) {
  fail("TSR-3001", fmt::format("expected {}, found {}", what, found()));
}

std::string TextReader::found() {
  if (at_end()) return "the end of the text";
  size_t end = at_;
  if (is_name(text_[end]) || text_[end] == '%' || text_[end] == '@') ++end;
  while (end < text_.size() && is_name(text_[end])) ++end;
  end = std::max(end, at_ + 1);
  std::string token(text_.substr(at_, std::min<size_t>(end - at_, 40)));
  for (char& c : token)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  return "'" + token + "'";
}

bool is_bare_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), is_name) && name.find("//") == std::string_view::npos;
}

std::string symbol_text(std::string_view name) {
  bool is_bare = !name.empty() && is_letter(name[0]) && name.back() != '.' && name.find("..") == std::string_view::npos;
  is_bare = is_bare && std::all_of(name.begin(), name.end(), [](char c) { return is_word(c) || c == '.'; });
  for (const std::string_view reserved : {"true", "false", "inf", "nan"}) is_bare = is_bare && name != reserved;
  return is_bare ? std::string(name) : quoted_text(name);
}

std::string name_text(std::string_view name) { return is_bare_name(name) ? std::string(name) : quoted_text(name); }

std::string quoted_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result + "\"";
}

}  // namespace tessera::inline support
