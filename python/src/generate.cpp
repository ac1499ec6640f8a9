#include "generate.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "generate/generation.h"
#include "generate/language_model_file.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tessera::python {

namespace {

using Tokens = std::vector<Token>;
using Scores = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

// A model of which one thread at a time makes runs; others wait.
struct SharedLanguageModel {
  template <typename Source>
  SharedLanguageModel(const Source& module, int threads, int64_t trained_context)
      : model(module, threads, trained_context) {}

  // `work`, while Python goes on.
  template <typename Work>
  auto alone(const Work& work) {
    const nb::gil_scoped_release release;
    const std::lock_guard lock(mutex);
    return work();
  }

  LanguageModel model;
  std::mutex mutex;
};

std::unique_ptr<SharedLanguageModel> load_language_model(const std::string& path, int threads, int64_t context) {
  const nb::gil_scoped_release release;
  return std::make_unique<SharedLanguageModel>(path, threads, context);
}

std::unique_ptr<SharedLanguageModel> load_language_model_bytes(const nb::bytes& module, int threads, int64_t context) {
  const std::span bytes(reinterpret_cast<const std::byte*>(module.c_str()), module.size());
  const nb::gil_scoped_release release;
  return std::make_unique<SharedLanguageModel>(bytes, threads, context);
}

// Rows `first` to `first + count` of the scores, which live as long as one of their arrays.
Scores rows_of(const std::shared_ptr<std::vector<float>>& scores, size_t first, size_t count, size_t width) {
  auto* const held = new std::shared_ptr<std::vector<float>>(scores);
  const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::shared_ptr<std::vector<float>>*>(p); });
  return {scores->data() + first * width, {count, width}, owner};
}

std::vector<Scores> together(SharedLanguageModel& shared,
                             const std::vector<std::tuple<Tokens, KeyValueCache*, int64_t>>& given) {
  std::vector<SequencePiece> pieces;
  for (const auto& [tokens, cache, kept] : given) {
    if (!cache) throw nb::type_error("a piece has no cache");
    pieces.push_back({tokens, cache, kept});
  }
  const auto scores = shared.alone([&] { return std::make_shared<std::vector<float>>(shared.model.read(pieces)); });
  std::vector<Scores> result;
  size_t first = 0;
  for (const SequencePiece& piece : pieces) {
    const auto count = static_cast<size_t>(piece.kept);
    result.push_back(rows_of(scores, first, count, static_cast<size_t>(shared.model.vocabulary())));
    first += count;
  }
  return result;
}

GenerationOptions options_of(int64_t max_tokens, double temperature, int64_t top_k, double top_p,
                             std::optional<uint64_t> seed, std::set<Token> ends, int64_t lookup) {
  return {.max_tokens = max_tokens,
          .sampling = {.temperature = temperature, .top_k = top_k, .top_p = top_p},
          .seed = seed,
          .lookup = lookup,
          .ends = std::move(ends)};
}

std::vector<Tokens> all_tokens(SharedLanguageModel& shared, const std::vector<Tokens>& prompts,
                               const std::vector<std::optional<uint64_t>>& seeds, int64_t max_tokens,
                               double temperature, int64_t top_k, double top_p, const std::set<Token>& ends,
                               int64_t lookup) {
  std::vector<GenerationRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i)
    requests.push_back({prompts[i], options_of(max_tokens, temperature, top_k, top_p, seeds.at(i), ends, lookup)});
  return shared.alone([&] {
    return generate_all(shared.model, requests, [] {
      const nb::gil_scoped_acquire acquire;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    });
  });
}

// A text of Python, whose halves of surrogate pairs are no UTF-8.
std::string utf8_of(const nb::str& text) {
  return nb::cast<std::string>(nb::str(text).attr("encode")("utf-8", "replace").attr("decode")("utf-8"));
}

}  // namespace

void add_generate(nb::module_& m) {
  nb::class_<KeyValueCache>(m, "KeyValueCache", "Keys and values of the tokens that were read of a sequence.")
      .def_prop_ro("tokens", &KeyValueCache::tokens, "These tokens.")
      .def_prop_ro("bytes_per_token", &KeyValueCache::bytes_per_token, "The memory that each of them takes.")
      .def(
          "shared_prefix", [](const KeyValueCache& cache, const Tokens& tokens) { return cache.shared_prefix(tokens); },
          "tokens"_a, "With how many of its tokens others begin.")
      .def("truncate", &KeyValueCache::truncate, "count"_a, "Forgets all tokens but the first `count`.");
  nb::class_<SharedLanguageModel>(m, "LanguageModel", "A compiled language model.")
      .def_prop_ro("context", [](const SharedLanguageModel& shared) { return shared.model.context(); })
      .def_prop_ro("sequences", [](const SharedLanguageModel& shared) { return shared.model.sequences(); })
      .def_prop_ro("vocabulary", [](const SharedLanguageModel& shared) { return shared.model.vocabulary(); })
      .def_prop_ro("num_threads", [](const SharedLanguageModel& shared) { return shared.model.threads(); })
      .def_prop_rw(
          "chunk", [](const SharedLanguageModel& shared) { return shared.model.chunk(); },
          [](SharedLanguageModel& shared, int64_t chunk) { shared.model.set_chunk(chunk); })
      .def("new_cache", [](const SharedLanguageModel& shared) { return shared.model.new_cache(); })
      .def("together", &together, "pieces"_a,
           nb::sig("def together(self, pieces: Sequence[tuple[Sequence[int], KeyValueCache, int]]) -> "
                   "list[NDArray[numpy.float32]]"),
           "One run for several sequences.")
      .def("all_tokens", &all_tokens, "prompts"_a, "seeds"_a, "max_tokens"_a, "temperature"_a, "top_k"_a, "top_p"_a,
           "ends"_a, "lookup"_a, "The tokens that follow each of several prompts.");
  nb::class_<Generation>(m, "Generation", "An answer on its way.")
      .def(
          "__init__",
          [](Generation* self, const SharedLanguageModel& shared, KeyValueCache& cache, Tokens prompt,
             int64_t max_tokens, double temperature, int64_t top_k, double top_p, std::optional<uint64_t> seed,
             std::set<Token> ends, int64_t lookup) {
            new (self) Generation(shared.model, cache, std::move(prompt),
                                  options_of(max_tokens, temperature, top_k, top_p, seed, std::move(ends), lookup));
          },
          "model"_a, "cache"_a, "prompt"_a, "max_tokens"_a, "temperature"_a, "top_k"_a, "top_p"_a, "seed"_a.none(),
          "ends"_a, "lookup"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
      .def_prop_ro("done", &Generation::is_done, "Whether nothing follows any more.");
  m.def(
      "step",
      [](SharedLanguageModel& shared, const std::vector<Generation*>& generations, int64_t most) {
        if (std::ranges::find(generations, nullptr) != generations.end()) throw nb::type_error("None is no answer");
        return shared.alone([&] { return step(shared.model, generations, most); });
      },
      "model"_a, "generations"_a, "most"_a = 0,
      "One run, which reads a piece of each, at most `most` tokens of a prompt. The tokens that are decided of each.");
  m.def("load_language_model", &load_language_model, "path"_a, "threads"_a, "context"_a, "Loads a module file.");
  m.def("load_language_model_bytes", &load_language_model_bytes, "module"_a, "threads"_a, "context"_a,
        "Loads a module.");

  nb::class_<Tokenizer>(m, "Tokenizer", "Text as the tokens of a language model.")
      .def(
          "encode",
          [](const Tokenizer& tokenizer, const nb::str& text, bool begin) {
            return tokenizer.encode(utf8_of(text), begin);
          },
          "text"_a, nb::kw_only(), "begin"_a = true,
          "The tokens of a text; `begin` puts the token in front that the model may want there.")
      .def(
          "decode", [](const Tokenizer& tokenizer, const Tokens& tokens) { return tokenizer.decode(tokens); },
          "tokens"_a, "The text of tokens, without those that stand for no text.");
  nb::class_<Detokenizer>(m, "Detokenizer", "The text of tokens that come one after another.")
      .def(nb::init<const Tokenizer&>(), "tokenizer"_a, nb::keep_alive<1, 2>())
      .def("add", &Detokenizer::add, "token"_a, "What there is to say now; nothing while a character is not complete.")
      .def("rest", &Detokenizer::rest, "What an end in the middle of a character leaves.");
  nb::class_<LanguageModelFile>(m, "LanguageModelFile", "What a model's file says beside its weights.")
      .def(nb::init<const std::string&>(), "path"_a)
      .def_prop_ro("context", &LanguageModelFile::context, "The most tokens that the model was trained for.")
      .def_prop_ro("ends", &LanguageModelFile::ends, "Tokens that end an answer.")
      .def_prop_ro("tokenizer", &LanguageModelFile::tokenizer, nb::rv_policy::reference_internal)
      .def_prop_ro("chat_template", &LanguageModelFile::chat_template, "A Jinja template, or None.")
      .def_prop_ro("begin_text", &LanguageModelFile::begin_text, "The text of the token that begins a text.")
      .def_prop_ro("end_text", &LanguageModelFile::end_text, "The text of the token that ends one.");
}

}  // namespace tessera::python
