#include "graph_passes/rewrite/simplify_algebra.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "graph_passes/support/graph_util.h"

namespace tessera::inline graph_passes {
namespace {

constexpr int kMaxRounds = 32;  // of rules at one node; every rule leads to something smaller, so this is a safety net

class Simplifier {
 public:
  Simplifier(const Graph& graph, const PassContext& ctx, std::span<const AlgebraRule> rules, std::vector<int>* applied)
      : source_(graph), ctx_(ctx), rewriter_(graph), uses_(use_counts(graph)), applied_(applied) {
    for (const AlgebraRule& rule : rules) {
      Term pattern = parse_term(rule.pattern);
      const std::string root = pattern.name;
      rules_.push_back({&rule, std::move(pattern), parse_term(rule.replacement)});
      by_root_[root].push_back(rules_.size() - 1);
    }
    if (applied_) applied_->assign(rules.size(), 0);
  }

  Graph run() {
    return rewriter_.run([&](GraphRewriter&, const Node& node, const std::vector<ValueId>& inputs) {
      std::vector<ValueId> results = visit(node, inputs);
      // Uses that the target's values have by what they stand for; more than they will have, never fewer.
      for (size_t i = 0; i < results.size(); ++i) add_uses(results[i], uses_[static_cast<size_t>(node.outputs[i])]);
      return results;
    });
  }

 private:
  struct Rule {
    const AlgebraRule* rule;
    Term pattern, replacement;
  };

  Graph& target() { return rewriter_.target(); }

  void add_uses(ValueId id, int count) {
    if (target_uses_.size() <= static_cast<size_t>(id)) target_uses_.resize(static_cast<size_t>(id) + 1, 0);
    target_uses_[static_cast<size_t>(id)] += count;
  }

  std::vector<ValueId> visit(const Node& node, const std::vector<ValueId>& inputs) {
    if (node.outputs.size() != 1) return rewriter_.copy(node, inputs);
    const Value& result = source_.value(node.outputs[0]);
    if (node.op->kind != OpKind::kExpression && node.op->kind != OpKind::kView) return rewriter_.copy(node, inputs);
    Node current = node;
    current.inputs = inputs;
    for (int round = 0; round < kMaxRounds; ++round) {
      auto replacement = rewrite(current, result);
      if (!replacement) break;
      if (replacement->value >= 0) return {replacement->value};
      current = std::move(replacement->node);
    }
    return target().node(target().add_node(std::move(current), {result.type}, {result.name})).outputs;
  }

  // What the first rule that applies makes of the node.
  std::optional<Replacement> rewrite(const Node& node, const Value& result) {
    for (const std::string& root : {node.op->name, std::string("*")}) {
      const auto candidates = by_root_.find(root);
      if (candidates == by_root_.end()) continue;
      for (const size_t index : candidates->second)
        if (auto replacement = apply(rules_[index], node, result)) {
          if (applied_) ++(*applied_)[index];
          if (ctx_.remarks)
            ctx_.remarks->done("simplify_algebra", node.loc, "rule " + std::string(rules_[index].rule->name));
          return replacement;
        }
    }
    return std::nullopt;
  }

  std::optional<Replacement> apply(const Rule& rule, const Node& node, const Value& result) {
    Match match{.graph = target(), .ctx = ctx_, .root = node, .type = result.type, .name = result.name};
    if (rule.rule->numerics > ctx_.loosest || !find_pattern(rule.pattern, match)) return std::nullopt;
    if (rule.rule->once &&
        !std::all_of(match.inner.begin(), match.inner.end(), [&](ValueId v) { return used_once(v); }))
      return std::nullopt;
    if (!in_row_major(match) && rule.pattern.name != "relayout") return std::nullopt;
    if (rule.rule->where && !rule.rule->where(match)) return std::nullopt;
    Replacement replacement = build_replacement(rule.replacement, match);
    if (replacement.value >= 0) {
      if (!(target().type(replacement.value) == result.type)) return std::nullopt;
      return replacement;
    }
    std::vector<TensorType> types;
    for (const ValueId input : replacement.node.inputs) types.push_back(target().type(input));
    TensorType type = infer_types(*replacement.node.op, types, replacement.node.attrs, {}, node.loc)[0];
    type.layout = result.type.layout;
    if (!(type == result.type)) return std::nullopt;
    for (const ValueId input : replacement.node.inputs) add_uses(input, 1);
    return replacement;
  }

  bool used_once(ValueId id) const {
    return static_cast<size_t>(id) < target_uses_.size() && target_uses_[static_cast<size_t>(id)] == 1;
  }

  // New nodes inside a replacement are row-major.
  bool in_row_major(const Match& match) {
    const auto plain = [&](ValueId id) { return target().type(id).layout.row_major(); };
    return match.type.layout.row_major() && std::all_of(match.root.inputs.begin(), match.root.inputs.end(), plain) &&
           std::all_of(match.inner.begin(), match.inner.end(), [&](ValueId id) {
             const Node& node = *target().producer(id);
             return plain(id) && std::all_of(node.inputs.begin(), node.inputs.end(), plain);
           });
  }

  const Graph& source_;
  const PassContext& ctx_;
  GraphRewriter rewriter_;
  const std::vector<int> uses_;
  std::vector<int>* applied_;
  std::vector<Rule> rules_;
  std::unordered_map<std::string, std::vector<size_t>> by_root_;
  std::vector<int> target_uses_;
};

}  // namespace

Graph simplify_algebra(const Graph& graph, const PassContext& ctx) { return apply_rules(graph, ctx, algebra_rules()); }

Graph apply_rules(const Graph& graph, const PassContext& ctx, std::span<const AlgebraRule> rules,
                  std::vector<int>* applied) {
  return Simplifier(graph, ctx, rules, applied).run();
}

}  // namespace tessera::inline graph_passes
