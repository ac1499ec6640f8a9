#include "driver/engine/native_model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include "arith/expr_parser.h"
#include "arith/simplify.h"
#include "driver/api/api_values.h"
#include "package/value_json.h"
#include "runtime/core/module_loader.h"
#include "runtime/core/session.h"
#include "support/error.h"
#include "tessera/tessera.h"

namespace tessera::inline driver {

namespace {

// The runtime's messages are whole: what was found, what is legal, what to do.
void throw_unless_ok(tessera_status status, const tessera_error& error) {
  if (status == TESSERA_OK) return;
  if (status == TESSERA_INTERNAL) throw InternalError(error.message);
  throw UserError({.id = error.id, .message = error.message, .node = {}, .legal = {}, .hint = {}});
}

TensorInfo tensor_info_of(const tessera_tensor_info& info) {
  return {info.name, static_cast<DType>(info.dtype), {info.dims, info.dims + info.rank}};
}

struct SessionDeleter {
  void operator()(tessera_session* session) const { tessera_session_free(session); }
};
using ModulePtr = std::shared_ptr<tessera_module>;  // shared by the sessions of one module
using SessionPtr = std::unique_ptr<tessera_session, SessionDeleter>;

class NativeModel : public Model {
 public:
  NativeModel(ModulePtr module, std::string name, int num_threads)
      : name_(std::move(name)), module_(std::move(module)) {
    tessera_session_options options = {};
    options.size = sizeof(options);
    options.num_threads = num_threads;
    tessera_session* session = nullptr;
    tessera_error error = {};
    throw_unless_ok(tessera_session_create(module_.get(), &options, &session, &error), error);
    session_.reset(session);
    tessera_tensor_info info;
    for (int i = 0; tessera_module_input(module_.get(), i, &info) == TESSERA_OK; ++i)
      inputs_.push_back(tensor_info_of(info));
    for (int i = 0; tessera_module_output(module_.get(), i, &info) == TESSERA_OK; ++i)
      outputs_.push_back(tensor_info_of(info));
    for (int i = 0; tessera_module_state(module_.get(), i, &info) == TESSERA_OK; ++i)
      states_.push_back(tensor_info_of(info));
  }

  const std::string& name() const override { return name_; }
  const std::vector<TensorInfo>& inputs() const override { return inputs_; }
  const std::vector<TensorInfo>& outputs() const override { return outputs_; }
  const std::vector<Tensor>& results() const override { return results_; }
  std::vector<OpenDim> open_dims() const override {
    std::vector<OpenDim> dims;
    tessera_symbol_info symbol;
    for (int i = 0; tessera_module_symbol(module_.get(), i, &symbol) == TESSERA_OK; ++i)
      dims.push_back({symbol.name, symbol.lo, symbol.hi});
    return dims;
  }
  const std::vector<TensorInfo>& states() const override { return states_; }
  Tensor state(size_t index) const override {
    Tensor copy(states_.at(index).dtype, states_.at(index).dims);
    std::memcpy(copy.mutable_bytes(), state_bytes(index), static_cast<size_t>(copy.num_bytes()));
    return copy;
  }
  void set_state(size_t index, const Tensor& value) override {
    require_fits_state(states_.at(index), value);
    std::memcpy(state_bytes(index), value.bytes(), static_cast<size_t>(value.num_bytes()));
  }
  void reset_states() override {
    tessera_error error = {};
    throw_unless_ok(tessera_session_reset(session_.get(), &error), error);
  }

  int num_threads() const override { return tessera_session_num_threads(session_.get()); }
  std::unique_ptr<Model> another() const override {
    return std::make_unique<NativeModel>(module_, name_, num_threads());
  }

  void bind(std::vector<Tensor> inputs) override {
    bound_ = fitting_inputs(inputs_, std::move(inputs));
    kernels_.reset();  // their work may depend on sizes
    input_tensors_.clear();
    for (const Tensor& tensor : bound_)
      input_tensors_.push_back(describe(tensor, const_cast<std::byte*>(tensor.bytes())));
    results_.clear();
    tessera_error error = {};
    throw_unless_ok(tessera_session_prepare(session_.get(), input_tensors_.data(),
                                            static_cast<int32_t>(input_tensors_.size()), &error),
                    error);
    tessera_tensor_info output;
    for (int i = 0; tessera_session_output(session_.get(), i, &output) == TESSERA_OK; ++i)
      results_.emplace_back(outputs_[static_cast<size_t>(i)].dtype,
                            std::vector<int64_t>(output.dims, output.dims + output.rank));
    output_tensors_.clear();
    for (Tensor& tensor : results_) output_tensors_.push_back(describe(tensor, tensor.mutable_bytes()));
    rooms_.reset();
    if (tessera_module_decides_shapes(module_.get()))
      rooms_ = std::make_shared<const std::vector<Tensor>>(std::exchange(results_, {}));
  }

  const std::vector<KernelInfo>& kernels() const override {
    if (!kernels_) kernels_ = read_kernels();
    return *kernels_;
  }

  std::vector<KernelSpan> run_traced() override {
    KernelTrace trace(num_threads());
    tessera_session_set_trace(
        session_.get(),
        [](void* user, int32_t kernel, int32_t phase) { static_cast<KernelTrace*>(user)->on_kernel(kernel, phase); },
        &trace);
    tessera_session_set_worker_trace(
        session_.get(),
        [](void* user, int32_t kernel, int32_t worker, int32_t phase) {
          static_cast<KernelTrace*>(user)->on_piece(kernel, worker, phase);
        },
        &trace);
    tessera_session_set_device_trace(
        session_.get(),
        [](void* user, int32_t device, const char* operation, int64_t begin_ns, int64_t end_ns) {
          static_cast<KernelTrace*>(user)->on_operation(device, operation, begin_ns, end_ns);
        },
        &trace);
    trace.start();
    const auto stop = [this] {
      tessera_session_set_trace(session_.get(), nullptr, nullptr);
      tessera_session_set_worker_trace(session_.get(), nullptr, nullptr);
      tessera_session_set_device_trace(session_.get(), nullptr, nullptr);
    };
    try {
      run();
    } catch (...) {
      stop();
      throw;
    }
    stop();
    std::vector<KernelSpan> spans = trace.spans();
    name_operations(spans);
    return spans;
  }

  // A queue does what it is given in order, so that the calls of one operation take turns.
  void name_operations(std::vector<KernelSpan>& spans) const {
    std::map<std::pair<int32_t, std::string>, std::pair<std::vector<int32_t>, size_t>> calls;
    for (size_t i = 0; i < kernels().size(); ++i) {
      const KernelInfo& kernel = kernels()[i];
      if (kernel.device > 0) calls[{kernel.device - 1, kernel.operation}].first.push_back(static_cast<int32_t>(i));
    }
    for (KernelSpan& span : spans) {
      if (!span.is_of_device()) continue;
      const auto found = calls.find({span.worker, span.operation});
      if (found == calls.end()) continue;
      auto& [of, next] = found->second;
      span.kernel = of[next++ % of.size()];
    }
  }

  std::vector<std::string> watchable() const override {
    std::vector<std::string> names;
    for (const ValuePlace& place : places()) names.push_back(place.name);
    for (const size_t i : shown_at_the_end()) names.push_back(outputs_[i].name);
    return names;
  }

  void run_watched(const std::function<bool(const std::string& name)>& wanted, const Watcher& watcher) override {
    struct Watch {
      const std::vector<ValuePlace>& places;
      const std::function<bool(const std::string& name)>& wanted;
      const Watcher& watcher;
      const std::byte* arena;
      const std::vector<Tensor>& results;
      size_t next = 0;
      bool done = false;

      void after(int32_t call) {
        for (; next < places.size() && places[next].call <= call; ++next) {
          const ValuePlace& place = places[next];
          if (done || !wanted(place.name)) continue;
          const std::byte* base = place.index < 0 ? arena : results[static_cast<size_t>(place.index)].bytes();
          done = !watcher(place.name, read_value(place.type, base + place.offset));
        }
      }
    };
    const auto* arena = reinterpret_cast<const std::byte*>(session_->call.arena);
    Watch watch{places(), wanted, watcher, arena, results_};
    tessera_session_set_trace(
        session_.get(),
        [](void* user, int32_t kernel, int32_t phase) {
          if (phase == 1) static_cast<Watch*>(user)->after(kernel);
        },
        &watch);
    try {
      run();
    } catch (...) {
      tessera_session_set_trace(session_.get(), nullptr, nullptr);
      throw;
    }
    tessera_session_set_trace(session_.get(), nullptr, nullptr);
    for (const size_t i : shown_at_the_end())
      if (!watch.done && wanted(outputs_[i].name)) watch.done = !watcher(outputs_[i].name, copy_of(results()[i]));
  }

  void run() override {
    tessera_error error;
    error.message[0] = '\0';
    const tessera_status status =
        tessera_session_run(session_.get(), input_tensors_.data(), static_cast<int32_t>(input_tensors_.size()),
                            output_tensors_.data(), static_cast<int32_t>(output_tensors_.size()), &error);
    throw_unless_ok(status, error);
    if (rooms_) take_decided_results();
  }

 private:
  // The results in the shapes that the run decided, in the memory that had room for the largest.
  void take_decided_results() {
    results_.clear();
    tessera_tensor_info output;
    for (int i = 0; tessera_session_output(session_.get(), i, &output) == TESSERA_OK; ++i)
      results_.emplace_back(static_cast<DType>(output.dtype),
                            std::vector<int64_t>(output.dims, output.dims + output.rank), rooms_,
                            (*rooms_)[static_cast<size_t>(i)].bytes());
  }

  // Nothing where one entry is not as module_metadata writes it.
  static std::vector<CallTraffic> read_traffic(const nlohmann::json& entries) {
    std::vector<CallTraffic> traffic;
    for (const auto& entry : entries) {
      const auto is_count = [](const nlohmann::json& number) { return number.is_number_unsigned(); };
      if (!entry.is_array() || entry.size() != 3 || !std::all_of(entry.begin(), entry.end(), is_count)) return {};
      const CallTraffic argument = {entry[0].get<int64_t>(), entry[1].get<int64_t>(), entry[2].get<int64_t>()};
      const auto [least, most] = std::minmax({argument.bytes, argument.distance, argument.calls});
      if (least < 0 || most > INT64_MAX / 2) return {};  // their sum is asked for
      traffic.push_back(argument);
    }
    return traffic;
  }

  // The values of the sizes that the module leaves open, by name, in the inputs that are bound.
  std::map<std::string, int64_t> bound_sizes() const {
    std::map<std::string, int64_t> sizes;
    const std::vector<OpenDim> open = open_dims();
    for (size_t i = 0; i < bound_.size(); ++i)
      for (size_t d = 0; d < inputs_[i].dims.size(); ++d)
        if (const int64_t dim = inputs_[i].dims[d]; dim < 0)
          sizes[open.at(static_cast<size_t>(-(dim + 1))).name] = bound_[i].dims()[d];
    return sizes;
  }

  // What a formula of the metadata comes to; -1 where a size that it names has no value, or it is none.
  static int64_t value_of(const nlohmann::json& entry, const char* key, const std::map<std::string, int64_t>& sizes) {
    if (!entry.contains(key) || !entry[key].is_string()) return -1;
    ExprScope scope;
    for (const auto& [name, size] : sizes) scope.names.emplace(name, Expr(size));
    const std::string text = entry[key].get<std::string>();
    try {
      TextReader reader(text, key);
      return as_int(normalize_size(parse_expr(reader, scope))).value_or(-1);
    } catch (const UserError&) {
      return -1;
    }
  }

  // Rules and bytes are in the metadata, an entry for each call in order; a module without them has kernels all the
  // same.
  std::vector<KernelInfo> read_kernels() const {
    std::vector<KernelInfo> kernels;
    tessera_kernel_info kernel;
    for (int i = 0; tessera_module_kernel(module_.get(), i, &kernel) == TESSERA_OK; ++i)
      kernels.push_back({kernel.name, kernel.flops, kernel.bytes});
    const ModuleFile& file = module_->file;
    const auto metadata =
        nlohmann::json::parse(file.metadata(), file.metadata() + file.footer.metadata_size, nullptr, false);
    if (!metadata.is_object() || !metadata.contains("kernels") || !metadata["kernels"].is_array()) return kernels;
    const auto& entries = metadata["kernels"];
    const std::map<std::string, int64_t> sizes = bound_sizes();
    for (size_t i = 0; i < std::min(kernels.size(), entries.size()); ++i) {
      const auto& entry = entries[i];
      if (!entry.is_object() || entry.value("loc", nlohmann::json()) != kernels[i].name) continue;
      if (entry.contains("rule") && entry["rule"].is_string()) kernels[i].rule = entry["rule"].get<std::string>();
      if (entry.contains("unit") && entry["unit"].is_string()) kernels[i].unit = entry["unit"].get<std::string>();
      if (entry.contains("constant_bytes") && entry["constant_bytes"].is_number_integer())
        kernels[i].constant_bytes = entry["constant_bytes"].get<int64_t>();
      if (entry.contains("traffic")) kernels[i].traffic = read_traffic(entry["traffic"]);
      if (entry.contains("operation") && entry["operation"].is_string() && entry.contains("device") &&
          entry["device"].is_number_integer()) {
        kernels[i].operation = entry["operation"].get<std::string>();
        kernels[i].device = entry["device"].get<int32_t>();
        const int32_t device = kernels[i].device;
        if (device >= 1 && static_cast<uint32_t>(device) <= file.descriptor->num_devices)
          kernels[i].device_name = file.text(file.devices()[device - 1].name);
      }
      if (kernels[i].flops < 0) kernels[i].flops = value_of(entry, "flops_formula", sizes);
      if (kernels[i].bytes < 0) kernels[i].bytes = value_of(entry, "bytes_formula", sizes);
    }
    return kernels;
  }

  // Where values stand, as the module's metadata says; read when it is first asked for.
  const std::vector<ValuePlace>& places() const {
    if (!places_) {
      const ModuleFile& file = module_->file;
      std::vector<int64_t> bytes;
      for (const TensorInfo& info : outputs_) {
        int64_t count = 1;
        for (const int64_t dim : info.dims) count *= std::max<int64_t>(dim, 0);
        bytes.push_back(dtype_bytes(info.dtype, count));
      }
      places_ = values_from_metadata({file.metadata(), static_cast<size_t>(file.footer.metadata_size)},
                                     static_cast<int64_t>(file.descriptor->arena_bytes), bytes);
    }
    return *places_;
  }

  // Outputs that have no place which one call completes: loops write them, or data decide their sizes.
  std::vector<size_t> shown_at_the_end() const {
    std::vector<size_t> shown;
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (outputs_[i].is_tensor() && std::none_of(places().begin(), places().end(), [&](const ValuePlace& place) {
            return place.name == outputs_[i].name;
          }))
        shown.push_back(i);
    return shown;
  }

  void* state_bytes(size_t index) const {
    tessera_tensor state = {};
    tessera_session_state(session_.get(), static_cast<int32_t>(index), &state);
    return state.data;
  }

  static tessera_tensor describe(const Tensor& tensor, std::byte* data) {
    tessera_tensor result = {};
    result.data = data;
    result.dtype = static_cast<tessera_dtype>(tensor.dtype());
    result.rank = static_cast<int32_t>(tensor.dims().size());
    std::copy(tensor.dims().begin(), tensor.dims().end(), result.dims);
    return result;
  }

  std::string name_;

 protected:
  ModulePtr module_;
  SessionPtr session_;
  std::vector<TensorInfo> inputs_, outputs_, states_;
  std::vector<Tensor> results_;

 private:
  mutable std::optional<std::vector<KernelInfo>> kernels_;  // read when first asked for
  mutable std::optional<std::vector<ValuePlace>> places_;
  std::shared_ptr<const std::vector<Tensor>> rooms_;  // of a module whose data decide shapes: the memory of results
  std::vector<Tensor> bound_;
  std::vector<tessera_tensor> input_tensors_, output_tensors_;  // point into bound_ and results_
};

// A module with steps: results are made by the run.
class NativeValueModel : public NativeModel {
 public:
  NativeValueModel(ModulePtr module, std::string name, int num_threads)
      : NativeModel(std::move(module), std::move(name), num_threads) {
    tessera_value_info info;
    for (int i = 0; tessera_module_input_value(module_.get(), i, &info) == TESSERA_OK; ++i)
      inputs_.push_back(info_of(info));
    for (int i = 0; tessera_module_output_value(module_.get(), i, &info) == TESSERA_OK; ++i)
      outputs_.push_back(info_of(info));
  }

  bool has_values() const override { return true; }
  std::unique_ptr<Model> another() const override {
    return std::make_unique<NativeValueModel>(module_, name(), num_threads());
  }
  // Pieces are not looked into.
  std::vector<std::string> watchable() const override { return {}; }
  void run_watched(const std::function<bool(const std::string& name)>& wanted, const Watcher& watcher) override {
    run();
  }
  void bind(std::vector<Tensor> inputs) override { bind_values({inputs.begin(), inputs.end()}); }
  void bind_values(std::vector<RunValue> inputs) override {
    bound_ = fitting_values(inputs_, std::move(inputs));
    results_.clear();
    value_results_.clear();
  }
  std::vector<RunValue> value_results() const override { return value_results_; }

  void run() override {
    ApiValues values;
    std::vector<const tessera_value*> inputs;
    for (const RunValue& value : bound_) inputs.push_back(values.add(value));
    std::vector<tessera_value*> outputs(outputs_.size());
    tessera_error error;
    error.message[0] = '\0';
    const tessera_status status =
        tessera_session_run_values(session_.get(), inputs.data(), static_cast<int32_t>(inputs.size()), outputs.data(),
                                   static_cast<int32_t>(outputs.size()), nullptr, &error);
    throw_unless_ok(status, error);
    value_results_.clear();
    results_.clear();
    for (tessera_value* output : outputs) {
      value_results_.push_back(from_api(output, ""));
      results_.push_back(value_results_.back().tensor);
      tessera_value_free(output, nullptr);
    }
  }

 private:
  std::vector<RunValue> bound_, value_results_;
};

std::unique_ptr<Model> model_of(ModulePtr module, const std::string& name, int num_threads) {
  if (tessera_module_has_values(module.get()))
    return std::make_unique<NativeValueModel>(std::move(module), name, num_threads);
  return std::make_unique<NativeModel>(std::move(module), name, num_threads);
}

}  // namespace

std::unique_ptr<Model> load_module(const std::string& path, int num_threads, const std::string& name) {
  tessera_module* module = nullptr;
  tessera_error error = {};
  throw_unless_ok(tessera_module_load(path.c_str(), nullptr, &module, &error), error);
  return model_of(ModulePtr(module, tessera_module_free), name.empty() ? path : name, num_threads);
}

std::unique_ptr<Model> load_module(AnonymousFile file, const std::string& name, int num_threads) {
  tessera_module* module = nullptr;
  tessera_error error = {};
  throw_unless_ok(load_from_fd(file.release(), name.c_str(), nullptr, true, &module, &error), error);
  return model_of(ModulePtr(module, tessera_module_free), name, num_threads);
}

}  // namespace tessera::inline driver
