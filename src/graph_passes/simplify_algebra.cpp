#include "graph_passes/simplify_algebra.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "graph_passes/graph_util.h"

namespace tessera {
namespace {

// One node on its way into the target. Rules look at `node`, whose operands are values of the target, and either
// change it or find a value that it equals.
class NodeSimplifier {
 public:
  // `uses`: how often each value of the source is used.
  NodeSimplifier(const Graph& source, Graph& target, const OpTable& ops, const std::vector<int>& uses,
                 const Node& original, const std::vector<ValueId>& inputs)
      : target_(target),
        ops_(ops),
        node_(original),
        type_(source.type(original.outputs[0])),
        name_(source.value(original.outputs[0]).name) {
    node_.inputs = inputs;
    for (const ValueId input : original.inputs) single_use_.push_back(uses[static_cast<size_t>(input)] == 1);
  }

  ValueId run() {
    for (int round = 0; round < 16; ++round) {
      if (const auto equal = equal_value()) return *equal;
      if (!rewrite()) break;
    }
    return target_.node(target_.add_node(node_, {type_}, {name_})).outputs[0];
  }

 private:
  const std::string& op() const { return node_.op->name; }
  const TensorType& operand_type(size_t i) const { return target_.type(node_.inputs[i]); }
  const Tensor* constant(size_t i) const { return constant_value(target_, node_.inputs[i]); }
  bool splat_is(size_t i, double value) const {
    const Tensor* tensor = constant(i);
    return tensor && tensor->dtype() != DType::kString && splat_value(*tensor) == value;
  }
  const Node* operand_node(size_t i, std::string_view op) const {
    const Node* producer = target_.producer(node_.inputs[i]);
    return is_op(producer, op) ? producer : nullptr;
  }

  // A value of the target that the node equals, of the same type.
  std::optional<ValueId> equal_value() const {
    if (node_.inputs.empty()) return std::nullopt;
    const auto operand = [&](size_t i) -> std::optional<ValueId> {
      return operand_type(i) == type_ ? std::optional(node_.inputs[i]) : std::nullopt;
    };
    const std::string& op = node_.op->name;
    if ((op == "add" && splat_is(0, 0)) || (op == "mul" && splat_is(0, 1)))
      if (const auto value = operand(1)) return value;
    if (((op == "add" || op == "sub") && splat_is(1, 0)) || ((op == "mul" || op == "div") && splat_is(1, 1)))
      return operand(0);
    if (op == "reshape" || op == "broadcast" || op == "cast" || op == "relayout") return operand(0);
    if (op == "concat" && node_.inputs.size() == 1) return operand(0);
    if (op == "transpose") {
      const auto& perm = node_.attrs.get_ints("perm");
      return std::is_sorted(perm.begin(), perm.end()) ? operand(0) : std::nullopt;
    }
    if (op == "slice") {
      const auto& steps = node_.attrs.get_ints("steps");
      const bool forward = std::all_of(steps.begin(), steps.end(), [](int64_t s) { return s > 0; });
      return forward ? operand(0) : std::nullopt;  // as many elements in steps of at least 1: all of them
    }
    if (op == "pad") {
      const auto zero = [](int64_t p) { return p == 0; };
      const auto& low = node_.attrs.get_ints("low");
      const auto& high = node_.attrs.get_ints("high");
      if (std::all_of(low.begin(), low.end(), zero) && std::all_of(high.begin(), high.end(), zero)) return operand(0);
    }
    return std::nullopt;
  }

  // Changes the node; true when it did.
  bool rewrite() {
    return exact_division() || regroup_constants() || skip_broadcast() || merge_transposes() || merge_views() ||
           merge_relayouts() || transpose_to_reshape();
  }

  bool exact_division() {
    if (op() != "div" || !is_float(type_.dtype) || !constant(1)) return false;
    const Tensor& divisor = *constant(1);
    if (divisor.dtype() != DType::kF32 && divisor.dtype() != DType::kF64) return false;
    Tensor factor(divisor.dtype(), divisor.dims());
    for (int64_t i = 0; i < divisor.num_elements(); ++i) {
      int exponent = 0;
      const double d = divisor.get_double(i);
      const bool power = d != 0 && std::isfinite(d) && std::fabs(std::frexp(d, &exponent)) == 0.5;
      // Within the normal numbers of f32 the reciprocal is exact too.
      if (!power || exponent < -120 || exponent > 120) return false;
      factor.set_double(i, 1 / d);
    }
    node_.op = &ops_.get("mul");
    node_.inputs[1] = add_constant(target_, ops_, std::move(factor), name_ + ".factor", node_.loc);
    return true;
  }

  // Whether constants of these shapes broadcast to more elements than the larger one has.
  static bool grows(std::vector<int64_t> a, std::vector<int64_t> b) {
    if (a.size() < b.size()) std::swap(a, b);
    b.insert(b.begin(), a.size() - b.size(), 1);
    bool a_stretches = false, b_stretches = false;
    for (size_t i = 0; i < a.size(); ++i) {
      a_stretches |= a[i] < b[i];
      b_stretches |= b[i] < a[i];
    }
    return a_stretches && b_stretches;
  }

  bool regroup_constants() {
    if (op() != "add" && op() != "mul") return false;
    for (size_t i = 0; i < 2; ++i) {
      if (!constant(1 - i) || !single_use_[i]) continue;
      const Node* inner = operand_node(i, op());
      if (!inner) continue;
      for (size_t k = 0; k < 2; ++k) {
        if (!constant_value(target_, inner->inputs[k])) continue;
        const ValueId x = inner->inputs[1 - k];
        // x must still give the result's shape, and the regrouped constant be no larger than what was there.
        if (!same_shape(target_.type(x).shape, type_.shape)) continue;
        if (grows(constant(1 - i)->dims(), constant_value(target_, inner->inputs[k])->dims())) continue;
        const std::string loc = join_locs({inner->loc, node_.loc});  // before `builder` moves the nodes
        GraphBuilder builder(target_);
        builder.set_loc(node_.loc);
        const ValueId merged = builder.add(*node_.op, {inner->inputs[k], node_.inputs[1 - i]}, {}, name_ + ".constant");
        node_.loc = loc;
        node_.inputs = {x, merged};
        single_use_ = {false, false};
        return true;
      }
    }
    return false;
  }

  bool skip_broadcast() {
    if (node_.op->kind != OpKind::kExpression || node_.inputs.size() < 2) return false;
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      const Node* inner = operand_node(i, "broadcast");
      if (!inner) continue;
      Node candidate = node_;
      candidate.inputs[i] = inner->inputs[0];
      std::vector<TensorType> types;
      for (const ValueId input : candidate.inputs) types.push_back(target_.type(input));
      if (!broadcasts_by_itself() || !infers_same(candidate, types)) continue;
      node_ = std::move(candidate);
      return true;
    }
    return false;
  }

  // Elementwise with numpy's broadcasting: every operand is read at the output's index or at 0.
  bool broadcasts_by_itself() const {
    const Body body = node_body(target_, node_);
    if (body.is_reduction()) return false;
    bool plain = true;
    const auto axes = body.axis_vars();
    walk(body.value, [&](const Expr& e) {
      if (e->kind != ExprKind::kLoad) return;
      for (size_t d = 0; d < e->operands.size(); ++d) {
        const size_t axis = axes.size() - e->operands.size() + d;
        plain &= e->operands.size() <= axes.size() &&
                 (is_const_int(e->operands[d], 0) || e->operands[d].same_node(axes[axis]));
      }
    });
    return plain;
  }

  bool infers_same(const Node& candidate, const std::vector<TensorType>& types) const {
    int rank = 0;
    for (const TensorType& type : types) rank = std::max(rank, type.rank());
    if (rank != type_.rank()) return false;
    for (int d = 0; d < rank; ++d) {  // some operand must still have the result's extent
      const auto has_extent = [&](const TensorType& type) {
        const int axis = d - (rank - type.rank());
        return axis >= 0 &&
               structurally_equal(type.shape[static_cast<size_t>(axis)], type_.shape[static_cast<size_t>(d)]);
      };
      if (std::none_of(types.begin(), types.end(), has_extent)) return false;
    }
    return candidate.op != nullptr;
  }

  bool merge_transposes() {
    const Node* inner = op() == "transpose" ? operand_node(0, "transpose") : nullptr;
    if (!inner) return false;
    std::vector<int64_t> perm;
    for (const int64_t axis : node_.attrs.get_ints("perm"))
      perm.push_back(inner->attrs.get_ints("perm")[static_cast<size_t>(axis)]);
    node_.attrs.set("perm", perm);
    node_.loc = join_locs({inner->loc, node_.loc});
    node_.inputs = inner->inputs;
    single_use_[0] = false;
    return true;
  }

  bool merge_views() {
    const Node* inner = op() == "reshape" ? operand_node(0, "reshape") : nullptr;
    if (!inner) return false;
    node_.loc = join_locs({inner->loc, node_.loc});
    node_.inputs = inner->inputs;
    return true;
  }

  bool merge_relayouts() {
    const Node* inner = op() == "relayout" ? operand_node(0, "relayout") : nullptr;
    if (!inner) return false;
    node_.inputs = inner->inputs;
    return true;
  }

  bool transpose_to_reshape() {
    if (op() != "transpose" || !operand_type(0).layout.row_major() || !type_.layout.row_major()) return false;
    const auto dims = static_dims(type_.shape);
    if (!dims) return false;
    int64_t last = -1;
    for (size_t i = 0; i < dims->size(); ++i) {
      if ((*dims)[i] == 1) continue;
      const int64_t axis = node_.attrs.get_ints("perm")[i];
      if (axis < last) return false;
      last = axis;
    }
    node_.op = &ops_.get("reshape");
    node_.attrs = Attrs{{"shape", *dims}};
    return true;
  }

  Graph& target_;
  const OpTable& ops_;
  Node node_;
  const TensorType type_;
  const std::string name_;
  std::vector<bool> single_use_;  // of the operands, in the source
};

}  // namespace

Graph simplify_algebra(const Graph& graph, const PassContext& ctx) {
  const std::vector<int> uses = use_counts(graph);
  return GraphRewriter(graph).run(
      [&](GraphRewriter& rewriter, const Node& node, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
        if (node.outputs.size() != 1 || node.op->kind == OpKind::kConstant || node.op->kind == OpKind::kGroup ||
            node.op->kind == OpKind::kComposite)
          return {};
        return {NodeSimplifier(graph, rewriter.target(), ctx.ops, uses, node, inputs).run()};
      });
}

}  // namespace tessera
