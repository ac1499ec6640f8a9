#include "import/aten/in_place.h"

#include <algorithm>
#include <string_view>

#include "import/aten/operator_context.h"

namespace tessera::inline aten {
namespace {

// Their results may have their operand's memory.
constexpr std::string_view kViews[] = {
    "_reshape_alias",   "_to_copy", "alias",     "as_strided", "chunk",           "contiguous", "detach",
    "diagonal",         "dropout",  "expand",    "expand_as",  "feature_dropout", "flatten",    "lift_fresh",
    "movedim",          "narrow",   "permute",   "reshape",    "select",          "slice",      "split",
    "split_with_sizes", "squeeze",  "t",         "to",         "transpose",       "type_as",    "unbind",
    "unflatten",        "unfold",   "unsqueeze", "view",       "view_as",
};

const std::string* first_operand(const AtenNode& node) {
  if (node.arguments.empty() || node.arguments[0].second.kind != ArgumentKind::kTensor) return nullptr;
  return &node.arguments[0].second.items[0].name;
}

}  // namespace

std::string without_writing(const std::string& target) {
  const OperatorName name = operator_name(target);
  if (name.library != "aten" || name.name.size() < 2 || !name.name.ends_with('_') || name.name.starts_with("__"))
    return {};
  return name.library + "." + name.name.substr(0, name.name.size() - 1) + "." + name.overload;
}

std::string SharedMemory::root(const std::string& name) const {
  const auto found = root_.find(name);
  return found == root_.end() ? name : found->second;
}

void SharedMemory::add(const AtenNode& node) {
  const std::string* operand = first_operand(node);
  if (!operand) return;
  const bool writes = !without_writing(node.target).empty();
  const bool is_view =
      std::find(std::begin(kViews), std::end(kViews), operator_name(node.target).name) != std::end(kViews);
  if (!writes && !is_view) return;
  for (const AtenArgument& output : node.outputs)
    for (const ArgumentItem& item : output.items) {
      root_[item.name] = root(*operand);
      if (is_view || views_.contains(*operand)) views_.insert(item.name);
    }
  if (is_view) viewed_.insert(root(*operand));
}

std::string SharedMemory::refusal(const AtenNode& node) const {
  const std::string* operand = first_operand(node);
  if (!operand) return "it writes into no tensor";
  if (given_.contains(root(*operand)))
    return "it writes into an input, a parameter or a buffer; save the program after run_decompositions()";
  if (viewed_.contains(root(*operand)))
    return "it writes into a tensor with views; save the program after run_decompositions()";
  return {};
}

std::set<std::string> SharedMemory::names_of_operand(const AtenNode& node) const {
  const std::string* operand = first_operand(node);
  if (!operand) return {};
  std::set<std::string> names = {*operand, root(*operand)};
  for (const auto& [name, of] : root_)
    if (of == root(*operand)) names.insert(name);
  return names;
}

}  // namespace tessera::inline aten
