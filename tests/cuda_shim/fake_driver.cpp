// A driver of CUDA and its compiler without a GPU: what src/runtime/cuda calls of libcuda and libnvrtc, on the CPU.
// NVRTC hands the source on; a module is compiled with this machine's compiler and shim.h, and a launch runs it at
// once.
//
// FAKE_CUDA_FAIL=NAME:N makes the N-th call of a function fail; FAKE_CUDA_MEMORY is how many bytes there are, and
// FAKE_CUDA_SHARED how many a block may share. FAKE_CUDA_LOG is a file to which a line is added for each launch, copy,
// capture and start of a graph.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace {

using Result = int;
constexpr Result kSuccess = 0, kOutOfMemory = 2, kInvalidSource = 300, kNotFound = 500, kLaunchFailed = 719;

// Whether this call is the one that is to fail.
bool fails(const char* function) {
  static std::mutex mutex;
  static std::map<std::string, long> calls;
  const char* wanted = getenv("FAKE_CUDA_FAIL");
  if (!wanted) return false;
  const size_t length = strcspn(wanted, ":");
  if (strlen(function) != length || strncmp(wanted, function, length) != 0) return false;
  const std::lock_guard<std::mutex> lock(mutex);
  return ++calls[function] == strtol(wanted + length + 1, nullptr, 10);
}

std::mutex memory_mutex;
std::map<unsigned long long, size_t> memory;  // by address
thread_local void* context;                   // of the calling thread
std::atomic<Result> pending{kSuccess};        // of the work that was given: it shows when somebody waits

struct Source {
  std::string text, log;
};

struct Event {
  std::chrono::steady_clock::time_point time = {};
};

void log(const char* what) {
  static std::mutex mutex;
  const char* file = getenv("FAKE_CUDA_LOG");
  if (!file) return;
  const std::lock_guard<std::mutex> lock(mutex);
  std::ofstream(file, std::ios::app) << what << "\n";
}

using Launcher = bool (*)(const unsigned* dims, void** parameters);

struct Function {
  Launcher launcher;
  unsigned num_parameters;  // of 8 bytes each
  unsigned most_shared = 48 << 10;
};
struct Launch {
  const Function* function;
  unsigned dims[6];
  std::vector<unsigned long long> values;
};
struct Graph {
  std::vector<Launch> launches;
};
struct Stream {
  Graph* captured = nullptr;  // not null while it captures
};

void run(const Function& function, const unsigned* dims, void** parameters) {
  log("launch");
  if (!function.launcher(dims, parameters) || fails("kernel")) pending = kLaunchFailed;
}

std::string launchers_of(const std::string& source) {
  static const std::regex kKernel("__launch_bounds__\\(\\d+, \\d+\\) (\\w+)\\(");
  std::string text;
  for (auto it = std::sregex_iterator(source.begin(), source.end(), kKernel); it != std::sregex_iterator(); ++it) {
    const std::string name = (*it)[1];
    text += "extern \"C\" bool shim_" + name + "(const unsigned* n, void** p) { return cuda_shim::call(" + name +
            ", {n[0], n[1], n[2]}, {n[3], n[4], n[5]}, p); }\n"
            "extern \"C\" const unsigned shim_count_" +
            name + " = cuda_shim::num_parameters(" + name + ");\n";
  }
  return text;
}

void* compiled(const std::string& source) {
  char folder[] = "/tmp/tessera_cuda_shim_XXXXXX";
  if (!mkdtemp(folder)) return nullptr;
  const std::string base = folder;
  std::ofstream(base + "/kernels.cpp") << "#include \"shim.h\"\n" << source << launchers_of(source);
  const std::string command = std::string(TESSERA_CXX_COMPILER) +
                              " -std=c++20 -O2 -march=native -ffp-contract=off -w -shared -fPIC -I " TESSERA_SHIM_FOLDER
                              " -o " +
                              base + "/kernels.so " + base + "/kernels.cpp";
  void* library = nullptr;
  if (system(command.c_str()) == 0) library = dlopen((base + "/kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!getenv("FAKE_CUDA_KEEP")) (void)!system(("rm -r " + base).c_str());
  return library;
}

}  // namespace

#define FAKE(name, ...)                \
  extern "C" Result name(__VA_ARGS__); \
  extern "C" Result name(__VA_ARGS__)
#define MAY_FAIL(name, result) \
  if (fails(name)) return result
#define NEEDS_CONTEXT \
  if (!context) return 201

FAKE(cuInit, unsigned) {
  MAY_FAIL("cuInit", 100);
  return kSuccess;
}
FAKE(cuDriverGetVersion, int* version) {
  *version = 13000;
  return kSuccess;
}
FAKE(cuGetErrorName, Result result, const char** name) {
  static const std::map<Result, const char*> kNames = {{1, "CUDA_ERROR_INVALID_VALUE"},
                                                       {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                       {100, "CUDA_ERROR_NO_DEVICE"},
                                                       {201, "CUDA_ERROR_INVALID_CONTEXT"},
                                                       {kInvalidSource, "CUDA_ERROR_INVALID_SOURCE"},
                                                       {kNotFound, "CUDA_ERROR_NOT_FOUND"},
                                                       {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"}};
  const auto it = kNames.find(result);
  *name = it == kNames.end() ? nullptr : it->second;
  return it == kNames.end() ? 1 : kSuccess;
}
FAKE(cuDeviceGetCount, int* count) {
  *count = 1;
  return kSuccess;
}
FAKE(cuDeviceGet, int* device, int number) {
  *device = number;
  return kSuccess;
}
FAKE(cuDeviceGetName, char* name, int size, int) {
  snprintf(name, static_cast<size_t>(size), "no GPU");
  return kSuccess;
}
FAKE(cuDeviceGetAttribute, int* value, int attribute, int) {
  const char* shared = getenv("FAKE_CUDA_SHARED");
  const int most = shared ? atoi(shared) : attribute == 97 ? 99 << 10 : 48 << 10;  // as sm_86 has
  *value = attribute == 1 ? 1024 : attribute == 8 || attribute == 97 ? most : attribute == 75 ? 8 : 0;
  return kSuccess;
}
FAKE(cuDevicePrimaryCtxRetain, void** result, int) {
  static int only;
  *result = &only;
  return kSuccess;
}
FAKE(cuDevicePrimaryCtxRelease_v2, int) { return kSuccess; }
FAKE(cuCtxSetCurrent, void* current) {
  context = current;
  return kSuccess;
}
FAKE(cuMemAlloc_v2, unsigned long long* address, size_t bytes) {
  NEEDS_CONTEXT;
  MAY_FAIL("cuMemAlloc_v2", kOutOfMemory);
  const std::lock_guard<std::mutex> lock(memory_mutex);
  size_t used = bytes;
  for (const auto& [other, size] : memory) used += size;
  if (const char* most = getenv("FAKE_CUDA_MEMORY"); most && used > strtoull(most, nullptr, 10)) return kOutOfMemory;
  *address = reinterpret_cast<unsigned long long>(aligned_alloc(256, (bytes + 255) / 256 * 256));
  memory[*address] = bytes;
  return kSuccess;
}
FAKE(cuMemFree_v2, unsigned long long address) {
  const std::lock_guard<std::mutex> lock(memory_mutex);
  if (memory.erase(address) == 0) abort();
  free(reinterpret_cast<void*>(address));
  return kSuccess;
}

// Whether the bytes are of one allocation.
static bool is_inside(unsigned long long address, size_t bytes) {
  const std::lock_guard<std::mutex> lock(memory_mutex);
  auto it = memory.upper_bound(address);
  return it != memory.begin() && (--it, address + bytes <= it->first + it->second);
}
FAKE(cuMemcpyHtoDAsync_v2, unsigned long long to, const void* from, size_t bytes, void*) {
  NEEDS_CONTEXT;
  MAY_FAIL("cuMemcpyHtoDAsync_v2", kLaunchFailed);
  if (!is_inside(to, bytes)) return 1;
  log("copy");
  memcpy(reinterpret_cast<void*>(to), from, bytes);
  return kSuccess;
}
FAKE(cuMemcpyDtoHAsync_v2, void* to, unsigned long long from, size_t bytes, void*) {
  NEEDS_CONTEXT;
  if (!is_inside(from, bytes)) return 1;
  log("copy");
  memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return kSuccess;
}
FAKE(cuModuleLoadData, void** module, const void* image) {
  NEEDS_CONTEXT;
  *module = compiled(static_cast<const char*>(image));
  return *module ? kSuccess : kInvalidSource;
}
FAKE(cuModuleUnload, void* module) { return dlclose(module); }
FAKE(cuModuleGetFunction, void** function, void* module, const char* name) {
  void* launcher = dlsym(module, (std::string("shim_") + name).c_str());
  const void* count = dlsym(module, (std::string("shim_count_") + name).c_str());
  if (!launcher || !count) return kNotFound;
  static std::mutex mutex;
  static std::map<void*, Function> functions;
  const std::lock_guard<std::mutex> lock(mutex);
  Function& own = functions[launcher];
  own = {reinterpret_cast<Launcher>(launcher), *static_cast<const unsigned*>(count)};
  *function = &own;
  return kSuccess;
}
FAKE(cuFuncSetAttribute, void* function, int attribute, int value) {
  if (attribute != 8 || value > 99 << 10) return 1;
  static_cast<Function*>(function)->most_shared = static_cast<unsigned>(value);
  return kSuccess;
}
FAKE(cuLaunchKernel, void* function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
     unsigned shared, void* stream, void** parameters, void**) {
  NEEDS_CONTEXT;
  MAY_FAIL("cuLaunchKernel", 701);
  const auto& own = *static_cast<const Function*>(function);
  if (shared > own.most_shared) return 1;
  Launch launch{&own, {x, y, z, tx, ty, tz}, {}};
  if (Graph* captured = static_cast<Stream*>(stream)->captured) {
    for (unsigned i = 0; i < own.num_parameters; ++i)
      launch.values.push_back(*static_cast<const unsigned long long*>(parameters[i]));
    captured->launches.push_back(std::move(launch));
  } else {
    run(own, launch.dims, parameters);
  }
  return kSuccess;
}
FAKE(cuStreamBeginCapture_v2, void* stream, int) {
  NEEDS_CONTEXT;
  MAY_FAIL("cuStreamBeginCapture_v2", 900);
  log("capture");
  static_cast<Stream*>(stream)->captured = new Graph;
  return kSuccess;
}
FAKE(cuStreamEndCapture, void* stream, void** graph) {
  *graph = std::exchange(static_cast<Stream*>(stream)->captured, nullptr);
  return kSuccess;
}
FAKE(cuGraphInstantiateWithFlags, void** result, void* graph, unsigned long long) {
  MAY_FAIL("cuGraphInstantiateWithFlags", kOutOfMemory);
  *result = new Graph(*static_cast<const Graph*>(graph));
  return kSuccess;
}
FAKE(cuGraphDestroy, void* graph) {
  delete static_cast<Graph*>(graph);
  return kSuccess;
}
FAKE(cuGraphExecDestroy, void* graph) {
  delete static_cast<Graph*>(graph);
  return kSuccess;
}
FAKE(cuGraphLaunch, void* graph, void* stream) {
  NEEDS_CONTEXT;
  MAY_FAIL("cuGraphLaunch", 701);
  if (static_cast<Stream*>(stream)->captured) return 1;
  log("graph");
  for (Launch& launch : static_cast<Graph*>(graph)->launches) {
    std::vector<void*> parameters;
    for (auto& value : launch.values) parameters.push_back(&value);
    run(*launch.function, launch.dims, parameters.data());
  }
  return kSuccess;
}
FAKE(cuStreamCreate, void** stream, unsigned) {
  MAY_FAIL("cuStreamCreate", kOutOfMemory);
  *stream = new Stream;
  return kSuccess;
}
FAKE(cuStreamDestroy_v2, void* stream) {
  delete static_cast<Stream*>(stream);
  return kSuccess;
}
FAKE(cuStreamSynchronize, void*) { return pending.exchange(kSuccess); }
FAKE(cuEventCreate, void** event, unsigned) {
  *event = new Event;
  return kSuccess;
}
FAKE(cuEventDestroy_v2, void* event) {
  delete static_cast<Event*>(event);
  return kSuccess;
}
FAKE(cuEventRecord, void* event, void*) {
  static_cast<Event*>(event)->time = std::chrono::steady_clock::now();
  return kSuccess;
}
FAKE(cuEventElapsedTime, float* milliseconds, void* begin, void* end) {
  *milliseconds =
      std::chrono::duration<float, std::milli>(static_cast<Event*>(end)->time - static_cast<Event*>(begin)->time)
          .count();
  return kSuccess;
}
FAKE(cuEventSynchronize, void*) { return pending.exchange(kSuccess); }

FAKE(nvrtcCreateProgram, void** program, const char* text, const char*, int, const char* const*, const char* const*) {
  *program = new Source{text, ""};
  return kSuccess;
}
FAKE(nvrtcCompileProgram, void* program, int, const char* const*) {
  if (!fails("nvrtcCompileProgram")) return kSuccess;
  static_cast<Source*>(program)->log = "tessera.cu(1): error: as FAKE_CUDA_FAIL says\n1 error detected";
  return 6;
}
FAKE(nvrtcGetProgramLogSize, void* program, size_t* size) {
  *size = static_cast<Source*>(program)->log.size() + 1;
  return kSuccess;
}
FAKE(nvrtcGetProgramLog, void* program, char* log) {
  strcpy(log, static_cast<Source*>(program)->log.c_str());
  return kSuccess;
}
FAKE(nvrtcGetPTXSize, void* program, size_t* size) {
  *size = static_cast<Source*>(program)->text.size() + 1;
  return kSuccess;
}
FAKE(nvrtcGetPTX, void* program, char* text) {
  strcpy(text, static_cast<Source*>(program)->text.c_str());
  return kSuccess;
}
FAKE(nvrtcDestroyProgram, void** program) {
  delete static_cast<Source*>(*program);
  return kSuccess;
}
