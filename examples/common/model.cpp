#include "common/model.h"

#include <stdexcept>

namespace example {
namespace {

void check(tessera_status status, const tessera_error& error) {
  if (status != TESSERA_OK) throw std::runtime_error(std::string(error.id) + ": " + error.message);
}

}  // namespace

Model::Model(const std::string& path, int num_threads)
    : module_(nullptr, tessera_module_free), session_(nullptr, tessera_session_free) {
  tessera_error error{};
  tessera_module* module = nullptr;
  check(tessera_module_load(path.c_str(), nullptr, &module, &error), error);
  module_.reset(module);

  tessera_session_options options{};
  options.size = sizeof options;
  options.num_threads = num_threads;
  tessera_session* session = nullptr;
  check(tessera_session_create(module, &options, &session, &error), error);
  session_.reset(session);

  inputs_.resize(tessera_module_num_inputs(module));
  outputs_.resize(tessera_module_num_outputs(module));
  input_values_.resize(inputs_.size());
  output_values_.resize(outputs_.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    tessera_module_input(module, int32_t(i), &inputs_[i]);
    input_tensors_.push_back(bind(inputs_[i], input_values_[i]));
  }
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    tessera_module_output(module, int32_t(i), &outputs_[i]);
    output_tensors_.push_back(bind(outputs_[i], output_values_[i]));
  }
}

int Model::num_threads() const { return tessera_session_num_threads(session_.get()); }

void Model::run() {
  tessera_error error{};
  check(tessera_session_run(session_.get(), input_tensors_.data(), int32_t(input_tensors_.size()),
                            output_tensors_.data(), int32_t(output_tensors_.size()), &error),
        error);
}

std::vector<std::int64_t> Model::dims_of(const tessera_tensor_info& info) { return {info.dims, info.dims + info.rank}; }

void* Model::data_of(const tessera_tensor_info& info, Values& values, tessera_dtype wanted) {
  if (info.dtype != wanted) {
    throw std::runtime_error(std::string("'") + info.name + "' is " + tessera_dtype_name(info.dtype) + ", not " +
                             tessera_dtype_name(wanted));
  }
  return values.bytes.data();
}

tessera_tensor Model::bind(const tessera_tensor_info& info, Values& values) {
  if (info.dtype != TESSERA_F32 && info.dtype != TESSERA_I32) {
    throw std::runtime_error(std::string("'") + info.name + "' is " + tessera_dtype_name(info.dtype) +
                             "; this program handles f32 and i32 only");
  }
  values.count = 1;
  tessera_tensor tensor{};
  tensor.dtype = info.dtype;
  tensor.rank = info.rank;
  for (int32_t i = 0; i < info.rank; ++i) {
    if (info.dims[i] < 0) throw std::runtime_error(std::string("'") + info.name + "' has no fixed shape");
    tensor.dims[i] = info.dims[i];
    values.count *= std::size_t(info.dims[i]);
  }
  values.bytes.resize(values.count * 4);  // both types have four bytes
  tensor.data = values.bytes.data();
  return tensor;
}

}  // namespace example
