#include "tune/cost_model_file.h"

#include <algorithm>
#include <cstdint>

#include <nlohmann/json.hpp>

namespace tessera::inline tune {

namespace {

using nlohmann::json;

// The deepest place of brackets; strings are skipped.
size_t nesting(const std::string& text) {
  size_t depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

// Children stand behind their parents, so that every walk down ends; each node has two of them or none.
bool is_tree(const json& tree, size_t features) {
  const json& left = tree.at("left_children");
  const json& right = tree.at("right_children");
  const json& split = tree.at("split_indices");
  const size_t nodes = left.size();
  const json& counts = tree.at("tree_param");
  if (nodes == 0 || counts.at("num_nodes").get<std::string>() != std::to_string(nodes)) return false;
  if (counts.at("num_deleted").get<std::string>() != "0" ||
      counts.at("num_feature").get<std::string>() != std::to_string(features))
    return false;
  for (const char* name : {"base_weights", "default_left", "left_children", "loss_changes", "parents", "right_children",
                           "split_conditions", "split_indices", "split_type", "sum_hessian"}) {
    const json& values = tree.at(name);
    if (!values.is_array() || values.size() != nodes) return false;
    for (const json& value : values)
      if (!value.is_number()) return false;
  }
  for (const char* name : {"categories", "categories_nodes", "categories_segments", "categories_sizes"})
    if (!tree.at(name).is_array() || !tree.at(name).empty()) return false;
  for (size_t i = 0; i < nodes; ++i) {
    const auto whole = [&](const json& values) {
      return values[i].is_number_integer() ? values[i].get<int64_t>() : int64_t{-2};
    };
    const int64_t a = whole(left), b = whole(right), feature = whole(split), parent = whole(tree.at("parents"));
    const auto end = static_cast<int64_t>(nodes);
    const auto begin = static_cast<int64_t>(i);
    const bool leaf = a == -1 && b == -1;
    const bool inner = a > begin && b > begin && a < end && b < end && a != b;
    const bool known_parent = i == 0 || (parent >= 0 && parent < begin);
    if (!(leaf || inner) || !known_parent || feature < 0 || feature >= static_cast<int64_t>(features)) return false;
    if (whole(tree.at("split_type")) != 0) return false;
  }
  return true;
}

}  // namespace

bool is_tree_model(const std::string& text, size_t features) {
  constexpr size_t kMostNesting = 16;
  if (!text.starts_with('{') || nesting(text) > kMostNesting) return false;
  try {
    const json whole = json::parse(text);
    const json& learner = whole.at("learner");
    const json& booster = learner.at("gradient_booster");
    const json& model = booster.at("model");
    const json& trees = model.at("trees");
    const json& counts = learner.at("learner_model_param");
    if (booster.at("name") != "gbtree" || !trees.is_array() || model.at("tree_info").size() != trees.size())
      return false;
    if (counts.at("num_feature") != std::to_string(features) || counts.at("num_class") != "0" ||
        counts.at("num_target") != "1" ||
        model.at("gbtree_model_param").at("num_trees") != std::to_string(trees.size()))
      return false;
    for (const json& group : model.at("tree_info"))
      if (group != 0) return false;
    for (size_t i = 0; i < trees.size(); ++i)
      if (trees[i].at("id") != i || !is_tree(trees[i], features)) return false;
    return true;
  } catch (const json::exception&) {
    return false;
  }
}

}  // namespace tessera::inline tune
