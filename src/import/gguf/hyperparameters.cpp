#include "import/gguf/hyperparameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace tessera::inline gguf {
namespace {

constexpr int64_t kMost = 1 << 20;       // layers, heads, features
constexpr int64_t kMostDepth = 1 << 12;  // features of a head: tables of positions have as many columns

class Metadata {
 public:
  Metadata(const GgufFile& file, std::string_view architecture) : file_(file), prefix_(architecture) {}

  [[noreturn]] void fail(const std::string& found, const std::string& legal) const {
    throw UserError({.id = "TSR-1073",
                     .message = fmt::format("{}: {}", file_.place(), found),
                     .node = {},
                     .legal = legal,
                     .hint = "convert the model again"});
  }

  std::optional<int64_t> find_size(std::string_view name, int64_t most = kMost) const {
    const std::string key = fmt::format("{}.{}", prefix_, name);
    const GgufValue* value = file_.find(key);
    if (!value) return std::nullopt;
    const int64_t* number = std::get_if<int64_t>(value);
    if (!number || *number < 1 || *number > most)
      fail(fmt::format("the metadata '{}' are no number that can be", key), fmt::format("1 to {}", most));
    return *number;
  }

  int64_t size(std::string_view name) const {
    if (const auto found = find_size(name)) return *found;
    fail(fmt::format("the metadata '{}.{}' are missing", prefix_, name), fmt::format("1 to {}", kMost));
  }

  double real(std::string_view name, double otherwise) const {
    const std::string key = fmt::format("{}.{}", prefix_, name);
    const GgufValue* value = file_.find(key);
    if (!value) return otherwise;
    const double* number = std::get_if<double>(value);
    if (!number || !std::isfinite(*number) || *number < 0)
      fail(fmt::format("the metadata '{}' are no number that can be", key), "a positive number");
    return *number;
  }

  std::string_view text(std::string_view name) const {
    const GgufValue* value = file_.find(fmt::format("{}.{}", prefix_, name));
    const auto* found = value ? std::get_if<std::string_view>(value) : nullptr;
    return found ? *found : std::string_view();
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

const LanguageArchitecture& architecture_of(const GgufFile& file) {
  const GgufValue* value = file.find("general.architecture");
  const auto* name = value ? std::get_if<std::string_view>(value) : nullptr;
  if (const LanguageArchitecture* known = name ? find_architecture(*name) : nullptr) return *known;
  std::vector<std::string_view> known;
  for (const LanguageArchitecture& architecture : architectures()) known.push_back(architecture.name);
  throw UserError({.id = "TSR-1072",
                   .message = name ? fmt::format("{} has the architecture '{}', which is not read", file.place(),
                                                 name->substr(0, 64))
                                   : fmt::format("{} does not name its architecture", file.place()),
                   .node = {},
                   .legal = fmt::format("{}", fmt::join(known, ", ")),
                   .hint = "export the model as ONNX"});
}

}  // namespace

Hyperparameters hyperparameters_of(const GgufFile& file) {
  Hyperparameters h;
  h.architecture = &architecture_of(file);
  const Metadata metadata(file, h.architecture->name);
  h.layers = metadata.size("block_count");
  h.features = metadata.size("embedding_length");
  h.context = metadata.size("context_length");
  h.heads = metadata.size("attention.head_count");
  h.key_heads = metadata.find_size("attention.head_count_kv").value_or(h.heads);
  if (h.heads % h.key_heads != 0)
    metadata.fail(fmt::format("{} heads for {} of keys", h.heads, h.key_heads), "a multiple");
  const auto depth = metadata.find_size("attention.key_length");
  if (!depth && h.features % h.heads != 0)
    metadata.fail(fmt::format("{} features for {} heads", h.features, h.heads), "a multiple");
  h.depth = depth.value_or(h.features / h.heads);
  h.value_depth = metadata.find_size("attention.value_length").value_or(h.depth);
  if (h.depth > kMostDepth || h.value_depth > kMostDepth)
    metadata.fail(fmt::format("{} features of a head", std::max(h.depth, h.value_depth)),
                  fmt::format("1 to {}", kMostDepth));
  h.turned = h.architecture->rotary == Rotary::kNone ? 0 : metadata.find_size("rope.dimension_count").value_or(h.depth);
  if (h.turned > h.depth || h.turned % 2 != 0)
    metadata.fail(fmt::format("rotary positions turn {} of {} features", h.turned, h.depth),
                  "an even number, at most all");
  h.rotary_base = metadata.real("rope.freq_base", 10000);
  const std::string_view scaling = metadata.text("rope.scaling.type");
  // Without a way it is linear; older files have one number, and 0 is none.
  if (scaling.empty() || scaling == "linear")
    h.rotary_scale = metadata.real("rope.scaling.factor", metadata.real("rope.scale_linear", 1));
  else if (scaling != "none")
    metadata.fail(fmt::format("positions are scaled in the way '{}', which is not read", scaling.substr(0, 64)),
                  "linear or none");
  if (h.rotary_scale == 0) h.rotary_scale = 1;
  if (!(h.rotary_base > 0) || !(h.rotary_scale > 0))
    metadata.fail("rotary positions with a base or scale of 0", "more");
  h.epsilon = metadata.real(
      h.architecture->norm == Norm::kRms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", 1e-5);
  if (h.architecture->window_period > 0) h.window = metadata.find_size("attention.sliding_window");
  const GgufTensor* embeddings = file.find_tensor("token_embd.weight");
  if (!embeddings || embeddings->dims.size() != 2 || embeddings->dims[1] != h.features)
    metadata.fail("the tensor 'token_embd.weight' is missing or has other sizes",
                  fmt::format("[tokens, {}]", h.features));
  h.vocabulary = embeddings->dims[0];
  if (const std::string last = fmt::format("blk.{}.attn_norm.weight", h.layers - 1); !file.find_tensor(last))
    metadata.fail(fmt::format("there are {} layers, but no tensor '{}'", h.layers, last), "the tensors of all layers");
  if (file.find_tensor("rope_factors_long.weight"))
    metadata.fail("positions are scaled by 'rope_factors_long.weight', which is not read", "none of them");
  return h;
}

}  // namespace tessera::inline gguf
