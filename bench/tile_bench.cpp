// LINKS: tessera_codegen_llvm tessera_package dl
// The multiply-add tile that contractions are built from, all operands in the L1 cache, beside the rate at which this
// machine issues independent multiply-adds. "GFLOP/s" counts multiply and add.
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include <cstring>
#include <stdexcept>

#include "abi/module_abi.h"
#include "codegen/llvm/llvm_codegen.h"
#include "codegen/llvm/target.h"
#include "loop/intrinsic.h"
#include "package/anonymous_file.h"
#include "package/link.h"

namespace tessera {
namespace {

constexpr int64_t kDepth = 256;
constexpr int kRepeats = 200;  // inside one call of the module

struct Tile {
  const char* target;
  int rows, vectors;
};

// y[p, v, l] = sum over k of a[k, p] * b[k, v, l]; `unroll` copies of the body per iteration of k.
LoopProgram tile_program(const Target& target, const Tile& tile, int unroll) {
  const TensorIntrinsic* intrinsic = best_fma_intrinsic(target, DType::kF32);
  const int64_t lanes = intrinsic->lanes;
  const int64_t vectors = tile.vectors;
  const int64_t rows = tile.rows;
  const BufferPtr a = make_buffer("a", DType::kF32, {Expr(kDepth), Expr(rows)});
  const BufferPtr b = make_buffer("b", DType::kF32, {Expr(kDepth), Expr(vectors), Expr(lanes)});
  const BufferPtr y = make_buffer("y", DType::kF32, {Expr(rows), Expr(vectors), Expr(lanes)});
  const BufferPtr acc =
      make_buffer("acc", DType::kF32, {Expr(vectors), Expr(rows), Expr(lanes)}, MemoryScope::kRegister);
  const auto nest = [&](const std::function<Stmt(Expr, Expr, Expr)>& body) {
    const Var v = make_var("v"), p = make_var("p"), l = make_var("l");
    return for_loop(
        v, 0, vectors, ForKind::kUnrolled,
        for_loop(p, 0, rows, ForKind::kUnrolled, for_loop(l, 0, lanes, ForKind::kVectorized, body(v, p, l))));
  };
  const Var k = make_var("k"), u = make_var("u"), repeat = make_var("repeat");
  const Expr depth = k * Expr(unroll) + u;
  const Stmt step =
      tensorized(intrinsic, nest([&](Expr v, Expr p, Expr l) {
                   return store(acc, {v, p, l}, fma(load(a, {depth, p}), load(b, {depth, v, l}), load(acc, {v, p, l})));
                 }));
  LoopProgram program;
  program.name = "tile";
  program.params = {a, b, y};
  program.body = for_loop(
      repeat, 0, kRepeats, ForKind::kSerial,
      alloc(acc,
            seq({nest([&](Expr v, Expr p, Expr l) { return store(acc, {v, p, l}, const_float(DType::kF32, 0)); }),
                 for_loop(k, 0, kDepth / unroll, ForKind::kSerial, for_loop(u, 0, unroll, ForKind::kUnrolled, step)),
                 nest([&](Expr v, Expr p, Expr l) { return store(y, {p, v, l}, load(acc, {v, p, l})); })})));
  return program;
}

// Independent chains, nothing loaded: what the multiply-add units can do.
LoopProgram peak_program(const Target& target) {
  const int64_t lanes = best_fma_intrinsic(target, DType::kF32)->lanes;
  const int64_t chains = 12;
  const BufferPtr x = make_buffer("x", DType::kF32, {Expr(lanes)});
  const BufferPtr y = make_buffer("y", DType::kF32, {Expr(chains), Expr(lanes)});
  const BufferPtr acc = make_buffer("acc", DType::kF32, {Expr(chains), Expr(lanes)}, MemoryScope::kRegister);
  const auto nest = [&](const std::function<Stmt(Expr, Expr)>& body) {
    const Var c = make_var("c"), l = make_var("l");
    return for_loop(c, 0, chains, ForKind::kUnrolled, for_loop(l, 0, lanes, ForKind::kVectorized, body(c, l)));
  };
  LoopProgram program;
  program.name = "peak";
  program.params = {x, y};
  program.body =
      alloc(acc, seq({nest([&](Expr c, Expr l) { return store(acc, {c, l}, const_float(DType::kF32, 0)); }),
                      for_loop(make_var("i"), 0, 100000, ForKind::kSerial, nest([&](Expr c, Expr l) {
                                 return store(acc, {c, l}, fma(load(x, {l}), load(x, {l}), load(acc, {c, l})));
                               })),
                      nest([&](Expr c, Expr l) { return store(y, {c, l}, load(acc, {c, l})); })}));
  return program;
}

class Module {
 public:
  Module(const LoopProgram& loops, const Target& target) {
    Program program;
    program.kernels.push_back({.program = loops});
    KernelCall call;
    for (size_t i = 0; i < loops.params.size(); ++i) {
      const bool output = i + 1 == loops.params.size();
      ProgramBuffer buffer;
      buffer.kind = output ? BufferKind::kOutput : BufferKind::kInput;
      buffer.index = output ? 0 : static_cast<int32_t>(i);
      program.buffers.push_back(buffer);
      call.args.push_back(static_cast<BufferId>(i));
      int64_t floats = 1;
      for (const Expr& extent : loops.params[i]->shape) floats *= *as_int(extent);
      memory_.emplace_back(static_cast<size_t>(floats) + 16);
      auto* data = memory_.back().data();
      pointers_.push_back(data + (64 - reinterpret_cast<uintptr_t>(data) % 64) % 64 / sizeof(float));
    }
    program.calls.push_back(call);
    write_fully(file_.fd(), link_shared_object(generate_llvm(program, target, {}).object, {}), "the module");
    library_ = dlopen(file_.path().c_str(), RTLD_NOW);
    if (!library_) throw std::runtime_error(dlerror());
    entry_ = reinterpret_cast<tsr_run_fn>(dlsym(library_, TSR_ENTRY_SYMBOL));
    host_.num_workers = 1;
  }
  ~Module() { dlclose(library_); }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  void run() {
    tsr_call call{};
    call.host = &host_;
    call.inputs = pointers_.data();
    call.outputs = &pointers_.back();
    entry_(&call);
  }

 private:
  AnonymousFile file_{"tile_bench"};  // open as long as the library: dlopen tells files apart by path
  void* library_ = nullptr;
  std::vector<std::vector<float>> memory_;
  std::vector<void*> pointers_;
  tsr_host host_{};
  tsr_run_fn entry_ = nullptr;
};

void run_tile(benchmark::State& state, Tile tile, int unroll) {
  const Target target = parse_target(tile.target);
  Module module(tile_program(target, tile, unroll), target);
  for (auto _ : state) module.run();
  const double flops = 2.0 * kRepeats * kDepth * tile.rows * tile.vectors * target.f32_lanes();
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void run_peak(benchmark::State& state, const char* name) {
  const Target target = parse_target(name);
  Module module(peak_program(target), target);
  for (auto _ : state) module.run();
  const double flops = 2.0 * 100000 * 12 * target.f32_lanes();
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

[[maybe_unused]] const bool registered = [] {
  for (const char* target : {"x86-64-v4", "x86-64-v3"})
    if (runs_here(parse_target(target)))
      benchmark::RegisterBenchmark((std::string("peak/") + target).c_str(), run_peak, target);
  for (const Tile tile : {Tile{"x86-64-v4", 14, 2}, Tile{"x86-64-v4", 8, 3}, Tile{"x86-64-v4", 6, 4},
                          Tile{"x86-64-v3", 6, 2}, Tile{"x86-64-v3", 4, 3}})
    for (const int unroll : {1, 4})
      if (runs_here(parse_target(tile.target)))
        benchmark::RegisterBenchmark((std::string("tile/") + tile.target + "/" + std::to_string(tile.rows) + "x" +
                                      std::to_string(tile.vectors) + "/unroll" + std::to_string(unroll))
                                         .c_str(),
                                     run_tile, tile, unroll);
  return true;
}();

}  // namespace
}  // namespace tessera
