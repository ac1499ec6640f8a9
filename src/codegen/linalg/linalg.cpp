#include "codegen/linalg/linalg.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "codegen/linalg/scalar_text.h"
#include "graph/op_def.h"
#include "support/error.h"
#include "te/body.h"

namespace tessera::inline linalg {
namespace {

std::string tensor_type(DType dtype, const std::vector<int64_t>& dims) {
  std::string text = "tensor<";
  for (const int64_t extent : dims) text += fmt::format("{}x", extent);
  return text + mlir_type(dtype) + ">";
}

std::vector<int64_t> numbers(const Shape& shape) {
  std::vector<int64_t> dims;
  for (const Expr& extent : shape) dims.push_back(as_int(extent).value_or(-1));
  return dims;
}

std::string type_text(const TensorType& type) { return tensor_type(type.dtype, numbers(type.shape)); }

// Opens composites and groups as it goes; nodes that have no form are gathered.
class LinalgPrinter {
 public:
  std::string run(const Graph& graph) {
    find_unsupported(graph);
    if (!unsupported_.empty())
      throw UserError({"TSR-5140",
                       fmt::format("--emit linalg: {} have no form there:\n    {}",
                                   unsupported_.size() == 1 ? "1 kind of node"
                                                            : fmt::format("{} kinds of nodes", unsupported_.size()),
                                   fmt::join(unsupported_, "\n    ")),
                       "", "nodes with an expression as body, views, constants and composites of them, of fixed sizes",
                       "give sizes with --dim, or emit another form"});
    Names names;
    std::string arguments;
    for (const ValueId input : graph.inputs) {
      names[input] = fmt::format("%in{}", counter_++);
      arguments += fmt::format("{}{}: {}", arguments.empty() ? "" : ", ", names[input], type_text(graph.type(input)));
    }
    nodes(graph, names);
    std::vector<std::string> results, types;
    for (const ValueId output : graph.outputs) {
      results.push_back(names.at(output));
      types.push_back(type_text(graph.type(output)));
    }
    return fmt::format("// {}\nmodule {{\n  func.func @main({}) -> ({}) {{\n{}    return {} : {}\n  }}\n}}\n",
                       one_line(graph.name), arguments, fmt::join(types, ", "), out_, fmt::join(results, ", "),
                       fmt::join(types, ", "));
  }

 private:
  using Names = std::map<ValueId, std::string>;

  static std::string one_line(std::string text) {
    std::replace_if(text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    return text;
  }

  static bool is_opened(const Node& node) {
    return node.op->kind == OpKind::kComposite || node.op->kind == OpKind::kGroup || node.op->kind == OpKind::kCall;
  }

  void find_unsupported(const Graph& graph) {
    const auto check_value = [&](ValueId value, const std::string& of) {
      if (mlir_type(graph.type(value).dtype).empty())
        unsupported_.insert(fmt::format("{}: values of {}", of, dtype_name(graph.type(value).dtype)));
      if (!graph.type(value).is_static()) unsupported_.insert(fmt::format("{}: open sizes", of));
    };
    for (const ValueId input : graph.inputs) check_value(input, graph.value(input).name);
    for (const Node& node : graph.nodes()) {
      for (const ValueId output : node.outputs) check_value(output, fmt::format("{} '{}'", node.op->name, node.loc));
      if (is_opened(node)) find_unsupported(*node.regions[0]);
      else if (node.op->kind != OpKind::kExpression && node.op->kind != OpKind::kView &&
               node.op->kind != OpKind::kConstant)
        unsupported_.insert(fmt::format("{} '{}'", node.op->name, node.loc));
    }
  }

  void nodes(const Graph& graph, Names& names) {
    for (const Node& node : graph.nodes()) {
      if (is_opened(node)) {
        const Graph& region = *node.regions[0];
        Names inner;
        for (size_t i = 0; i < region.inputs.size(); ++i) inner[region.inputs[i]] = names.at(node.inputs[i]);
        nodes(region, inner);
        for (size_t i = 0; i < node.outputs.size(); ++i) names[node.outputs[i]] = inner.at(region.outputs[i]);
      } else if (node.op->kind == OpKind::kConstant) {
        names[node.outputs[0]] = constant(*node.attrs.get<TensorPtr>("value"));
      } else if (node.op->kind == OpKind::kView) {
        names[node.outputs[0]] =
            view(graph.type(node.inputs[0]), graph.type(node.outputs[0]), names.at(node.inputs[0]));
      } else {
        names[node.outputs[0]] = generic(graph, node, names);
      }
    }
  }

  std::string define(const std::string& text) {
    const std::string name = fmt::format("%t{}", counter_++);
    out_ += fmt::format("    {} = {}\n", name, text);
    return name;
  }

  std::string constant(const Tensor& tensor) {
    const std::string type = tensor_type(tensor.dtype(), tensor.dims());
    const int64_t count = tensor.num_elements();
    if (count == 0) return define(fmt::format("tensor.empty() : {}", type));
    const bool whole = is_float(tensor.dtype()) || dtype_bits(tensor.dtype()) >= 8;
    if (count > 1 && whole && tensor.dtype() != DType::kBool) {
      std::string digits;
      digits.reserve(static_cast<size_t>(tensor.num_bytes()) * 2);
      constexpr char kDigits[] = "0123456789ABCDEF";
      for (int64_t i = 0; i < tensor.num_bytes(); ++i) {
        const auto byte = static_cast<unsigned>(tensor.bytes()[i]);
        digits += kDigits[byte >> 4];
        digits += kDigits[byte & 15];
      }
      return define(fmt::format("arith.constant dense<\"0x{}\"> : {}", digits, type));
    }
    // Bools and integers of a few bits, element by element.
    std::string text;
    for (int64_t i = 0; i < count; ++i)
      text += fmt::format("{}{}", i == 0 ? "" : ", ",
                          mlir_number(tensor.dtype(), is_float(tensor.dtype()) ? tensor.get_double(i) : 0,
                                      is_float(tensor.dtype()) ? 0 : tensor.get_int(i)));
    if (count == 1) return define(fmt::format("arith.constant dense<{}> : {}", text, type));
    const std::string flat =
        define(fmt::format("arith.constant dense<[{}]> : {}", text, tensor_type(tensor.dtype(), {count})));
    return view({tensor.dtype(), make_shape({count}), {}}, {tensor.dtype(), make_shape(tensor.dims()), {}}, flat);
  }

  // By way of one dimension.
  std::string view(const TensorType& from, const TensorType& to, std::string name) {
    if (numbers(from.shape) == numbers(to.shape)) return name;
    int64_t count = 1;
    for (const int64_t extent : numbers(from.shape)) count *= extent;
    const std::string flat = tensor_type(from.dtype, {count});
    const auto all = [](int rank) {
      std::vector<int> dims;
      for (int d = 0; d < rank; ++d) dims.push_back(d);
      return fmt::format("[{}]", rank == 0 ? "" : fmt::format("[{}]", fmt::join(dims, ", ")));
    };
    // A scalar has no dimension to make one of: it is expanded.
    if (from.rank() == 0)
      name =
          define(fmt::format("tensor.expand_shape {} [] output_shape [1] : {} into {}", name, type_text(from), flat));
    else if (from.rank() > 1)
      name = define(
          fmt::format("tensor.collapse_shape {} {} : {} into {}", name, all(from.rank()), type_text(from), flat));
    if (to.rank() == 0)
      return define(fmt::format("tensor.collapse_shape {} [] : {} into {}", name, flat, type_text(to)));
    if (to.rank() == 1) return name;
    return define(fmt::format("tensor.expand_shape {} {} output_shape [{}] : {} into {}", name, all(to.rank()),
                              fmt::join(numbers(to.shape), ", "), flat, type_text(to)));
  }

  // The axes that a load's indices are, one each; empty when one is something else.
  static std::optional<std::vector<size_t>> projection(const Expr& load, const std::vector<Var>& axes) {
    std::vector<size_t> dims;
    for (const Expr& index : load->operands) {
      const auto at = std::find_if(axes.begin(), axes.end(), [&](const Var& axis) { return axis.same_node(index); });
      if (at == axes.end()) return std::nullopt;
      dims.push_back(static_cast<size_t>(at - axes.begin()));
      if (std::count(dims.begin(), dims.end(), dims.back()) != 1) return std::nullopt;
    }
    return dims;
  }

  std::string generic(const Graph& graph, const Node& node, const Names& names) {
    Body body = node_body(graph, node);
    const TensorType& result = graph.type(node.outputs[0]);
    const DType dtype = body.value->dtype;  // wider than the result's where sums are
    std::vector<Var> axes;
    std::vector<int64_t> extents;
    for (const auto* list : {&body.axes, &body.reduce_axes})
      for (const Axis& axis : *list) {
        axes.push_back(axis.var);
        extents.push_back(as_int(axis.extent).value_or(0));
      }
    const auto map_text = [&](const std::vector<size_t>& dims) {
      std::vector<std::string> all, some;
      for (size_t i = 0; i < axes.size(); ++i) all.push_back(fmt::format("d{}", i));
      for (const size_t d : dims) some.push_back(fmt::format("d{}", d));
      return fmt::format("affine_map<({}) -> ({})>", fmt::join(all, ", "), fmt::join(some, ", "));
    };
    const auto operand_of = [&](const BufferPtr& buffer) {
      for (size_t i = 0; i < body.inputs.size(); ++i)
        if (body.inputs[i] == buffer) return i;
      check(false, "a load of no operand");
      return size_t{0};
    };
    // Operands of the region: each way in which a tensor is read by axes alone, where the whole of it is.
    std::vector<std::pair<size_t, std::vector<size_t>>> operands;
    std::vector<bool> covered(axes.size());
    const auto argument_of = [&](const Expr& load, bool add) -> std::string {
      const auto dims = projection(load, axes);
      const size_t input = operand_of(load->buffer);
      if (!dims) return "";
      const std::vector<int64_t> shape = numbers(graph.type(node.inputs[input]).shape);
      for (size_t d = 0; d < dims->size(); ++d)
        if (shape[d] != extents[(*dims)[d]]) return "";
      const std::pair key{input, *dims};
      auto at = std::find(operands.begin(), operands.end(), key);
      if (at == operands.end()) {
        if (!add) return "";
        operands.push_back(key);
        at = operands.end() - 1;
      }
      for (const size_t d : *dims) covered[d] = true;
      return fmt::format("%a{}", at - operands.begin());
    };
    walk(body.value, [&](const Expr& part) {
      if (part->kind == ExprKind::kLoad) argument_of(part, true);
    });
    std::vector<size_t> kept;
    for (size_t d = 0; d < body.axes.size(); ++d) kept.push_back(d), covered[d] = true;
    std::vector<std::string> inputs, types, maps, arguments;
    for (size_t i = 0; i < operands.size(); ++i) {
      const auto& [input, dims] = operands[i];
      const TensorType& type = graph.type(node.inputs[input]);
      inputs.push_back(names.at(node.inputs[input]));
      types.push_back(type_text(type));
      maps.push_back(map_text(dims));
      arguments.push_back(fmt::format("%a{}: {}", i, mlir_type(type.dtype)));
    }
    // Extents that no operand has come from an empty tensor of that shape.
    if (std::find(covered.begin(), covered.end(), false) != covered.end()) {
      std::vector<size_t> missing;
      std::vector<int64_t> shape;
      for (size_t d = 0; d < axes.size(); ++d)
        if (!covered[d]) missing.push_back(d), shape.push_back(extents[d]);
      const std::string type = tensor_type(DType::kF32, shape);
      inputs.push_back(define(fmt::format("tensor.empty() : {}", type)));
      types.push_back(type);
      maps.push_back(map_text(missing));
      arguments.emplace_back("%shape: f32");
    }
    maps.push_back(map_text(kept));
    arguments.push_back(fmt::format("%acc: {}", mlir_type(dtype)));
    const std::string out_type = tensor_type(dtype, numbers(result.shape));
    std::string initial = define(fmt::format("tensor.empty() : {}", out_type));
    if (body.is_reduction()) {
      const Expr identity = combiner_identity(body.combiner, dtype);
      const std::string value =
          define(fmt::format("arith.constant {}{}", mlir_number(dtype, identity->float_value, identity->int_value),
                             dtype == DType::kBool ? "" : " : " + mlir_type(dtype)));
      initial = define(fmt::format("linalg.fill ins({} : {}) outs({} : {}) -> {}", value, mlir_type(dtype), initial,
                                   out_type, out_type));
    }
    std::vector<std::string> kinds(body.axes.size(), "\"parallel\"");
    kinds.resize(axes.size(), "\"reduction\"");
    const std::string name = fmt::format("%t{}", counter_++);
    std::string text;
    ScalarWriter writer(text,
                        {[&](const Expr& load) { return argument_of(load, false); },
                         [&](const Expr& load) {
                           const ValueId operand = node.inputs[operand_of(load->buffer)];
                           return std::pair{names.at(operand), type_text(graph.type(operand))};
                         }},
                        counter_);
    for (size_t d = 0; d < axes.size(); ++d) {
      if (!uses_var(body.value, axes[d])) continue;
      const std::string index = fmt::format("%s{}", counter_++), integer = fmt::format("%s{}", counter_++);
      text += fmt::format("      {} = linalg.index {} : index\n      {} = arith.index_cast {} : index to i64\n", index,
                          d, integer, index);
      writer.bind(axes[d], integer);
    }
    std::string value;
    if (body.is_reduction()) {
      const Var sum = make_var("acc", dtype);
      writer.bind(sum, "%acc");
      value = writer.write(combine(body.combiner, sum, body.value));
    } else {
      value = writer.write(body.value);
    }
    out_ += fmt::format(
        "    {} = linalg.generic {{indexing_maps = [{}], iterator_types = [{}]}}{} outs({} : {}) {{  // {}\n    "
        "^bb0({}):\n{}      linalg.yield {} : {}\n    }} -> {}\n",
        name, fmt::join(maps, ", "), fmt::join(kinds, ", "),
        inputs.empty() ? "" : fmt::format(" ins({} : {})", fmt::join(inputs, ", "), fmt::join(types, ", ")), initial,
        out_type, one_line(node.loc), fmt::join(arguments, ", "), text, value, mlir_type(dtype), out_type);
    return dtype == result.dtype ? name : rounded(name, dtype, result);
  }

  // A sum of 16-bit floats in f32, rounded when it is complete.
  std::string rounded(const std::string& from, DType dtype, const TensorType& to) {
    std::vector<std::string> dims, kinds(static_cast<size_t>(to.rank()), "\"parallel\"");
    for (int d = 0; d < to.rank(); ++d) dims.push_back(fmt::format("d{}", d));
    const std::string map = fmt::format("affine_map<({0}) -> ({0})>", fmt::join(dims, ", "));
    const std::string empty = define(fmt::format("tensor.empty() : {}", type_text(to)));
    const std::string wide = mlir_type(dtype), narrow = mlir_type(to.dtype);
    return define(fmt::format(
        "linalg.generic {{indexing_maps = [{0}, {0}], iterator_types = [{1}]}} ins({2} : {3}) outs({4} : {5}) {{\n    "
        "^bb0(%a: {6}, %b: {7}):\n      %r = arith.truncf %a : {6} to {7}\n      linalg.yield %r : {7}\n    }} -> {5}",
        map, fmt::join(kinds, ", "), from, tensor_type(dtype, numbers(to.shape)), empty, type_text(to), wide, narrow));
  }

  std::string out_;
  std::set<std::string> unsupported_;
  int counter_ = 0;
};

}  // namespace

std::string linalg_text(const Graph& graph) { return LinalgPrinter().run(graph); }

}  // namespace tessera::inline linalg
