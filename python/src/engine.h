// What runs a model for Python: compiled code or the interpreter, behind one interface.
#pragma once

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

// Several threads may call `run` at once, each on tensors of its own.
class Engine {
 public:
  virtual ~Engine() = default;
  // Names live as long as the engine; a negative dim is symbol number -(dim + 1), or derived from symbols.
  virtual const std::vector<tessera_tensor_info>& inputs() const = 0;
  virtual const std::vector<tessera_tensor_info>& outputs() const = 0;
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
};

// Each with sessions of `num_threads` threads; 0: as the runtime decides.
std::unique_ptr<Engine> load_module_file(const std::string& path, int num_threads);
std::unique_ptr<Engine> load_module_bytes(std::span<const std::byte> bytes, int num_threads);

std::unique_ptr<Engine> make_interpreter(Interpreter interpreter);

}  // namespace tessera::python
