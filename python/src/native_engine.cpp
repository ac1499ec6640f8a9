// Compiled code: a module, and as many sessions as there have been runs at once; of a module with states, one.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "engine.h"

namespace tessera::python {

namespace {

void throw_unless_ok(tessera_status status, const tessera_error& error) {
  if (status != TESSERA_OK) throw RunError(error);
}

struct ModuleDeleter {
  void operator()(tessera_module* module) const { tessera_module_free(module); }
};
struct SessionDeleter {
  void operator()(tessera_session* session) const { tessera_session_free(session); }
};
using ModulePtr = std::unique_ptr<tessera_module, ModuleDeleter>;
using SessionPtr = std::unique_ptr<tessera_session, SessionDeleter>;

int64_t nanoseconds() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Kernels of one run come one after another.
void note_kernel(void* events, int32_t kernel, int32_t phase) {
  auto& list = *static_cast<std::vector<KernelEvent>*>(events);
  if (phase == 0) list.push_back({kernel, nanoseconds(), 0, syscall(SYS_gettid)});
  else if (!list.empty()) list.back().end = nanoseconds();
}

class NativeEngine : public Engine {
 public:
  NativeEngine(ModulePtr module, int num_threads) : module_(std::move(module)), num_threads_(num_threads) {
    has_values_ = tessera_module_has_values(module_.get()) != 0 || tessera_module_decides_shapes(module_.get()) != 0;
    if (has_values_) {
      tessera_value_info info;
      for (int i = 0; tessera_module_input_value(module_.get(), i, &info) == TESSERA_OK; ++i) inputs_.push_back(info);
      for (int i = 0; tessera_module_output_value(module_.get(), i, &info) == TESSERA_OK; ++i) outputs_.push_back(info);
    } else {
      tessera_tensor_info info;
      for (int i = 0; tessera_module_input(module_.get(), i, &info) == TESSERA_OK; ++i)
        inputs_.push_back(value_info_of(info));
      for (int i = 0; tessera_module_output(module_.get(), i, &info) == TESSERA_OK; ++i)
        outputs_.push_back(value_info_of(info));
    }
    tessera_tensor_info state;
    for (int i = 0; tessera_module_state(module_.get(), i, &state) == TESSERA_OK; ++i)
      states_.push_back(value_info_of(state));
    tessera_symbol_info symbol;
    for (int i = 0; tessera_module_symbol(module_.get(), i, &symbol) == TESSERA_OK; ++i)
      symbols_.push_back({symbol.name, symbol.lo, symbol.hi});
    // The first session now: a lack of memory or threads is found here.
    idle_.push_back(create_session());
    num_threads_ = tessera_session_num_threads(idle_.back().get());
  }

  bool has_values() const override { return has_values_; }
  const std::vector<tessera_value_info>& inputs() const override { return inputs_; }
  const std::vector<tessera_value_info>& outputs() const override { return outputs_; }
  const std::vector<Symbol>& symbols() const override { return symbols_; }
  int num_threads() const override { return num_threads_; }

  std::span<const std::byte> contents() const override {
    size_t size = 0;
    const void* data = tessera_module_contents(module_.get(), &size);
    return {static_cast<const std::byte*>(data), size};
  }

  std::string metadata() const override {
    size_t size = 0;
    const char* text = tessera_module_metadata(module_.get(), &size);
    return {text, size};
  }

  std::vector<tessera_tensor_info> outputs_for(const std::vector<tessera_tensor>& inputs) override {
    std::vector<tessera_tensor_info> result(outputs_.size());
    with_session([&](tessera_session* session, tessera_error& error) {
      const tessera_status status =
          tessera_session_prepare(session, inputs.data(), static_cast<int32_t>(inputs.size()), &error);
      for (size_t i = 0; status == TESSERA_OK && i < result.size(); ++i)
        tessera_session_output(session, static_cast<int32_t>(i), &result[i]);
      return status;
    });
    return result;
  }

  void run(const std::vector<tessera_tensor>& inputs, const std::vector<tessera_tensor>& outputs) override {
    with_session([&](tessera_session* session, tessera_error& error) {
      return traced(session, [&] {
        return tessera_session_run(session, inputs.data(), static_cast<int32_t>(inputs.size()), outputs.data(),
                                   static_cast<int32_t>(outputs.size()), &error);
      });
    });
  }

  void set_traced(bool on) override { is_traced_ = on; }
  std::vector<KernelEvent> take_events() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

  const std::vector<tessera_value_info>& states() const override { return states_; }
  void read_state(size_t index, const tessera_tensor& value) override {
    with_state(index, [&](void* data, size_t bytes) { std::memcpy(value.data, data, bytes); });
  }
  void write_state(size_t index, const tessera_tensor& value) override {
    with_state(index, [&](void* data, size_t bytes) { std::memcpy(data, value.data, bytes); });
  }
  void reset_states() override {
    with_session([](tessera_session* session, tessera_error& error) { return tessera_session_reset(session, &error); });
  }

  void share_states(Engine& owner) override {
    auto* const other = dynamic_cast<NativeEngine*>(&owner);
    if (!other) throw std::invalid_argument("the states of an interpreted model cannot be shared");
    SessionPtr session = take_session(), of_owner = other == this ? nullptr : other->take_session();
    tessera_error error = {};
    const tessera_status status =
        tessera_session_share_states(session.get(), of_owner ? of_owner.get() : session.get(), &error);
    if (status == TESSERA_OK) owner_ = other;
    give_back(std::move(session));
    if (of_owner) other->give_back(std::move(of_owner));
    throw_unless_ok(status, error);
  }

  std::vector<std::string> entries() const override {
    std::vector<std::string> names;
    for (int i = 0; i < tessera_module_num_entries(module_.get()); ++i)
      names.emplace_back(tessera_module_entry(module_.get(), i));
    return names;
  }

  std::vector<ResultPtr> run_values(const std::vector<const tessera_value*>& inputs) override {
    std::vector<tessera_value*> outputs(outputs_.size(), nullptr);
    with_session([&](tessera_session* session, tessera_error& error) {
      return traced(session, [&] {
        return tessera_session_run_values(session, inputs.data(), static_cast<int32_t>(inputs.size()), outputs.data(),
                                          static_cast<int32_t>(outputs.size()), nullptr, &error);
      });
    });
    std::vector<ResultPtr> results;
    for (tessera_value* output : outputs)
      results.emplace_back(output, [](tessera_value* value) { tessera_value_free(value, nullptr); });
    return results;
  }

 private:
  SessionPtr create_session() const {
    tessera_session_options options = {};
    options.size = sizeof(options);
    options.num_threads = num_threads_;
    tessera_session* session = nullptr;
    tessera_error error = {};
    throw_unless_ok(tessera_session_create(module_.get(), &options, &session, &error), error);
    return SessionPtr(session);
  }

  template <typename Call>
  void with_session(const Call& call) {
    // What shares states with another module does not run while that does.
    SessionPtr of_owner = owner_ ? owner_->take_session() : nullptr;
    SessionPtr session = take_session();
    tessera_error error = {};
    const tessera_status status = call(session.get(), error);
    give_back(std::move(session));
    if (of_owner) owner_->give_back(std::move(of_owner));
    throw_unless_ok(status, error);
  }

  void give_back(SessionPtr session) {
    {
      const std::lock_guard lock(mutex_);
      idle_.push_back(std::move(session));
    }
    returned_.notify_one();
  }

  // A run, with its kernels among the events where that was asked for.
  template <typename Run>
  tessera_status traced(tessera_session* session, const Run& run) {
    if (!is_traced_) return run();
    std::vector<KernelEvent> events;
    tessera_session_set_trace(session, note_kernel, &events);
    const tessera_status status = run();
    tessera_session_set_trace(session, nullptr, nullptr);
    const std::lock_guard lock(mutex_);
    events_.insert(events_.end(), events.begin(), events.end());
    return status;
  }

  template <typename Copy>
  void with_state(size_t index, const Copy& copy) {
    with_session([&](tessera_session* session, tessera_error&) {
      tessera_tensor state = {};
      const tessera_status status = tessera_session_state(session, static_cast<int32_t>(index), &state);
      if (status != TESSERA_OK) return status;
      size_t bits = static_cast<size_t>(tessera_dtype_bits(state.dtype));
      for (int32_t axis = 0; axis < state.rank; ++axis) bits *= static_cast<size_t>(state.dims[axis]);
      copy(state.data, (bits + 7) / 8);
      return status;
    });
  }

  SessionPtr take_session() {
    {
      std::unique_lock lock(mutex_);
      if (!states_.empty()) returned_.wait(lock, [this] { return !idle_.empty(); });
      if (!idle_.empty()) {
        SessionPtr session = std::move(idle_.back());
        idle_.pop_back();
        return session;
      }
    }
    return create_session();
  }

  ModulePtr module_;
  NativeEngine* owner_ = nullptr;  // of states that this module shares
  bool has_values_ = false;
  int num_threads_;
  std::vector<tessera_value_info> inputs_, outputs_, states_;
  std::vector<Symbol> symbols_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<SessionPtr> idle_;
  std::atomic<bool> is_traced_ = false;
  std::vector<KernelEvent> events_;
};

}  // namespace

std::unique_ptr<Engine> load_module_file(const std::string& path, const std::string& entry, int num_threads) {
  tessera_module* module = nullptr;
  tessera_error error = {};
  tessera_load_options options = {};
  options.size = sizeof(options);
  options.entry = entry.empty() ? nullptr : entry.c_str();
  throw_unless_ok(tessera_module_load(path.c_str(), &options, &module, &error), error);
  return std::make_unique<NativeEngine>(ModulePtr(module), num_threads);
}

std::unique_ptr<Engine> load_module_bytes(std::span<const std::byte> bytes, int num_threads) {
  tessera_module* module = nullptr;
  tessera_error error = {};
  throw_unless_ok(tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module, &error), error);
  return std::make_unique<NativeEngine>(ModulePtr(module), num_threads);
}

}  // namespace tessera::python
