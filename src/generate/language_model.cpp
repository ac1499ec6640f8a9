#include "generate/language_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "support/error.h"
#include "tessera/tessera.h"

namespace tessera::inline generate {

struct LanguageModel::Handles {
  ~Handles() {
    tessera_session_free(session);
    tessera_module_free(module);
  }
  tessera_module* module = nullptr;
  tessera_session* session = nullptr;
};

namespace {

void throw_unless_ok(tessera_status status, const tessera_error& error) {
  if (status != TESSERA_OK)
    throw UserError({.id = error.id, .message = error.message, .node = {}, .legal = {}, .hint = {}});
}

[[noreturn]] void refuse_module(const std::string& name, const std::string& why) {
  throw UserError({.id = "TSR-4090",
                   .message = fmt::format("'{}' is no language model: {}", name, why),
                   .node = {},
                   .legal = "a module that was compiled from a GGUF file",
                   .hint = "compile it again: tessera generate MODEL.gguf"});
}

[[noreturn]] void refuse_tokens(std::string message, std::string legal, std::string hint = {}) {
  throw UserError({.id = "TSR-4038",
                   .message = std::move(message),
                   .node = {},
                   .legal = std::move(legal),
                   .hint = std::move(hint)});
}

tessera_tensor matrix(tessera_dtype dtype, void* data, std::initializer_list<int64_t> dims) {
  tessera_tensor tensor = {};
  tensor.data = data;
  tensor.dtype = dtype;
  tensor.rank = static_cast<int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), tensor.dims);
  return tensor;
}

}  // namespace

LanguageModel::LanguageModel(std::unique_ptr<Handles> handles, const std::string& name, int threads,
                             int64_t trained_context)
    : handles_(std::move(handles)) {
  const tessera_module* module = handles_->module;
  int64_t past = -1;
  tessera_symbol_info symbol;
  for (int32_t i = 0; tessera_module_symbol(module, i, &symbol) == TESSERA_OK; ++i) {
    if (symbol.name == std::string_view("length")) longest_chunk_ = symbol.hi;
    if (symbol.name == std::string_view("past")) past = symbol.hi;
  }
  tessera_tensor_info info;
  // Where a run takes one token, its number is no open size.
  if (tessera_module_input(module, 0, &info) == TESSERA_OK && info.rank == 1 && info.dims[0] == 1) longest_chunk_ = 1;
  if (longest_chunk_ < 1 || past < 0) refuse_module(name, "it has no open sizes 'length' and 'past'");
  chunk_ = longest_chunk_;
  context_ = std::min(past + 1, trained_context);
  // Tokens of each sequence, rows, and keys and values of each; scores, and the same keys and values.
  const int32_t num_caches = tessera_module_num_outputs(module) - 1;
  const int32_t num_sequences = tessera_module_num_inputs(module) - num_caches - 1;
  if (num_sequences < 1 || num_caches < 0 || num_caches % num_sequences != 0)
    refuse_module(name, "its inputs and outputs are not those of sequences");
  sequences_ = num_sequences;
  const auto described = [&](tessera_status status, tessera_dtype dtype, int32_t rank) {
    if (status != TESSERA_OK || info.dtype != dtype || info.rank != rank)
      refuse_module(name, "its inputs and outputs have other types");
  };
  for (int32_t i = 0; i <= num_sequences; ++i) described(tessera_module_input(module, i, &info), TESSERA_I64, 1);
  described(tessera_module_output(module, 0, &info), TESSERA_F32, 2);
  vocabulary_ = info.dims[1];
  if (vocabulary_ < 1) refuse_module(name, "its scores have no fixed number");
  for (int32_t i = 0; i < num_caches; ++i) {
    described(tessera_module_input(module, num_sequences + 1 + i, &info), TESSERA_F32, 2);
    const int64_t width = info.dims[1];
    described(tessera_module_output(module, i + 1, &info), TESSERA_F32, 2);
    const auto layer = static_cast<size_t>(i % (num_caches / num_sequences));
    if (layer == widths_.size()) widths_.push_back(width);
    if (width < 1 || info.dims[1] != width || widths_[layer] != width)
      refuse_module(name, "its keys and values have other widths");
  }
  tessera_session_options options = {};
  options.size = sizeof options;
  options.num_threads = threads;
  tessera_error error = {};
  throw_unless_ok(tessera_session_create(module, &options, &handles_->session, &error), error);
}

LanguageModel::LanguageModel(const std::string& module_path, int threads, int64_t trained_context)
    : LanguageModel(
          [&] {
            auto handles = std::make_unique<Handles>();
            tessera_error error = {};
            throw_unless_ok(tessera_module_load(module_path.c_str(), nullptr, &handles->module, &error), error);
            return handles;
          }(),
          module_path, threads, trained_context) {}

LanguageModel::LanguageModel(std::span<const std::byte> module, int threads, int64_t trained_context)
    : LanguageModel(
          [&] {
            auto handles = std::make_unique<Handles>();
            tessera_error error = {};
            throw_unless_ok(tessera_module_load_memory(module.data(), module.size(), nullptr, &handles->module, &error),
                            error);
            return handles;
          }(),
          "the module", threads, trained_context) {}

LanguageModel::~LanguageModel() = default;

int LanguageModel::threads() const { return tessera_session_num_threads(handles_->session); }

void LanguageModel::set_chunk(int64_t chunk) {
  if (chunk < 1 || chunk > longest_chunk_)
    refuse_tokens(fmt::format("{} tokens of a prompt in a run", chunk), fmt::format("1 to {}", longest_chunk_));
  chunk_ = chunk;
}

void LanguageModel::require_legal(std::span<const SequencePiece> pieces) const {
  if (pieces.empty() || std::ssize(pieces) > sequences_)
    refuse_tokens(fmt::format("{} sequences in a run", pieces.size()), fmt::format("1 to {}", sequences_));
  for (const SequencePiece& piece : pieces) {
    const auto past = std::ssize(piece.cache->tokens()), length = std::ssize(piece.tokens);
    const auto is_token = [&](Token token) { return token >= 0 && token < vocabulary_; };
    if (length == 0 || !std::ranges::all_of(piece.tokens, is_token))
      refuse_tokens("these are no tokens of the model", fmt::format("one or more numbers, 0 to {}", vocabulary_ - 1));
    if (past + length > context_)
      refuse_tokens(fmt::format("{} tokens", past + length), fmt::format("at most {}", context_),
                    "take a larger context, or give less");
    if (length > longest_chunk_)
      refuse_tokens(fmt::format("{} tokens in a run", length), fmt::format("at most {}", longest_chunk_));
    if (piece.kept < 0 || piece.kept > length)
      refuse_tokens(fmt::format("scores of {} of {} tokens", piece.kept, length), "at most as many as there are");
    if (piece.cache->widths() != widths_ || piece.cache->context() != context_)
      refuse_tokens("the cache is of another model", "one that the model made");
    if (std::ranges::count(pieces, piece.cache, &SequencePiece::cache) > 1)
      refuse_tokens("two sequences have one cache", "a cache for each");
  }
}

std::vector<float> LanguageModel::read(std::span<const SequencePiece> given) {
  require_legal(given);
  // Places that nobody uses read a token that nobody asks for.
  static constexpr Token kNothing[] = {0};
  std::vector<SequencePiece> pieces(given.begin(), given.end());
  for (size_t i = 0; std::ssize(pieces) < sequences_; ++i) {
    if (i == idle_.size()) idle_.push_back(new_cache());
    pieces.push_back({kNothing, idle_[i].get(), 0});
  }
  std::vector<std::vector<int64_t>> numbers;
  std::vector<int64_t> rows;
  std::vector<tessera_tensor> inputs, outputs;
  int64_t begin = 0;
  for (const SequencePiece& piece : pieces) {
    auto& own = numbers.emplace_back(piece.tokens.begin(), piece.tokens.end());
    inputs.push_back(matrix(TESSERA_I64, own.data(), {std::ssize(own)}));
    begin += std::ssize(own);
    for (int64_t i = begin - piece.kept; i < begin; ++i) rows.push_back(i);
  }
  std::vector<float> scores(rows.size() * static_cast<size_t>(vocabulary_));
  inputs.push_back(matrix(TESSERA_I64, rows.data(), {std::ssize(rows)}));
  outputs.push_back(matrix(TESSERA_F32, scores.data(), {std::ssize(rows), vocabulary_}));
  for (const SequencePiece& piece : pieces) {
    const auto past = std::ssize(piece.cache->tokens()), length = std::ssize(piece.tokens);
    for (size_t i = 0; i < widths_.size(); ++i) {
      inputs.push_back(matrix(TESSERA_F32, piece.cache->rows(i), {past, widths_[i]}));
      outputs.push_back(matrix(TESSERA_F32, piece.cache->rows(i), {past + length, widths_[i]}));
    }
  }
  tessera_error error = {};
  throw_unless_ok(tessera_session_run(handles_->session, inputs.data(), static_cast<int32_t>(inputs.size()),
                                      outputs.data(), static_cast<int32_t>(outputs.size()), &error),
                  error);
  for (const SequencePiece& piece : given) piece.cache->append(piece.tokens);
  return scores;
}

}  // namespace tessera::inline generate
