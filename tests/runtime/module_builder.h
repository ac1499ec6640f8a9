// Writes module files from the format's description alone (abi/module_abi.h), so that the loader is tested against
// the contract and not against our own packager. The code part is compiled by the C compiler that CMake found.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "abi/module_abi.h"

namespace tessera {

using Bytes = std::vector<uint8_t>;

struct TensorSpec {
  std::string name;
  uint32_t dtype;
  std::vector<int64_t> dims;  // negative: symbol number -(dim + 1)
};

struct SymbolSpec {
  std::string name;
  int64_t lo, hi;
};

struct KernelSpec {
  std::string name;
  int64_t flops = -1, bytes = -1;
};

struct CheckSpec {
  std::string what, legal;
  uint32_t count = 2;
};

// A value that lives from run to run.
struct StateSpec {
  TensorSpec tensor;
  bool in_place = false;
  uint64_t initial = TSR_NO_INITIAL;  // where in the weights
};

// An input or output of a module with values: a tensor of any rank, or of these dimensions.
struct ValueSpec {
  std::string name;
  uint32_t dtype, slot;
  std::vector<int64_t> dims;
  bool any_rank = false;
};

struct StepSpec {
  uint32_t op;
  std::string name;
  std::vector<int32_t> inputs, outputs;  // slots
  std::vector<int64_t> ints;
  int32_t piece = -1;
};

// y[i] = x[i] * w[i] for f32[4], by one kernel, in parallel; all fields may be changed before build().
// Code for one kind of processor, in functions with that suffix.
struct VariantSpec {
  std::string name, features, suffix;
};

struct ModuleSpec {
  ModuleSpec();

  std::string source;  // C11 that includes abi/module_abi.h
  std::vector<VariantSpec> variants;
  std::string target = "x86_64-unknown-linux-gnu", features, model_name = "test", producer = "module_builder";
  std::vector<TensorSpec> inputs, outputs;
  std::vector<SymbolSpec> symbols;
  std::vector<KernelSpec> kernels;
  std::vector<CheckSpec> checks;
  std::vector<tsr_alias_descr> aliases;
  std::vector<StateSpec> states;
  std::vector<ValueSpec> value_inputs, value_outputs;
  std::vector<StepSpec> steps;
  std::vector<tsr_piece_descr> pieces;
  uint32_t num_slots = 0;
  uint64_t arena_bytes = 256, scratch_bytes = 64;
  Bytes weights, images;
  std::string metadata = R"({"producer": "module_builder"})";
  // Called on the descriptor before it is sealed; for making inconsistent ones.
  std::function<void(Bytes&)> edit_descriptor;
  // Called on the code part before it is sealed.
  std::function<void(Bytes&)> edit_code;

  Bytes build() const;
};

// A module with values: y[i] = x[i] * w[i] for f32[4] by a piece, with a check that x[0] is not negative; and the
// strings t[i] = s[i] + s[i] for any shape by a step.
ModuleSpec flow_spec();

// A shared object without any dependency, from C source; compiled once per process and source.
const Bytes& compile_shared_object(const std::string& source);

tsr_footer read_footer(const Bytes& module);
// Writes the footer back with its digest (and the sections' digests, if `sections`) made right.
void seal(Bytes& module, tsr_footer footer, bool sections);

// In place in the descriptor bytes.
template <typename T>
T read_at(const Bytes& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}
template <typename T>
void write_at(Bytes& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

}  // namespace tessera
