// A model that can be run, whatever runs it: compiled code or the interpreter.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "driver/analysis/kernel_trace.h"
#include "graph/flow.h"
#include "program/reuse_distance.h"
#include "types/run_value.h"

namespace tessera::inline driver {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;  // < 0: symbol number -(dim + 1), bound at run time; of values (below): open
  // Of inputs and outputs of models with values: what is around the tensors, outermost first, and of maps the keys.
  std::vector<ValueKind> wrappers = {};
  DType key = DType::kI64;
  bool any_rank = false;

  bool is_tensor() const { return wrappers.empty(); }
  bool is_static() const;
  std::string type_text() const;  // "f32[1,3,?,?]", "seq(f32[*])"
};

// A kernel of compiled code, as its module describes it.
struct KernelInfo {
  std::string name;    // the model's node names that it stands for, joined by '+'
  int64_t flops = -1;  // of one call; -1: not known
  int64_t bytes = -1;
  int64_t constant_bytes = -1;            // of them: weights
  std::vector<CallTraffic> traffic = {};  // of its first call; empty: not known
  std::string rule = {};  // that scheduled it, or the point or sketch of tuning records; empty: not known
  std::string unit = {};  // what its products go through (loop/arithmetic_unit.h); empty: not known
  // Of one that runs on a device: the device's number, from 1, and its name, and what its queue calls the operation.
  int32_t device = 0;
  std::string device_name = {}, operation = {};
};

// A dimension that a module leaves open, and the values that it may take.
struct OpenDim {
  std::string name;
  int64_t lo = 0, hi = 0;
};

// Thread safety: one thread at a time.
class Model {
 public:
  virtual ~Model() = default;
  virtual const std::string& name() const = 0;
  virtual const std::vector<TensorInfo>& inputs() const = 0;
  virtual const std::vector<TensorInfo>& outputs() const = 0;
  // What dims < 0 of inputs stand for, by number; none for the interpreter, and for models with values.
  virtual std::vector<OpenDim> open_dims() const { return {}; }

  // Fixes the tensors of later runs. Keeps references to their bytes, allocates the outputs. UserError when a shape or
  // dtype does not fit (check_inputs), or the runtime refuses.
  virtual void bind(std::vector<Tensor> inputs) = 0;
  // Runs once on the bound tensors. Compiled code allocates nothing here.
  virtual void run() = 0;
  // Ends a run in progress soon, with UserError TSR-5111 there. Any thread may call it; compiled code goes on.
  virtual void cancel() {}
  // Of the last run; valid until the next bind() or run().
  virtual const std::vector<Tensor>& results() const = 0;
  virtual int num_threads() const = 0;
  // The same compiled code with memory and threads of its own, for running at the same time; null for the interpreter.
  virtual std::unique_ptr<Model> another() const { return nullptr; }

  // Values that live from run to run: name, dtype and shape of each, its value now, and another one in its place. They
  // begin with the initial values that the model gives, and reset_states gives them again.
  virtual const std::vector<TensorInfo>& states() const;
  virtual Tensor state(size_t index) const;                   // a copy
  virtual void set_state(size_t index, const Tensor& value);  // UserError TSR-6302, TSR-6303: it does not fit
  virtual void reset_states() {}

  // Models with strings, sequences, optionals, maps, or shapes that only a run knows: they are bound to values, and
  // their results are values. bind() takes their tensors, and results() has an empty tensor where the result is none.
  virtual bool has_values() const { return false; }
  virtual void bind_values(std::vector<RunValue> inputs);
  virtual std::vector<RunValue> value_results() const;

  // In the order of their numbers; none for the interpreter.
  virtual const std::vector<KernelInfo>& kernels() const = 0;
  // Like run(), and tells what each thread did; nothing for the interpreter. Slower by a few clock readings a kernel.
  virtual std::vector<KernelSpan> run_traced() = 0;

  // Called with the values inside, each as soon as it is whole. False: nothing more needs to be shown.
  using Watcher = std::function<bool(const std::string& name, const Tensor& value)>;
  // The names of the values that run_watched can show: those that the compiled program keeps in memory, or, for the
  // interpreter, every value of the graph that is no constant.
  virtual std::vector<std::string> watchable() const = 0;
  // Like run(), and shows the values that `wanted` says yes to. Neither may throw. The interpreter ends when a watcher
  // has seen enough, and then has no results.
  virtual void run_watched(const std::function<bool(const std::string& name)>& wanted, const Watcher& watcher) = 0;
};

// With bytes of its own.
Tensor copy_of(const Tensor& tensor);
// "f32[2,3]", "a sequence of 3"
std::string value_text(const RunValue& value);
TensorInfo info_of(const FlowPort& port);
FlowType flow_type_of(const TensorInfo& info);

// The inputs as the model takes them: a scalar may come as one element of any rank. UserError TSR-6301 (how many),
// TSR-6302 (dtype), TSR-6303 (shape), each naming the input, what it is and what came.
std::vector<Tensor> fitting_inputs(const std::vector<TensorInfo>& infos, std::vector<Tensor> inputs);
// UserError TSR-6302, TSR-6303 unless the value is of the state's type.
void require_fits_state(const TensorInfo& info, const Tensor& value);
// The same for values, and TSR-6309 for another kind of value; shapes of tensors inside of others are not held against
// the model.
std::vector<RunValue> fitting_values(const std::vector<TensorInfo>& infos, std::vector<RunValue> inputs);

}  // namespace tessera::inline driver
