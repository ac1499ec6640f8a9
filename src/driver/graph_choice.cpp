#include "driver/graph_choice.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "program/merge_kernels.h"
#include "program/steps.h"
#include "support/hash.h"
#include "te/canonical.h"

namespace tessera::inline driver {
namespace {

constexpr std::string_view kPrefix = "without";
constexpr std::array<std::string_view, 2> kChainSteps = {"overlapped_tiles", "fuse_rows"};
constexpr std::array<std::string_view, 13> kSteps = {
    "overlapped_tiles",     "fuse_rows",         "assign_layouts",    "merge_matmuls", "concat_in_place",
    "conv1x1_to_matmul",    "merge_conv_groups", "separate_max_pool", "pre_pad_conv",  "split_resizes",
    "lower_conv_transpose", "sink_reshapes",     "serpentine_order"};

bool is_searched(std::string_view step) { return std::find(kSteps.begin(), kSteps.end(), step) != kSteps.end(); }

}  // namespace

std::span<const std::string_view> searched_steps() { return kSteps; }

bool makes_chains(std::string_view step) {
  return std::find(kChainSteps.begin(), kChainSteps.end(), step) != kChainSteps.end();
}

std::string name_of_chain(std::string_view step, const Kernel& made) {
  return fmt::format("{}@{}", step, structural_hash(kernel_key(made)));
}

std::string to_string(const GraphChoice& choice) {
  if (choice.empty()) return "";
  std::string text(kPrefix);
  for (const std::string& step : choice.steps) text += " " + step;
  for (const std::string& chain : choice.chains) text += " " + chain;
  return text;
}

std::optional<GraphChoice> parse_graph_choice(std::string_view text, std::string& why) {
  GraphChoice choice;
  std::istringstream words{std::string(text)};
  std::string word;
  const bool has_prefix = words >> word && word == kPrefix;
  while (has_prefix && words >> word) {
    const size_t sign = word.find('@');
    const std::string_view step = std::string_view(word).substr(0, sign);
    if (!is_searched(step)) {
      why = fmt::format("'{}' is no step that a model may go without", step);
      return std::nullopt;
    }
    if (sign == std::string_view::npos) {
      choice.steps.emplace(step);
      continue;
    }
    const std::string_view hash = std::string_view(word).substr(sign + 1);
    if (!makes_chains(step) || hash.size() != 16 ||
        hash.find_first_not_of("0123456789abcdef") != std::string_view::npos) {
      why = fmt::format("'{}' names no chain of kernels", word);
      return std::nullopt;
    }
    choice.chains.insert(word);
  }
  if (choice.empty()) {
    why = fmt::format("'{}' is no choice of what a model goes without", text);
    return std::nullopt;
  }
  return choice;
}

std::string model_hash(const Program& program) {
  std::vector<std::string> kernels;
  for (const Kernel& kernel : program.kernels)
    kernels.push_back(kernel.definition ? canonical_text(*kernel.definition) : kernel_key(kernel));
  Hasher hasher;
  for (const KernelCall& call : program.calls) {
    hasher.add(kernels[static_cast<size_t>(call.kernel)]);
    for (const BufferId buffer : call.args) hasher.add(std::to_string(buffer));
  }
  for_each_step(program.steps, [&](const ProgramStep& step) {
    for (const int64_t part : {static_cast<int64_t>(step.kind), static_cast<int64_t>(step.first_call),
                               static_cast<int64_t>(step.num_calls), step.index.hi})
      hasher.add(std::to_string(part));
    if (step.count) hasher.add(to_string(step.count));
    for_each_step_buffer(step, [&](BufferId buffer) { hasher.add(std::to_string(buffer)); });
  });
  return fmt::format("{:016x}", hasher.value());
}

}  // namespace tessera::inline driver
