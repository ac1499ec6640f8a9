#include "generate/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "generate/byte_pairs.h"
#include "generate/word_splitter.h"
#include "support/error.h"
#include "support/utf8.h"

namespace tessera::inline generate {
namespace {

using Vocabulary = std::unordered_map<std::string_view, Token>;

constexpr std::string_view kReplacement = "\xEF\xBF\xBD", kSpace = "\xE2\x96\x81";  // U+FFFD, U+2581
constexpr int64_t kControl = 3, kUserDefined = 4;  // kinds of tokens, in tokenizer.ggml.token_type

// What is one word before pieces of it are joined, by tokenizer.ggml.pre: the file does not say it otherwise.
const std::map<std::string_view, std::vector<std::string>>& words_by_name() {
  static const std::map<std::string_view, std::vector<std::string>> kWords = [] {
    const std::string gpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    const std::string letters = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)";
    const std::string rest = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    return std::map<std::string_view, std::vector<std::string>>{{"default", {gpt2}},
                                                                {"gpt-2", {gpt2}},
                                                                {"phi-2", {gpt2}},
                                                                {"smollm", {R"(\p{N})", gpt2}},
                                                                {"qwen2", {letters + R"(\p{N})" + rest}},
                                                                {"llama-bpe", {letters + R"(\p{N}{1,3})" + rest}}};
  }();
  return kWords;
}

// The characters by which tokens of byte pairs are written: printable ones for all bytes.
const std::array<std::string, 256>& characters_of_bytes() {
  static const std::array<std::string, 256> kCharacters = [] {
    std::array<std::string, 256> characters;
    uint32_t next = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      append_character(characters[byte], printable ? byte : next++);
    }
    return characters;
  }();
  return kCharacters;
}

template <typename T>
T value_or(const GgufFile& file, const std::string& key, T otherwise) {
  const GgufValue* value = file.find("tokenizer.ggml." + key);
  const T* found = value ? std::get_if<T>(value) : nullptr;
  return found ? *found : otherwise;
}

[[noreturn]] void refuse(std::string message, std::string legal, std::string hint) {
  throw UserError({.id = "TSR-4037",
                   .message = std::move(message),
                   .node = {},
                   .legal = std::move(legal),
                   .hint = std::move(hint)});
}

[[noreturn]] void cannot_be(const std::string& why) {
  refuse("the tokenizer of the file cannot be: " + why, "pieces, and pairs or scores that fit them",
         "convert the model again");
}

// Byte pairs, by the order in which they are joined.
class BytePairs {
 public:
  BytePairs(const Vocabulary& numbers, const std::vector<std::string_view>& merges,
            const std::vector<std::string>& words, bool whole)
      : numbers_(numbers), splitter_(words), whole_(whole) {
    joins_.reserve(merges.size());
    std::string both;
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const size_t middle = merges[rank].find(' ');
      if (middle == std::string_view::npos) cannot_be(fmt::format("'{}' is no pair", merges[rank]));
      const std::string_view left = merges[rank].substr(0, middle), right = merges[rank].substr(middle + 1);
      both.assign(left).append(right);
      const auto a = numbers.find(left), b = numbers.find(right), made = numbers.find(both);
      if (a == numbers.end() || b == numbers.end() || made == numbers.end())
        cannot_be(fmt::format("'{}' joins or makes what is no token", merges[rank]));
      joins_[key(a->second, b->second)] = {static_cast<int32_t>(rank), made->second};
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      const auto found = numbers.find(characters_of_bytes()[byte]);
      of_byte_[byte] = found == numbers.end() ? -1 : found->second;
    }
  }

  void encode(std::string_view text, std::vector<Token>& tokens) const {
    std::string written;
    for (const std::string_view word : splitter_.split(text)) {
      std::vector<Token> parts;
      written.clear();
      for (const char c : word) {
        const auto byte = static_cast<uint8_t>(c);
        if (whole_) written += characters_of_bytes()[byte];
        if (of_byte_[byte] >= 0) parts.push_back(of_byte_[byte]);
      }
      // A word that is a token is one, whatever the pairs.
      if (const auto found = whole_ ? numbers_.find(written) : numbers_.end(); found != numbers_.end()) {
        tokens.push_back(found->second);
        continue;
      }
      const auto joined = join_neighbours(std::move(parts), [&](Token left, Token right) -> std::optional<Join> {
        const auto found = joins_.find(key(left, right));
        if (found == joins_.end()) return std::nullopt;
        return Join{static_cast<double>(found->second.first), 0, 0, found->second.second};
      });
      tokens.insert(tokens.end(), joined.begin(), joined.end());
    }
  }

  static std::string bytes_of(std::string_view token) {
    static const std::unordered_map<std::string_view, char> kBytes = [] {
      std::unordered_map<std::string_view, char> bytes;
      for (size_t byte = 0; byte < 256; ++byte) bytes[characters_of_bytes()[byte]] = static_cast<char>(byte);
      return bytes;
    }();
    std::string bytes;
    while (!token.empty()) {
      const size_t length = std::max<size_t>(utf8_length(token), 1);
      const auto found = kBytes.find(token.substr(0, length));
      if (found == kBytes.end()) bytes += token.substr(0, length);
      else bytes += found->second;
      token.remove_prefix(length);
    }
    return bytes;
  }

 private:
  static uint64_t key(Token left, Token right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }

  const Vocabulary& numbers_;
  WordSplitter splitter_;
  bool whole_;
  std::unordered_map<uint64_t, std::pair<int32_t, Token>> joins_;  // rank, and what is made
  std::array<Token, 256> of_byte_{};
};

// Pieces of text as SentencePiece joins them: two neighbours at a time, those first whose whole has the best score.
class ScoredPieces {
 public:
  ScoredPieces(const Vocabulary& numbers, const std::vector<std::string_view>& tokens, std::vector<double> scores,
               bool prefix)
      : numbers_(numbers), tokens_(tokens), scores_(std::move(scores)), prefix_(prefix) {
    if (scores_.size() != tokens.size())
      cannot_be(fmt::format("{} scores of {} tokens", scores_.size(), tokens.size()));
    if (const auto found = numbers.find("<unk>"); found != numbers.end()) unknown_ = found->second;
    for (size_t byte = 0; byte < 256; ++byte) {
      const auto found = numbers.find(fmt::format("<0x{:02X}>", byte));
      of_byte_[byte] = found == numbers.end() ? -1 : found->second;
    }
  }

  void encode(std::string_view text, std::vector<Token>& tokens) const {
    std::string spaced(prefix_ ? kSpace : std::string_view());
    for (const char c : text)
      if (c == ' ') spaced += kSpace;
      else spaced += c;
    std::vector<Token> parts;
    for (std::string_view rest = spaced; !rest.empty();) {
      const std::string_view character = rest.substr(0, std::max<size_t>(utf8_length(rest), 1));
      rest.remove_prefix(character.size());
      if (const auto found = numbers_.find(character); found != numbers_.end()) {
        parts.push_back(found->second);
        continue;
      }
      const auto token_of = [&](char c) { return of_byte_[static_cast<uint8_t>(c)]; };
      if (std::ranges::all_of(character, [&](char c) { return token_of(c) >= 0; }))
        for (const char c : character) parts.push_back(token_of(c));
      else if (unknown_ >= 0 && (parts.empty() || parts.back() != unknown_)) parts.push_back(unknown_);
    }
    std::string both;
    const auto joined = join_neighbours(std::move(parts), [&](Token left, Token right) -> std::optional<Join> {
      const std::string_view first = tokens_[static_cast<size_t>(left)], second = tokens_[static_cast<size_t>(right)];
      both.assign(first).append(second);
      const auto found = numbers_.find(both);
      if (found == numbers_.end() || left == unknown_ || right == unknown_) return std::nullopt;
      return Join{-scores_[static_cast<size_t>(found->second)], found->second, static_cast<int32_t>(first.size()),
                  found->second};
    });
    tokens.insert(tokens.end(), joined.begin(), joined.end());
  }

  std::string bytes_of(Token token, bool first) const {
    const std::string_view piece = tokens_[static_cast<size_t>(token)];
    if (const auto byte = std::ranges::find(of_byte_, token); byte != of_byte_.end())
      return {static_cast<char>(byte - of_byte_.begin())};
    std::string text;
    for (size_t i = 0; i < piece.size();) {
      const bool space = piece.substr(i).starts_with(kSpace);
      text += space ? ' ' : piece[i];
      i += space ? kSpace.size() : 1;
    }
    return first && prefix_ && text.starts_with(' ') ? text.substr(1) : text;
  }

 private:
  const Vocabulary& numbers_;
  const std::vector<std::string_view>& tokens_;
  std::vector<double> scores_;
  bool prefix_;
  Token unknown_ = -1;
  std::array<Token, 256> of_byte_{};
};

}  // namespace

class Tokenizer::Pieces {
 public:
  explicit Pieces(const GgufFile& file) {
    const auto list = [&](const char* key) { return value_or(file, key, GgufArray{}); };
    const GgufArray tokens = list("tokens");
    if (tokens.kind != GgufKind::kString || tokens.count == 0)
      refuse("the file has no tokenizer", "the metadata 'tokenizer.ggml.tokens'", "");
    tokens_ = strings_of(tokens);
    numbers_.reserve(tokens_.size());
    for (size_t i = 0; i < tokens_.size(); ++i) numbers_.insert_or_assign(tokens_[i], static_cast<Token>(i));
    const auto kind = value_or(file, "model", std::string_view()),
               words = value_or(file, "pre", std::string_view("default"));
    const bool of_bytes = kind == "gpt2";
    const auto expressions = words_by_name().find(words);
    if ((kind != "llama" && !of_bytes) || (of_bytes && expressions == words_by_name().end()))
      refuse(fmt::format("the tokenizer is of the kind '{}' with words as in '{}', which is not read", kind, words),
             "'llama', or 'gpt2' with the words of default, gpt-2, phi-2, smollm, qwen2 or llama-bpe", "");
    if (of_bytes) {
      const GgufArray merges = list("merges");
      if (merges.count != 0 && merges.kind != GgufKind::kString) cannot_be("its pairs are no texts");
      pairs_.emplace(numbers_, merges.count == 0 ? std::vector<std::string_view>() : strings_of(merges),
                     expressions->second, words == "llama-bpe");
    } else {
      const GgufArray scores = list("scores");
      if (scores.kind == GgufKind::kString || scores.kind == GgufKind::kArray) cannot_be("its scores are no numbers");
      scored_.emplace(numbers_, tokens_, numbers_of(scores), value_or(file, "add_space_prefix", true));
    }
    find_added(list("token_type"));
    begin_ = static_cast<Token>(value_or<int64_t>(file, "bos_token_id", -1));
    if (begin_ >= std::ssize(tokens_)) cannot_be(fmt::format("its first token is number {}", begin_));
    if (!value_or(file, "add_bos_token", !of_bytes || words == "llama-bpe")) begin_ = -1;
  }

  std::vector<Token> encode(std::string_view given, bool begin) const {
    CharacterStream characters;
    const std::string text = characters.add(given) + characters.rest();
    std::vector<Token> tokens;
    size_t done = 0;
    const auto piece = [&](size_t end) {
      if (end == done) return;
      const std::string_view own = std::string_view(text).substr(done, end - done);
      if (pairs_) pairs_->encode(own, tokens);
      else scored_->encode(own, tokens);
    };
    for (size_t at = 0; at < text.size();) {
      const Token token = added_at(std::string_view(text).substr(at));
      if (token < 0) {
        ++at;
        continue;
      }
      piece(at);
      tokens.push_back(token);
      done = at += tokens_[static_cast<size_t>(token)].size();
    }
    piece(text.size());
    if (begin && begin_ >= 0 && (tokens.empty() || tokens[0] != begin_)) tokens.insert(tokens.begin(), begin_);
    return tokens;
  }

  std::string bytes_of(Token token, bool first) const {
    if (token < 0 || token >= std::ssize(tokens_) || is_control_[static_cast<size_t>(token)]) return "";
    if (added_numbers_.contains(token)) return std::string(tokens_[static_cast<size_t>(token)]);
    return pairs_ ? BytePairs::bytes_of(tokens_[static_cast<size_t>(token)]) : scored_->bytes_of(token, first);
  }

 private:
  // Those that are found in a text as they are: control tokens, which stand for no text, and those of users.
  void find_added(const GgufArray& kinds) {
    is_control_.assign(tokens_.size(), false);
    if (kinds.count == 0 || kinds.kind == GgufKind::kString || kinds.kind == GgufKind::kArray) return;
    const std::vector<double> numbers = numbers_of(kinds);
    for (size_t i = 0; i < std::min(numbers.size(), tokens_.size()); ++i) {
      is_control_[i] = numbers[i] == kControl;
      if ((numbers[i] != kControl && numbers[i] != kUserDefined) || tokens_[i].empty()) continue;
      added_[tokens_[i][0]].push_back(static_cast<Token>(i));
      added_numbers_.insert(static_cast<Token>(i));
    }
    for (auto& [character, tokens] : added_)
      std::ranges::stable_sort(tokens, std::greater(), [&](Token t) { return tokens_[static_cast<size_t>(t)].size(); });
  }

  // The longest one that the text begins with; -1 when there is none.
  Token added_at(std::string_view text) const {
    const auto found = added_.find(text[0]);
    if (found == added_.end()) return -1;
    const auto begins = [&](Token token) { return text.starts_with(tokens_[static_cast<size_t>(token)]); };
    const auto token = std::ranges::find_if(found->second, begins);
    return token == found->second.end() ? -1 : *token;
  }

  std::vector<std::string_view> tokens_;
  Vocabulary numbers_;
  std::optional<BytePairs> pairs_;
  std::optional<ScoredPieces> scored_;
  std::vector<bool> is_control_;
  std::unordered_map<char, std::vector<Token>> added_;  // by their first bytes, the longest first
  std::set<Token> added_numbers_;
  Token begin_ = -1;  // -1: none
};

Tokenizer::Tokenizer(const GgufFile& file) : pieces_(std::make_unique<Pieces>(file)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<Token> Tokenizer::encode(std::string_view text, bool begin) const { return pieces_->encode(text, begin); }
std::string Tokenizer::bytes_of(Token token, bool first) const { return pieces_->bytes_of(token, first); }

std::string Tokenizer::decode(std::span<const Token> tokens) const {
  Detokenizer detokenizer(*this);
  std::string text;
  for (const Token token : tokens) text += detokenizer.add(token);
  return text + detokenizer.rest();
}

std::string Detokenizer::add(Token token) {
  const std::string bytes = tokenizer_.bytes_of(token, is_first_);
  is_first_ = is_first_ && bytes.empty();
  return characters_.add(bytes);
}

namespace {

// How many bytes the sequence has that begins so, as its first byte says; 1 for what begins none.
size_t announced_length(uint8_t first) {
  return first < 0xC2 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 1;
}

}  // namespace

std::string CharacterStream::add(std::string_view bytes) {
  pending_ += bytes;
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    if (const size_t length = utf8_length(rest); length > 0) {
      text += rest.substr(0, length);
      rest.remove_prefix(length);
      continue;
    }
    size_t valid = 1;  // bytes that a character might begin with
    const size_t announced = announced_length(static_cast<uint8_t>(rest[0]));
    while (valid < std::min(announced, rest.size()) && (static_cast<uint8_t>(rest[valid]) & 0xC0) == 0x80) ++valid;
    if (valid == rest.size() && valid < announced) break;
    text += kReplacement;
    rest.remove_prefix(valid < announced ? valid : 1);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string CharacterStream::rest() {
  const bool any = !std::exchange(pending_, std::string()).empty();
  return any ? std::string(kReplacement) : std::string();
}

}  // namespace tessera::inline generate
