// Tree ensembles. All trees go down one level at a time: each has a current node, whose feature, split and children
// are looked up in tables; a leaf is its own child. Then the leaves' weights are added.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "import/onnx/operators/handlers.h"
#include "import/onnx/operators/ml_scores.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kDeepest = 512;
constexpr int64_t kMostWeights = int64_t{1} << 26;  // nodes times targets

enum Mode : int64_t { kLeq, kLt, kGte, kGt, kEq, kNeq, kMember, kLeaf };

struct Forest {
  std::vector<int64_t> mode, feature, yes, no, missing_is_true;
  std::vector<double> split;
  std::map<int64_t, std::vector<double>> members;  // of the nodes of mode kMember
  Ints roots;
  int64_t targets = 0;
  std::vector<std::map<int64_t, double>> weights;  // of each node, by target
  std::vector<double> base;
  std::string aggregate = "SUM";

  int64_t add_node() {
    mode.push_back(kLeaf);
    feature.push_back(0);
    yes.push_back(std::ssize(mode) - 1);
    no.push_back(std::ssize(mode) - 1);
    missing_is_true.push_back(0);
    split.push_back(0);
    weights.emplace_back();
    return std::ssize(mode) - 1;
  }
};

// The number of levels below the roots. UserError for nodes that lead back to themselves.
int64_t depth_of(NodeContext& c, const Forest& f) {
  std::vector<std::pair<int64_t, int64_t>> pending;
  for (const int64_t root : f.roots) pending.emplace_back(root, 0);
  int64_t deepest = 0;
  size_t visits = 0;
  while (!pending.empty()) {
    const auto [node, depth] = pending.back();
    pending.pop_back();
    const auto n = static_cast<size_t>(node);
    if (f.mode[n] == kLeaf) continue;
    if (++visits > f.mode.size() || depth >= std::ssize(f.mode))
      c.malformed("nodes that are reached twice", "trees, of which each node has one parent");
    deepest = std::max(deepest, depth + 1);
    pending.emplace_back(f.yes[n], depth + 1);
    pending.emplace_back(f.no[n], depth + 1);
  }
  if (deepest > kDeepest) c.unsupported(fmt::format("trees of more than {} levels", kDeepest));
  return deepest;
}

ValueId int_table(NodeContext& c, const Ints& values) {
  Tensor table(DType::kI32, {std::ssize(values)});
  for (int64_t i = 0; i < std::ssize(values); ++i) table.set_int(i, values[static_cast<size_t>(i)]);
  return c.constant_value(std::move(table));
}

// The leaf that each row reaches in each tree: i32 [N, trees].
ValueId leaves_of(NodeContext& c, const Forest& f, ValueId x) {
  const int64_t rows = c.dims(x)[0], trees = std::ssize(f.roots), features = c.dims(x)[1];
  const DType dtype = c.dtype(x);
  const int64_t depth = depth_of(c, f);
  bool missing = false;
  std::vector<bool> used(8, false);
  for (size_t i = 0; i < f.mode.size(); ++i) {
    if (f.mode[i] == kLeaf) continue;
    used[static_cast<size_t>(f.mode[i])] = true;
    missing = missing || f.missing_is_true[i] != 0;
    if (f.feature[i] < 0 || f.feature[i] >= features)
      c.malformed(fmt::format("feature {} of {}", f.feature[i], features), fmt::format("0 to {}", features - 1));
  }
  // Sets of members: rows of equal length, filled up with the last member.
  size_t widest = 1;
  for (const auto& [node, set] : f.members) widest = std::max(widest, set.size());
  if (std::ssize(f.members) > kMostWeights / static_cast<int64_t>(widest))
    c.unsupported(fmt::format("{} sets of up to {} members", f.members.size(), widest));
  Ints set_of(f.mode.size(), 0);
  std::vector<double> sets(widest, std::numeric_limits<double>::quiet_NaN());
  for (const auto& [node, set] : f.members) {
    set_of[static_cast<size_t>(node)] = std::ssize(sets) / static_cast<int64_t>(widest);
    for (size_t i = 0; i < widest; ++i)
      sets.push_back(set.empty() ? std::numeric_limits<double>::quiet_NaN() : set[std::min(i, set.size() - 1)]);
  }
  const auto look_up = [&](ValueId table, ValueId node) {
    return c.op("gather", {table, node}, {{"axis", int64_t{0}}});
  };
  const ValueId feature = int_table(c, f.feature), yes = int_table(c, f.yes), no = int_table(c, f.no),
                mode = int_table(c, f.mode), nan_is_true = int_table(c, f.missing_is_true),
                split = float_table(c, dtype, f.split, {std::ssize(f.split)});
  ValueId node = c.broadcast(int_table(c, f.roots), {rows, trees});
  for (int64_t level = 0; level < depth; ++level) {
    const ValueId value = c.op("gather_elements", {x, look_up(feature, node)}, {{"axis", int64_t{1}}});
    const ValueId limit = look_up(split, node);
    const auto compare = [&](int64_t which) -> ValueId {
      static constexpr const char* kOps[] = {"le", "lt", "ge", "gt", "eq", "ne"};
      if (which < kMember) return c.op(kOps[which], {value, limit});
      const auto width = static_cast<int64_t>(widest);
      const ValueId table = float_table(c, dtype, sets, {std::ssize(sets) / width, width});
      const ValueId set = look_up(table, look_up(int_table(c, set_of), node));  // [N, trees, width]
      return c.reduce("max", c.op("eq", {set, c.reshape(value, {rows, trees, 1})}), {2}, false);
    };
    std::optional<ValueId> taken;
    for (int64_t which = kLeq; which <= kMember; ++which) {
      if (!used[static_cast<size_t>(which)]) continue;
      if (!taken) {
        taken = compare(which);
        continue;
      }
      const ValueId is_mode = c.op("eq", {look_up(mode, node), c.scalar(DType::kI32, static_cast<double>(which))});
      taken = c.op("select", {is_mode, compare(which), *taken});
    }
    if (missing) {
      const ValueId is_true = c.op("gt", {look_up(nan_is_true, node), c.scalar(DType::kI32, 0)});
      taken = c.op("logical_or", {*taken, c.op("logical_and", {c.op("ne", {value, value}), is_true})});
    }
    node = c.op("select", {*taken, look_up(yes, node), look_up(no, node)});
  }
  return node;
}

// [N, targets], without the base values.
ValueId scores_of(NodeContext& c, const Forest& f, ValueId x) {
  const DType dtype = c.dtype(x);
  const auto nodes = std::ssize(f.mode);
  if (f.targets < 1 || nodes > kMostWeights / f.targets)
    c.unsupported(fmt::format("{} targets of {} nodes", f.targets, nodes));
  const bool lowest = f.aggregate == "MIN", extreme = lowest || f.aggregate == "MAX";
  const double nothing = !extreme ? 0
                         : lowest ? std::numeric_limits<double>::infinity()
                                  : -std::numeric_limits<double>::infinity();
  std::vector<double> weights(static_cast<size_t>(nodes * f.targets), nothing);
  for (int64_t n = 0; n < nodes; ++n)
    for (const auto& [target, weight] : f.weights[static_cast<size_t>(n)]) {
      if (target < 0 || target >= f.targets)
        c.malformed(fmt::format("target {} of {}", target, f.targets), fmt::format("0 to {}", f.targets - 1));
      weights[static_cast<size_t>(n * f.targets + target)] = weight;
    }
  if (f.roots.empty()) return c.broadcast(c.scalar(dtype, 0), {c.dims(x)[0], f.targets});
  const ValueId leaves = leaves_of(c, f, x);
  const ValueId table = float_table(c, dtype, weights, {nodes, f.targets});
  const ValueId each = c.op("gather", {table, leaves}, {{"axis", int64_t{0}}});  // [N, trees, targets]
  if (extreme) {
    const ValueId y = c.reduce(lowest ? "min" : "max", each, {1}, false);
    return c.op("select", {c.op("is_inf", {y}), c.scalar(dtype, 0), y});
  }
  const ValueId y = c.reduce("sum", each, {1}, false);
  return f.aggregate == "AVERAGE" ? c.div(y, c.scalar(dtype, static_cast<double>(f.roots.size()))) : y;
}

std::vector<double> floats_or_tensor(NodeContext& c, const std::string& name) {
  if (const auto* proto = c.attrs.get_tensor(name + "_as_tensor")) {
    const Tensor tensor = c.tensor(*proto);
    std::vector<double> values;
    for (int64_t i = 0; i < tensor.num_elements(); ++i) values.push_back(tensor.get_double(i));
    return values;
  }
  return c.attrs.get_floats(name);
}

// The form in which every node has the numbers of its tree and within it; `prefix` is class or target.
Forest read_numbered(NodeContext& c, const std::string& prefix) {
  Forest f;
  const Ints trees = c.attrs.get_ints("nodes_treeids"), numbers = c.attrs.get_ints("nodes_nodeids"),
             features = c.attrs.get_ints("nodes_featureids"), yes = c.attrs.get_ints("nodes_truenodeids"),
             no = c.attrs.get_ints("nodes_falsenodeids"), missing = c.attrs.get_ints("nodes_missing_value_tracks_true");
  const std::vector<std::string> modes = c.attrs.get_strings("nodes_modes");
  const std::vector<double> splits = floats_or_tensor(c, "nodes_values");
  c.attrs.ignore("nodes_hitrates");
  c.attrs.ignore("nodes_hitrates_as_tensor");
  const size_t count = trees.size();
  if (numbers.size() != count || features.size() != count || yes.size() != count || no.size() != count ||
      modes.size() != count || splits.size() != count || (!missing.empty() && missing.size() != count))
    c.malformed(fmt::format("lists of {} nodes and of {}", count, numbers.size()), "an entry for each node in each");
  std::map<std::pair<int64_t, int64_t>, int64_t> place;
  for (size_t i = 0; i < count; ++i) {
    if (!place.emplace(std::pair(trees[i], numbers[i]), f.add_node()).second)
      c.malformed(fmt::format("node {} of tree {} twice", numbers[i], trees[i]), "each node once");
  }
  const auto find = [&](int64_t tree, int64_t number) {
    const auto it = place.find({tree, number});
    if (it == place.end())
      c.malformed(fmt::format("node {} of tree {}, which does not exist", number, tree), "nodes of the tree");
    return it->second;
  };
  static constexpr const char* kModes[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE", "BRANCH_GT",
                                           "BRANCH_EQ",  "BRANCH_NEQ", "?",          "LEAF"};
  std::vector<bool> has_parent(count, false);
  for (size_t i = 0; i < count; ++i) {
    const auto mode = std::find(std::begin(kModes), std::end(kModes), modes[i]);
    if (mode == std::end(kModes)) c.malformed(fmt::format("a node of mode {}", modes[i]), "BRANCH_..., LEAF");
    f.mode[i] = mode - std::begin(kModes);
    if (f.mode[i] == kLeaf) continue;
    f.feature[i] = features[i];
    f.split[i] = splits[i];
    f.yes[i] = find(trees[i], yes[i]);
    f.no[i] = find(trees[i], no[i]);
    f.missing_is_true[i] = missing.empty() ? 0 : missing[i];
    has_parent[static_cast<size_t>(f.yes[i])] = has_parent[static_cast<size_t>(f.no[i])] = true;
  }
  std::map<int64_t, int64_t> roots;  // of each tree
  for (size_t i = 0; i < count; ++i) {
    if (has_parent[i]) continue;
    if (!roots.emplace(trees[i], static_cast<int64_t>(i)).second)
      c.malformed(fmt::format("two roots of tree {}", trees[i]), "one root for each tree");
  }
  for (const auto& [tree, root] : roots) f.roots.push_back(root);
  const Ints weight_trees = c.attrs.get_ints(prefix + "_treeids"), weight_nodes = c.attrs.get_ints(prefix + "_nodeids"),
             targets = c.attrs.get_ints(prefix + "_ids");
  const std::vector<double> weights = floats_or_tensor(c, prefix + "_weights");
  if (weight_nodes.size() != weight_trees.size() || targets.size() != weight_trees.size() ||
      weights.size() != weight_trees.size())
    c.malformed(fmt::format("lists of {} weights and of {}", weights.size(), targets.size()),
                "an entry for each weight in each");
  for (size_t i = 0; i < weights.size(); ++i)
    f.weights[static_cast<size_t>(find(weight_trees[i], weight_nodes[i]))][targets[i]] += weights[i];
  f.base = floats_or_tensor(c, "base_values");
  return f;
}

ValueId with_base(NodeContext& c, ValueId scores, const std::vector<double>& base) {
  if (base.empty()) return scores;
  if (std::ssize(base) != c.dims(scores)[1])
    c.malformed(fmt::format("{} base values for {} targets", base.size(), c.dims(scores)[1]), "one for each");
  return c.add(scores, float_table(c, c.dtype(scores), base, {std::ssize(base)}));
}

void import_tree_regressor(NodeContext& c) {
  c.require_inputs(1, 1);
  Forest f = read_numbered(c, "target");
  f.targets = c.attrs.get_int("n_targets", 1);
  f.aggregate = c.attrs.get_string("aggregate_function", "SUM");
  if (f.aggregate != "SUM" && f.aggregate != "AVERAGE" && f.aggregate != "MIN" && f.aggregate != "MAX")
    c.malformed(fmt::format("aggregate_function = {}", f.aggregate), "SUM, AVERAGE, MIN, MAX");
  const ValueId y = with_base(c, scores_of(c, f, feature_rows(c, c.in(0), true)), f.base);
  c.out(0, c.cast(post_transformed(c, y, read_post_transform(c)), DType::kF32));
}

// Two classes may have the weights of one alone; what that means is what ONNX Runtime makes of it.
void import_tree_classifier(NodeContext& c) {
  c.require_inputs(1, 1);
  Forest f = read_numbered(c, "class");
  const std::string ints = "classlabels_int64s", strings = "classlabels_strings";
  const int64_t labels = label_count(c, ints, strings);
  const std::string transform = read_post_transform(c);
  f.targets = std::max<int64_t>(labels, 1);
  const ValueId x = feature_rows(c, c.in(0), true);
  ValueId scores = scores_of(c, f, x);
  const DType dtype = c.dtype(scores);
  const int64_t rows = c.dims(scores)[0];
  std::vector<bool> has(static_cast<size_t>(f.targets), false);
  bool positive = true;
  for (const auto& weights : f.weights)
    for (const auto& [target, weight] : weights) {
      has[static_cast<size_t>(target)] = true;
      positive = positive && weight >= 0;
    }
  const bool one_class = std::count(has.begin(), has.end(), true) == 1;
  if (f.targets != 2 || !one_class) {
    if (f.targets < 2) c.unsupported("a classifier of one class");
    scores = with_base(c, scores, f.base);
    give_labels(c, largest_column(c, scores), ints, strings);
    return c.out(1, c.cast(post_transformed(c, scores, transform), DType::kF32));
  }
  ValueId score = c.reduce("sum", scores, {1}, true);  // the other column is 0
  if (!f.base.empty()) score = c.add(score, c.scalar(dtype, f.base.size() == 2 ? f.base[1] : f.base[0]));
  const ValueId yes = c.op("gt", {score, c.scalar(dtype, positive ? 0.5 : 0)});
  give_labels(c, c.reshape(c.cast(yes, DType::kI64), {rows}), ints, strings);
  if (has[1] && f.base.empty()) return c.out(1, c.cast(post_transformed(c, scores, transform), DType::kF32));
  // One score stands for both; only LOGISTIC applies to it then.
  const bool logistic = transform == "LOGISTIC";
  const ValueId other = positive && !logistic ? c.sub(c.scalar(dtype, 1), score) : c.op("neg", {score});
  const ValueId both = c.op("concat", {other, score}, {{"axis", int64_t{1}}});
  c.out(1, c.cast(logistic ? post_transformed(c, both, transform) : both, DType::kF32));
}

// The form with separate lists of nodes and leaves.
void import_tree_ensemble(NodeContext& c) {
  c.require_inputs(1, 1);
  Forest f;
  const auto ints_of = [&](const char* name) {
    const auto* proto = c.attrs.get_tensor(name);
    Ints values;
    if (!proto) return values;
    const Tensor tensor = c.tensor(*proto);
    for (int64_t i = 0; i < tensor.num_elements(); ++i) values.push_back(tensor.get_int(i));
    return values;
  };
  const auto floats_of = [&](const char* name) {
    const auto* proto = c.attrs.get_tensor(name);
    std::vector<double> values;
    if (!proto) return values;
    const Tensor tensor = c.tensor(*proto);
    for (int64_t i = 0; i < tensor.num_elements(); ++i) values.push_back(tensor.get_double(i));
    return values;
  };
  const Ints features = c.attrs.require_ints("nodes_featureids"), yes = c.attrs.require_ints("nodes_truenodeids"),
             no = c.attrs.require_ints("nodes_falsenodeids"), yes_leaf = c.attrs.require_ints("nodes_trueleafs"),
             no_leaf = c.attrs.require_ints("nodes_falseleafs"), targets = c.attrs.require_ints("leaf_targetids"),
             roots = c.attrs.require_ints("tree_roots"), missing = c.attrs.get_ints("nodes_missing_value_tracks_true"),
             modes = ints_of("nodes_modes");
  const std::vector<double> splits = floats_of("nodes_splits"), weights = floats_of("leaf_weights"),
                            members = floats_of("membership_values");
  c.attrs.ignore("nodes_hitrates");
  const size_t count = features.size(), leaves = weights.size();
  if (yes.size() != count || no.size() != count || yes_leaf.size() != count || no_leaf.size() != count ||
      modes.size() != count || splits.size() != count || (!missing.empty() && missing.size() != count) ||
      targets.size() != leaves)
    c.malformed(fmt::format("lists of {} nodes and of {}", count, modes.size()), "an entry for each node in each");
  for (size_t i = 0; i < count + leaves; ++i) f.add_node();
  for (size_t i = 0; i < leaves; ++i) f.weights[count + i][targets[i]] = weights[i];
  const auto child = [&](int64_t index, bool is_leaf) {
    if (index < 0 || index >= static_cast<int64_t>(is_leaf ? leaves : count))
      c.malformed(fmt::format("{} {}", is_leaf ? "leaf" : "node", index), "one that exists");
    return is_leaf ? index + static_cast<int64_t>(count) : index;
  };
  std::vector<std::vector<double>> sets(1);
  for (const double member : members) {
    if (std::isnan(member)) sets.emplace_back();
    else sets.back().push_back(member);
  }
  for (size_t i = 0; i < count; ++i) {
    if (modes[i] < kLeq || modes[i] > kMember) c.malformed(fmt::format("a node of mode {}", modes[i]), "0 to 6");
    f.mode[i] = modes[i];
    f.feature[i] = features[i];
    f.split[i] = splits[i];
    f.yes[i] = child(yes[i], yes_leaf[i] != 0);
    f.no[i] = child(no[i], no_leaf[i] != 0);
    f.missing_is_true[i] = missing.empty() ? 0 : missing[i];
  }
  // The sets belong to the nodes in the order in which the trees are walked, the true branch first.
  size_t next_set = 0;
  std::vector<bool> seen(count + leaves, false);
  for (const int64_t root : roots) {
    int64_t first = child(root, false);
    // A tree that is a leaf has both branches to it.
    if (f.yes[static_cast<size_t>(first)] == f.no[static_cast<size_t>(first)] && yes_leaf[static_cast<size_t>(first)])
      first = f.yes[static_cast<size_t>(first)];
    f.roots.push_back(first);
    std::vector<int64_t> pending = {first};
    while (!pending.empty()) {
      const auto n = static_cast<size_t>(pending.back());
      pending.pop_back();
      if (f.mode[n] == kLeaf) continue;
      if (seen[n]) c.malformed("nodes that are reached twice", "trees, of which each node has one parent");
      seen[n] = true;
      if (f.mode[n] == kMember) {
        if (next_set >= sets.size()) c.malformed("too few membership_values", "a set for each node of mode 6");
        f.members[static_cast<int64_t>(n)] = sets[next_set++];
      }
      pending.push_back(f.no[n]);
      pending.push_back(f.yes[n]);
    }
  }
  f.targets = c.attrs.get_int("n_targets", 1);
  static constexpr const char* kAggregates[] = {"AVERAGE", "SUM", "MIN", "MAX"};
  static constexpr const char* kTransforms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  const int64_t aggregate = c.attrs.get_int("aggregate_function", 1), transform = c.attrs.get_int("post_transform", 0);
  if (aggregate < 0 || aggregate > 3 || transform < 0 || transform > 4)
    c.malformed(fmt::format("aggregate_function = {}, post_transform = {}", aggregate, transform),
                "0 to 3, and 0 to 4");
  f.aggregate = kAggregates[aggregate];
  const ValueId y = scores_of(c, f, feature_rows(c, c.in(0), true));
  c.out(0, c.cast(post_transformed(c, y, kTransforms[transform]), c.dtype(c.in(0))));
}

}  // namespace

OperatorFamily ml_trees_operators() {
  static constexpr OperatorImporter ml[] = {
      OperatorImporter{"TreeEnsemble", 5, import_tree_ensemble},
      OperatorImporter{"TreeEnsembleClassifier", 1, import_tree_classifier},
      OperatorImporter{"TreeEnsembleRegressor", 1, import_tree_regressor},
  };
  return {{kMlDomain, ml}};
}

}  // namespace tessera::inline onnx_import
