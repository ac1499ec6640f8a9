#include "import/onnx/tensor_proto.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "import/onnx/tensor_reader.h"
#include "onnx-ml.pb.h"
#include "support/error.h"
#include "support/mapped_file.h"

namespace tessera {

Tensor read_tensor_proto_file(const std::string& path, std::string* name) {
  const auto file = MappedFile::open(path, "tensor file", "TSR-6001");
  const auto proto = std::make_shared<onnx::TensorProto>();
  if (file->size() > INT32_MAX || !proto->ParseFromArray(file->data(), static_cast<int>(file->size())))
    throw UserError({"TSR-6002", fmt::format("'{}' is not a serialised ONNX tensor", path), "",
                     "a file with one TensorProto of less than 2 GB", "sequences and optionals are not supported"});
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

}  // namespace tessera
