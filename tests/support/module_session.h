// A module in memory, loaded, with a session: what tests of generated code run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "support/error.h"
#include "tessera/tessera.h"
#include "types/tensor.h"

namespace tessera {

class ModuleSession {
 public:
  // Throws InternalError with the runtime's message.
  explicit ModuleSession(const std::vector<std::byte>& bytes) {
    tessera_error error = {};
    if (tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module_, &error) == TESSERA_OK &&
        tessera_session_create(module_, nullptr, &session_, &error) == TESSERA_OK)
      return;
    tessera_module_free(module_);
    throw InternalError(std::string(error.id) + ": " + error.message);
  }
  ~ModuleSession() {
    tessera_session_free(session_);
    tessera_module_free(module_);
  }
  ModuleSession(const ModuleSession&) = delete;
  ModuleSession& operator=(const ModuleSession&) = delete;

  // Into `outputs`, which have the shapes that are expected. "ID: message" of the error, if any.
  std::string run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
    std::vector<tessera_tensor> in, out;
    for (const Tensor& tensor : inputs) in.push_back(described(tensor, const_cast<std::byte*>(tensor.bytes())));
    for (Tensor& tensor : outputs) out.push_back(described(tensor, tensor.mutable_bytes()));
    tessera_error error = {};
    const tessera_status status = tessera_session_run(session_, in.data(), static_cast<int32_t>(in.size()), out.data(),
                                                      static_cast<int32_t>(out.size()), &error);
    return status == TESSERA_OK ? "" : std::string(error.id) + ": " + error.message;
  }

 protected:
  static tessera_tensor described(const Tensor& tensor, std::byte* data) {
    tessera_tensor result = {};
    result.data = data;
    result.dtype = static_cast<tessera_dtype>(tensor.dtype());
    result.rank = static_cast<int32_t>(tensor.dims().size());
    std::copy(tensor.dims().begin(), tensor.dims().end(), result.dims);
    return result;
  }

  tessera_module* module_ = nullptr;
  tessera_session* session_ = nullptr;
};

}  // namespace tessera
