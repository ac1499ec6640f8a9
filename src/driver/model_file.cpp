#include "driver/model_file.h"

#include <fmt/format.h>

#include <utility>

#include "driver/graph_reader.h"
#include "driver/open_sizes.h"
#include "import/caffe/caffe_import.h"
#include "import/gguf/gguf_import.h"
#include "import/onnx_json/onnx_json.h"
#include "import/tflite/tflite_import.h"
#include "support/error.h"
#include "support/mapped_file.h"

namespace tessera::inline driver {
namespace {

ModelDeclarations border_of(const Graph& graph) {
  ModelDeclarations result;
  const auto declared = [&](ValueId id) {
    DeclaredTensor tensor{graph.value(id).name, graph.type(id).dtype, true, {}};
    for (const Expr& size : graph.type(id).shape) {
      DeclaredDim& dim = tensor.dims.emplace_back();
      if (const auto value = as_int(size)) dim.value = *value;
      else if (size->kind == ExprKind::kVar) dim.name = size->name;
    }
    return tensor;
  };
  for (size_t i = 0; i < graph.num_own_inputs(); ++i) result.inputs.push_back(declared(graph.inputs[i]));
  for (size_t i = 0; i < graph.num_own_outputs(); ++i) result.outputs.push_back(declared(graph.outputs[i]));
  return result;
}

ModelDeclarations border_of(const TfliteBorder& border) {
  ModelDeclarations result;
  const auto declared = [](const TfliteTensor& tensor) {
    DeclaredTensor to{tensor.name, tensor.dtype, true, {}};
    for (size_t d = 0; d < tensor.dims.size(); ++d)
      to.dims.push_back({d < tensor.open.size() && tensor.open[d] ? -1 : tensor.dims[d], {}});
    return to;
  };
  for (const TfliteTensor& tensor : border.inputs) result.inputs.push_back(declared(tensor));
  for (const TfliteTensor& tensor : border.outputs) result.outputs.push_back(declared(tensor));
  return result;
}

ModelDeclarations border_of(const CaffeBorder& border) {
  ModelDeclarations result;
  for (const CaffeInput& input : border.inputs) {
    result.inputs.push_back({input.name, DType::kF32, true, {}});
    for (const int64_t dim : input.dims) result.inputs.back().dims.push_back({dim, {}});
  }
  for (const std::string& name : border.outputs) result.outputs.push_back({name, DType::kF32, false, {}});
  return result;
}

}  // namespace

ModelDeclarations module_declarations(const HloModule& module) {
  const HloBorder border = border_of(module);
  ModelDeclarations result;
  const auto declared = [](const HloBorderTensor& tensor) {
    DeclaredTensor to{tensor.name, tensor.type.dtype.value_or(DType::kF32), true, {}};
    for (size_t d = 0; d < tensor.type.dims.size(); ++d) to.dims.push_back({tensor.type.dims[d], tensor.symbols[d]});
    return to;
  };
  for (const HloBorderTensor& tensor : border.inputs) result.inputs.push_back(declared(tensor));
  for (const HloBorderTensor& tensor : border.outputs) result.outputs.push_back(declared(tensor));
  return result;
}

namespace {

// The bytes as they are, and their owner.
OnnxBytes contents_of(const ModelSource& source) {
  if (!source.path) return {source.memory.bytes, nullptr};
  const auto file = MappedFile::open(*source.path, "model", "TSR-1001");
  return {file->text(), file};
}

OnnxBytes onnx_bytes(const std::string& path) {
  const auto bytes = onnx_of({path, {}});
  if (!bytes)
    throw UserError({.id = "TSR-1002",
                     .message = fmt::format("'{}' is not an ONNX model", path),
                     .node = {},
                     .legal = "an ONNX model",
                     .hint = "export it with 'tessera export'"});
  return *bytes;
}

}  // namespace

ModelDeclarations program_declarations(const AtenProgram& program) {
  ModelDeclarations result;
  const auto declared = [](const AtenBorderTensor& tensor) {
    DeclaredTensor to{tensor.name, tensor.type.dtype, true, {}};
    for (size_t d = 0; d < tensor.type.sizes.size(); ++d) {
      const AtenSize& size = tensor.type.sizes[d];
      to.dims.push_back({size.expr.empty() ? size.value : -1, tensor.size_names[d]});
    }
    return to;
  };
  const AtenBorder border = border_of(program);
  for (const AtenBorderTensor& tensor : border.inputs) result.inputs.push_back(declared(tensor));
  for (const AtenBorderTensor& tensor : border.outputs) result.outputs.push_back(declared(tensor));
  return result;
}

std::optional<OnnxBytes> onnx_of(const ModelSource& source) {
  const OnnxBytes contents = contents_of(source);
  const std::string_view beginning = contents.bytes.substr(0, kBeginning);
  if (looks_like_graph(beginning) || looks_like_tflite(beginning) || looks_like_gguf(beginning) ||
      looks_like_pt2(beginning) || looks_like_mlir(beginning) || looks_like_prototxt(beginning))
    return std::nullopt;
  if (!looks_like_onnx_json(beginning)) return contents;
  const auto binary = std::make_shared<const std::string>(onnx_of_json(contents.bytes, source.place()));
  return OnnxBytes{*binary, binary};
}

std::optional<ModelDeclarations> declarations_of(const ModelSource& source) {
  try {
    if (const auto onnx = onnx_of(source)) return read_declarations(onnx->bytes);
    const OnnxBytes bytes = contents_of(source);
    if (looks_like_tflite(bytes.bytes)) return border_of(read_tflite_border(bytes.bytes));
    if (looks_like_pt2(bytes.bytes)) return program_declarations(open_pt2(bytes.bytes, bytes.owner, source.place()));
    if (looks_like_prototxt(bytes.bytes.substr(0, kBeginning)))
      return border_of(border_of(*read_caffe_network(bytes.bytes, source.place(), {}, {})));
    if (looks_like_mlir(bytes.bytes)) return module_declarations(read_module_text(bytes.bytes, source.place()));
    if (looks_like_graph(bytes.bytes.substr(0, kBeginning)))
      return border_of(read_graph_text(bytes.bytes, source.place()));
    return border_of(graph_of_source(source));
  } catch (const UserError&) {
    return std::nullopt;
  }
}

Graph graph_of_source(const ModelSource& source) {
  const ModelReader reader = format_of(source).open(source);
  const CompileOptions sizes = reader.with_declared_sizes ? reader.with_declared_sizes({}) : CompileOptions();
  ImportOptions options;
  for (const auto& [name, bounds] : sizes.dims) options.dims[name] = {bounds.lo, bounds.hi};
  options.symbols = open_ranges(sizes);
  return graph_alone(imported(reader.read(options)));
}

OnnxStatistics statistics_of_file(const std::string& path) {
  return read_onnx_statistics(onnx_bytes(path).bytes, path);
}

EditableModel editable_model_of_file(const std::string& path) {
  return EditableModel::read(onnx_bytes(path).bytes, path);
}

}  // namespace tessera::inline driver
