#include "import/onnx/read/tensor_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "import/common/refused_model.h"
#include "import/onnx/read/dtypes.h"
#include "onnx-ml.pb.h"
#include "support/error.h"
#include "support/utf8.h"

namespace tessera::inline onnx_import {
namespace {

using onnx::TensorProto;

[[noreturn]] void fail_data(const std::string& label, const std::string& found, const std::string& legal) {
  throw UserError({"TSR-1030", found, label, legal, "the file is damaged or was written by a faulty exporter"});
}

std::vector<int64_t> dims_of(const TensorProto& proto) { return {proto.dims().begin(), proto.dims().end()}; }

// Bytes to the alignment that Tensor::as<T> needs.
int64_t alignment_of(DType dtype) { return std::max(1, dtype_bits(dtype) / 8); }

// A tensor on borrowed bytes; copied when they are not aligned, or bools other than 0 and 1.
Tensor borrow(DType dtype, std::vector<int64_t> dims, std::shared_ptr<const void> owner, const void* data) {
  Tensor borrowed(dtype, dims, std::move(owner), data);
  const auto size = static_cast<size_t>(borrowed.num_bytes());
  if (size == 0) return Tensor(dtype, std::move(dims));  // an empty field has no address
  const bool aligned = reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment_of(dtype)) == 0;
  const auto* bytes = borrowed.bytes();
  const bool normal = dtype != DType::kBool ||
                      std::all_of(bytes, bytes + size, [](std::byte b) { return std::to_integer<int>(b) <= 1; });
  if (aligned && normal) return borrowed;
  Tensor copy(dtype, std::move(dims));
  std::memcpy(copy.mutable_bytes(), data, size);
  if (!normal)
    for (std::byte& b : copy.as_mutable<std::byte>()) b = std::byte{b != std::byte{0}};
  return copy;
}

// Which typed field holds elements of a type, and how many entries of it the tensor has.
struct TypedField {
  std::string_view name;
  int64_t entries;
};

TypedField typed_field(const TensorProto& proto, DType dtype) {
  switch (dtype) {
    case DType::kF32: return {"float_data", proto.float_data_size()};
    case DType::kF64: return {"double_data", proto.double_data_size()};
    case DType::kI64: return {"int64_data", proto.int64_data_size()};
    case DType::kU32:
    case DType::kU64: return {"uint64_data", proto.uint64_data_size()};
    default: return {"int32_data", proto.int32_data_size()};
  }
}

int64_t all_typed_entries(const TensorProto& proto) {
  return int64_t{proto.float_data_size()} + proto.double_data_size() + proto.int64_data_size() +
         proto.uint64_data_size() + proto.int32_data_size() + proto.string_data_size();
}

// The low bytes of each entry, one after another: elements of 8 bits and more, or packed bytes of smaller ones.
template <typename Field>
Tensor narrow(const Field& field, DType dtype, std::vector<int64_t> dims) {
  Tensor tensor(dtype, std::move(dims));
  const auto width = static_cast<size_t>(alignment_of(dtype));
  std::byte* out = tensor.mutable_bytes();
  for (const auto entry : field) {
    std::memcpy(out, &entry, width);
    if (dtype == DType::kBool) *out = std::byte{entry != 0};
    out += width;
  }
  return tensor;
}

Tensor from_typed_field(const TensorProto& proto, DType dtype, std::vector<int64_t> dims,
                        const std::shared_ptr<const void>& owner) {
  switch (dtype) {
    case DType::kF32: return borrow(dtype, std::move(dims), owner, proto.float_data().data());
    case DType::kF64: return borrow(dtype, std::move(dims), owner, proto.double_data().data());
    case DType::kI64: return borrow(dtype, std::move(dims), owner, proto.int64_data().data());
    case DType::kU64: return borrow(dtype, std::move(dims), owner, proto.uint64_data().data());
    case DType::kI32: return borrow(dtype, std::move(dims), owner, proto.int32_data().data());
    case DType::kU32: return narrow(proto.uint64_data(), dtype, std::move(dims));
    default: return narrow(proto.int32_data(), dtype, std::move(dims));
  }
}

}  // namespace

Tensor tensor_from_proto(const TensorProto& proto, const std::shared_ptr<const void>& owner, ExternalData& external,
                         const std::string& label) {
  const auto dtype = dtype_of_onnx(proto.data_type());
  if (proto.data_type() == TensorProto::UNDEFINED) fail_data(label, "the tensor has no data type", "a data type");
  if (!dtype)
    throw RefusedModel(RefusedModel::Reason::kUnsupported,
                       {"TSR-1031", fmt::format("the tensor has the data type {}", onnx_dtype_name(proto.data_type())),
                        label, "float, integer and bool tensors up to 64 bits, and strings",
                        "complex values are not supported: remove the part of the model that uses them"});
  std::vector<int64_t> dims = dims_of(proto);
  const auto count = checked_num_elements(dims);
  if (!count)
    fail_data(label, fmt::format("the tensor has the shape [{}]", fmt::join(dims, ",")),
              "dimensions of zero or more, and at most 2^40 elements");
  if (dims.size() > kMostDims)
    fail_data(label, fmt::format("the tensor has {} dimensions", dims.size()),
              fmt::format("at most {} dimensions", kMostDims));
  if (proto.has_segment()) fail_data(label, "the tensor is stored in segments", "tensors in one piece");

  if (*dtype == DType::kString) {
    if (proto.string_data_size() != *count || all_typed_entries(proto) != *count || !proto.raw_data().empty() ||
        proto.data_location() == TensorProto::EXTERNAL)
      fail_data(label, fmt::format("the tensor has {} entries of string_data", proto.string_data_size()),
                fmt::format("{} entries, and no other data", *count));
    std::vector<std::string> texts(proto.string_data().begin(), proto.string_data().end());
    for (const std::string& text : texts)
      if (!is_utf8(text)) fail_data(label, "the tensor has a string that is not UTF-8", "strings in UTF-8");
    return Tensor::of_strings(std::move(texts), std::move(dims));
  }
  const int64_t size = dtype_bytes(*dtype, *count);
  if (proto.data_location() == TensorProto::EXTERNAL) {
    const ExternalData::Bytes bytes = external.find(proto, size, label);
    return borrow(*dtype, std::move(dims), bytes.file, bytes.data);
  }
  const int64_t typed = all_typed_entries(proto);
  if (proto.has_raw_data() && (!proto.raw_data().empty() || typed == 0)) {
    if (typed) fail_data(label, "the tensor has raw_data and typed data", "one of the two");
    if (static_cast<int64_t>(proto.raw_data().size()) != size)
      fail_data(label, fmt::format("the tensor has {} bytes of raw_data", proto.raw_data().size()),
                fmt::format("{} bytes for {}[{}]", size, dtype_name(*dtype), fmt::join(dims, ",")));
    return borrow(*dtype, std::move(dims), owner, proto.raw_data().data());
  }
  const TypedField field = typed_field(proto, *dtype);
  const int64_t entries = dtype_bits(*dtype) < 8 ? size : *count;
  if (field.entries != entries || typed != field.entries)
    fail_data(
        label,
        fmt::format("the tensor has {} entries of {}{}", field.entries, field.name,
                    typed != field.entries ? " and data in fields of other types" : ""),
        fmt::format("{} entries of {} for {}[{}]", entries, field.name, dtype_name(*dtype), fmt::join(dims, ",")));
  return from_typed_field(proto, *dtype, std::move(dims), owner);
}

void tensor_to_proto(const Tensor& tensor, TensorProto& proto) {
  proto.set_data_type(onnx_of_dtype(tensor.dtype()));
  for (const int64_t dim : tensor.dims()) proto.add_dims(dim);
  if (tensor.dtype() == DType::kString) {
    for (const std::string& text : tensor.strings()) proto.add_string_data(text);
    return;
  }
  proto.set_raw_data(tensor.bytes(), static_cast<size_t>(tensor.num_bytes()));
}

}  // namespace tessera::inline onnx_import
