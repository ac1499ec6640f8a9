#include "lower/place_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "arith/simplify.h"

namespace tessera::inline lower {
namespace {

// Fewer elements to a place than this do not pay for a table.
constexpr int64_t kElementsToAPlace = 8;
constexpr size_t kMostTables = 8;

class Taker {
 public:
  explicit Taker(TensorProgram& kernel) : kernel_(kernel) {}

  std::vector<PlaceTable> run() {
    for (Stage& stage : kernel_.stages) {
      axes_.clear();
      done_.clear();
      for (const auto* axes : {&stage.body.axes, &stage.body.reduce_axes})
        axes_.insert(axes_.end(), axes->begin(), axes->end());
      stage.body.value = take(stage.body.value);
    }
    for (const PlaceTable& table : tables_) kernel_.params.push_back({table.buffer, {}});
    return std::move(tables_);
  }

 private:
  bool is_axis(const Expr& var) const {
    return std::any_of(axes_.begin(), axes_.end(), [&](const Axis& axis) { return axis.var.same_node(var); });
  }

  bool uses_axis(const Expr& e) const {
    bool found = false;
    walk(e, [&](const Expr& node) { found |= node->kind == ExprKind::kVar && is_axis(node); });
    return found;
  }

  // Whether `e` divides by an open size what is more than a place.
  bool is_costly(const Expr& e) const {
    if (e->kind != ExprKind::kBinary) return false;
    switch (e->binary) {
      case BinaryOp::kDiv:
      case BinaryOp::kFloorDiv:
      case BinaryOp::kFloorMod: break;
      default: return false;
    }
    const Expr& divisor = e->operands[1];
    bool is_open = false, loads = false;
    walk(e, [&](const Expr& node) { loads |= node->kind == ExprKind::kLoad; });
    walk(divisor, [&](const Expr& node) { is_open |= node->kind == ExprKind::kVar; });
    if (!is_open || loads || uses_axis(divisor)) return false;
    if (!is_float(e->dtype)) return has_multiple(e->operands[0]);
    bool counts = false;  // a fraction of a place
    walk(e->operands[0], [&](const Expr& node) {
      if (node->kind == ExprKind::kBinary && node->binary == BinaryOp::kFloorMod)
        counts |= has_multiple(node->operands[0]);
    });
    return counts;
  }

  // Whether an axis stands in it as a multiple of something.
  bool has_multiple(const Expr& e) const {
    if (e->kind != ExprKind::kBinary) return false;
    if (e->binary == BinaryOp::kMul) return uses_axis(e);
    return (e->binary == BinaryOp::kAdd || e->binary == BinaryOp::kSub) &&
           (has_multiple(e->operands[0]) || has_multiple(e->operands[1]));
  }

  // The only axis that `e` depends on; null when there are none or several.
  const Axis* only_axis(const Expr& e) const {
    const Axis* found = nullptr;
    for (const Axis& axis : axes_) {
      if (!uses_var(e, axis.var)) continue;
      if (found) return nullptr;
      found = &axis;
    }
    return found;
  }

  bool pays(const Axis& axis) const {
    int64_t beside = 1;
    for (const Axis& other : axes_)
      if (&other != &axis && beside < kElementsToAPlace) beside *= std::max<int64_t>(typical_size(other.extent), 1);
    return beside >= kElementsToAPlace;
  }

  // Parents first, so that a weight is one table and not that of its numerator.
  Expr take(const Expr& e) {
    if (const auto it = done_.find(e.get()); it != done_.end()) return it->second;
    if (is_costly(e))
      if (const Axis* axis = only_axis(e); axis && pays(*axis))
        if (Expr table = table_of(e, *axis)) return done_[e.get()] = std::move(table);
    if (e->operands.empty()) return e;
    auto node = std::make_shared<ExprNode>(*e);
    bool changed = false;
    for (Expr& operand : node->operands) {
      const Expr replaced = take(operand);
      changed |= !replaced.same_node(operand);
      operand = replaced;
    }
    return done_[e.get()] = changed ? Expr(std::move(node)) : e;
  }

  // An element of the table with these values. Equal values of equal axes share one.
  Expr table_of(const Expr& e, const Axis& axis) {
    const Var place = make_var("i");
    const Expr value = substitute(e, {{axis.var.get(), Expr(place)}});
    for (const PlaceTable& table : tables_) {
      const Body& known = table.program.stages[0].body;
      if (structurally_equal(known.axes[0].extent, axis.extent) &&
          structurally_equal(substitute(known.value, {{known.axes[0].var.get(), Expr(place)}}), value))
        return load(table.buffer, {axis.var});
    }
    if (tables_.size() == kMostTables) return {};
    PlaceTable table;
    const std::string name = fmt::format("{}_places{}", kernel_.name, tables_.size());
    table.buffer = make_buffer(fmt::format("places{}", tables_.size()), e->dtype, {axis.extent});
    table.program.name = name;
    Stage stage;
    stage.out = make_buffer("y", e->dtype, {axis.extent});
    stage.body.axes = {{place, axis.extent}};
    stage.body.value = value;
    table.program.stages.push_back(std::move(stage));
    tables_.push_back(std::move(table));
    return load(tables_.back().buffer, {axis.var});
  }

  TensorProgram& kernel_;
  std::vector<Axis> axes_;  // of the stage at hand
  std::unordered_map<const ExprNode*, Expr> done_;
  std::vector<PlaceTable> tables_;
};

}  // namespace

std::vector<PlaceTable> take_place_tables(TensorProgram& kernel) { return Taker(kernel).run(); }

}  // namespace tessera::inline lower
