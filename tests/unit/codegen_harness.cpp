#include "codegen_harness.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <thread>

#include "abi/module_abi.h"
#include "codegen/c/c_codegen.h"
#include "interp/loop_interp.h"
#include "loop/parser.h"
#include "loop_passes/expand_math.h"
#include "package/link.h"
#include "program/symbolic_sizes.h"
#include "support/error.h"

namespace tessera {
namespace {

constexpr size_t kPage = 4096;

// Bytes that end at a page nobody may touch, and begin after one as far as the size allows.
class GuardedBytes {
 public:
  explicit GuardedBytes(int64_t bytes, size_t align = 1) {
    const size_t used = (static_cast<size_t>(bytes) + align - 1) / align * align;
    const size_t body = (used + kPage - 1) / kPage * kPage;
    size_ = body + 2 * kPage;
    base_ = static_cast<std::byte*>(mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (body > 0) mprotect(base_ + kPage, body, PROT_READ | PROT_WRITE);
    data_ = base_ + kPage + body - used;
  }
  ~GuardedBytes() { munmap(base_, size_); }
  GuardedBytes(GuardedBytes&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), data_(other.data_), size_(std::exchange(other.size_, 0)) {}
  GuardedBytes& operator=(GuardedBytes&&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

struct Host {
  HostOptions options;
  std::atomic<int> running{0};
};

void parallel_for(void* self, tsr_task_fn fn, const void* arg, int64_t n, int64_t grain) {
  auto* host = static_cast<Host*>(self);
  if (host->options.parallel_calls) ++*host->options.parallel_calls;
  grain = std::max<int64_t>(grain, 1);
  if (host->options.threads == 1) return fn(arg, 0, n, 0);
  std::atomic<int64_t> next{0};
  const auto work = [&](int worker) {
    for (;;) {
      const int64_t begin = next.fetch_add(grain);
      if (begin >= n) return;
      fn(arg, begin, std::min(begin + grain, n), worker);
    }
  };
  std::vector<std::thread> threads;
  for (int worker = 1; worker < host->options.threads; ++worker) threads.emplace_back(work, worker);
  work(0);
  for (std::thread& thread : threads) thread.join();
}

void trace(void* self, int32_t kernel, int32_t phase) {
  static_cast<Host*>(self)->options.trace->emplace_back(kernel, phase);
}

std::vector<int64_t> dims_of(const Buffer& buffer) {
  std::vector<int64_t> dims;
  for (const Expr& extent : buffer.shape) dims.push_back(as_int(extent).value());
  return dims;
}

}  // namespace

NativeModule::NativeModule(const Program& program, const Target& target, const CodegenOptions& options)
    : program_(program) {
  code_ = generate_llvm(program_, target, options);
  // Throws when the object refers to a symbol that it does not define.
  const std::vector<std::byte> library = link_shared_object(code_.object, {});
  write_fully(file_.fd(), library, "the module");
  library_ = dlopen(file_.path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library_) throw InternalError(dlerror());
}

NativeModule::~NativeModule() { dlclose(library_); }

std::vector<Tensor> NativeModule::run(const std::vector<Tensor>& inputs, const HostOptions& options,
                                      const std::vector<int64_t>& symbols) const {
  Host host{options, {}};
  tsr_host table{};
  table.size = sizeof(table);
  table.abi_version = TSR_ABI_VERSION;
  table.self = &host;
  table.num_workers = options.threads;
  table.parallel_for = parallel_for;
  table.trace = options.trace ? trace : nullptr;

  GuardedBytes weights(program_.weight_bytes, TSR_BUFFER_ALIGN);
  for (const ProgramBuffer& buffer : program_.buffers)
    if (buffer.kind == BufferKind::kWeight && buffer.data)
      std::memcpy(weights.data() + buffer.offset, buffer.data->bytes(), static_cast<size_t>(buffer.bytes));
  const GuardedBytes arena(program_.arena_bytes, TSR_BUFFER_ALIGN);
  const GuardedBytes scratch(code_.scratch_bytes * options.threads, TSR_BUFFER_ALIGN);
  std::memset(arena.data(), 0xff, static_cast<size_t>(program_.arena_bytes));  // NaN: nothing may rely on zeros
  std::memset(scratch.data(), 0xff, static_cast<size_t>(code_.scratch_bytes * options.threads));

  std::vector<GuardedBytes> memory;
  std::vector<const void*> input_pointers;
  for (const Tensor& input : inputs) {
    memory.emplace_back(input.num_bytes());
    if (input.num_bytes() > 0) std::memcpy(memory.back().data(), input.bytes(), static_cast<size_t>(input.num_bytes()));
    input_pointers.push_back(memory.back().data());
  }
  std::vector<Tensor> outputs;
  std::vector<void*> output_pointers;
  std::vector<const std::byte*> output_bytes;
  for (const BufferId id : program_.outputs) {
    const ProgramBuffer& buffer = program_.buffers[static_cast<size_t>(id)];
    std::vector<int64_t> dims;
    for (const Expr& extent : buffer.type.shape) dims.push_back(value_at(extent, program_.symbols, symbols));
    outputs.emplace_back(buffer.type.dtype, dims);
    memory.emplace_back(outputs.back().num_bytes());
    std::memset(memory.back().data(), 0, static_cast<size_t>(outputs.back().num_bytes()));
    output_pointers.push_back(memory.back().data());
    output_bytes.push_back(memory.back().data());
  }

  tsr_call call{};
  call.host = &table;
  call.weights = reinterpret_cast<const uint8_t*>(weights.data());
  call.arena = reinterpret_cast<uint8_t*>(arena.data());
  call.scratch = reinterpret_cast<uint8_t*>(scratch.data());
  call.inputs = input_pointers.data();
  call.outputs = output_pointers.data();
  // The symbols, and behind them what the module computes from them.
  std::vector<int64_t> sizes = symbols;
  if (!symbols.empty()) {
    sizes.resize(symbols.size() + derived_dims(program_).size() + arena_parts(program_).size());
    const auto prepare = reinterpret_cast<tsr_prepare_fn>(dlsym(library_, TSR_PREPARE_SYMBOL));
    check(prepare != nullptr, "the module has no function that computes sizes");
    check(prepare(sizes.data(), 0) <= static_cast<uint64_t>(program_.arena_bytes), "the arena is larger than planned");
  }
  call.symbols = sizes.data();
  const auto entry = reinterpret_cast<tsr_run_fn>(dlsym(library_, TSR_ENTRY_SYMBOL));
  check(entry != nullptr, "the module has no entry function");
  const int32_t status = entry(&call);
  check(status == 0, "the module returned " + std::to_string(status));
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].num_bytes() > 0)
      std::memcpy(outputs[i].mutable_bytes(), output_bytes[i], static_cast<size_t>(outputs[i].num_bytes()));
  return outputs;
}

bool CModule::can_have(const Program& program) {
  try {
    generate_c(program, {"program", "a test"});
    return true;
  } catch (const UserError&) {
    return false;
  }
}

CModule::CModule(const Program& program) : program_(program) {
  const CSource c = generate_c(program_, {"program", "a test"});
  const std::string size = "#define PROGRAM_ARENA_BYTES ";
  arena_bytes_ = std::stoll(c.header.substr(c.header.find(size) + size.size()));
  std::string name = (std::filesystem::temp_directory_path() / "tessera-c-XXXXXX").string();
  check(mkdtemp(name.data()) != nullptr, "no folder for C source");
  folder_ = name;
  std::ofstream(folder_ + "/program.h") << c.header;
  // One function for programs with any number of inputs and outputs.
  std::string arguments;
  for (size_t i = 0; i < program_.inputs.size(); ++i) arguments += "in[" + std::to_string(i) + "], ";
  for (size_t i = 0; i < program_.outputs.size(); ++i) arguments += "out[" + std::to_string(i) + "], ";
  std::ofstream(folder_ + "/program.c") << c.source
                                        << "int call_it(const void *const *in, void *const *out, void *arena);\n"
                                           "int call_it(const void *const *in, void *const *out, void *arena) {\n"
                                           "  (void)in;\n  return program_run("
                                        << arguments << "arena);\n}\n";
  const std::string command = std::string(TESSERA_C_COMPILER) +
                              " -std=c99 -pedantic -Wall -Wextra -Werror -O1 -shared -fPIC " + folder_ +
                              "/program.c -o " + folder_ + "/program.so -lm";
  check(std::system(command.c_str()) == 0, "the C compiler refuses " + folder_ + "/program.c");
  library_ = dlopen((folder_ + "/program.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  check(library_ != nullptr, "C code that cannot be loaded");
}

CModule::~CModule() {
  dlclose(library_);
  std::filesystem::remove_all(folder_);
}

std::vector<Tensor> CModule::run(const std::vector<Tensor>& inputs) const {
  const GuardedBytes arena(arena_bytes_, TSR_BUFFER_ALIGN);
  std::memset(arena.data(), 0xff, static_cast<size_t>(arena_bytes_));
  std::vector<GuardedBytes> memory;
  std::vector<const void*> in;
  for (const Tensor& input : inputs) {
    memory.emplace_back(input.num_bytes());
    if (input.num_bytes() > 0) std::memcpy(memory.back().data(), input.bytes(), static_cast<size_t>(input.num_bytes()));
    in.push_back(memory.back().data());
  }
  std::vector<Tensor> outputs;
  std::vector<void*> out;
  for (const BufferId id : program_.outputs) {
    const ProgramBuffer& buffer = program_.buffers[static_cast<size_t>(id)];
    std::vector<int64_t> dims;
    for (const Expr& extent : buffer.type.shape) dims.push_back(as_int(extent).value());
    outputs.emplace_back(buffer.type.dtype, dims);
    memory.emplace_back(outputs.back().num_bytes());
    std::memset(memory.back().data(), 0, static_cast<size_t>(outputs.back().num_bytes()));
    out.push_back(memory.back().data());
  }
  const auto call = reinterpret_cast<int (*)(const void* const*, void* const*, void*)>(dlsym(library_, "call_it"));
  const int status = call(in.data(), out.data(), arena.data());
  check(status == 0, "C code returned " + std::to_string(status));
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].num_bytes() > 0)
      std::memcpy(outputs[i].mutable_bytes(), out[i], static_cast<size_t>(outputs[i].num_bytes()));
  return outputs;
}

std::vector<Tensor> run_interpreted(const LoopProgram& loops, const std::vector<Tensor>& inputs,
                                    const std::vector<int64_t>& symbols) {
  std::vector<Tensor> all = inputs;
  for (size_t i = inputs.size(); i < loops.params.size(); ++i) {
    std::vector<int64_t> dims;
    for (const Expr& extent : loops.params[i]->shape) dims.push_back(as_int(extent) ? *as_int(extent) : symbols.at(0));
    all.emplace_back(loops.params[i]->dtype, dims);
  }
  std::vector<Tensor*> params;
  for (Tensor& tensor : all) params.push_back(&tensor);
  interpret(loops, std::span<Tensor* const>(params), symbols);
  return {all.begin() + static_cast<std::ptrdiff_t>(inputs.size()), all.end()};
}

const std::vector<std::string>& runnable_targets() {
  static const std::vector<std::string> kTargets = [] {
    std::vector<std::string> names;
    for (const char* name : {"x86-64-v2", "x86-64-v3", "x86-64-v4", "native"}) {
      if (runs_here(parse_target(name))) names.emplace_back(name);
      else std::cout << "[ SKIPPED  ] " << name << ": this machine lacks some of its instructions\n";
    }
    return names;
  }();
  return kTargets;
}

std::string difference(const Tensor& got, const Tensor& want, double rtol) {
  if (got.dtype() != want.dtype() || got.dims() != want.dims()) return "types differ";
  if (!is_float(want.dtype())) {
    for (int64_t i = 0; i < want.num_elements(); ++i)
      if (got.get_int(i) != want.get_int(i))
        return "element " + std::to_string(i) + " is " + std::to_string(got.get_int(i)) + " instead of " +
               std::to_string(want.get_int(i));
    return "";
  }
  double largest = 0;
  for (int64_t i = 0; i < want.num_elements(); ++i)
    if (std::isfinite(want.get_double(i))) largest = std::max(largest, std::fabs(want.get_double(i)));
  for (int64_t i = 0; i < want.num_elements(); ++i) {
    const double g = got.get_double(i);
    const double w = want.get_double(i);
    if (g == w || (std::isnan(g) && std::isnan(w))) continue;
    if (!(std::fabs(g - w) <= rtol * (largest + std::fabs(w))))
      return "element " + std::to_string(i) + " is " + std::to_string(g) + " instead of " + std::to_string(w);
  }
  return "";
}

void expect_agrees(const LoopProgram& loops, const std::vector<Tensor>& inputs, double rtol) {
  const std::vector<Tensor> want = run_interpreted(loops, inputs);
  const LoopProgram expanded = expand_math(loops);
  if (const Program program = program_of(expanded); CModule::can_have(program)) {
    const std::vector<Tensor> got = CModule(program).run(inputs);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(difference(got[i], want[i], rtol), "") << loops.name << " output " << i << " in C";
  }
  for (const std::string& target : runnable_targets()) {
    for (const int opt_level : {0, 3}) {
      CodegenOptions options;
      options.opt_level = opt_level;
      const NativeModule module(program_of(expanded), parse_target(target), options);
      for (const int threads : {1, 2}) {
        HostOptions host;
        host.threads = threads;
        const std::vector<Tensor> got = module.run(inputs, host);
        for (size_t i = 0; i < want.size(); ++i)
          EXPECT_EQ(difference(got[i], want[i], rtol), "") << loops.name << " output " << i << " on " << target << " -O"
                                                           << opt_level << ", " << threads << " threads";
      }
    }
  }
}

void expect_agrees(const std::string& text, double rtol, uint32_t seed) {
  const LoopProgram loops = parse_loop_program(text);
  expect_agrees(loops, random_inputs(loops, seed), rtol);
}

Tensor random_tensor(DType dtype, const std::vector<int64_t>& dims, std::mt19937& random, bool specials) {
  Tensor t(dtype, dims);
  std::uniform_real_distribution<double> real(-4, 4);
  std::uniform_int_distribution<int64_t> integer(is_unsigned_int(dtype) || dtype == DType::kBool ? 0 : -9, 9);
  const double special_floats[] = {0.0,   -0.0, INFINITY, -INFINITY, NAN,  1e-40,  65504,
                                   65520, 1e10, -1e10,    0.5,       -2.5, 1.0 / 3};
  const int64_t special_ints[] = {0,
                                  -1,
                                  1,
                                  std::numeric_limits<int64_t>::min(),
                                  std::numeric_limits<int64_t>::max(),
                                  INT32_MIN,
                                  INT32_MAX,
                                  -128,
                                  127,
                                  255,
                                  63,
                                  64};
  for (int64_t i = 0; i < t.num_elements(); ++i) {
    const bool special = specials && random() % 4 == 0;
    if (is_float(dtype)) t.set_double(i, special ? special_floats[random() % std::size(special_floats)] : real(random));
    else
      t.set_int(i, special                 ? special_ints[random() % std::size(special_ints)]
                   : dtype == DType::kBool ? integer(random) % 2
                                           : integer(random));
  }
  return t;
}

std::vector<Tensor> random_inputs(const LoopProgram& loops, uint32_t seed, bool specials) {
  std::mt19937 random(seed);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i + static_cast<size_t>(loops.num_outputs) < loops.params.size(); ++i)
    inputs.push_back(random_tensor(loops.params[i]->dtype, dims_of(*loops.params[i]), random, specials));
  return inputs;
}

}  // namespace tessera
