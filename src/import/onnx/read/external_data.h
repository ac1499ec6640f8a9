// Tensor bytes that an ONNX model keeps in other files. They must lie inside the model's folder: no absolute paths, no
// "..", no symbolic link that leads out. Files are mapped once and stay mapped while a tensor uses them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "support/mapped_file.h"

namespace onnx {
class TensorProto;
}

namespace tessera::inline onnx_import {

class ExternalData {
 public:
  // `folder` holds the model; empty when the model did not come from a file, so that it has no external data.
  explicit ExternalData(std::string folder) : folder_(std::move(folder)) {}

  struct Bytes {
    std::shared_ptr<const MappedFile> file;  // keeps `data` alive
    const std::byte* data = nullptr;
  };
  // The `size` bytes of `proto`, whose data_location is EXTERNAL. `label` names the tensor in errors: TSR-1032 for a
  // location outside the folder, TSR-1033 for a missing file, TSR-1034 for a range that does not fit.
  Bytes find(const onnx::TensorProto& proto, int64_t size, const std::string& label);

 private:
  std::shared_ptr<const MappedFile> open(const std::string& location, const std::string& label);

  std::string folder_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;  // by location
};

}  // namespace tessera::inline onnx_import
