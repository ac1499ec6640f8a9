#include "lower/kernel_lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <unordered_map>

#include "arith/simplify.h"
#include "graph/op_def.h"
#include "lower/lower.h"
#include "support/error.h"
#include "te/find_weights.h"

namespace tessera::inline lower {

std::string identifier(const std::string& text) {
  std::string name;
  for (char c : text) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (name.size() > 60) name.resize(60);
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) name = "k_" + name;
  return name;
}

KernelLowering::Operand KernelLowering::add_param(const std::string& name, const TensorType& type, OperandKind kind) {
  const BufferPtr buffer = make_buffer(fresh(name), type.dtype, type.shape);
  program_.params.push_back({buffer, type.layout, kind});
  return {buffer, {}};
}

KernelLowering::Operand KernelLowering::scalar(const Tensor& value) {
  return {nullptr, is_float(value.dtype()) ? const_float(value.dtype(), value.get_double(0))
                                           : const_int(value.dtype(), value.get_int(0))};
}

KernelLowering::Operand KernelLowering::add_stage(const std::string& name, const TensorType& type, const Body& body,
                                                  const std::vector<Operand>& operands) {
  Body stage_body = with_fresh_axes(with_wide_accumulation(body));
  std::unordered_map<const Buffer*, const Operand*> map;
  for (size_t i = 0; i < body.inputs.size(); ++i) map[body.inputs[i].get()] = &operands[i];
  stage_body.value = transform(stage_body.value, [&](const Expr& node) -> Expr {
    if (node->kind != ExprKind::kLoad) return {};
    const auto it = map.find(node->buffer.get());
    if (it == map.end()) return {};
    return it->second->scalar ? it->second->scalar : load(it->second->buffer, node->operands);
  });
  stage_body.inputs.clear();
  const DType computed = stage_body.value.dtype();
  const BufferPtr out = make_buffer(fresh(name), computed, type.shape);
  program_.stages.push_back({out, type.layout, std::move(stage_body)});
  if (computed == type.dtype) return {out, {}};
  // The complete sum is rounded by whoever reads it, or by a last stage.
  Body rounding;
  rounding.inputs = {make_buffer("x", computed, type.shape)};
  rounding.axes = make_axes("i", type.shape);
  rounding.value = cast(type.dtype, load(rounding.inputs[0], rounding.axis_vars()));
  return add_stage(name, type, rounding, {{out, {}}});
}

void KernelLowering::set_results(const std::vector<BufferPtr>& results) {
  program_.num_results = results.size();
  const auto place = [&](const Stage& stage) {
    return std::find(results.begin(), results.end(), stage.out) - results.begin();
  };
  std::stable_sort(program_.stages.begin(), program_.stages.end(), [&](const Stage& a, const Stage& b) {
    const bool a_is_result = place(a) < std::ssize(results), b_is_result = place(b) < std::ssize(results);
    return !a_is_result && b_is_result;
  });
  for (size_t i = 0; i < results.size(); ++i)
    check(program_.results()[i].out == results[i], "a kernel's results are not in the order of their stages");
  if (results.size() > 1) share_axes();
}

void KernelLowering::share_axes() {
  const std::vector<Axis>* reduced = nullptr;
  const std::vector<Axis> axes = program_.output().body.axes;
  for (Stage& stage : program_.stages) {
    const bool is_result = &stage >= program_.results().data();
    if (!is_result && !stage.body.is_reduction()) continue;  // it will be inlined
    VarMap map;
    const auto rename = [&](std::vector<Axis>& own, const std::vector<Axis>& shared) {
      check(own.size() == shared.size(), "stages of one kernel with other axes: " + program_.name);
      for (size_t i = 0; i < own.size(); ++i) map[own[i].var.get()] = shared[i].var;
      own = shared;
    };
    rename(stage.body.axes, axes);
    if (!stage.body.reduce_axes.empty()) {
      if (reduced) rename(stage.body.reduce_axes, *reduced);
      else reduced = &stage.body.reduce_axes;
    }
    stage.body.value = substitute(stage.body.value, map);
  }
}

std::string KernelLowering::fresh(const std::string& name) {
  const std::string base = identifier(name);
  int& count = names_[base];
  return count++ ? fmt::format("{}_{}", base, count - 1) : base;
}

namespace {

const TensorPtr* constant_of(const Graph& graph, ValueId id) {
  const Node* producer = graph.producer(id);
  return producer && producer->op->kind == OpKind::kConstant ? &producer->attrs.get<TensorPtr>("value") : nullptr;
}

// The part of a view that is left when dimensions at both ends are found to be the same ones: [begin, end) of each
// side.
struct ViewPart {
  size_t from_begin = 0, from_end = 0, to_begin = 0, to_end = 0;
};

// Gives dimensions of `from` that are dimensions of `to` the places of these. Sizes that a run decides about, and sums
// of them, need not be multiplied and divided again for those.
ViewPart match_dimensions(const Shape& from, const Shape& to, const std::vector<Axis>& axes, std::vector<Expr>& index) {
  ViewPart rest{0, from.size(), 0, to.size()};
  const auto is_one = [](const Expr& extent) { return is_const_int(extent, 1); };
  const auto same = [](const Expr& a, const Expr& b) {
    return structurally_equal(normalize_size(a), normalize_size(b));
  };
  while (rest.from_begin < rest.from_end || rest.to_begin < rest.to_end) {
    if (rest.from_begin < rest.from_end && is_one(from[rest.from_begin])) index[rest.from_begin++] = 0;
    else if (rest.to_begin < rest.to_end && is_one(to[rest.to_begin])) ++rest.to_begin;
    else if (rest.from_begin == rest.from_end || rest.to_begin == rest.to_end) break;
    else if (!same(from[rest.from_begin], to[rest.to_begin])) break;
    else index[rest.from_begin++] = axes[rest.to_begin++].var;
  }
  while (rest.from_begin < rest.from_end || rest.to_begin < rest.to_end) {
    if (rest.from_begin < rest.from_end && is_one(from[rest.from_end - 1])) index[--rest.from_end] = 0;
    else if (rest.to_begin < rest.to_end && is_one(to[rest.to_end - 1])) --rest.to_end;
    else if (rest.from_begin == rest.from_end || rest.to_begin == rest.to_end) break;
    else if (!same(from[rest.from_end - 1], to[rest.to_end - 1])) break;
    else index[--rest.from_end] = axes[--rest.to_end].var;
  }
  return rest;
}

// A view inside a kernel: the same row-major bytes under another shape.
Body reshape_body(const TensorType& from, const TensorType& to) {
  Body body;
  body.inputs = {make_buffer("x", from.dtype, from.shape)};
  body.axes = make_axes("i", to.shape);
  std::vector<Expr> index(from.shape.size());
  const auto is_number = [](const Axis& axis) { return as_int(axis.extent).has_value(); };
  const bool is_open = !std::all_of(body.axes.begin(), body.axes.end(), is_number) || !static_dims(from.shape);
  ViewPart rest{0, from.shape.size(), 0, to.shape.size()};
  if (is_open) rest = match_dimensions(from.shape, to.shape, body.axes, index);
  Expr flat = 0;
  for (size_t i = rest.to_begin; i < rest.to_end; ++i) flat = flat * body.axes[i].extent + body.axes[i].var;
  for (size_t i = rest.from_end; i-- > rest.from_begin;) {
    index[i] = i == rest.from_begin ? flat : floormod(flat, from.shape[i]);
    flat = floordiv(flat, from.shape[i]);
  }
  if (is_open) {
    std::vector<std::pair<Var, Expr>> axes;
    for (const Axis& axis : body.axes) axes.emplace_back(axis.var, axis.extent);
    for (Expr& i : index) i = normalize_size(i, axes);
    body.value = load(body.inputs[0], index);
    return body;
  }
  Bounds bounds;
  for (const Axis& axis : body.axes) bounds.set(axis.var, 0, *as_int(axis.extent) - 1);
  body.value = simplify(load(body.inputs[0], index), bounds);
  return body;
}

void lower_region(KernelLowering& kernel, const Graph& region, std::vector<KernelLowering::Operand> inputs) {
  std::map<ValueId, KernelLowering::Operand> values;
  for (size_t i = 0; i < inputs.size(); ++i) values[region.inputs[i]] = inputs[i];
  for (const Node& node : region.nodes()) {
    const ValueId result = node.outputs.at(0);
    const TensorType& type = region.type(result);
    std::vector<KernelLowering::Operand> operands;
    for (ValueId input : node.inputs) operands.push_back(values.at(input));
    switch (node.op->kind) {
      case OpKind::kConstant: {
        const TensorPtr& value = node.attrs.get<TensorPtr>("value");
        check(value->num_elements() == 1, "a constant inside a kernel must be a scalar");
        values[result] = KernelLowering::scalar(*value);
        break;
      }
      case OpKind::kExpression:
        values[result] = kernel.add_stage(region.value(result).name, type, node_body(region, node), operands);
        break;
      case OpKind::kView:
        values[result] = kernel.add_stage(region.value(result).name, type,
                                          reshape_body(region.type(node.inputs[0]), type), operands);
        break;
      default: throw InternalError("operator " + node.op->name + " inside a kernel");
    }
  }
  std::vector<BufferPtr> results;
  for (const ValueId output : region.outputs) {
    results.push_back(values.at(output).buffer);
    check(results.back() != nullptr, "a kernel whose result is a constant");
  }
  kernel.set_results(results);
}

}  // namespace

TensorProgram lower_node(const Graph& graph, const Node& node, std::vector<size_t>& kept) {
  TensorProgram program;
  program.name = identifier(node.loc.empty() ? node.op->name : node.loc);
  KernelLowering kernel(program);
  std::vector<KernelLowering::Operand> operands;
  std::map<ValueId, KernelLowering::Operand> seen;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = node.inputs[i];
    if (const auto it = seen.find(input); it != seen.end()) {
      operands.push_back(it->second);
      continue;
    }
    const TensorPtr* constant = constant_of(graph, input);
    if (constant && *constant && (*constant)->num_elements() == 1 && (*constant)->dtype() != DType::kString) {
      operands.push_back(KernelLowering::scalar(**constant));
    } else {
      operands.push_back(kernel.add_param(graph.value(input).name, graph.type(input),
                                          constant ? OperandKind::kConstant : OperandKind::kActivation));
      kept.push_back(i);
    }
    seen[input] = operands.back();
  }
  if (node.op->kind == OpKind::kGroup) {
    lower_region(kernel, *node.regions.at(0), operands);
  } else {
    check(node.op->kind == OpKind::kExpression, "cannot lower operator " + node.op->name);
    kernel.add_stage(graph.value(node.outputs[0]).name, graph.type(node.outputs[0]), node_body(graph, node), operands);
  }
  inline_injective_stages(program);
  find_weights(program);
  return program;
}

}  // namespace tessera::inline lower
