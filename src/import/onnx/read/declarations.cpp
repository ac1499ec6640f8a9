#include "import/onnx/read/declarations.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <set>

#include "import/onnx/read/dtypes.h"
#include "onnx-ml.pb.h"

namespace tessera::inline onnx_import {

namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// The fields of one message, one after the other: `visit` gets the number and the contents of those that have a length,
// all others are skipped. False when the bytes are no message.
template <typename Visit>
bool for_each_field(std::string_view message, const Visit& visit) {
  CodedInputStream stream(reinterpret_cast<const uint8_t*>(message.data()), static_cast<int>(message.size()));
  while (const uint32_t tag = stream.ReadTag()) {
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&stream, tag)) return false;
      continue;
    }
    uint32_t length = 0;
    if (!stream.ReadVarint32(&length) || length > INT32_MAX) return false;
    const auto at = static_cast<size_t>(stream.CurrentPosition());
    if (!stream.Skip(static_cast<int>(length))) return false;
    if (!visit(WireFormatLite::GetTagFieldNumber(tag), message.substr(at, length))) return false;
  }
  return stream.ConsumedEntireMessage();
}

DeclaredDim read_dim(const onnx::TensorShapeProto::Dimension& dim) {
  if (dim.has_dim_value()) return {std::max<int64_t>(dim.dim_value(), -1), ""};
  const std::string& name = dim.dim_param();
  return {-1, name == "?" || name == "-1" ? "" : name};
}

DeclaredTensor read_tensor(const onnx::ValueInfoProto& info) {
  DeclaredTensor tensor{info.name(), std::nullopt, false, {}};
  if (!info.type().has_tensor_type()) return tensor;
  tensor.dtype = dtype_of_onnx(info.type().tensor_type().elem_type());
  tensor.has_rank = info.type().tensor_type().has_shape();
  for (const auto& dim : info.type().tensor_type().shape().dim()) tensor.dims.push_back(read_dim(dim));
  return tensor;
}

bool read_initializer(std::string_view bytes, std::set<std::string>& names, std::set<std::string>& files) {
  constexpr int kName = 8, kExternalData = 13, kKey = 1, kValue = 2;
  return for_each_field(bytes, [&](int number, std::string_view field) {
    if (number == kName) names.emplace(field);
    if (number != kExternalData) return true;
    std::string_view key, value;
    const bool sound = for_each_field(field, [&](int part, std::string_view text) {
      if (part == kKey) key = text;
      if (part == kValue) value = text;
      return true;
    });
    if (key == "location") files.emplace(value);
    return sound;
  });
}

}  // namespace

std::string DeclaredTensor::dim_name(size_t axis) const {
  return dims.at(axis).name.empty() ? fmt::format("{}[{}]", name, axis) : dims[axis].name;
}

std::string DeclaredTensor::type_text() const {
  std::string text;
  for (const DeclaredDim& dim : dims)
    text += (text.empty() ? "" : ",") + (dim.value >= 0     ? std::to_string(dim.value)
                                         : dim.name.empty() ? std::string("?")
                                                            : dim.name);
  return fmt::format("{}[{}]", dtype ? dtype_name(*dtype) : "?", has_rank ? text : "...");
}

std::optional<ModelDeclarations> read_declarations(std::string_view bytes) {
  constexpr int kGraph = 7, kInitializer = 5, kInput = 11, kOutput = 12, kSparseInitializer = 15, kValues = 1;
  if (bytes.empty() || bytes.size() > INT32_MAX) return std::nullopt;
  ModelDeclarations result;
  std::set<std::string> defined, files;
  bool has_graph = false;
  const auto read_graph = [&](int number, std::string_view field) {
    if (number == kInitializer) return read_initializer(field, defined, files);
    if (number == kSparseInitializer)
      return for_each_field(field, [&](int part, std::string_view tensor) {
        return part != kValues || read_initializer(tensor, defined, files);
      });
    if (number != kInput && number != kOutput) return true;
    onnx::ValueInfoProto info;
    if (!info.ParseFromArray(field.data(), static_cast<int>(field.size()))) return false;
    (number == kInput ? result.inputs : result.outputs).push_back(read_tensor(info));
    return true;
  };
  const bool sound = for_each_field(bytes, [&](int number, std::string_view field) {
    has_graph = has_graph || number == kGraph;
    return number != kGraph || for_each_field(field, read_graph);
  });
  if (!sound || !has_graph) return std::nullopt;
  std::erase_if(result.inputs, [&](const DeclaredTensor& input) { return defined.count(input.name) != 0; });
  result.external_files.assign(files.begin(), files.end());
  return result;
}

}  // namespace tessera::inline onnx_import
