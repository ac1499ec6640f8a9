// How: the body's expression becomes a list of nodes. The loops run over all axes but one, whose indices are the lanes
// (interp/lanes.h) of every node. A node is recomputed only when a variable it depends on has changed, wherever its
// loop stands. Loads under a select happen in the lanes where the select takes that arm only.
#include "interp/body_interp.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <unordered_set>

#include "interp/lanes.h"
#include "interp/scalar_ops.h"
#include "support/error.h"

namespace tessera::inline interp {
namespace {

struct EvalNode {
  const ExprNode* expr = nullptr;
  std::vector<int> operands;
  uint64_t loops = 0;  // bit i: depends on the variable of loop i
  int group = 0;       // of the nodes that depend on the same loops
  bool has_load = false;
  bool unconditional = false;  // not only under a select
  bool all_lanes = false;      // computed for all lanes: unconditional or without loads; else for those that need it
  int input = -1;              // kLoad
  int loop = -1;               // kVar: the loop whose variable it is; -1: a symbol
  Lanes value;
  // The operands' values: in their nodes, or copied to `held` where one of them is not for all lanes, since evaluating
  // another operand may then evaluate it again for other lanes.
  std::vector<const Lanes*> args;
  std::vector<Lanes> held;
  uint64_t stamp = 0;  // the group's stamp or the mask's id that `value` belongs to; 0: none
  LaneStorage out{};
  std::unique_ptr<int64_t[]> ints;
  std::unique_ptr<double[]> reals;
  std::unique_ptr<uint8_t[]> bits[2];  // kSelect: lanes of the two arms
};

struct Loop {
  const Axis* axis;
  int64_t extent;
  bool lanes;                 // this axis is cut into runs of lanes
  int64_t out_stride;         // of the output along this axis, in elements; 0 for a reduce axis
  int64_t position = -1;      // the current index, or the first lane's
  std::vector<int> groups{};  // of the nodes that depend on it
};

struct InputView {
  const Tensor* tensor;
  std::vector<int64_t> strides;  // in elements
};

class BodyEvaluator {
 public:
  BodyEvaluator(const Body& body, DType result, const std::vector<const Tensor*>& inputs, const SymbolValues& symbols);
  Tensor run();

 private:
  void plan_loops();
  int add(const Expr& e);
  void mark_unconditional(int index);
  void group_nodes();
  void nest(size_t loop);
  void start_output_lanes();
  void accumulate();
  void write(int64_t offset, int64_t step);

  // The value of a node for the lanes of `mask`, valid until the node is evaluated again.
  const Lanes& eval(int index, const LaneMask& mask) {
    EvalNode& node = nodes_[static_cast<size_t>(index)];
    const uint64_t stamp = node.all_lanes ? stamps_[static_cast<size_t>(node.group)] : mask.id;
    if (node.stamp != stamp) {
      // Constructed in place: copying a value that has just been written field by field stalls the processor.
      new (&node.value) Lanes(compute(node, node.all_lanes ? full_ : mask));
      node.stamp = stamp;
    }
    return node.value;
  }
  void eval_operands(EvalNode& node, const LaneMask& mask) {
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Lanes& value = eval(node.operands[i], mask);
      if (!node.held.empty()) node.held[i] = value;
    }
  }
  Lanes compute(EvalNode& node, const LaneMask& mask);
  Lanes compute_load(EvalNode& node, const LaneMask& mask);
  Lanes compute_select(EvalNode& node, const LaneMask& mask);
  [[noreturn]] void fail_bounds(const EvalNode& node, int lane) const;

  const Body& body_;
  const SymbolValues& symbols_;
  std::vector<InputView> inputs_;
  std::unordered_map<const Buffer*, int> input_of_;
  std::unordered_map<const ExprNode*, int> index_of_;
  std::vector<EvalNode> nodes_;
  int root_ = -1;

  std::vector<Loop> loops_;       // outermost first: output axes, then reduce axes, the lanes' last in its part
  size_t first_reduce_loop_ = 0;  // loops_ from here on reduce
  bool reduce_in_lanes_ = false;  // the lanes are those of a reduce axis
  std::unordered_map<const ExprNode*, int> loop_of_;
  std::vector<uint64_t> stamps_;  // per group of nodes: changes when one of its variables does
  uint64_t counter_ = 1;
  LaneMask full_{0, 1};  // all lanes of the current run; one where there is no axis to run along

  DType dtype_;   // of what is combined
  DType result_;  // of what is written
  Tensor out_;
  std::array<double, kMaxLanes> real_total_{};
  std::array<int64_t, kMaxLanes> int_total_{};
  Expr identity_;      // of the combiner
  int out_lanes_ = 1;  // how many accumulators are in use
};

std::vector<int64_t> row_major_strides(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  return strides;
}

BodyEvaluator::BodyEvaluator(const Body& body, DType result, const std::vector<const Tensor*>& inputs,
                             const SymbolValues& symbols)
    : body_(body), symbols_(symbols), dtype_(body.value.dtype()), result_(result) {
  check(inputs.size() == body.inputs.size(), "a body with another number of inputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Buffer& buffer = *body.inputs[i];
    std::vector<int64_t> dims;
    for (const Expr& extent : buffer.shape) dims.push_back(evaluate_index(extent, symbols));
    if (inputs[i]->dtype() != buffer.dtype || inputs[i]->dims() != dims)
      throw InternalError(fmt::format("buffer {} is declared {}[{}] and given {}[{}]", buffer.name,
                                      dtype_name(buffer.dtype), fmt::join(dims, ","), dtype_name(inputs[i]->dtype()),
                                      fmt::join(inputs[i]->dims(), ",")));
    inputs_.push_back({inputs[i], row_major_strides(dims)});
    input_of_[&buffer] = static_cast<int>(i);
  }
  if (body.is_reduction()) identity_ = combiner_identity(body.combiner, dtype_);
  plan_loops();
  root_ = add(body.value);
  mark_unconditional(root_);
  group_nodes();
}

// The variables that stand in a remainder. Along such an axis neighbours differ in what they load or whether they do
// (the gaps of a transposed convolution), so that nothing is contiguous or the same for all.
std::unordered_set<const ExprNode*> variables_in_remainders(const Expr& value) {
  std::unordered_set<const ExprNode*> found;
  walk(value, [&](const Expr& e) {
    if (e->kind != ExprKind::kBinary || e->binary != BinaryOp::kFloorMod) return;
    walk(e, [&](const Expr& inner) {
      if (inner->kind == ExprKind::kVar) found.insert(inner.get());
    });
  });
  return found;
}

// The lanes are the innermost output axis that is long enough to be worth it, else the longest one; when even that is
// short, the innermost reduce axis. An axis in a remainder counts half.
void BodyEvaluator::plan_loops() {
  constexpr int64_t kWorthwhile = 16;
  std::vector<int64_t> dims;
  for (const Axis& axis : body_.axes) dims.push_back(evaluate_index(axis.extent, symbols_));
  const std::vector<int64_t> strides = row_major_strides(dims);
  out_ = Tensor(result_, dims);

  const auto in_remainder = variables_in_remainders(body_.value);
  int lane_axis = -1;
  int64_t best = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t worth = std::min(dims[i], kWorthwhile) * (in_remainder.contains(body_.axes[i].var.get()) ? 1 : 2);
    if (worth < best) continue;
    lane_axis = static_cast<int>(i);
    best = worth;
  }
  const bool short_lanes = lane_axis < 0 || dims[static_cast<size_t>(lane_axis)] < kWorthwhile;
  reduce_in_lanes_ = short_lanes && !body_.reduce_axes.empty() &&
                     evaluate_index(body_.reduce_axes.back().extent, symbols_) >= kWorthwhile;

  const auto push = [&](const Axis& axis, int64_t stride, bool lanes) {
    loops_.push_back({&axis, evaluate_index(axis.extent, symbols_), lanes, stride});
  };
  for (size_t i = 0; i < dims.size(); ++i)
    if (reduce_in_lanes_ || static_cast<int>(i) != lane_axis) push(body_.axes[i], strides[i], false);
  if (!reduce_in_lanes_ && lane_axis >= 0)
    push(body_.axes[static_cast<size_t>(lane_axis)], strides[static_cast<size_t>(lane_axis)], true);
  first_reduce_loop_ = loops_.size();
  for (size_t i = 0; i < body_.reduce_axes.size(); ++i)
    push(body_.reduce_axes[i], 0, reduce_in_lanes_ && i + 1 == body_.reduce_axes.size());
  check(loops_.size() <= 64, "a body of more than 64 axes");
  for (size_t i = 0; i < loops_.size(); ++i) loop_of_[loops_[i].axis->var.get()] = static_cast<int>(i);
}

int BodyEvaluator::add(const Expr& e) {
  if (const auto it = index_of_.find(e.get()); it != index_of_.end()) return it->second;
  EvalNode node;
  node.expr = e.get();
  for (const Expr& operand : e->operands) node.operands.push_back(add(operand));
  for (int operand : node.operands) {
    const EvalNode& child = nodes_[static_cast<size_t>(operand)];
    node.loops |= child.loops;
    node.has_load |= child.has_load;
  }
  if (e->kind == ExprKind::kLoad) {
    const auto it = input_of_.find(e->buffer.get());
    if (it == input_of_.end()) throw InternalError("body loads from " + e->buffer->name + ", which is no input of it");
    node.input = it->second;
    node.has_load = true;
  } else if (e->kind == ExprKind::kVar) {
    if (const auto it = loop_of_.find(e.get()); it != loop_of_.end()) {
      node.loop = it->second;
      node.loops = uint64_t{1} << node.loop;
    } else {
      evaluate_index(e, symbols_);  // reports a variable without a value
    }
  }
  if (is_float(e.dtype())) {
    node.reals = std::make_unique<double[]>(kMaxLanes);
  } else {
    node.ints = std::make_unique<int64_t[]>(kMaxLanes);
  }
  node.out = {node.ints.get(), node.reals.get()};
  nodes_.push_back(std::move(node));
  const int index = static_cast<int>(nodes_.size()) - 1;
  index_of_[e.get()] = index;
  return index;
}

// and/or on bool evaluate their right side only where it matters, as select does its arms.
bool is_lazy(const ExprNode& e) {
  return e.kind == ExprKind::kSelect || (e.kind == ExprKind::kBinary && e.dtype == DType::kBool &&
                                         (e.binary == BinaryOp::kAnd || e.binary == BinaryOp::kOr));
}

void BodyEvaluator::mark_unconditional(int index) {
  EvalNode& node = nodes_[static_cast<size_t>(index)];
  if (node.unconditional) return;
  node.unconditional = true;
  const size_t eager = is_lazy(*node.expr) ? 1 : node.operands.size();
  for (size_t i = 0; i < eager; ++i) mark_unconditional(node.operands[i]);
}

void BodyEvaluator::group_nodes() {
  std::unordered_map<uint64_t, int> group_of;
  for (EvalNode& node : nodes_) {
    node.all_lanes = node.unconditional || !node.has_load;
    for (int operand : node.operands) {
      const EvalNode& child = nodes_[static_cast<size_t>(operand)];
      node.args.push_back(&child.value);
      if (!child.all_lanes) node.held.resize(node.operands.size());
    }
    for (size_t i = 0; i < node.held.size(); ++i) node.args[i] = &node.held[i];
    const auto [it, added] = group_of.emplace(node.loops, static_cast<int>(stamps_.size()));
    node.group = it->second;
    if (!added) continue;
    stamps_.push_back(++counter_);
    for (size_t i = 0; i < loops_.size(); ++i)
      if (node.loops >> i & 1) loops_[i].groups.push_back(node.group);
  }
}

Tensor BodyEvaluator::run() {
  nest(0);
  return std::move(out_);
}

void BodyEvaluator::nest(size_t loop) {
  if (loop == first_reduce_loop_) start_output_lanes();
  if (loop == loops_.size()) {
    accumulate();
  } else {
    Loop& current = loops_[loop];
    const int64_t stride = current.lanes ? kMaxLanes : 1;
    for (int64_t i = 0; i < current.extent; i += stride) {
      if (current.position != i) {
        current.position = i;
        ++counter_;
        for (int group : current.groups) stamps_[static_cast<size_t>(group)] = counter_;
      }
      if (current.lanes) full_ = {0, static_cast<int>(std::min<int64_t>(kMaxLanes, current.extent - i))};
      nest(loop + 1);
    }
  }
  if (loop == first_reduce_loop_) {
    int64_t offset = 0;
    for (size_t i = 0; i < first_reduce_loop_; ++i) offset += loops_[i].position * loops_[i].out_stride;
    write(offset, reduce_in_lanes_ || first_reduce_loop_ == 0 ? 0 : loops_[first_reduce_loop_ - 1].out_stride);
  }
}

void BodyEvaluator::start_output_lanes() {
  out_lanes_ = reduce_in_lanes_ ? 1 : full_.end;
  if (!body_.is_reduction()) return;
  std::fill_n(real_total_.begin(), out_lanes_, identity_->float_value);
  std::fill_n(int_total_.begin(), out_lanes_, identity_->int_value);
}

template <typename T, typename F>
void fold(const LaneMask& lanes, bool horizontal, T* total, const T* values, T uniform, F f) {
  if (horizontal) {
    T sum = total[0];
    for (int l = lanes.begin; l < lanes.end; ++l) sum = f(sum, values ? values[l] : uniform);
    total[0] = sum;
  } else if (values) {
    for (int l = lanes.begin; l < lanes.end; ++l) total[l] = f(total[l], values[l]);
  } else {
    for (int l = lanes.begin; l < lanes.end; ++l) total[l] = f(total[l], uniform);
  }
}

void BodyEvaluator::accumulate() {
  const Lanes& value = eval(root_, full_);
  if (!body_.is_reduction()) {
    lanes_store(value, full_, {int_total_.data(), real_total_.data()});
    return;
  }
  if (value.real) {
    double* total = real_total_.data();
    const double* values = value.is_uniform() ? nullptr : value.reals;
    const auto with = [&](auto f) { fold(full_, reduce_in_lanes_, total, values, value.real_value, f); };
    switch (body_.combiner) {
      case Combiner::kSum: return with([](double a, double b) { return a + b; });
      case Combiner::kProd: return with([](double a, double b) { return a * b; });
      case Combiner::kMin: return with([](double a, double b) { return float_binary(BinaryOp::kMin, a, b); });
      case Combiner::kMax: return with([](double a, double b) { return float_binary(BinaryOp::kMax, a, b); });
      case Combiner::kNone: return;
    }
  }
  static constexpr BinaryOp kOps[] = {BinaryOp::kAdd, BinaryOp::kAdd, BinaryOp::kMul, BinaryOp::kMin, BinaryOp::kMax};
  const BinaryOp op = kOps[static_cast<int>(body_.combiner)];
  for (int l = full_.begin; l < full_.end; ++l) {
    int64_t& total = int_total_[reduce_in_lanes_ ? 0 : static_cast<size_t>(l)];
    total = int_binary(op, dtype_, total, value.int_at(l));
  }
}

void BodyEvaluator::write(int64_t offset, int64_t step) {
  std::byte* bytes = out_.mutable_bytes();
  for (int l = 0; l < out_lanes_; ++l) {
    const int64_t at = offset + step * l;
    const auto lane = static_cast<size_t>(l);
    switch (result_) {
      case DType::kF32: reinterpret_cast<float*>(bytes)[at] = static_cast<float>(real_total_[lane]); break;
      case DType::kF64: reinterpret_cast<double*>(bytes)[at] = real_total_[lane]; break;
      case DType::kI64: reinterpret_cast<int64_t*>(bytes)[at] = int_total_[lane]; break;
      default:
        if (is_float(result_)) {
          write_float(result_, bytes, at, real_total_[lane]);
        } else {
          write_int(result_, bytes, at, int_total_[lane]);
        }
    }
  }
}

Lanes BodyEvaluator::compute(EvalNode& node, const LaneMask& mask) {
  const ExprNode& e = *node.expr;
  switch (e.kind) {
    case ExprKind::kConst:
      return is_float(e.dtype) ? Lanes::uniform_real(round_to(e.dtype, e.float_value))
                               : Lanes::uniform_int(e.int_value);
    case ExprKind::kVar: {
      if (node.loop < 0) return Lanes::uniform_int(symbols_.at(&e));
      const Loop& loop = loops_[static_cast<size_t>(node.loop)];
      return loop.lanes ? Lanes::affine(loop.position, 1) : Lanes::uniform_int(loop.position);
    }
    case ExprKind::kLoad: return compute_load(node, mask);
    case ExprKind::kSelect: return compute_select(node, mask);
    case ExprKind::kBinary:
      if (is_lazy(e) && nodes_[static_cast<size_t>(node.operands[1])].has_load) return compute_select(node, mask);
      eval_operands(node, mask);
      return lanes_binary(e.binary, e.operands[0]->dtype, *node.args[0], *node.args[1], mask, node.out);
    case ExprKind::kUnary:
      eval_operands(node, mask);
      return lanes_unary(e.unary, e.operands[0]->dtype, e.dtype, *node.args[0], mask, node.out);
    case ExprKind::kFma:
      eval_operands(node, mask);
      return lanes_fma(e.dtype, *node.args[0], *node.args[1], *node.args[2], mask, node.out);
    case ExprKind::kCast:
      eval_operands(node, mask);
      return lanes_cast(e.operands[0]->dtype, e.dtype, *node.args[0], mask, node.out);
  }
  throw InternalError("unknown expression kind");
}

void BodyEvaluator::fail_bounds(const EvalNode& node, int lane) const {
  std::vector<int64_t> at;
  for (const Lanes* i : node.args) at.push_back(i->int_at(lane));
  throw InternalError(fmt::format("load outside its buffer: {}[{}] of shape [{}]", node.expr->buffer->name,
                                  fmt::join(at, ", "),
                                  fmt::join(inputs_[static_cast<size_t>(node.input)].tensor->dims(), ", ")));
}

Lanes BodyEvaluator::compute_load(EvalNode& node, const LaneMask& mask) {
  const InputView& view = inputs_[static_cast<size_t>(node.input)];
  const auto& dims = view.tensor->dims();
  eval_operands(node, mask);
  int64_t base = 0;
  int64_t step = 0;
  bool scattered = false;
  for (size_t d = 0; d < dims.size(); ++d) {
    const Lanes& i = *node.args[d];
    if (mask.bits || i.kind == Lanes::Kind::kVector) {
      scattered = true;
      continue;
    }
    // A progression is inside when its ends are. Its second lane shows that it does not wrap in between.
    for (int l : {mask.begin, std::min(mask.begin + 1, mask.end - 1), mask.end - 1})
      if (i.int_at(l) < 0 || i.int_at(l) >= dims[d]) fail_bounds(node, l);
    base += i.first * view.strides[d];
    step += i.step * view.strides[d];
  }
  std::array<int64_t, kMaxLanes> addresses;
  if (scattered) {
    for (int l = mask.begin; l < mask.end; ++l) addresses[static_cast<size_t>(l)] = base + step * l;
    for (size_t d = 0; d < dims.size(); ++d) {
      const Lanes& i = *node.args[d];
      const bool is_vector = i.kind == Lanes::Kind::kVector;
      if (!is_vector && !mask.bits) continue;
      for (int l = mask.begin; l < mask.end; ++l) {
        if (!mask.active(l)) continue;
        const int64_t at = is_vector ? i.ints[l] : i.int_at(l);
        if (at < 0 || at >= dims[d]) fail_bounds(node, l);
        addresses[static_cast<size_t>(l)] += at * view.strides[d];
      }
    }
  }
  return lanes_load(node.expr->dtype, view.tensor->bytes(), base, step, scattered ? addresses.data() : nullptr, mask,
                    node.out);
}

// select(c, a, b), and `c and a` as select(c, a, false), `c or b` as select(c, true, b).
Lanes BodyEvaluator::compute_select(EvalNode& node, const LaneMask& mask) {
  const ExprNode& e = *node.expr;
  const Lanes condition = eval(node.operands[0], mask);
  const bool is_select = e.kind == ExprKind::kSelect;
  const auto arm = [&](bool taken, LaneMask lanes) -> Lanes {
    lanes.id = ++counter_;
    if (is_select) return eval(node.operands[taken ? 1 : 2], lanes);
    if (taken != (e.binary == BinaryOp::kAnd)) return Lanes::uniform_int(taken);
    return eval(node.operands[1], lanes);
  };
  if (condition.is_uniform()) return arm(condition.first != 0, mask);

  const LaneStorage out = node.out;
  LaneMask taken = mask;
  LaneMask other = mask;
  bool split = true;  // the lanes of either arm need bits
  if (condition.kind == Lanes::Kind::kRange && !mask.bits) {
    taken.begin = std::max(mask.begin, static_cast<int>(condition.first));
    taken.end = std::min(mask.end, static_cast<int>(std::min<int64_t>(condition.step, mask.end)));
    if (taken.begin >= taken.end) return arm(false, mask);
    if (taken.begin == mask.begin && taken.end == mask.end) return arm(true, mask);
    split = false;
    if (taken.begin == mask.begin) {
      other.begin = taken.end;
    } else if (taken.end == mask.end) {
      other.end = taken.begin;
    } else {
      // Lanes on both sides. A constant arm does not care; any other gets the two sides one after the other.
      const LaneMask left{mask.begin, taken.begin};
      lanes_store(arm(false, left), left, out);
      other.begin = taken.end;
    }
  }
  if (split) {
    for (auto& bits : node.bits)
      if (!bits) bits = std::make_unique<uint8_t[]>(kMaxLanes);
    bool any[2] = {false, false};
    for (int l = mask.begin; l < mask.end; ++l) {
      const bool active = mask.active(l);
      const bool holds = condition.int_at(l) != 0;
      node.bits[0][static_cast<size_t>(l)] = active && holds;
      node.bits[1][static_cast<size_t>(l)] = active && !holds;
      if (active) any[holds ? 0 : 1] = true;
    }
    if (!any[0] || !any[1]) return arm(any[0], mask);
    taken.bits = node.bits[0].get();
    other.bits = node.bits[1].get();
  }
  lanes_store(arm(true, taken), taken, out);
  lanes_store(arm(false, other), other, out);
  return is_float(e.dtype) ? Lanes::real_vector(out.reals) : Lanes::int_vector(out.ints);
}

}  // namespace

int64_t evaluate_index(const Expr& e, const SymbolValues& symbols) {
  switch (e->kind) {
    case ExprKind::kConst: return e->int_value;
    case ExprKind::kVar: {
      const auto it = symbols.find(e.get());
      if (it == symbols.end()) throw InternalError("no value for the variable " + e->name);
      return it->second;
    }
    case ExprKind::kUnary: return int_unary(e->unary, e.dtype(), evaluate_index(e->operands[0], symbols));
    case ExprKind::kBinary:
      return int_binary(e->binary, e->operands[0].dtype(), evaluate_index(e->operands[0], symbols),
                        evaluate_index(e->operands[1], symbols));
    case ExprKind::kSelect:
      return evaluate_index(e->operands[evaluate_index(e->operands[0], symbols) ? 1 : 2], symbols);
    case ExprKind::kCast: return canonical_int(e.dtype(), evaluate_index(e->operands[0], symbols));
    default: break;
  }
  throw InternalError("not an index expression: " + to_string(e));
}

Tensor evaluate_body(const Body& body, const std::vector<const Tensor*>& inputs, const SymbolValues& symbols) {
  const Body wide = with_wide_accumulation(body);
  return BodyEvaluator(wide, body.value.dtype(), inputs, symbols).run();
}

}  // namespace tessera::inline interp
