#include "graph_passes/layout/assign_layouts.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "arith/simplify.h"
#include "graph_passes/layout/images.h"
#include "graph_passes/support/graph_util.h"
#include "graph_passes/support/operand_access.h"

namespace tessera::inline graph_passes {
namespace {

enum class Want : uint8_t { kRowMajor, kBlocked, kAsItIs };

// What a node asks of its operands and gives for its result.
struct Decision {
  std::vector<Want> operands;
  bool blocked_result = false;
  std::string why_rows;  // why the result stays row-major, when it does; may be empty
};

class LayoutAssigner {
 public:
  LayoutAssigner(const Graph& graph, const PassContext& ctx)
      : source_(graph),
        ctx_(ctx),
        ops_(ctx.ops),
        remarks_(ctx.remarks),
        block_(channel_block(ctx)),
        rewriter_(graph),
        outputs_(output_mask(graph)),
        wanted_(values_for_blocks()) {}

  Graph run() {
    return rewriter_.run(
        [&](GraphRewriter&, const Node& node, const std::vector<ValueId>& inputs) { return visit(node, inputs); });
  }

 private:
  Graph& target() { return rewriter_.target(); }
  bool is_image(const TensorType& type) const { return tessera::is_image(type, ctx_); }
  Layout blocked(const TensorType& type) const { return Layout::blocked(type.rank(), 1, block_); }
  bool is_blocked(ValueId target_value) {
    const TensorType& type = target().type(target_value);
    return type.rank() >= 3 && type.layout == blocked(type);
  }
  bool whole_blocks(const Expr& channels) const {
    const auto count = as_int(channels);
    return count && *count % block_ == 0;
  }

  bool has_a_block(const Expr& channels) const {
    const auto count = as_int(channels);
    return count && *count >= block_;
  }

  // The rules of the header, for one node whose operands (in the target) are `inputs`.
  Decision decide(const Node& node, const std::vector<ValueId>& inputs) {
    const TensorType& result = source_.type(node.outputs[0]);
    Decision decision{std::vector<Want>(inputs.size(), Want::kRowMajor), false, "it reads and writes rows"};
    if (node.op->kind != OpKind::kExpression || node.op->name == "relayout") return decision;
    if (node.op->name == "conv") return is_image(result) ? conv(node, inputs) : decision;
    const Accesses accesses = accesses_of(source_, node);
    if (accesses.elementwise()) return elementwise(accesses, result, inputs);
    if (is_image(result) && channelwise(accesses, node.op->name == "pad")) {
      // Turned into blocks before it grows.
      const bool early = wanted_[static_cast<size_t>(node.outputs[0])] && grows(node) && has_a_block(result.shape[1]);
      decision.operands[0] = early ? Want::kBlocked : Want::kAsItIs;
      decision.blocked_result = early || is_blocked(inputs[0]);
      decision.why_rows = "it follows its operand, which is in rows";
      return decision;
    }
    if (node.op->name == "concat") return concat(node, inputs);
    if (node.op->name == "slice" && slices_blocks(node, inputs[0])) return {{Want::kAsItIs}, true, ""};
    if (!accesses.reduction) {
      decision.operands.assign(inputs.size(), Want::kAsItIs);
      decision.why_rows = "it reads any layout and writes rows";
    }
    return decision;
  }

  bool is_depthwise(const Node& conv) const {
    const int64_t groups = conv.attrs.get_int("groups");
    return is_const_int(source_.type(conv.inputs[0]).shape[1], groups) &&
           is_const_int(source_.type(conv.inputs[1]).shape[0], groups);
  }

  bool groups_in_blocks(const Node& conv) const {
    const Shape& w = source_.type(conv.inputs[1]).shape;
    const int64_t groups = conv.attrs.get_int("groups");
    const auto outputs = as_int(w[0]);
    return groups == 1 || is_depthwise(conv) || (whole_blocks(w[1]) && outputs && (*outputs / groups) % block_ == 0);
  }

  bool reads_few_channels(const Node& conv) const {
    const auto channels = as_int(source_.type(conv.inputs[0]).shape[1]);
    return channels && *channels < block_ / 2 && !is_depthwise(conv);
  }

  // Whether lanes of pixels suit it better than lanes of channels, at most half of which would be used: from few
  // channels to few, which nobody wants as blocks. `wanted`: what is known of its result.
  bool suits_rows(const Node& conv, const std::vector<bool>& wanted) const {
    const auto all_one = [&](const char* name) {
      const auto& values = conv.attrs.get_ints(name);
      return std::all_of(values.begin(), values.end(), [](int64_t v) { return v == 1; });
    };
    const Shape& w = source_.type(conv.inputs[1]).shape;
    const auto outputs = as_int(w[0]), inputs = as_int(w[1]);
    const bool is_window =
        std::any_of(w.begin() + 2, w.end(), [](const Expr& extent) { return as_int(extent).value_or(2) > 1; });
    return outputs && inputs && *outputs <= block_ / 2 && *inputs < block_ && is_window &&
           conv.attrs.get_int("groups") == 1 && all_one("strides") &&
           typical_size(source_.type(conv.outputs[0]).shape.back()) >= block_ &&
           !wanted[static_cast<size_t>(conv.outputs[0])];
  }

  Decision conv(const Node& node, const std::vector<ValueId>& inputs) {
    if (suits_rows(node, wanted_) && target().type(inputs[0]).layout.row_major())
      return {{Want::kRowMajor, Want::kRowMajor},
              false,
              fmt::format("it has at most {} channels, and lanes of pixels use all lanes", block_ / 2)};
    if (!groups_in_blocks(node))
      return {{Want::kRowMajor, Want::kRowMajor},
              false,
              fmt::format("the channels of its {} groups are not whole blocks of {}", node.attrs.get_int("groups"),
                          block_)};
    const bool as_it_is = reads_few_channels(node) && target().type(inputs[0]).layout.row_major();
    return {{as_it_is ? Want::kAsItIs : Want::kBlocked, Want::kRowMajor}, true, ""};
  }

  // Of each value of the source: whether a convolution reads it as blocks, at once or through operators that follow
  // their operands.
  std::vector<bool> values_for_blocks() const {
    std::vector<bool> wanted(source_.values().size(), false);
    const auto want = [&](ValueId value) {
      if (is_image(source_.type(value))) wanted[static_cast<size_t>(value)] = true;
    };
    for (size_t i = source_.nodes().size(); i-- > 0;) {
      const Node& node = source_.nodes()[i];
      if (node.op->kind != OpKind::kExpression || node.outputs.size() != 1) continue;
      if (node.op->name == "conv") {
        if (groups_in_blocks(node) && !reads_few_channels(node) && !suits_rows(node, wanted)) want(node.inputs[0]);
        continue;
      }
      if (!wanted[static_cast<size_t>(node.outputs[0])]) continue;
      const bool joins = node.op->name == "concat" && node.attrs.get_int("axis") == 1;
      const Accesses accesses = accesses_of(source_, node);
      if (!joins && !accesses.elementwise() && !channelwise(accesses, node.op->name == "pad")) continue;
      for (const ValueId input : node.inputs) want(input);
    }
    return wanted;
  }

  // Whether the result of a channelwise operator is larger than its operand.
  bool grows(const Node& node) const {
    const Shape& from = source_.type(node.inputs[0]).shape;
    const Shape& to = source_.type(node.outputs[0]).shape;
    double growth = 1;
    for (size_t d = 0; d < to.size(); ++d) {
      growth *=
          static_cast<double>(typical_size(to[d])) / static_cast<double>(std::max<int64_t>(typical_size(from[d]), 1));
    }
    return growth > 1;
  }

  Decision elementwise(const Accesses& accesses, const TensorType& result, const std::vector<ValueId>& inputs) {
    Decision decision{std::vector<Want>(inputs.size(), Want::kAsItIs), false,
                      "none of its operands of full shape is blocked"};
    const auto full = [&](size_t i) { return accesses.operands[i] == OperandAccess::kIdentity; };
    for (size_t i = 0; i < inputs.size(); ++i) decision.blocked_result |= full(i) && is_blocked(inputs[i]);
    if (!decision.blocked_result) return decision;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool constant = is_op(target().producer(inputs[i]), "constant");
      if (full(i) && !constant) decision.operands[i] = Want::kBlocked;
    }
    return decision;
  }

  // One operand, of whose channels each gives that channel of the result; `pads`: beside the number at the border.
  static bool channelwise(const Accesses& accesses, bool pads) {
    return accesses.operands.size() == (pads ? 2 : 1) &&
           (accesses.operands[0] == OperandAccess::kChannelwise || accesses.operands[0] == OperandAccess::kIdentity);
  }

  Decision concat(const Node& node, const std::vector<ValueId>& inputs) {
    Decision decision{std::vector<Want>(inputs.size(), Want::kAsItIs), false, "it joins another axis than channels"};
    if (!is_image(source_.type(node.outputs[0])) || node.attrs.get_int("axis") != 1) return decision;
    decision.why_rows = fmt::format("it has fewer than {} channels", block_);
    if (!has_a_block(source_.type(node.outputs[0]).shape[1])) return decision;
    decision.why_rows = "none of its pieces is blocked";
    const auto blocked = [&](ValueId v) { return is_blocked(v); };
    if (std::none_of(inputs.begin(), inputs.end(), blocked)) return decision;
    decision.blocked_result = true;
    decision.operands.assign(inputs.size(), Want::kBlocked);
    return decision;
  }

  // Channels of a blocked image, all their pixels: whole blocks, its last ones from the start of a block on, or enough
  // that a shuffle of two blocks for each of the result's is cheaper than to turn all to rows.
  bool slices_blocks(const Node& node, ValueId input) {
    const Shape starts = node.attrs.get_sizes("starts");
    const auto& steps = node.attrs.get_ints("steps");
    const Shape& from = source_.type(node.inputs[0]).shape;
    const Shape& to = source_.type(node.outputs[0]).shape;
    if (!is_blocked(input) || steps[1] != 1) return false;
    const auto start = as_int(starts[1]);
    const bool last = equal_sizes(starts[1] + to[1], from[1]);
    const bool contiguous = start && *start % block_ == 0 && (last || whole_blocks(to[1]));
    Shape all = from;
    all[1] = to[1];
    return (contiguous || has_a_block(to[1])) && same_shape(all, to);
  }

  // The blocked operand of a reshape that splits its channels in groups, a transpose that exchanges the two parts and
  // `node`, which joins them; -1 when it is something else.
  ValueId shuffled(const Node& node, const std::vector<ValueId>& inputs, int64_t& groups) {
    const TensorType& result = source_.type(node.outputs[0]);
    if (!is_op(&node, "reshape") || !is_image(result) || outputs_[static_cast<size_t>(node.outputs[0])]) return -1;
    const Node* turn = target().producer(inputs[0]);
    const Node* split = is_op(turn, "transpose") ? target().producer(turn->inputs[0]) : nullptr;
    if (!is_op(split, "reshape") || !has_a_block(result.shape[1])) return -1;
    const auto& perm = turn->attrs.get_ints("perm");
    const Shape& parts = target().type(turn->inputs[0]).shape;
    bool exchanges = perm.size() == result.shape.size() + 1 && perm.size() == parts.size();
    for (size_t d = 0; exchanges && d < perm.size(); ++d)
      exchanges = perm[d] == (d == 1 ? 2 : d == 2 ? 1 : static_cast<int64_t>(d));
    const auto count = exchanges ? as_int(parts[1]) : std::nullopt;
    if (!count || !same_shape(target().type(split->inputs[0]).shape, result.shape)) return -1;
    Shape split_shape = result.shape;
    split_shape[1] = parts[2];
    split_shape.insert(split_shape.begin() + 1, parts[1]);
    if (!same_shape(parts, split_shape)) return -1;
    const auto rows = origin_.find(split->inputs[0]);
    const ValueId image = rows == origin_.end() ? split->inputs[0] : rows->second;
    groups = *count;
    return is_blocked(image) ? image : -1;
  }

  std::vector<ValueId> visit(const Node& node, std::vector<ValueId> inputs) {
    if (node.outputs.size() != 1) return {};
    const ValueId result = node.outputs[0];
    const std::string& name = source_.value(result).name;
    int64_t groups = 1;
    if (const ValueId image = shuffled(node, inputs, groups); image >= 0)
      return {shuffle(node, inputs[0], image, groups)};
    Decision decision = decide(node, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (decision.operands[i] == Want::kRowMajor) inputs[i] = in_layout(inputs[i], {}, node);
      const TensorType& operand = target().type(inputs[i]);
      if (decision.operands[i] == Want::kBlocked && is_image(operand))
        inputs[i] = in_layout(inputs[i], blocked(operand), node);
    }
    TensorType type = source_.type(result);
    if (decision.blocked_result) type.layout = blocked(type);
    if (remarks_ && is_image(type)) report(node, decision);
    const bool to_rows = decision.blocked_result && outputs_[static_cast<size_t>(result)];
    Node copy = node;
    copy.inputs = inputs;
    const ValueId value =
        target().node(target().add_node(std::move(copy), {type}, {to_rows ? name + ".blocked" : name})).outputs[0];
    if (!to_rows) return {value};
    // A graph output is row-major; readers inside the graph find the blocked one through `origin_`.
    const ValueId rows = in_layout(value, {}, node, name);
    return {rows};
  }

  ValueId shuffle(const Node& node, ValueId turned, ValueId image, int64_t groups) {
    Node made;
    made.op = &ops_.get("channel_shuffle");
    made.inputs = {image};
    made.attrs.set("groups", groups);
    const Node* turn = target().producer(turned);
    made.loc = join_locs({target().producer(turn->inputs[0])->loc, turn->loc, node.loc});
    TensorType type = source_.type(node.outputs[0]);
    type.layout = blocked(type);
    if (remarks_) report(node, {{}, true, ""});
    return target().node(target().add_node(std::move(made), {type}, {source_.value(node.outputs[0]).name})).outputs[0];
  }

  void report(const Node& node, const Decision& decision) {
    if (node.loc.empty() || is_op(&node, "constant")) return;
    if (decision.blocked_result) {
      remarks_->done("assign_layouts", node.loc,
                     "its result is stored as " + blocked(source_.type(node.outputs[0])).to_string());
    } else {
      remarks_->refused("assign_layouts", node.loc, "its result is stored in rows: " + decision.why_rows);
    }
  }

  // `value` in another layout; made once for each layout.
  ValueId in_layout(ValueId value, const Layout& layout, const Node& reader, const std::string& name = "") {
    if (target().type(value).layout == layout) return value;
    if (const auto it = origin_.find(value); it != origin_.end()) value = it->second;
    if (target().type(value).layout == layout) return value;
    const std::pair key{value, layout.to_string()};
    if (const auto made = relayouts_.find(key); made != relayouts_.end()) return made->second;
    const Value& from = target().value(value);
    Node node;
    node.op = &ops_.get("relayout");
    node.inputs = {value};
    node.attrs.set("layout", layout);
    const Node* producer = target().producer(value);
    node.loc = producer ? producer->loc : reader.loc;
    if (remarks_)
      remarks_->done(
          "assign_layouts", node.loc,
          fmt::format("its result is copied to the layout {}", layout.row_major() ? "of rows" : layout.to_string()),
          reader.loc == node.loc ? "" : reader.loc);
    TensorType type = from.type;
    type.layout = layout;
    const std::string hint = !name.empty() ? name : from.name + (layout.row_major() ? ".rows" : ".blocked");
    const ValueId result = target().node(target().add_node(std::move(node), {type}, {hint})).outputs[0];
    relayouts_[key] = result;
    origin_[result] = value;
    return result;
  }

  const Graph& source_;
  const PassContext& ctx_;
  const OpTable& ops_;
  Remarks* remarks_;
  const int64_t block_;
  GraphRewriter rewriter_;
  const std::vector<bool> outputs_, wanted_;
  std::map<std::pair<ValueId, std::string>, ValueId> relayouts_;
  std::map<ValueId, ValueId> origin_;  // of a relayout's result: its operand
};

}  // namespace

Graph assign_layouts(const Graph& graph, const PassContext& ctx) {
  const auto is_conv = [&](const Node& node) {
    return node.op->name == "conv" && is_image(graph.type(node.outputs[0]), ctx);
  };
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), is_conv)) return graph;
  return LayoutAssigner(graph, ctx).run();
}

}  // namespace tessera::inline graph_passes
