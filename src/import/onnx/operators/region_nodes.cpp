#include "import/onnx/operators/region_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "arith/simplify.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

std::vector<TensorType> types_of(NodeContext& c, const std::vector<ValueId>& values) {
  std::vector<TensorType> types;
  for (const ValueId value : values) types.push_back(c.type(value));
  return types;
}

// The results of a subgraph, of which there must be `least`.
std::vector<ValueId> opened(NodeContext& inner, const onnx::GraphProto& subgraph, const std::vector<ValueId>& inputs,
                            size_t least) {
  if (static_cast<size_t>(subgraph.input_size()) != inputs.size() ||
      static_cast<size_t>(subgraph.output_size()) < least)
    inner.unsupported("a subgraph with another number of inputs or results");
  return inner.open(subgraph, inputs);
}

void require_numbers(NodeContext& c, const std::vector<ValueId>& values) {
  for (const ValueId value : values)
    if (c.is_string(value)) c.unsupported("strings in a region");
}

// Gives the region an input for each of `values`, in this order and behind those that it was opened with.
void align(NodeContext& c, ImportedRegion& region, const std::vector<ValueId>& values) {
  const size_t own = region.graph.inputs.size() - region.captured.size();
  std::vector<ValueId> inputs(region.graph.inputs.begin(), region.graph.inputs.begin() + static_cast<ptrdiff_t>(own));
  const std::vector<ValueId> old = region.graph.inputs;
  for (const ValueId value : values) {
    const auto at = std::find(region.captured.begin(), region.captured.end(), value) - region.captured.begin();
    inputs.push_back(at < std::ssize(region.captured) ? old[own + static_cast<size_t>(at)]
                                                      : region.graph.add_input("unused", c.type(value)));
  }
  region.graph.inputs = std::move(inputs);
  region.captured = values;
}

GraphPtr finished(ImportedRegion region) { return std::make_shared<const Graph>(std::move(region.graph)); }

ValueId one(NodeContext& c, ValueId v, DType dtype, const char* what) {
  if (c.dtype(v) != dtype || !c.has_one_element(v))
    c.malformed(fmt::format("the {} is {}", what, c.type(v).to_string()), fmt::format("one {}", dtype_name(dtype)));
  return c.reshape(v, {});
}

Expr not_negative(const Expr& size) { return size_range(size).lo.value_or(-1) >= 0 ? size : max(size, 0); }

// x with dimension `from` at place `to`.
ValueId moved(NodeContext& c, ValueId x, int64_t from, int64_t to) {
  Ints perm(static_cast<size_t>(c.rank(x)));
  std::iota(perm.begin(), perm.end(), 0);
  perm.erase(perm.begin() + from);
  perm.insert(perm.begin() + to, from);
  return c.transpose(x, perm);
}

}  // namespace

void if_node(NodeContext& c, ValueId condition, const onnx::GraphProto& then_branch,
             const onnx::GraphProto& else_branch) {
  const auto results = static_cast<size_t>(c.num_outputs());
  const auto open = [&](const char* name, const onnx::GraphProto& branch) {
    return c.open_region(name, {}, [&](NodeContext& inner, const std::vector<ValueId>& inputs) {
      std::vector<ValueId> values = opened(inner, branch, inputs, results);
      values.resize(results);
      return values;
    });
  };
  ImportedRegion yes = open("then", then_branch), no = open("else", else_branch);
  std::vector<ValueId> captured = yes.captured;
  for (const ValueId value : no.captured)
    if (std::find(captured.begin(), captured.end(), value) == captured.end()) captured.push_back(value);
  align(c, yes, captured);
  align(c, no, captured);
  std::vector<ValueId> operands = {c.reshape(condition, {})};
  operands.insert(operands.end(), captured.begin(), captured.end());
  const auto values = c.with_regions("if", operands, {}, {finished(std::move(yes)), finished(std::move(no))});
  for (size_t i = 0; i < results; ++i) c.out(static_cast<int>(i), values[i]);
}

void loop_node(NodeContext& c, const onnx::GraphProto& body) {
  std::vector<ValueId> carried;
  for (int i = 2; i < c.num_inputs(); ++i) carried.push_back(c.in(i));
  require_numbers(c, carried);
  const size_t collected = static_cast<size_t>(body.output_size()) - carried.size() - 1;
  Attrs attrs{{"num_carried", static_cast<int64_t>(carried.size())}};
  std::vector<ValueId> operands;
  bool bounded = c.has(0);
  if (c.has(0)) {
    const ValueId count = one(c, c.in(0), DType::kI64, "trip count");
    if (const auto known = c.known_sizes(count)) {
      attrs.set("max_trip", Shape{not_negative(known->at(0))});
    } else {
      attrs.set("counted", true);
      operands.push_back(count);
    }
  }
  const ValueId condition = c.has(1) ? one(c, c.in(1), DType::kBool, "condition") : c.scalar(DType::kBool, 1);
  const auto first = c.constant(condition);
  bool ends = !first || first->get_int(0) == 0;

  std::vector<TensorType> inputs = {{DType::kI64, {}, {}}};
  for (const TensorType& type : types_of(c, carried)) inputs.push_back(type);
  ImportedRegion region = c.open_region("body", inputs, [&](NodeContext& inner, const std::vector<ValueId>& given) {
    std::vector<ValueId> operands_of_body = {given[0], inner.scalar(DType::kBool, 1)};
    operands_of_body.insert(operands_of_body.end(), given.begin() + 1, given.end());
    std::vector<ValueId> results = opened(inner, body, operands_of_body, carried.size() + 1);
    results[0] = one(inner, results[0], DType::kBool, "condition");
    for (size_t i = 0; i < carried.size(); ++i)
      if (inner.type(results[i + 1]).to_string() != c.type(carried[i]).to_string())
        inner.unsupported("a loop that gives a value another type");
    const auto next = inner.constant(results[0]);
    ends = ends || !next || next->get_int(0) == 0;
    if (!ends) results.erase(results.begin());
    return results;
  });
  if (!ends && !bounded) c.unsupported("a loop without an end");
  if (collected > 0 && (ends || !attrs.has("max_trip")))
    c.unsupported("a loop that collects values in a number of steps that a run decides");
  if (ends) {
    attrs.set("has_condition", true);
    operands.push_back(condition);
  }
  operands.insert(operands.end(), carried.begin(), carried.end());
  operands.insert(operands.end(), region.captured.begin(), region.captured.end());
  const auto values = c.with_regions("loop", operands, attrs, {finished(std::move(region))});
  for (size_t i = 0; i < values.size(); ++i) c.out(static_cast<int>(i), values[i]);
}

void scan_node(NodeContext& c, const onnx::GraphProto& body, const ScanShape& scan) {
  require_numbers(c, scan.states);
  require_numbers(c, scan.sequences);
  std::vector<ValueId> operands = scan.states;
  std::vector<TensorType> inputs = {{DType::kI64, {}, {}}};
  for (const TensorType& type : types_of(c, scan.states)) inputs.push_back(type);
  for (size_t i = 0; i < scan.sequences.size(); ++i) {
    operands.push_back(moved(c, scan.sequences[i], scan.input_axes[i], 0));
    TensorType slice = c.type(operands.back());
    slice.shape.erase(slice.shape.begin());
    inputs.push_back(std::move(slice));
  }
  ImportedRegion region = c.open_region("body", inputs, [&](NodeContext& inner, const std::vector<ValueId>& given) {
    return opened(inner, body, {given.begin() + 1, given.end()}, scan.states.size() + scan.output_axes.size());
  });
  operands.insert(operands.end(), region.captured.begin(), region.captured.end());
  Attrs attrs{{"num_carried", static_cast<int64_t>(scan.states.size())},
              {"num_scanned", static_cast<int64_t>(scan.sequences.size())}};
  const auto set_flags = [&](const char* name, Ints flags) {
    for (int64_t& flag : flags) flag = flag != 0;
    if (std::count(flags.begin(), flags.end(), 1) > 0) attrs.set(name, std::move(flags));
  };
  set_flags("scan_reversed", scan.input_backwards);
  set_flags("stack_reversed", scan.output_backwards);
  std::vector<ValueId> values = c.with_regions("loop", operands, attrs, {finished(std::move(region))});
  for (size_t i = 0; i < scan.output_axes.size(); ++i) {
    ValueId& value = values[scan.states.size() + i];
    const int64_t rank = c.rank(value),
                  axis = scan.output_axes[i] < 0 ? scan.output_axes[i] + rank : scan.output_axes[i];
    if (axis < 0 || axis >= rank) c.malformed(fmt::format("an axis {} of an output", axis), "one within its rank");
    value = moved(c, value, 0, axis);
  }
  for (size_t i = 0; i < values.size(); ++i) c.out(static_cast<int>(i), values[i]);
}

}  // namespace tessera::inline onnx_import
