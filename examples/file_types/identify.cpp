#include "file_types/identify.h"

#include "common/utf8.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace example {
namespace {

constexpr std::string_view kWhiteSpace = " \t\n\r\v\f";

std::string_view without_leading_space(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kWhiteSpace), text.size()));
  return text;
}

std::string_view without_trailing_space(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kWhiteSpace) + 1);  // npos + 1 is 0
}

void append_bytes(std::vector<std::int32_t>& tokens, std::string_view bytes) {
  for (const char byte : bytes) tokens.push_back(static_cast<unsigned char>(byte));
}

std::string read_at(std::ifstream& file, const std::string& path, std::uint64_t offset, std::size_t size) {
  std::string bytes(size, '\0');
  file.seekg(std::streamoff(offset));
  file.read(bytes.data(), std::streamsize(size));
  if (!file) throw std::runtime_error("cannot read '" + path + "'");
  return bytes;
}

const ContentType& type_of(const std::string& label, const ContentTypes& types) {
  const auto found = types.find(label);
  if (found == types.end()) throw std::runtime_error("nothing is known about the label '" + label + "'");
  return found->second;
}

bool is_sure(double score, const std::string& label, const TypeConfig& config, Mode mode) {
  if (mode == Mode::kBestGuess) return true;
  const auto own = config.thresholds.find(label);
  const bool has_own = mode == Mode::kHighConfidence && own != config.thresholds.end();
  return score >= (has_own ? own->second : config.threshold);
}

}  // namespace

FileEnds read_ends(const std::string& path, int block_size) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read '" + path + "': " + std::strerror(errno));
  file.seekg(0, std::ios::end);
  const std::streamoff size = file.tellg();
  if (size < 0) throw std::runtime_error("cannot read '" + path + "'");
  FileEnds ends;
  ends.size = std::uint64_t(size);
  const std::size_t block = std::size_t(std::min<std::uint64_t>(ends.size, std::uint64_t(block_size)));
  ends.first = read_at(file, path, 0, block);
  ends.last = read_at(file, path, ends.size - block, block);
  return ends;
}

std::optional<std::vector<std::int32_t>> tokens_of(const FileEnds& ends, const TypeConfig& config) {
  const std::string_view begin = without_leading_space(ends.first).substr(0, config.begin_size);
  if (begin.size() < std::size_t(config.min_file_size)) return std::nullopt;
  std::string_view end = without_trailing_space(ends.last);
  end.remove_prefix(end.size() - std::min(end.size(), std::size_t(config.end_size)));

  std::vector<std::int32_t> tokens;
  append_bytes(tokens, begin);
  tokens.resize(std::size_t(config.begin_size) + config.end_size - end.size(), config.padding_token);
  append_bytes(tokens, end);
  return tokens;
}

Answer answer_of(std::span<const float> probabilities, const TypeConfig& config, const ContentTypes& types, Mode mode) {
  const std::size_t best =
      std::size_t(std::max_element(probabilities.begin(), probabilities.end()) - probabilities.begin());
  Answer answer;
  answer.score = probabilities[best];
  answer.network_label = answer.label = config.labels.at(best);
  if (const auto other = config.overwrites.find(answer.label); other != config.overwrites.end()) {
    answer.label = other->second;
    if (answer.label != answer.network_label) answer.reason = "overwrite_map";
  }
  if (!is_sure(answer.score, answer.network_label, config, mode)) {
    // Text or not is trusted all the same.
    answer.label = type_of(answer.label, types).is_text ? "txt" : "unknown";
    answer.reason = answer.label == answer.network_label ? "none" : "low_confidence";
  }
  return answer;
}

Answer identify(const std::string& path, const TypeConfig& config, const ContentTypes& types, Mode mode,
                bool follow_links, const Network& network) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!follow_links && fs::is_symlink(fs::symlink_status(path, error))) return {"symlink"};
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) throw std::runtime_error("cannot read '" + path + "': " + error.message());
  if (fs::is_directory(status)) return {"directory"};
  if (!fs::is_regular_file(status)) return {"unknown"};

  const FileEnds ends = read_ends(path, config.block_size);
  if (ends.size == 0) return {"empty"};
  const auto tokens = ends.size < std::uint64_t(config.min_file_size) ? std::nullopt : tokens_of(ends, config);
  if (!tokens) return {decode_utf8(ends.first) ? "txt" : "unknown"};
  return answer_of(network(*tokens), config, types, mode);
}

}  // namespace example
