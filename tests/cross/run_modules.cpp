// Runs modules through the C API, for a machine that may be another than the one that compiled them (qemu-user).
//
//   run_modules LIST
//
// Each line of LIST: MODULE THREADS INPUT... -- OUTPUT...   with raw files of the tensors' bytes in the module's order.
// Prints "ok" or the error, a line each. Exit code 0 when the list could be read.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tessera/tessera.h"

namespace {

size_t bytes_of(const tessera_tensor& tensor) {
  size_t count = 1;
  for (int32_t i = 0; i < tensor.rank; ++i) count *= static_cast<size_t>(tensor.dims[i]);
  return (count * static_cast<size_t>(tessera_dtype_bits(tensor.dtype)) + 7) / 8;
}

tessera_tensor tensor_of(const tessera_tensor_info& info) {
  tessera_tensor tensor = {};
  tensor.dtype = info.dtype;
  tensor.rank = info.rank;
  for (int32_t i = 0; i < info.rank; ++i) tensor.dims[i] = info.dims[i];
  return tensor;
}

// Memory aligned as the runtime wants it.
std::vector<std::vector<std::max_align_t>> memory;

void* room_for(size_t bytes) {
  memory.emplace_back(bytes / sizeof(std::max_align_t) + 1);
  return memory.back().data();
}

std::string run(const std::string& path, int threads, const std::vector<std::string>& inputs,
                const std::vector<std::string>& outputs) {
  tessera_error error = {};
  tessera_module* module = nullptr;
  if (tessera_module_load(path.c_str(), nullptr, &module, &error) != TESSERA_OK) return error.message;
  if (tessera_module_num_inputs(module) != static_cast<int32_t>(inputs.size()) ||
      tessera_module_num_outputs(module) != static_cast<int32_t>(outputs.size()))
    return "the module has another number of inputs or outputs";
  tessera_session_options options = {sizeof(tessera_session_options), threads};
  tessera_session* session = nullptr;
  if (tessera_session_create(module, &options, &session, &error) != TESSERA_OK) return error.message;
  std::vector<tessera_tensor> from, to;
  for (size_t i = 0; i < inputs.size(); ++i) {
    tessera_tensor_info info;
    tessera_module_input(module, static_cast<int32_t>(i), &info);
    from.push_back(tensor_of(info));
    std::ifstream file(inputs[i], std::ios::binary);
    const std::string data((std::istreambuf_iterator<char>(file)), {});
    if (data.size() != bytes_of(from.back())) return inputs[i] + " has another size than the input";
    from.back().data = room_for(data.size());
    data.copy(static_cast<char*>(from.back().data), data.size());
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    tessera_tensor_info info;
    tessera_module_output(module, static_cast<int32_t>(i), &info);
    to.push_back(tensor_of(info));
    to.back().data = room_for(bytes_of(to.back()));
  }
  if (tessera_session_run(session, from.data(), static_cast<int32_t>(from.size()), to.data(),
                          static_cast<int32_t>(to.size()), &error) != TESSERA_OK)
    return error.message;
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::ofstream file(outputs[i], std::ios::binary);
    file.write(static_cast<const char*>(to[i].data), static_cast<std::streamsize>(bytes_of(to[i])));
  }
  tessera_session_free(session);
  tessera_module_free(module);
  return "ok";
}

}  // namespace

int main(int argc, char** argv) {
  std::ifstream list(argc == 2 ? argv[1] : "");
  if (!list) {
    std::cerr << "usage: run_modules LIST\n";
    return 1;
  }
  for (std::string line; std::getline(list, line);) {
    std::istringstream words(line);
    std::string path, word;
    int threads = 1;
    words >> path >> threads;
    std::vector<std::string> inputs, outputs;
    std::vector<std::string>* into = &inputs;
    while (words >> word) {
      if (word == "--") into = &outputs;
      else into->push_back(word);
    }
    std::cout << run(path, threads, inputs, outputs) << std::endl;
    memory.clear();
  }
  return 0;
}
