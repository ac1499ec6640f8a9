// TfIdfVectorizer: how often each of a list of n-grams stands in a sequence.
#include <fmt/format.h>

#include <algorithm>

#include "import/onnx/operators/handlers.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

constexpr double kMostComparisons = 0x1p32;

// Strings are compared by their numbers.
Ints numbers_of(NodeContext& c, const std::vector<std::string>& texts) {
  Ints numbers;
  for (const std::string& text : texts) numbers.push_back(c.string_number(text));
  return numbers;
}

// Every n-gram is compared at every place and for every number of skipped elements.
void import_tfidf(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const Ints dims = c.dims(x);
  const bool strings = c.attrs.has("pool_strings");
  if (strings != c.is_string(x))
    c.malformed(
        fmt::format("an operand {} and {} 'pool_strings'", c.flow_type(x).to_string(), strings ? "with" : "without"),
        "a pool of the operand's type");
  if (dims.size() > 2 || (c.dtype(x) != DType::kI32 && c.dtype(x) != DType::kI64))
    c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "i32 or i64, of rank 1 or 2");
  const std::string mode = c.attrs.get_string("mode", "");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF") c.malformed(fmt::format("mode = '{}'", mode), "TF, IDF, TFIDF");
  const int64_t shortest = c.attrs.require_int("min_gram_length"), longest = c.attrs.require_int("max_gram_length"),
                skips = c.attrs.require_int("max_skip_count");
  const Ints first = c.attrs.require_ints("ngram_counts"), places = c.attrs.require_ints("ngram_indexes"),
             pool = strings ? numbers_of(c, c.attrs.get_strings("pool_strings")) : c.attrs.require_ints("pool_int64s");
  const std::vector<double> weights = c.attrs.get_floats("weights");
  if (places.empty() || *std::min_element(places.begin(), places.end()) < 0 ||
      *std::max_element(places.begin(), places.end()) > (1 << 24) || shortest < 1 || longest < shortest || skips < 0)
    c.malformed(fmt::format("n-grams of {} to {} elements with up to {} skipped, {} places", shortest, longest, skips,
                            places.size()),
                "at least one place from 0 on, and lengths of at least 1");
  const int64_t batch = dims.size() == 2 ? dims[0] : 1, length = dims.empty() ? 1 : dims.back();
  const int64_t width = *std::max_element(places.begin(), places.end()) + 1;
  const ValueId sequence = c.reshape(c.cast(x, DType::kI64), {batch, length, 1});
  if (!weights.empty() && weights.size() != places.size())
    c.malformed(fmt::format("{} weights of {} n-grams", weights.size(), places.size()), "a weight for each");
  double comparisons = 0;

  // How often each n-gram that can occur was seen, and the place of its count.
  std::vector<ValueId> counts;  // f32 [batch, n-grams of one size]
  Ints targets;
  size_t number = 0;  // of the first n-gram of a size
  for (size_t i = 0; i < first.size(); ++i) {
    const auto size = static_cast<int64_t>(i) + 1;
    const int64_t begin = first[i], end = i + 1 < first.size() ? first[i + 1] : std::ssize(pool);
    if (begin < 0 || end < begin || end > std::ssize(pool) || (end - begin) % size != 0)
      c.malformed(fmt::format("{}-grams in {} to {} of a pool of {}", size, begin, end, pool.size()),
                  "whole n-grams in order");
    const int64_t grams = (end - begin) / size;
    const size_t own = number;
    number += static_cast<size_t>(grams);
    if (number > places.size())
      c.malformed(fmt::format("{} n-grams and {} places", number, places.size()), "a place for each");
    if (grams == 0 || size < shortest || size > longest) continue;
    std::vector<ValueId> wanted;
    for (int64_t k = 0; k < size; ++k) {
      Ints column;
      for (int64_t g = 0; g < grams; ++g) column.push_back(pool[static_cast<size_t>(begin + g * size + k)]);
      wanted.push_back(c.ints(column));
    }
    std::optional<ValueId> seen;
    // More skips than elements change nothing.
    for (int64_t step = 1; step <= (size == 1 ? 1 : std::min(skips, length) + 1); ++step) {
      const int64_t starts = length - (size - 1) * step;
      if (starts <= 0) break;
      comparisons += static_cast<double>(batch) * static_cast<double>(starts) * static_cast<double>(grams * size);
      if (comparisons > kMostComparisons) c.unsupported("so many n-grams, places and skips");
      std::optional<ValueId> hit;
      for (int64_t k = 0; k < size; ++k) {
        const ValueId element = c.slice(sequence, {0, k * step, 0}, {batch, starts, 1}, {1, 1, 1});
        const ValueId same = c.op("eq", {element, wanted[static_cast<size_t>(k)]});
        hit = hit ? c.op("logical_and", {*hit, same}) : same;
      }
      const ValueId count = c.reduce("sum", c.cast(*hit, DType::kF32), {1}, false);
      seen = seen ? c.add(*seen, count) : count;
    }
    if (!seen) continue;
    // A weight belongs to an n-gram; without weights it is the sum at a place that counts.
    if (mode != "TF" && !weights.empty()) {
      if (mode == "IDF") seen = c.cast(c.op("gt", {*seen, c.scalar(DType::kF32, 0)}), DType::kF32);
      Tensor factors(DType::kF32, {grams});
      for (int64_t g = 0; g < grams; ++g) factors.set_double(g, weights[own + static_cast<size_t>(g)]);
      seen = c.mul(*seen, c.constant_value(std::move(factors)));
    }
    counts.push_back(*seen);
    targets.insert(targets.end(), places.begin() + static_cast<ptrdiff_t>(own),
                   places.begin() + static_cast<ptrdiff_t>(own) + grams);
  }
  Ints result = dims;
  if (result.empty()) result.push_back(width);
  else result.back() = width;
  if (counts.empty()) return c.out(0, c.constant_value(Tensor(DType::kF32, result)));

  // Counts go to their places; two n-grams with one place are added.
  ValueId y = counts.size() == 1 ? counts[0] : c.op("concat", counts, {{"axis", int64_t{1}}});
  Ints source(static_cast<size_t>(width), -1);
  bool shared = false;
  for (size_t i = 0; i < targets.size(); ++i) {
    int64_t& from = source[static_cast<size_t>(targets[i])];
    shared = shared || from >= 0;
    from = static_cast<int64_t>(i);
  }
  const auto total = std::ssize(targets);
  if (shared) {
    Tensor matrix(DType::kF32, {total, width});
    for (int64_t i = 0; i < total; ++i) matrix.set_double(i * width + targets[static_cast<size_t>(i)], 1);
    y = c.op("matmul", {y, c.constant_value(std::move(matrix))});
  } else {
    Tensor there(DType::kBool, {width});
    Ints from = source;
    for (int64_t i = 0; i < width; ++i) {
      there.set_int(i, source[static_cast<size_t>(i)] >= 0);
      from[static_cast<size_t>(i)] = std::max<int64_t>(0, source[static_cast<size_t>(i)]);
    }
    y = c.op("gather", {y, c.ints(from)}, {{"axis", int64_t{1}}});
    y = c.op("select", {c.constant_value(std::move(there)), y, c.scalar(DType::kF32, 0)});
  }
  if (mode == "IDF" && weights.empty()) y = c.cast(c.op("gt", {y, c.scalar(DType::kF32, 0)}), DType::kF32);
  c.out(0, c.reshape(y, result));
}

}  // namespace

OperatorFamily ngrams_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"TfIdfVectorizer", 9, import_tfidf},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
