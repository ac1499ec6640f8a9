#include "import/tflite/read/model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "import/common/limits.h"
#include "import/tflite/read/sparse.h"
#include "support/error.h"

namespace tessera::inline tflite_import {
namespace {

constexpr const char* kExportAgain = "get the file again, or convert the model again";

[[noreturn]] void damaged(const std::string& id, const std::string& found, const std::string& legal,
                          const std::string& node = "") {
  throw UserError({id, found, node, legal, kExportAgain});
}

std::optional<DType> dtype_of(int8_t type) {
  switch (static_cast<tflite::TensorType>(type)) {
    case tflite::TensorType::FLOAT32: return DType::kF32;
    case tflite::TensorType::FLOAT16: return DType::kF16;
    case tflite::TensorType::BFLOAT16: return DType::kBF16;
    case tflite::TensorType::FLOAT64: return DType::kF64;
    case tflite::TensorType::INT8: return DType::kI8;
    case tflite::TensorType::INT16: return DType::kI16;
    case tflite::TensorType::INT32: return DType::kI32;
    case tflite::TensorType::INT64: return DType::kI64;
    case tflite::TensorType::UINT8: return DType::kU8;
    case tflite::TensorType::UINT16: return DType::kU16;
    case tflite::TensorType::UINT32: return DType::kU32;
    case tflite::TensorType::UINT64: return DType::kU64;
    case tflite::TensorType::BOOL: return DType::kBool;
    case tflite::TensorType::INT4: return DType::kI4;
    case tflite::TensorType::INT2: return DType::kI2;
    case tflite::TensorType::UINT4: return DType::kU4;
    case tflite::TensorType::FLOAT8_E4M3FN: return DType::kF8E4M3FN;
    case tflite::TensorType::FLOAT8_E5M2: return DType::kF8E5M2;
    default: return std::nullopt;
  }
}

std::string text(const flatbuffers::String* string) { return string ? string->str() : ""; }

// Whether each number is -1, where that is allowed, or the number of a tensor.
bool all_tensors(const flatbuffers::Vector<int32_t>* list, size_t count, bool may_be_absent) {
  if (!list) return true;
  return std::all_of(list->begin(), list->end(), [&](int32_t index) {
    return index < 0 ? may_be_absent && index == -1 : static_cast<size_t>(index) < count;
  });
}

}  // namespace

TfliteModel::TfliteModel(std::string_view bytes, std::shared_ptr<const void> owner, const std::string& place)
    : bytes_(bytes), owner_(std::move(owner)) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  // What is behind 2 GB are buffers, which no table describes.
  constexpr size_t kMostVerified = FLATBUFFERS_MAX_BUFFER_SIZE - 1;
  flatbuffers::Verifier verifier(data, std::min(bytes.size(), kMostVerified), 64, 1'000'000);
  if (!tflite::VerifyModelBuffer(verifier))
    damaged(
        "TSR-1101",
        fmt::format("{} is no TFLite model, or a damaged one: its tables do not fit its {} bytes", place, bytes.size()),
        "a FlatBuffer of the kind TFL3");
  root_ = tflite::GetModel(data);
  if (root_->version() != 3)
    damaged("TSR-1101", fmt::format("{} is of version {} of the format", place, root_->version()), "version 3");
  const auto* graphs = root_->subgraphs();
  if (!graphs || graphs->size() == 0) damaged("TSR-1102", fmt::format("{} has no graph", place), "one or more");
  for (const tflite::SubGraph* graph : *graphs) check_numbers(*graph);
}

void TfliteModel::check_numbers(const tflite::SubGraph& graph) const {
  const size_t tensors = graph.tensors() ? graph.tensors()->size() : 0;
  const size_t codes = root_->operator_codes() ? root_->operator_codes()->size() : 0;
  const std::string name = text(graph.name());
  const size_t buffers = root_->buffers() ? root_->buffers()->size() : 0;
  if (graph.tensors())
    for (const tflite::Tensor* tensor : *graph.tensors())
      if (tensor->buffer() != 0 && tensor->buffer() >= buffers)
        damaged("TSR-1102",
                fmt::format("tensor '{}' has buffer {}, which the model does not have", text(tensor->name()),
                            tensor->buffer()),
                fmt::format("numbers below {}", buffers));
  if (!all_tensors(graph.inputs(), tensors, false) || !all_tensors(graph.outputs(), tensors, false))
    damaged("TSR-1102", fmt::format("the inputs or outputs of the graph '{}' are tensors that it does not have", name),
            fmt::format("numbers below {}", tensors));
  if (!graph.operators()) return;
  size_t number = 0;
  for (const tflite::Operator* node : *graph.operators()) {
    if (node->opcode_index() >= codes)
      damaged("TSR-1102",
              fmt::format("operator {} of the graph '{}' is of kind {}, which the model does not have", number, name,
                          node->opcode_index()),
              fmt::format("numbers below {}", codes));
    if (!all_tensors(node->inputs(), tensors, true) || !all_tensors(node->outputs(), tensors, false) ||
        !all_tensors(node->intermediates(), tensors, true))
      damaged("TSR-1102",
              fmt::format("operator {} of the graph '{}' ({}) has a tensor that the graph does not have", number, name,
                          name_of(*node)),
              fmt::format("numbers below {}", tensors));
    ++number;
  }
}

const tflite::SubGraph& TfliteModel::subgraph(int32_t index) const {
  if (index < 0 || index >= num_subgraphs())
    damaged("TSR-1102", fmt::format("an operator runs graph {}, which the model does not have", index),
            fmt::format("numbers below {}", num_subgraphs()));
  return *root_->subgraphs()->Get(static_cast<uint32_t>(index));
}

tflite::BuiltinOperator TfliteModel::code(const tflite::Operator& node) const {
  const tflite::OperatorCode& code = *root_->operator_codes()->Get(node.opcode_index());
  // The older field has one byte; numbers that do not fit are in the newer one, and 127 in the older.
  return static_cast<tflite::BuiltinOperator>(std::max<int32_t>(code.builtin_code(), code.deprecated_builtin_code()));
}

std::string TfliteModel::name_of(const tflite::Operator& node) const {
  const tflite::BuiltinOperator kind = code(node);
  if (kind == tflite::BuiltinOperator::CUSTOM) {
    const std::string name = text(root_->operator_codes()->Get(node.opcode_index())->custom_code());
    return name.empty() ? "CUSTOM" : name;
  }
  const char* name = tflite::EnumNameBuiltinOperator(kind);
  return *name ? name : fmt::format("operator {}", static_cast<int32_t>(kind));
}

TfliteTensor TfliteModel::tensor(const tflite::SubGraph& graph, int32_t index) const {
  const tflite::Tensor& proto = *graph.tensors()->Get(static_cast<uint32_t>(index));
  TfliteTensor result;
  result.name = text(proto.name());
  if (result.name.empty()) result.name = fmt::format("tensor_{}", index);
  result.is_variable = proto.is_variable();
  result.is_string = proto.type() == static_cast<int8_t>(tflite::TensorType::STRING);
  const auto dtype = dtype_of(proto.type());
  result.is_resource = proto.type() == static_cast<int8_t>(tflite::TensorType::RESOURCE);
  result.is_complex = proto.type() == static_cast<int8_t>(tflite::TensorType::COMPLEX64);
  if (!dtype && !result.is_string && !result.is_resource && !result.is_complex) {
    const char* name = tflite::EnumNameTensorType(static_cast<tflite::TensorType>(proto.type()));
    throw UserError(
        {"TSR-1031",
         fmt::format("tensor '{}' is of the type {}", result.name, *name ? name : std::to_string(proto.type())), "",
         "floats, integers or bools", "convert the model without this type"});
  }
  result.dtype = dtype.value_or(result.is_complex ? DType::kF32 : DType::kString);
  if (proto.shape()) result.dims.assign(proto.shape()->begin(), proto.shape()->end());
  const auto* signature = proto.shape_signature();
  if (signature && signature->size() == result.dims.size())
    for (size_t d = 0; d < result.dims.size(); ++d)
      if (signature->Get(static_cast<uint32_t>(d)) == -1) {
        result.open.resize(result.dims.size());
        result.open[d] = true;
      }
  // Before shapes had signatures, an open extent was written as -1 itself.
  for (size_t d = 0; d < result.dims.size(); ++d)
    if (result.dims[d] == -1) {
      result.open.resize(result.dims.size());
      result.open[d] = true;
      result.dims[d] = 1;
    }
  if (!checked_num_elements(result.dims) || result.dims.size() > kMostDims)
    damaged("TSR-1103", fmt::format("tensor '{}' has the shape [{}]", result.name, fmt::join(result.dims, ",")),
            "dimensions of at least 0, and at most 2^40 elements");
  if (const tflite::QuantizationParameters* quantization = proto.quantization()) {
    TfliteQuantization& to = result.quantization;
    if (quantization->scale()) to.scales.assign(quantization->scale()->begin(), quantization->scale()->end());
    if (const auto* zeros = quantization->zero_point()) {
      // The verifier lets numbers of 8 bytes stand at any multiple of 4.
      to.zero_points.resize(zeros->size());
      if (zeros->size() > 0) std::memcpy(to.zero_points.data(), zeros->Data(), zeros->size() * sizeof(int64_t));
    }
    to.axis = quantization->quantized_dimension();
    to.is_blockwise = quantization->details_type() == tflite::QuantizationDetails::BlockwiseQuantization ||
                      quantization->details_type() == tflite::QuantizationDetails::MultiAxisQuantization;
    if (to.scales.empty()) to.zero_points.clear();
    if (to.zero_points.empty()) to.zero_points.assign(to.scales.size(), 0);
    if (to.zero_points.size() == 1 && to.scales.size() > 1) to.zero_points.resize(to.scales.size(), to.zero_points[0]);
    const auto extent = to.axis >= 0 && static_cast<size_t>(to.axis) < result.dims.size()
                            ? result.dims[static_cast<size_t>(to.axis)]
                            : int64_t{-1};
    const bool fits = to.scales.size() == to.zero_points.size() &&
                      (to.scales.size() <= 1 || static_cast<int64_t>(to.scales.size()) == extent);
    if (!fits)
      damaged("TSR-1103",
              fmt::format("tensor '{}' of shape [{}] has {} scales and {} zero points along dimension {}", result.name,
                          fmt::join(result.dims, ","), to.scales.size(), to.zero_points.size(), to.axis),
              "one of each, or one for each entry of the dimension");
    for (const float scale : to.scales)
      if (!std::isfinite(scale) || scale < 0)
        damaged("TSR-1103", fmt::format("tensor '{}' has the scale {}", result.name, scale), "finite scales above 0");
  }
  return result;
}

std::string_view TfliteModel::buffer(uint32_t index) const {
  if (index == 0) return {};
  const tflite::Buffer& buffer = *root_->buffers()->Get(index);
  // In files of more than 2 GB, bytes lie behind the tables. Offsets of 0 and 1 stand for none.
  if (buffer.offset() > 1) {
    if (buffer.offset() > bytes_.size() || buffer.size() > bytes_.size() - buffer.offset())
      damaged("TSR-1030",
              fmt::format("buffer {} is {} bytes from {} on of a file of {}", index, buffer.size(), buffer.offset(),
                          bytes_.size()),
              "bytes within the file");
    return bytes_.substr(buffer.offset(), buffer.size());
  }
  if (!buffer.data()) return {};
  return {reinterpret_cast<const char*>(buffer.data()->data()), buffer.data()->size()};
}

std::optional<Tensor> TfliteModel::data(const tflite::SubGraph& graph, int32_t index,
                                        const TfliteTensor& tensor) const {
  const tflite::Tensor& proto = *graph.tensors()->Get(static_cast<uint32_t>(index));
  const std::string_view stored = buffer(proto.buffer());
  if (stored.empty()) return std::nullopt;
  if (tensor.is_string)
    throw UserError({"TSR-1031", fmt::format("tensor '{}' has strings", tensor.name), "", "floats, integers or bools",
                     "convert the model without strings"});
  if (tensor.is_complex)
    throw UserError({"TSR-1031", fmt::format("tensor '{}' has complex numbers", tensor.name), "",
                     "floats, integers or bools", "convert the model without them"});
  if (proto.sparsity()) return dense_of_sparse(proto, tensor, stored);
  const int64_t wanted = dtype_bytes(tensor.dtype, *checked_num_elements(tensor.dims));
  if (static_cast<int64_t>(stored.size()) != wanted)
    damaged("TSR-1030",
            fmt::format("tensor '{}', {}[{}], has {} bytes", tensor.name, dtype_name(tensor.dtype),
                        fmt::join(tensor.dims, ","), stored.size()),
            fmt::format("{} bytes", wanted));
  if (tensor.dtype == DType::kBool &&
      std::any_of(stored.begin(), stored.end(), [](char c) { return c != 0 && c != 1; }))
    damaged("TSR-1030", fmt::format("tensor '{}' has bools that are neither 0 nor 1", tensor.name), "0 and 1");
  const size_t element = static_cast<size_t>(std::max(dtype_bits(tensor.dtype) / 8, 1));
  if (reinterpret_cast<uintptr_t>(stored.data()) % element == 0)
    return Tensor(tensor.dtype, tensor.dims, owner_, stored.data());
  Tensor copy(tensor.dtype, tensor.dims);
  std::memcpy(copy.mutable_bytes(), stored.data(), stored.size());
  return copy;
}

std::optional<Tensor> TfliteModel::dense_of_sparse(const tflite::Tensor& proto, const TfliteTensor& tensor,
                                                   std::string_view stored) const {
  constexpr int64_t kMost = int64_t{1} << 28;
  const int bits = dtype_bits(tensor.dtype);
  const int64_t elements = *checked_num_elements(tensor.dims);
  if (bits % 8 != 0 || tensor.dtype == DType::kBool || elements > kMost)
    throw UserError({"TSR-1031",
                     fmt::format("tensor '{}', {}[{}], is sparse", tensor.name, dtype_name(tensor.dtype),
                                 fmt::join(tensor.dims, ",")),
                     "", fmt::format("numbers of whole bytes, at most {}", kMost),
                     "convert the model with dense weights"});
  const auto width = static_cast<size_t>(bits / 8);
  const auto places = sparse_places(*proto.sparsity(), tensor.dims, static_cast<int64_t>(stored.size() / width));
  if (!places || stored.size() % width != 0)
    damaged("TSR-1103",
            fmt::format("what tensor '{}' says of its {} bytes of elements that are not zero does not fit them",
                        tensor.name, stored.size()),
            "a place for each element");
  Tensor dense(tensor.dtype, tensor.dims);
  std::memset(dense.mutable_bytes(), 0, static_cast<size_t>(elements) * width);
  for (size_t i = 0; i < places->size(); ++i)
    std::memcpy(dense.mutable_bytes() + static_cast<size_t>((*places)[i]) * width, stored.data() + i * width, width);
  return dense;
}

}  // namespace tessera::inline tflite_import
