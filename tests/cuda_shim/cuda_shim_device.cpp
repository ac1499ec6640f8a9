// A device of the kind `cuda` without a GPU: libtessera_cuda.so.0 of tests. It compiles a module's CUDA C++ with this
// machine's compiler and shim.h, and runs it where it is told to. Plain as can be; for what a device has to do see
// src/runtime/null and src/runtime/opencl.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "abi/device_abi.h"

namespace {

using Launch = bool (*)(void* const* pointers, size_t num_pointers, const int64_t* sizes);

struct Operation {
  std::vector<Launch> launches;
};

struct Image {
  void* library = nullptr;
  std::map<std::string, Operation> operations;
};

struct Queue {
  std::string failure;
};

int32_t open_device(void** device, char*) {
  static int only;
  *device = &only;
  return 0;
}
void close_device(void*) {}

uint8_t* allocate(void*, uint64_t bytes) {
  return static_cast<uint8_t*>(aligned_alloc(256, (bytes + 256) / 256 * 256));
}
void release(void*, uint8_t* memory) { free(memory); }

// A function without parameters of CUDA's types for each launch of the table.
std::string launcher(const std::string& kernel, const unsigned (&n)[6]) {
  std::ostringstream text;
  text << "extern \"C\" bool shim_" << kernel
       << "(void* const* p, size_t n, const int64_t* s) { return cuda_shim::call(" << kernel << ", {" << n[0] << ","
       << n[1] << "," << n[2] << "}, {" << n[3] << "," << n[4] << "," << n[5] << "}, p, n, s); }\n";
  return text.str();
}

int32_t load(void*, const void* bytes, uint64_t size, void** loaded, char* message) {
  const std::string source(static_cast<const char*>(bytes), size);
  std::vector<std::pair<std::string, std::vector<std::string>>> table;
  std::string launchers, line;
  std::istringstream lines(source);
  while (std::getline(lines, line) && line.rfind("//tsr ", 0) == 0) {
    std::istringstream words(line);
    std::string comment, what, name;
    words >> comment >> what >> name;
    if (what == "operation") table.push_back({name, {}});
    if (what != "launch") continue;
    unsigned n[6];
    for (unsigned& number : n) words >> number;
    if (n[0] * n[1] * n[2] == 0) continue;
    table.back().second.push_back(name);
    launchers += launcher(name, n);
  }
  char folder[] = "/tmp/tessera_cuda_shim_XXXXXX";
  if (!mkdtemp(folder)) return -1;
  const std::string base = folder;
  std::ofstream(base + "/kernels.cpp") << "#include \"shim.h\"\n" << source << launchers;
  const std::string command = std::string(TESSERA_CXX_COMPILER) +
                              " -std=c++20 -O2 -march=native -ffp-contract=off -w -shared "
                              "-fPIC -I " TESSERA_SHIM_FOLDER " -o " +
                              base + "/kernels.so " + base + "/kernels.cpp 2> " + base + "/errors";
  const bool compiled = system(command.c_str()) == 0;
  auto* image = new Image;
  if (compiled) image->library = dlopen((base + "/kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  std::getline(std::ifstream(base + "/errors"), line);
  if (!getenv("TESSERA_SHIM_KEEP")) (void)!system(("rm -r " + base).c_str());
  if (!image->library) {
    snprintf(message, TSR_DEVICE_MESSAGE, "%s", line.c_str());
    delete image;
    return -1;
  }
  for (const auto& [entry, kernels] : table) {
    Operation& operation = image->operations[entry];
    for (const std::string& kernel : kernels)
      operation.launches.push_back(reinterpret_cast<Launch>(dlsym(image->library, ("shim_" + kernel).c_str())));
  }
  *loaded = image;
  return 0;
}

void unload(void*, void* loaded) {
  auto* image = static_cast<Image*>(loaded);
  dlclose(image->library);
  delete image;
}

void* find(void* loaded, const char* entry) {
  auto& operations = static_cast<Image*>(loaded)->operations;
  const auto it = operations.find(entry);
  return it == operations.end() ? nullptr : &it->second;
}

int32_t open_queue(void*, uint32_t, uint64_t, void** queue, char*) {
  *queue = new Queue;
  return 0;
}
void close_queue(void* queue) { delete static_cast<Queue*>(queue); }

int32_t start(void* queue, void* operation, void* const* args, uint32_t num_args, const int64_t* sizes, uint32_t) {
  for (const Launch launch : static_cast<Operation*>(operation)->launches)
    if (!launch(args, num_args, sizes)) static_cast<Queue*>(queue)->failure = "threads of a block part at a barrier";
  return 0;
}

int32_t copy(void*, void* device_memory, void* host_memory, uint64_t bytes, int32_t to_device) {
  memcpy(to_device ? device_memory : host_memory, to_device ? host_memory : device_memory, bytes);
  return 0;
}

int32_t mark(void*, uint32_t) { return 0; }

int32_t wait(void* queue, uint32_t, char* message) {
  std::string& failure = static_cast<Queue*>(queue)->failure;
  if (failure.empty()) return 0;
  snprintf(message, TSR_DEVICE_MESSAGE, "%s", failure.c_str());
  failure.clear();
  return -1;
}

void drain(void* queue) { static_cast<Queue*>(queue)->failure.clear(); }

}  // namespace

extern "C" const tsr_device_functions tessera_device_cuda;
extern "C" const tsr_device_functions tessera_device_cuda = {sizeof(tsr_device_functions),
                                                             TSR_DEVICE_ABI_VERSION,
                                                             open_device,
                                                             close_device,
                                                             allocate,
                                                             release,
                                                             load,
                                                             unload,
                                                             find,
                                                             open_queue,
                                                             close_queue,
                                                             start,
                                                             copy,
                                                             mark,
                                                             wait,
                                                             drain};
