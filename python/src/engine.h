// What runs a model for Python: compiled code or the interpreter, behind one interface.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tessera/compiler.h"
#include "tessera/tessera.h"

namespace tessera::python {

// An error of the run-time C API; becomes a Python exception.
class RunError : public std::runtime_error {
 public:
  explicit RunError(const tessera_error& error) : std::runtime_error(error.message), error_(error) {}
  const tessera_error& error() const { return error_; }

 private:
  tessera_error error_;
};

// A named dimension and the values that it may take.
struct Symbol {
  std::string name;
  int64_t lo = 0, hi = 0;
};

// A kernel of a run: its number, when it began and ended in nanoseconds of the monotonic clock, and whose thread began
// the run.
struct KernelEvent {
  int32_t kernel = 0;
  int64_t begin = 0, end = 0;
  int64_t thread = 0;
};

// What a run of values gave; freed with the last reference.
using ResultPtr = std::shared_ptr<const tessera_value>;

// Several threads may call `run` and `run_values` at once, each on tensors of its own. Runs of a model with states come
// one after another.
class Engine {
 public:
  virtual ~Engine() = default;
  // Strings, sequences, optionals, maps, or shapes that only a run knows: `run_values` runs such models, and it alone.
  virtual bool has_values() const = 0;
  // Names live as long as the engine; a negative dim is symbol number -(dim + 1), or derived from symbols; any number
  // where the model has values.
  virtual const std::vector<tessera_value_info>& inputs() const = 0;
  virtual const std::vector<tessera_value_info>& outputs() const = 0;
  virtual const std::vector<Symbol>& symbols() const = 0;
  virtual int num_threads() const = 0;
  // The module file; empty for the interpreter.
  virtual std::span<const std::byte> contents() const = 0;
  // JSON; empty for the interpreter.
  virtual std::string metadata() const = 0;
  // The outputs with the dims that they have for inputs of these dims; their data is not looked at.
  virtual std::vector<tessera_tensor_info> outputs_for(const std::vector<tessera_tensor>& inputs) = 0;
  // RunError or CompileError.
  virtual void run(const std::vector<tessera_tensor>& inputs, const std::vector<tessera_tensor>& outputs) = 0;
  // Ends the runs in progress soon, with CompileError TSR-5111; compiled code goes on. Any thread.
  virtual void cancel() {}
  // Whether later runs note their kernels, and what runs have noted since the last time that it was asked for. Compiled
  // code alone does.
  virtual void set_traced(bool) {}
  virtual std::vector<KernelEvent> take_events() { return {}; }
  // Values that live from run to run; a tensor is copied to or from the caller's. RunError or CompileError.
  virtual const std::vector<tessera_value_info>& states() const = 0;
  virtual void read_state(size_t index, const tessera_tensor& value) = 0;
  virtual void write_state(size_t index, const tessera_tensor& value) = 0;
  virtual void reset_states() = 0;
  // States become those of `owner` that have their names, which must outlive this engine; runs of the two come one
  // after another. RunError where they cannot.
  virtual void share_states(Engine& owner) = 0;
  // The names of the modules in the file that this one was loaded from; none where it is alone there.
  virtual std::vector<std::string> entries() const { return {}; }
  // The outputs. RunError or CompileError.
  virtual std::vector<ResultPtr> run_values(const std::vector<const tessera_value*>& inputs) = 0;
};

// A tensor as one of the values that models are described with.
inline tessera_value_info value_info_of(const tessera_tensor_info& info) {
  tessera_value_info result = {};
  result.name = info.name;
  result.dtype = info.dtype;
  result.rank = info.rank;
  std::copy(info.dims, info.dims + info.rank, result.dims);
  return result;
}

// Each with sessions of `num_threads` threads; 0: as the runtime decides. `entry`: which module of a file that holds
// several; empty: the first.
std::unique_ptr<Engine> load_module_file(const std::string& path, const std::string& entry, int num_threads);
std::unique_ptr<Engine> load_module_bytes(std::span<const std::byte> bytes, int num_threads);

std::unique_ptr<Engine> make_interpreter(Interpreter interpreter);

}  // namespace tessera::python
