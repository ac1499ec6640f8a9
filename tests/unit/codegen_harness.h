// Runs generated code in this process: object -> shared object (lld, in process) -> dlopen. Inputs and outputs lie
// against unmapped pages, so that an access one element outside is a crash and not luck.
#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "codegen/common/object_code.h"
#include "codegen/llvm/llvm_codegen.h"
#include "codegen/llvm/target.h"
#include "package/anonymous_file.h"
#include "program/single_kernel_program.h"
#include "types/tensor.h"

namespace tessera {

struct HostOptions {
  int threads = 1;                                    // more: parallel_for cuts loops into pieces for real threads
  std::vector<std::pair<int, int>>* trace = nullptr;  // (kernel, phase) of every trace call
  int* parallel_calls = nullptr;                      // counts parallel_for
};

class NativeModule {
 public:
  NativeModule(const Program& program, const Target& target, const CodegenOptions& options = {});
  ~NativeModule();
  NativeModule(const NativeModule&) = delete;
  NativeModule& operator=(const NativeModule&) = delete;

  // Weights come from the program's buffers.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, const HostOptions& host = {},
                          const std::vector<int64_t>& symbols = {}) const;
  const ObjectCode& code() const { return code_; }

 private:
  const Program program_;
  ObjectCode code_;
  AnonymousFile file_{"codegen_test"};  // open as long as the library: dlopen tells files apart by path
  void* library_ = nullptr;
};

// The same as C source, which this machine's C compiler makes a library of, with all warnings as errors.
class CModule {
 public:
  explicit CModule(const Program& program);
  ~CModule();
  CModule(const CModule&) = delete;
  CModule& operator=(const CModule&) = delete;

  // Whether C has a form for the program.
  static bool can_have(const Program& program);
  std::vector<Tensor> run(const std::vector<Tensor>& inputs) const;

 private:
  const Program program_;
  int64_t arena_bytes_ = 0;
  std::string folder_;
  void* library_ = nullptr;
};

std::vector<Tensor> run_interpreted(const LoopProgram& loops, const std::vector<Tensor>& inputs,
                                    const std::vector<int64_t>& symbols = {});

// "x86-64-v2", "x86-64-v3", "x86-64-v4", "native": those that run on this machine. The others are printed.
const std::vector<std::string>& runnable_targets();

// Empty when equal: bit for bit for integers, |got - want| <= rtol * (max|want| + |want|) for floats; NaN equals NaN.
std::string difference(const Tensor& got, const Tensor& want, double rtol);

// Expects native code on every runnable target, on 1 and 2 threads and at opt levels 0 and 3, and C, to agree with the
// interpreter. Mathematical functions are expanded first.
void expect_agrees(const LoopProgram& loops, const std::vector<Tensor>& inputs, double rtol = 1e-5);
void expect_agrees(const std::string& text, double rtol = 1e-5, uint32_t seed = 1);  // inputs are random

// Floats in [-4, 4), integers small, now and then a special value when `specials`.
Tensor random_tensor(DType dtype, const std::vector<int64_t>& dims, std::mt19937& random, bool specials = false);
std::vector<Tensor> random_inputs(const LoopProgram& loops, uint32_t seed, bool specials = false);

}  // namespace tessera
