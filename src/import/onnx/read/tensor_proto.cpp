#include "import/onnx/read/tensor_proto.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "import/onnx/read/tensor_reader.h"
#include "onnx-data.pb.h"
#include "onnx-ml.pb.h"
#include "support/error.h"
#include "support/mapped_file.h"

namespace tessera::inline onnx_import {

namespace {

template <typename Proto>
std::shared_ptr<Proto> parse(const std::string& path, const char* what) {
  const auto file = MappedFile::open(path, "tensor file", "TSR-6001");
  auto proto = std::make_shared<Proto>();
  if (file->size() > INT32_MAX || !proto->ParseFromArray(file->data(), static_cast<int>(file->size())))
    throw UserError({"TSR-6002", fmt::format("'{}' is not a serialised ONNX {}", path, what), "",
                     "a file with one protobuf message of less than 2 GB", "write the value with onnx.numpy_helper"});
  return proto;
}

[[noreturn]] void fail_kind(const std::string& path, const std::string& found, const FlowType& type) {
  throw UserError({"TSR-6005", fmt::format("'{}' holds {}", path, found), "", type.to_string(),
                   "write the value with onnx.numpy_helper, which knows sequences and optionals"});
}

// Reads values of one file, whose tensors borrow from `owner`.
struct ValueReader {
  std::string path;
  std::shared_ptr<const void> owner;
  ExternalData external{""};  // a tensor of an external file would need the model's folder

  Tensor tensor(const onnx::TensorProto& proto) { return tensor_from_proto(proto, owner, external, path); }

  RunValue map(const onnx::MapProto& proto) {
    const int count = proto.keys_size() + proto.string_keys_size();
    Tensor keys;
    if (proto.key_type() == onnx::TensorProto::STRING) {
      keys = Tensor::of_strings({proto.string_keys().begin(), proto.string_keys().end()}, {proto.string_keys_size()});
    } else {
      keys = Tensor(DType::kI64, {proto.keys_size()});
      for (int i = 0; i < proto.keys_size(); ++i) keys.set_int(i, proto.keys(i));
    }
    // Each value is a tensor of one number, or all of them are one tensor.
    std::vector<Tensor> parts;
    for (const auto& value : proto.values().tensor_values()) parts.push_back(tensor(value));
    if (parts.size() == 1 && count != 1) return {ValueKind::kMap, {keys, parts[0]}};
    Tensor values(parts.empty() ? DType::kF32 : parts[0].dtype(), {std::ssize(parts)});
    std::vector<std::string> texts;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].num_elements() != 1) fail_kind(path, "a map to tensors", {{ValueKind::kMap}});
      if (values.dtype() == DType::kString) texts.push_back(parts[i].strings()[0]);
      else if (is_float(values.dtype())) values.set_double(static_cast<int64_t>(i), parts[i].get_double(0));
      else values.set_int(static_cast<int64_t>(i), parts[i].get_int(0));
    }
    if (values.dtype() == DType::kString) values = Tensor::of_strings(std::move(texts), {std::ssize(parts)});
    return {ValueKind::kMap, {keys, values}};
  }

  RunValue sequence(const onnx::SequenceProto& proto, const FlowType& type) {
    std::vector<RunValue> items;
    switch (proto.elem_type()) {
      case onnx::SequenceProto::UNDEFINED:
      case onnx::SequenceProto::TENSOR:
        for (const auto& item : proto.tensor_values()) items.push_back(tensor(item));
        break;
      case onnx::SequenceProto::MAP:
        for (const auto& item : proto.map_values()) items.push_back(map(item));
        break;
      default: fail_kind(path, "a sequence of neither tensors nor maps", type);
    }
    return {ValueKind::kSequence, std::move(items)};
  }

  RunValue optional(const onnx::OptionalProto& proto, const FlowType& type) {
    std::vector<RunValue> items;
    if (proto.has_tensor_value()) items.push_back(tensor(proto.tensor_value()));
    else if (proto.has_sequence_value()) items.push_back(sequence(proto.sequence_value(), type));
    else if (proto.has_map_value()) items.push_back(map(proto.map_value()));
    return {ValueKind::kOptional, std::move(items)};
  }
};

void to_proto(const RunValue& value, onnx::MapProto& proto) {
  const Tensor &keys = value.items[0].tensor, &values = value.items[1].tensor;
  const bool strings = keys.dtype() == DType::kString;
  proto.set_key_type(strings ? onnx::TensorProto::STRING : onnx::TensorProto::INT64);
  for (const std::string& key : keys.strings()) proto.add_string_keys(key);
  for (int64_t i = 0; !strings && i < keys.num_elements(); ++i) proto.add_keys(keys.get_int(i));
  proto.mutable_values()->set_elem_type(onnx::SequenceProto::TENSOR);
  for (int64_t i = 0; i < values.num_elements(); ++i) {
    Tensor one(values.dtype(), {});
    if (values.dtype() == DType::kString) one = Tensor::of_strings({values.strings()[static_cast<size_t>(i)]}, {});
    else if (is_float(values.dtype())) one.set_double(0, values.get_double(i));
    else one.set_int(0, values.get_int(i));
    tensor_to_proto(one, *proto.mutable_values()->add_tensor_values());
  }
}

void to_proto(const RunValue& value, onnx::SequenceProto& proto) {
  proto.set_elem_type(onnx::SequenceProto::TENSOR);
  for (const RunValue& item : value.items) {
    if (item.is_tensor()) {
      tensor_to_proto(item.tensor, *proto.add_tensor_values());
    } else {
      proto.set_elem_type(onnx::SequenceProto::MAP);
      to_proto(item, *proto.add_map_values());
    }
  }
}

template <typename Proto>
void write(const std::string& path, Proto& proto, const std::string& name) {
  if (!name.empty()) proto.set_name(name);
  std::ofstream file(path, std::ios::binary);
  if (!file || !proto.SerializeToOstream(&file) || !file.flush())
    throw UserError({"TSR-6004", fmt::format("cannot write '{}': {}", path, std::strerror(errno)), "",
                     "a writable path", "check the folder, its permissions and the free space"});
}

}  // namespace

RunValue read_value_proto_file(const std::string& path, const FlowType& type, std::string* name) {
  const auto reader = [&](const auto& proto) {
    if (name) *name = proto->name();
    return ValueReader{path, proto};
  };
  if (type.is_tensor()) return read_tensor_proto_file(path, name);
  switch (type.wrappers[0]) {
    case ValueKind::kSequence: {
      const auto proto = parse<onnx::SequenceProto>(path, "sequence");
      return reader(proto).sequence(*proto, type);
    }
    case ValueKind::kOptional: {
      const auto proto = parse<onnx::OptionalProto>(path, "optional");
      return reader(proto).optional(*proto, type);
    }
    default: {
      const auto proto = parse<onnx::MapProto>(path, "map");
      return reader(proto).map(*proto);
    }
  }
}

void write_value_proto_file(const std::string& path, const RunValue& value, const std::string& name) {
  if (value.is_tensor()) return write_tensor_proto_file(path, value.tensor, name);
  if (value.kind == ValueKind::kSequence) {
    onnx::SequenceProto proto;
    to_proto(value, proto);
    return write(path, proto, name);
  }
  if (value.kind == ValueKind::kMap) {
    onnx::MapProto proto;
    to_proto(value, proto);
    return write(path, proto, name);
  }
  onnx::OptionalProto proto;
  proto.set_elem_type(onnx::OptionalProto::UNDEFINED);
  if (!value.items.empty() && value.items[0].is_tensor()) {
    proto.set_elem_type(onnx::OptionalProto::TENSOR);
    tensor_to_proto(value.items[0].tensor, *proto.mutable_tensor_value());
  } else if (!value.items.empty()) {
    proto.set_elem_type(onnx::OptionalProto::SEQUENCE);
    to_proto(value.items[0], *proto.mutable_sequence_value());
  }
  write(path, proto, name);
}

Tensor read_tensor_proto_file(const std::string& path, std::string* name) {
  const auto proto = parse<onnx::TensorProto>(path, "tensor");
  if (name) *name = proto->name();
  // A tensor of an external file would need the model's folder; test-case folders have none.
  ExternalData external("");
  return tensor_from_proto(*proto, proto, external, path);
}

void write_tensor_proto_file(const std::string& path, const Tensor& tensor, const std::string& name) {
  onnx::TensorProto proto;
  if (!name.empty()) proto.set_name(name);
  if (tensor.num_bytes() > INT32_MAX - 65536)
    throw UserError({"TSR-6003", fmt::format("a tensor of {} bytes does not fit a protobuf file", tensor.num_bytes()),
                     path, "less than 2 GB", "write it as .npy"});
  tensor_to_proto(tensor, proto);
  std::ofstream file(path, std::ios::binary);
  if (!file || !proto.SerializeToOstream(&file) || !file.flush())
    throw UserError({"TSR-6004", fmt::format("cannot write '{}': {}", path, std::strerror(errno)), "",
                     "a writable path", "check the folder, its permissions and the free space"});
}

}  // namespace tessera::inline onnx_import
