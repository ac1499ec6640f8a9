// Runs programs: every call through the loop interpreter, on an arena laid out as planned, so that buffers which
// wrongly share bytes show as wrong values. Before planning every buffer has memory of its own. Memory nobody has
// written yet holds a pattern that is NaN in every float type; on request, so does memory that nobody will read again,
// which makes the reading of dead bytes show as well.
#pragma once

#include <functional>
#include <vector>

#include "program/program.h"
#include "types/tensor.h"

namespace tessera::inline interp {

// `inputs` in the order of the signature, row-major, of the types that it says; InternalError otherwise (the caller
// checks what a user gives). Returns the outputs in order.
std::vector<Tensor> interpret(const Program& program, const std::vector<Tensor>& inputs);

struct ProgramRun {
  // Called with each call and the contents of its output after it; may be null.
  std::function<void(const KernelCall& call, const Tensor& output)> observe;
  // Overwrites arena memory with the pattern after the last call that uses it.
  bool poison_dead = false;
  // Does what is started when something waits for it, not at once.
  bool late_starts = false;
};
std::vector<Tensor> interpret(const Program& program, const std::vector<Tensor>& inputs, const ProgramRun& run);

// The same, calling `observe` with each call and the contents of its output after it.
using CallObserver = std::function<void(const KernelCall& call, const Tensor& output)>;
std::vector<Tensor> interpret(const Program& program, const std::vector<Tensor>& inputs, const CallObserver& observe);

}  // namespace tessera::inline interp
