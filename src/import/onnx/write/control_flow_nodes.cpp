// if as If, loop as Scan where it is one, else as Loop.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "arith/simplify.h"
#include "import/onnx/write/graph_writer.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

onnx::GraphProto& add_subgraph(onnx::NodeProto& node, const std::string& attribute, const std::string& name) {
  onnx::AttributeProto& proto = *node.add_attribute();
  proto.set_name(attribute);
  proto.set_type(onnx::AttributeProto::GRAPH);
  proto.mutable_g()->set_name(name);
  return *proto.mutable_g();
}

bool is_read(const Graph& region, ValueId value) {
  return !region.users()[index(value)].empty() ||
         std::find(region.outputs.begin(), region.outputs.end(), value) != region.outputs.end();
}

// The limit that does not depend on a count.
std::optional<Expr> trip_of(const Graph& graph, const Node& node, const LoopParts& parts) {
  if (parts.max_trip) return parts.max_trip;
  if (parts.scanned > 0) return graph.type(node.inputs[parts.first_scanned()]).shape[0];
  return std::nullopt;
}

}  // namespace

GraphWriter::Names GraphWriter::write_region(const Graph& region, const Names& inputs, const std::string& loc) {
  Names names(region.values().size()), results;
  for (size_t i = 0; i < region.inputs.size(); ++i) names[index(region.inputs[i])] = inputs[i];
  std::vector<std::pair<ValueId, std::string>> copies;
  for (const ValueId output : region.outputs) {
    results.push_back(context_.fresh_name(region.value(output).name));
    if (names[index(output)].empty() && !is_constant(region, output)) names[index(output)] = results.back();
    else copies.emplace_back(output, results.back());
  }
  write_nodes(region, names);
  for (const auto& [from, to] : copies) write_copy(names[index(from)], to, loc);
  return results;
}

// Conditions and counts may have dimensions of 1.
std::string GraphWriter::as_scalar(const Graph& graph, ValueId value, const Names& names) {
  const std::string& name = names[index(value)];
  return graph.type(value).rank() == 0 ? name : helper("Reshape", {name, context_.ints({})}, "scalar");
}

void GraphWriter::write_if(const Graph& graph, const Node& node, const Names& names) {
  const std::string condition = as_scalar(graph, node.inputs[0], names);
  onnx::NodeProto& proto = *context_.scope().add_node();
  proto.set_op_type("If");
  proto.set_name(node_name(node.loc));
  proto.add_input(condition);
  for (const ValueId output : node.outputs) proto.add_output(names[index(output)]);
  Names captured;
  for (size_t i = 1; i < node.inputs.size(); ++i) captured.push_back(names[index(node.inputs[i])]);
  for (size_t branch = 0; branch < 2; ++branch) {
    const Graph& region = *node.regions[branch];
    onnx::GraphProto& subgraph = add_subgraph(proto, branch == 0 ? "then_branch" : "else_branch", region.name);
    const ExportContext::Scope scope(context_, subgraph);
    const Names results = write_region(region, captured, node.loc);
    for (size_t i = 0; i < results.size(); ++i)
      set_value_info(*subgraph.add_output(), results[i], region.type(region.outputs[i]));
  }
}

void GraphWriter::write_loop(const Graph& graph, const Node& node, const Names& names) {
  const LoopParts parts = loop_parts(node);
  const auto trip = trip_of(graph, node, parts);
  if (trip && as_int(*trip) == 0) return write_results_without_iterations(graph, node, parts, names);
  if (parts.scanned > 0 && !parts.counted && !parts.has_condition) return write_scan_node(graph, node, parts, names);
  write_loop_node(graph, node, parts, names);
}

void GraphWriter::write_results_without_iterations(const Graph& graph, const Node& node, const LoopParts& parts,
                                                   const Names& names) {
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const std::string& result = names[index(node.outputs[i])];
    if (i < parts.carried) {
      write_copy(names[index(node.inputs[parts.first_carried() + i])], result, node.loc);
    } else {
      const TensorType& type = graph.type(node.outputs[i]);
      const Names operands = {context_.scalar(type.dtype, 0), context_.sizes(type.shape)};
      onnx::NodeProto& expand = *context_.scope().add_node();
      expand.set_op_type("Expand");
      set_inputs(expand, operands);
      expand.add_output(result);
    }
  }
}

// A Scan does not tell its body the number of the iteration: it is counted where the body reads it.
void GraphWriter::write_scan_node(const Graph& graph, const Node& node, const LoopParts& parts, const Names& names) {
  const Graph& region = *node.regions[0];
  const bool counts = is_read(region, region.inputs[0]);
  onnx::NodeProto& proto = *context_.scope().add_node();
  proto.set_op_type("Scan");
  proto.set_name(node_name(node.loc));
  if (counts) {
    proto.add_input(context_.scalar(DType::kI64, 0));
    proto.add_output(context_.fresh_name("count"));
  }
  for (size_t i = 0; i < parts.carried + parts.scanned; ++i) proto.add_input(names[index(node.inputs[i])]);
  for (const ValueId output : node.outputs) proto.add_output(names[index(output)]);
  set_int(proto, "num_scan_inputs", static_cast<int64_t>(parts.scanned));
  const auto set_directions = [&](const char* name, const Ints& reversed) {
    if (std::count(reversed.begin(), reversed.end(), 1) > 0) set_ints(proto, name, reversed);
  };
  set_directions("scan_input_directions", parts.scan_reversed);
  set_directions("scan_output_directions", parts.stack_reversed);

  onnx::GraphProto& body = add_subgraph(proto, "body", region.name);
  const ExportContext::Scope scope(context_, body);
  Names inputs;
  for (size_t i = 0; i < parts.first_invariant_input(); ++i) {
    inputs.push_back(context_.fresh_name(region.value(region.inputs[i]).name));
    if (i > 0 || counts) set_value_info(*body.add_input(), inputs.back(), region.type(region.inputs[i]));
  }
  for (size_t i = 0; i < parts.invariants; ++i)
    inputs.push_back(names[index(node.inputs[parts.first_invariant() + i])]);
  if (counts) {
    const std::string next = helper("Add", {inputs[0], context_.scalar(DType::kI64, 1)}, "count");
    set_value_info(*body.add_output(), next, region.type(region.inputs[0]));
  }
  const Names results = write_region(region, inputs, node.loc);
  for (size_t i = 0; i < results.size(); ++i)
    set_value_info(*body.add_output(), results[i], region.type(region.outputs[i]));
}

// Slices are gathered by the number of the iteration. Rows of a loop that may end early are written into a value that
// is carried, because what ONNX collects has as many rows as there were iterations.
void GraphWriter::write_loop_node(const Graph& graph, const Node& node, const LoopParts& parts, const Names& names) {
  const Graph& region = *node.regions[0];
  const auto trip = trip_of(graph, node, parts);
  const bool may_end = parts.counted || parts.has_condition;
  const auto operand = [&](size_t i) { return names[index(node.inputs[i])]; };
  const auto result = [&](size_t i) { return names[index(node.outputs[i])]; };
  const auto stacked_type = [&](size_t i) { return graph.type(node.outputs[parts.carried + i]); };

  std::string limit = trip ? context_.size_scalar(*trip) : "";
  if (parts.counted) {
    // ONNX Runtime does not take a negative number of iterations.
    const std::string count =
        helper("Max", {as_scalar(graph, node.inputs[0], names), context_.scalar(DType::kI64, 0)}, "count");
    limit = trip ? helper("Min", {count, limit}, "limit") : count;
  }
  Names given = {limit, parts.has_condition ? as_scalar(graph, node.inputs[parts.condition()], names) : ""};
  for (size_t i = 0; i < parts.carried; ++i) given.push_back(operand(parts.first_carried() + i));
  if (may_end)
    for (size_t i = 0; i < parts.stacked; ++i)
      given.push_back(
          helper("Expand", {context_.scalar(stacked_type(i).dtype, 0), context_.sizes(stacked_type(i).shape)}, "rows"));
  const auto reversed = [&](size_t i) { return parts.stack_reversed[i] != 0; };

  onnx::NodeProto& proto = *context_.scope().add_node();
  proto.set_op_type("Loop");
  proto.set_name(node_name(node.loc));
  set_inputs(proto, given);
  Names turned(parts.stacked);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const bool turn = i >= parts.carried && !may_end && reversed(i - parts.carried);
    proto.add_output(turn ? turned[i - parts.carried] = context_.fresh_name("turned") : result(i));
  }

  {
    onnx::GraphProto& body = add_subgraph(proto, "body", region.name);
    const ExportContext::Scope scope(context_, body);
    const TensorType number{DType::kI64, {}, {}}, truth{DType::kBool, {}, {}};
    const auto add_input = [&](const std::string& hint, const TensorType& type) {
      const std::string name = context_.fresh_name(hint);
      set_value_info(*body.add_input(), name, type);
      return name;
    };
    const std::string iteration = add_input("iteration", number), go = add_input("go", truth);
    Names inputs = {iteration}, rows;
    for (size_t i = 0; i < parts.carried; ++i) {
      const ValueId value = region.inputs[parts.kFirstCarriedInput + i];
      inputs.push_back(add_input(region.value(value).name, region.type(value)));
    }
    if (may_end)
      for (size_t i = 0; i < parts.stacked; ++i) rows.push_back(add_input("rows", stacked_type(i)));
    std::string from_behind;
    const auto place = [&](bool turn) {
      if (turn && from_behind.empty())
        from_behind = helper("Sub", {context_.size_scalar(*trip - Expr(1)), iteration}, "place");
      return turn ? from_behind : iteration;
    };
    for (size_t i = 0; i < parts.scanned; ++i) {
      const std::string at = place(parts.scan_reversed[i] != 0);
      inputs.push_back(helper("Gather", {operand(parts.first_scanned() + i), at}, "slice"));
      set_int(last_node(), "axis", 0);
    }
    for (size_t i = 0; i < parts.invariants; ++i) inputs.push_back(operand(parts.first_invariant() + i));

    const Names results = write_region(region, inputs, node.loc);
    const std::string next = !parts.has_condition ? helper("Identity", {go}, "next")
                             : region.type(region.outputs[0]).rank() == 0
                                 ? results[0]
                                 : helper("Reshape", {results[0], context_.ints({})}, "next");
    set_value_info(*body.add_output(), next, truth);
    for (size_t i = parts.first_carried_result(); i < results.size(); ++i) {
      const TensorType& type = region.type(region.outputs[i]);
      if (!may_end || i < parts.first_stacked_result()) {
        set_value_info(*body.add_output(), results[i], type);
        continue;
      }
      const size_t k = i - parts.first_stacked_result();
      const std::string at = helper("Reshape", {place(reversed(k)), context_.ints({1, 1})}, "row"),
                        row = helper("Unsqueeze", {results[i], context_.ints({0})}, "row"),
                        updated = helper("ScatterND", {rows[k], at, row}, "rows");
      set_value_info(*body.add_output(), updated, stacked_type(k));
    }
  }
  for (size_t i = 0; i < parts.stacked; ++i) {
    if (turned[i].empty()) continue;
    onnx::NodeProto& slice = *context_.scope().add_node();
    slice.set_op_type("Slice");
    set_inputs(slice,
               {turned[i], context_.ints({-1}), context_.ints({INT64_MIN}), context_.ints({0}), context_.ints({-1})});
    slice.add_output(result(parts.carried + i));
  }
}

}  // namespace tessera::inline onnx_import
