#include "generate/language_model.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

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

// Room for the whole context, of which the system gives memory as rows are written.
struct LanguageModel::Cache {
  Cache(int64_t rows, int64_t columns) : width(columns), bytes(static_cast<size_t>(rows * columns) * sizeof(float)) {
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
      throw UserError({.id = "TSR-7016",
                       .message = fmt::format("there is no memory for {} bytes of keys and values", bytes),
                       .node = {},
                       .legal = {},
                       .hint = "take a smaller --context"});
    data = static_cast<float*>(at);
  }
  ~Cache() {
    if (data) munmap(data, bytes);
  }
  Cache(Cache&& other) noexcept : width(other.width), bytes(other.bytes), data(std::exchange(other.data, nullptr)) {}
  Cache& operator=(Cache&&) = delete;

  int64_t width;
  size_t bytes;
  float* data = nullptr;
};

namespace {

void throw_unless_ok(tessera_status status, const tessera_error& error) {
  if (status != TESSERA_OK)
    throw UserError({.id = error.id, .message = error.message, .node = {}, .legal = {}, .hint = {}});
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw UserError({.id = "TSR-4090",
                   .message = fmt::format("'{}' is no language model: {}", path, why),
                   .node = {},
                   .legal = "a module that was compiled from a GGUF file, of one sequence",
                   .hint = "compile it again: tessera generate MODEL.gguf"});
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

LanguageModel::LanguageModel(const std::string& module_path, int threads, int64_t trained_context)
    : handles_(std::make_unique<Handles>()) {
  tessera_error error = {};
  throw_unless_ok(tessera_module_load(module_path.c_str(), nullptr, &handles_->module, &error), error);
  const tessera_module* module = handles_->module;
  int64_t past = -1;
  tessera_symbol_info symbol;
  for (int32_t i = 0; tessera_module_symbol(module, i, &symbol) == TESSERA_OK; ++i) {
    if (symbol.name == std::string_view("length")) chunk_ = symbol.hi;
    if (symbol.name == std::string_view("past")) past = symbol.hi;
  }
  if (chunk_ < 1 || past < 0) refuse(module_path, "it has no open sizes 'length' and 'past'");
  context_ = std::min(past + 1, trained_context);
  const int32_t num_caches = tessera_module_num_outputs(module) - 1;
  if (num_caches < 0 || tessera_module_num_inputs(module) != num_caches + 2)
    refuse(module_path, "its inputs and outputs are not those of one sequence");
  tessera_tensor_info info;
  const auto described = [&](tessera_status status, tessera_dtype dtype, int32_t rank) {
    if (status != TESSERA_OK || info.dtype != dtype || info.rank != rank)
      refuse(module_path, "its inputs and outputs have other types");
  };
  described(tessera_module_input(module, 0, &info), TESSERA_I64, 1);
  described(tessera_module_input(module, 1, &info), TESSERA_I64, 1);
  described(tessera_module_output(module, 0, &info), TESSERA_F32, 2);
  vocabulary_ = info.dims[1];
  for (int32_t i = 0; i < num_caches; ++i) {
    described(tessera_module_input(module, i + 2, &info), TESSERA_F32, 2);
    const int64_t width = info.dims[1];
    described(tessera_module_output(module, i + 1, &info), TESSERA_F32, 2);
    if (width < 1 || info.dims[1] != width) refuse(module_path, "its keys and values have other widths");
    caches_.emplace_back(context_, width);
  }
  if (vocabulary_ < 1) refuse(module_path, "its scores have no fixed number");
  tessera_session_options options = {};
  options.size = sizeof options;
  options.num_threads = threads;
  throw_unless_ok(tessera_session_create(module, &options, &handles_->session, &error), error);
}

LanguageModel::~LanguageModel() = default;

std::span<const float> LanguageModel::read(std::span<const Token> tokens, int64_t kept) {
  const auto past = static_cast<int64_t>(tokens_.size()), length = std::ssize(tokens);
  std::vector<int64_t> numbers(tokens.begin(), tokens.end()), rows(static_cast<size_t>(kept));
  for (int64_t i = 0; i < kept; ++i) rows[static_cast<size_t>(i)] = length - kept + i;
  scores_.resize(static_cast<size_t>(kept * vocabulary_));
  std::vector<tessera_tensor> inputs = {matrix(TESSERA_I64, numbers.data(), {length}),
                                        matrix(TESSERA_I64, rows.data(), {kept})};
  std::vector<tessera_tensor> outputs = {matrix(TESSERA_F32, scores_.data(), {kept, vocabulary_})};
  for (const Cache& cache : caches_) {
    inputs.push_back(matrix(TESSERA_F32, cache.data, {past, cache.width}));
    outputs.push_back(matrix(TESSERA_F32, cache.data, {past + length, cache.width}));
  }
  tessera_error error = {};
  throw_unless_ok(tessera_session_run(handles_->session, inputs.data(), static_cast<int32_t>(inputs.size()),
                                      outputs.data(), static_cast<int32_t>(outputs.size()), &error),
                  error);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return scores_;
}

}  // namespace tessera::inline generate
