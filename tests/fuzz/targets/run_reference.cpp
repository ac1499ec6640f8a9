#include "run_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "import/onnx/onnx_import.h"
#include "interp/flow_interp.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"

namespace tessera::fuzz {
namespace {

double tolerance_of(DType dtype) {
  switch (dtype_bits(dtype)) {
    case 64:
    case 32: return 1e-3;
    case 16: return dtype == DType::kBF16 ? 0.04 : 5e-3;
    default: return 0.3;
  }
}

std::string tensor_difference(const Tensor& wanted, const Tensor& found) {
  if (wanted.dtype() != found.dtype() || wanted.dims() != found.dims()) {
    return fmt::format("{}[{}] instead of {}[{}]", dtype_name(found.dtype()), fmt::join(found.dims(), ","),
                       dtype_name(wanted.dtype()), fmt::join(wanted.dims(), ","));
  }
  if (wanted.dtype() == DType::kString) return wanted.strings() == found.strings() ? "" : "other strings";
  double largest = 1;
  if (is_float(wanted.dtype())) {
    for (int64_t i = 0; i < wanted.num_elements(); ++i) {
      const double value = std::abs(wanted.get_double(i));
      if (std::isfinite(value)) largest = std::max(largest, value);
    }
  }
  for (int64_t i = 0; i < wanted.num_elements(); ++i) {
    if (!is_float(wanted.dtype())) {
      if (wanted.get_int(i) == found.get_int(i)) continue;
      return fmt::format("element {} is {} instead of {}", i, found.get_int(i), wanted.get_int(i));
    }
    const double a = wanted.get_double(i), b = found.get_double(i);
    if ((std::isnan(a) && std::isnan(b)) || a == b) continue;
    if (std::abs(a - b) <= tolerance_of(wanted.dtype()) * largest) continue;
    return fmt::format("element {} is {} instead of {}", i, b, a);
  }
  return "";
}

std::string value_difference(const RunValue& wanted, const RunValue& found) {
  if (wanted.kind != found.kind || wanted.items.size() != found.items.size()) return "another kind or number of items";
  if (wanted.is_tensor()) return tensor_difference(wanted.tensor, found.tensor);
  for (size_t i = 0; i < wanted.items.size(); ++i) {
    if (const std::string text = value_difference(wanted.items[i], found.items[i]); !text.empty()) {
      return fmt::format("item {}: {}", i, text);
    }
  }
  return "";
}

}  // namespace

std::unique_ptr<Reference> Reference::of_model(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  require(file.good() && !bytes.empty(), "cannot read " + path);
  for (const char* drawn : {"Random", "Bernoulli", "Multinomial", "Dropout"}) {
    if (bytes.find(drawn) != std::string::npos) return nullptr;
  }
  GraphInterpreter evaluator;
  auto reference = std::make_unique<Reference>();
  reference->model_ = imported(read_onnx_model_bytes(bytes, {}, standard_ops(), evaluator));
  return reference;
}

Reference::Answer Reference::run(const std::vector<RunValue>& inputs) const {
  try {
    if (model_.flow) return {"", run_flow(*model_.flow, inputs)};
    std::vector<Tensor> tensors;
    for (const RunValue& input : inputs) tensors.push_back(input.tensor);
    const Graph& graph = model_.graph;
    std::vector<Tensor> all = GraphInterpreter().evaluate(graph, tensors);
    const size_t own = graph.first_check();
    for (size_t i = 0; i < graph.checks.size(); ++i) require_check(graph.checks[i], all[own + i]);
    return {"", {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(own)}};
  } catch (const UserError& error) {
    return {error.diagnostic().id, {}};
  } catch (const std::exception& error) {
    report(std::string("the interpreter: ") + error.what());
  }
}

bool Reference::convolves_by_inputs() const {
  const Graph& graph = model_.graph;
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
    if (node.attrs.get_or<std::string>("name", node.op->name).find("conv") == std::string::npos || node.inputs.size() < 2) return false;
    const Node* weights = graph.producer(node.inputs[1]);
    return !weights || weights->op->name != "constant";
  });
}

std::string Reference::difference(const std::vector<RunValue>& wanted, const std::vector<RunValue>& found) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (const std::string text = value_difference(wanted[i], found[i]); !text.empty()) {
      return fmt::format("output {}: {}", i, text);
    }
  }
  return "";
}

}  // namespace tessera::fuzz
