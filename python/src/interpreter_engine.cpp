// The reference interpreter; it runs one call at a time.
#include <mutex>

#include "engine.h"

namespace tessera::python {

namespace {

class InterpreterEngine : public Engine {
 public:
  explicit InterpreterEngine(Interpreter interpreter) : interpreter_(std::move(interpreter)) {
    for (const tessera_tensor_info& info : interpreter_.states()) states_.push_back(value_info_of(info));
  }

  bool has_values() const override { return interpreter_.has_values(); }
  const std::vector<tessera_value_info>& inputs() const override { return interpreter_.input_values(); }
  const std::vector<tessera_value_info>& outputs() const override { return interpreter_.output_values(); }
  const std::vector<Symbol>& symbols() const override { return symbols_; }
  int num_threads() const override { return 1; }
  std::span<const std::byte> contents() const override { return {}; }
  std::string metadata() const override { return {}; }

  std::vector<tessera_tensor_info> outputs_for(const std::vector<tessera_tensor>&) override {
    return interpreter_.outputs();
  }
  void cancel() override { interpreter_.cancel(); }
  void run(const std::vector<tessera_tensor>& inputs, const std::vector<tessera_tensor>& outputs) override {
    const std::lock_guard lock(mutex_);
    interpreter_.run(inputs, outputs);
  }
  const std::vector<tessera_value_info>& states() const override { return states_; }
  void read_state(size_t index, const tessera_tensor& value) override {
    const std::lock_guard lock(mutex_);
    interpreter_.read_state(index, value);
  }
  void write_state(size_t index, const tessera_tensor& value) override {
    const std::lock_guard lock(mutex_);
    interpreter_.write_state(index, value);
  }
  void share_states(Engine&) override {
    throw std::invalid_argument("the states of an interpreted model cannot be shared");
  }
  void reset_states() override {
    const std::lock_guard lock(mutex_);
    interpreter_.reset_states();
  }
  std::vector<ResultPtr> run_values(const std::vector<const tessera_value*>& inputs) override {
    const std::lock_guard lock(mutex_);
    return interpreter_.run_values(inputs);
  }

 private:
  Interpreter interpreter_;
  std::vector<tessera_value_info> states_;
  std::vector<Symbol> symbols_;  // none: shapes are fixed
  std::mutex mutex_;
};

}  // namespace

std::unique_ptr<Engine> make_interpreter(Interpreter interpreter) {
  return std::make_unique<InterpreterEngine>(std::move(interpreter));
}

}  // namespace tessera::python
