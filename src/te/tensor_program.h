// What one kernel computes, before any loop is written: its parameters and a short list of stages. Fusion decides
// which stages share a kernel; injective stages are already inlined into their readers, so what is left is reductions
// followed by the injective stages that produce results. Most kernels have at most one reduction and one result.
//
// Invariants: bodies load parameters and earlier stages by logical index; the last stages are the results, and their
// layout decides how they are stored; a stage that others read is a reduction and read only at the index of its own
// axes (an epilogue). Several results have one shape, one layout and the same axis variables; several reductions have
// axes of the same extents, and reduce the same extents: all are computed in one pass over one domain.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "te/body.h"
#include "types/layout.h"

namespace tessera::inline tensor_programs {

enum class OperandKind : uint8_t {
  kActivation,  // arrives at run time, and is read as it is stored
  kWeight,      // arrives at run time, and so many outputs read each element that storing it otherwise first may pay
  kConstant,    // known when the kernel is compiled
};
const char* operand_kind_suffix(OperandKind kind);  // "", " weight", " const": behind the type, in texts

struct TensorParam {
  BufferPtr buffer;  // logical shape
  Layout layout;     // of the memory that is passed
  OperandKind kind = OperandKind::kActivation;

  bool is_constant() const { return kind == OperandKind::kConstant; }
  // Whether a schedule may store it in the order in which it is read.
  bool may_be_packed() const { return kind != OperandKind::kActivation; }
};

struct Stage {
  BufferPtr out;  // logical shape
  Layout layout;
  Body body;
};

// Only some of the output is computed: `extent` places of an axis from `base` * `step` on, where `base` is between lo
// and hi. With no axis, `base` is a variable of that range which bodies use beside their axes.
struct Window {
  static constexpr size_t kNoAxis = SIZE_MAX;
  size_t axis = 0;  // of the output
  Var base;
  int64_t extent = 1;
  int64_t lo = 0, hi = 0;
  int64_t step = 1;
};

struct TensorProgram {
  std::string name;
  std::vector<TensorParam> params;  // in call order; the results follow them
  std::vector<Stage> stages;
  std::vector<Window> windows = {};  // empty: all of the output; schedule rules may decline others
  size_t num_results = 1;            // the last stages, in the order of a call's arguments

  // The last result; of most kernels the only one.
  const Stage& output() const { return stages.back(); }
  std::span<const Stage> results() const { return std::span(stages).last(num_results); }
  // The first reduction, or null when the kernel is injective.
  const Stage* reduction() const;
  std::vector<const Stage*> reductions() const;
  // One result and at most one reduction: what most schedules are made for.
  bool is_single() const { return num_results == 1 && reductions().size() <= 1; }
};

// Substitutes the values of injective stages into the stages that read them, and removes those that are no results. A
// value read several times at one index becomes one shared expression, in all stages that have the same axes.
void inline_injective_stages(TensorProgram& program);

// Floating-point operations of one evaluation of `e`, parts that are shared counted once: multiply and add count
// separately, a transcendental function counts those of its evaluation (function_flops). Comparisons, selects, casts
// and integers count nothing.
int64_t count_flops(const Expr& e);
// Of the code that stands for the function where it is computed in f32 (exp, log, tanh, erf) or f64 (the rest); 1 for
// what is an instruction of its own.
int64_t function_flops(UnaryOp function);
// Of one call. -1 when a shape is symbolic.
int64_t count_flops(const TensorProgram& program);
// Bytes of all parameters and results, each once, in their physical shapes. -1 when a shape is symbolic.
int64_t count_bytes(const TensorProgram& program);
int64_t count_constant_bytes(const TensorProgram& program);  // of its weights alone

std::string to_string(const TensorProgram& program);

}  // namespace tessera::inline tensor_programs
