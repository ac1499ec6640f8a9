// What a run is given: modules compiled from the models in seeds/onnx, run on values that the input makes up.
//
// The first two bytes choose the module (by a hash of its name), the rest become its inputs (run_inputs.h). Half of the
// inputs are right; of these a run gives what the interpreter gives, and the same again in a session that has run other
// things. The other half have one mistake, which must be refused or not matter. Compiled code is not instrumented, so
// tensors lie before pages that stop whoever touches them (run_memory.h).
//
// TESSERA_FUZZ_MODULES is the folder of modules that run_modules.py writes.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "fuzz_target.h"
#include "run_inputs.h"
#include "run_memory.h"
#include "run_reference.h"
#include "support/hash.h"
#include "tessera/tessera.h"

using namespace tessera;
using namespace tessera::fuzz;

namespace {

struct Module {
  std::string name, path;
  tessera_module* module = nullptr;
  tessera_session* sessions[2] = {};
  bool has_values = false;
  std::vector<tessera_value_info> inputs, outputs;
  std::unique_ptr<Reference> reference;

  Module() = default;
  Module(const Module&) = delete;
  ~Module() {
    for (tessera_session* session : sessions) tessera_session_free(session);
    tessera_module_free(module);
  }
  bool loaded() const { return module != nullptr; }
  void load();
};

void require_ok(tessera_status status, const tessera_error& error) {
  require(status == TESSERA_OK, std::string(error.id) + ": " + error.message);
}

void Module::load() {
  tessera_error error = {};
  require_ok(tessera_module_load(path.c_str(), nullptr, &module, &error), error);
  const tessera_session_options options = {sizeof(options), 1};
  for (tessera_session*& session : sessions) {
    require_ok(tessera_session_create(module, &options, &session, &error), error);
  }
  has_values = tessera_module_has_values(module) != 0;
  tessera_value_info info;
  for (int32_t i = 0; tessera_module_input_value(module, i, &info) == TESSERA_OK; ++i) inputs.push_back(info);
  for (int32_t i = 0; tessera_module_output_value(module, i, &info) == TESSERA_OK; ++i) outputs.push_back(info);
  reference = Reference::of_model(TESSERA_SOURCE_DIR "/tests/fuzz/seeds/onnx/" + name + ".onnx");
}

uint16_t hash_of(const std::string& name) {
  uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return static_cast<uint16_t>(hash ^ hash >> 16);
}

// By hash, so that an input finds its module when others come and go.
std::map<uint16_t, Module>& modules() {
  static std::map<uint16_t, Module> all = [] {
    std::map<uint16_t, Module> found;
    const char* folder = std::getenv("TESSERA_FUZZ_MODULES");
    require(folder && std::filesystem::is_directory(folder),
            "TESSERA_FUZZ_MODULES is no folder; tests/fuzz/run_modules.py writes one");
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".so") continue;
      const std::string name = entry.path().stem();
      require(found.count(hash_of(name)) == 0, "two names with one hash: " + name);
      Module& module = found[hash_of(name)];
      module.name = name;
      module.path = entry.path();
    }
    require(!found.empty(), std::string("there are no modules in ") + folder);
    return found;
  }();
  return all;
}

Module& choose(Bytes& bytes) {
  const uint16_t wanted = static_cast<uint16_t>(bytes.byte() | bytes.byte() << 8);
  auto found = modules().lower_bound(wanted);
  if (found == modules().end()) found = modules().begin();
  if (!found->second.loaded()) found->second.load();
  return found->second;
}

// The id of a refusal; empty for success.
std::string outcome(const Module& module, tessera_status status, const tessera_error& error) {
  if (status == TESSERA_OK) return "";
  require(status != TESSERA_INTERNAL, module.name + ": " + error.id + ": " + error.message);
  require(std::strncmp(error.id, "TSR-7", 5) == 0 && error.status == status, module.name + ": an error without an id");
  const size_t length = strnlen(error.message, sizeof(error.message));
  require(length > 20 && length < sizeof(error.message), module.name + ": an error without a message");
  return error.id;
}

GuardedRooms& rooms() {
  static GuardedRooms all(64);
  return all;
}

struct Result {
  std::string refused;
  std::vector<RunValue> outputs;
};

bool same_bits(const RunValue& a, const RunValue& b) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!same_bits(a.items[i], b.items[i])) return false;
  }
  if (!a.is_tensor()) return true;
  if (a.tensor.dtype() != b.tensor.dtype() || a.tensor.dims() != b.tensor.dims()) return false;
  if (a.tensor.dtype() == DType::kString) return a.tensor.strings() == b.tensor.strings();
  return std::memcmp(a.tensor.bytes(), b.tensor.bytes(), static_cast<size_t>(a.tensor.num_bytes())) == 0;
}

tessera_tensor tensor_of(const tessera_value_info& info, uint8_t* data) {
  tessera_tensor tensor = {};
  tensor.data = data;
  tensor.dtype = info.dtype;
  tensor.rank = info.rank;
  for (int32_t d = 0; d < info.rank; ++d) tensor.dims[d] = info.dims[d];
  return tensor;
}

size_t bytes_of(const tessera_value_info& info) {
  int64_t count = 1;
  for (int32_t d = 0; d < info.rank; ++d) count *= info.dims[d];
  return static_cast<size_t>(dtype_bytes(static_cast<DType>(info.dtype), count));
}

// Empty when a tensor is too large for this.
std::optional<Result> run_tensors(Module& module, int session, const std::vector<RunValue>& inputs, Bytes* mistake) {
  rooms().clear();
  std::vector<tessera_tensor> given, wanted;
  std::vector<const uint8_t*> memory;
  for (size_t i = 0; i < module.inputs.size(); ++i) {
    const Tensor& tensor = inputs[i].tensor;
    const auto bytes = static_cast<size_t>(tensor.num_bytes());
    if (!rooms().fits(bytes)) return std::nullopt;
    uint8_t* place = rooms().take(bytes);
    if (bytes > 0) std::memcpy(place, tensor.bytes(), bytes);
    memory.push_back(place);
    given.push_back(tensor_of(module.inputs[i], place));
  }
  for (const tessera_value_info& info : module.outputs) {
    if (!rooms().fits(bytes_of(info))) return std::nullopt;
    uint8_t* place = rooms().take(bytes_of(info));
    std::memset(place, 0xcd, bytes_of(info));
    memory.push_back(place);
    wanted.push_back(tensor_of(info, place));
  }
  auto num_inputs = static_cast<int32_t>(given.size()), num_outputs = static_cast<int32_t>(wanted.size());
  if (mistake) {
    std::vector<tessera_tensor> all = given;
    all.insert(all.end(), wanted.begin(), wanted.end());
    const uint32_t kind = mistake->below(12);
    if (kind == 0) num_inputs = static_cast<int8_t>(mistake->byte());
    else if (kind == 1) num_outputs = static_cast<int8_t>(mistake->byte());
    else break_a_tensor(all, *mistake);
    std::copy_n(all.begin(), given.size(), given.begin());
    std::copy(all.begin() + static_cast<std::ptrdiff_t>(given.size()), all.end(), wanted.begin());
  }
  tessera_error error = {};
  const tessera_status status =
      tessera_session_run(module.sessions[session], given.data(), num_inputs, wanted.data(), num_outputs, &error);
  Result result{outcome(module, status, error), {}};
  if (mistake) return result;  // outputs may be where inputs are, or before their place
  for (const uint8_t* place : memory) GuardedRooms::check(place);
  for (size_t i = 0; i < given.size(); ++i) {
    require(
        std::memcmp(given[i].data, inputs[i].tensor.bytes(), static_cast<size_t>(inputs[i].tensor.num_bytes())) == 0,
        module.name + ": a run changed an input");
  }
  if (status != TESSERA_OK) return result;
  for (size_t i = 0; i < wanted.size(); ++i) {
    Tensor tensor(static_cast<DType>(wanted[i].dtype), {wanted[i].dims, wanted[i].dims + wanted[i].rank});
    if (tensor.num_bytes() > 0) std::memcpy(tensor.mutable_bytes(), wanted[i].data, bytes_of(module.outputs[i]));
    result.outputs.emplace_back(std::move(tensor));
  }
  return result;
}

RunValue from_api(const tessera_value& value) {
  RunValue result;
  result.kind = static_cast<ValueKind>(value.kind);
  for (int64_t i = 0; i < value.num_items; ++i) result.items.push_back(from_api(*value.items[i]));
  if (!result.is_tensor()) return result;
  std::vector<int64_t> dims(value.dims, value.dims + value.rank);
  if (value.dtype != TESSERA_STRING) {
    result.tensor = Tensor(static_cast<DType>(value.dtype), std::move(dims));
    const auto bytes = static_cast<size_t>(result.tensor.num_bytes());
    if (bytes > 0) std::memcpy(result.tensor.mutable_bytes(), value.data, bytes);
    return result;
  }
  const int64_t count = Tensor(DType::kBool, dims).num_elements();
  const auto* texts = static_cast<const tessera_string*>(value.data);
  std::vector<std::string> strings;
  for (int64_t i = 0; i < count; ++i) strings.emplace_back(texts[i].data, texts[i].size);
  result.tensor = Tensor::of_strings(std::move(strings), std::move(dims));
  return result;
}

Result run_values(Module& module, int session, const std::vector<RunValue>& inputs, Bytes* mistake, int64_t fail_from) {
  ApiValues values;
  std::vector<const tessera_value*> given;
  for (const RunValue& input : inputs) given.push_back(values.add(input));
  auto num_inputs = static_cast<int32_t>(given.size());
  if (mistake) {
    const uint32_t kind = mistake->below(12);
    if (kind == 0) num_inputs = static_cast<int8_t>(mistake->byte());
    else if (kind == 1 && !given.empty()) given[mistake->byte() % given.size()] = nullptr;
    else break_a_value(values, *mistake);
  }
  WatchedAllocator watched(fail_from);
  const tessera_allocator allocator = watched.allocator();
  std::vector<tessera_value*> outputs(module.outputs.size());
  tessera_error error = {};
  const tessera_status status =
      tessera_session_run_values(module.sessions[session], given.data(), num_inputs, outputs.data(),
                                 static_cast<int32_t>(outputs.size()), &allocator, &error);
  Result result{outcome(module, status, error), {}};
  for (tessera_value* output : outputs) {
    require((output != nullptr) == (status == TESSERA_OK), module.name + ": a failed run has outputs, or the reverse");
    if (!output) continue;
    result.outputs.push_back(from_api(*output));
    tessera_value_free(output, &allocator);
  }
  require(watched.live() == 0, module.name + ": a run kept memory");
  return result;
}

void compare(const Module& module, const MadeInputs& inputs, const Result& result) {
  if (!module.reference || result.refused == "TSR-7016") return;  // out of memory
  const Reference::Answer answer = module.reference->run(inputs.values);
  require(answer.refused == result.refused,
          module.name + ": the interpreter answers " + (answer.refused.empty() ? "results" : answer.refused) +
              ", compiled code " + (result.refused.empty() ? "results" : result.refused));
  if (!result.refused.empty() || inputs.filling == Filling::kWild) return;
  // Weights of a run may be infinite, and their products with zeros that stand around or between the elements of an
  // image are left out (schedule/rules/rules.h, register_tile).
  if (inputs.filling == Filling::kSpecial && module.reference->convolves_by_inputs()) return;
  const std::string difference = Reference::difference(answer.results, result.outputs);
  require(difference.empty(), module.name + ": " + difference);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  Module& module = choose(bytes);
  const uint8_t plan = bytes.byte();
  const MadeInputs inputs = make_inputs(module.inputs, bytes);
  Bytes* const mistake = plan >= 128 ? &bytes : nullptr;
  if (module.has_values) {
    const int64_t fail_from = plan >= 32 && plan < 64 ? bytes.byte() : -1;
    const Result result = run_values(module, 0, inputs.values, mistake, fail_from);
    if (mistake || fail_from >= 0) return 0;
    const Result again = run_values(module, 1, inputs.values, nullptr, -1);
    require(result.refused == again.refused, module.name + ": another answer the second time");
    for (size_t i = 0; i < result.outputs.size(); ++i) {
      require(same_bits(result.outputs[i], again.outputs[i]), module.name + ": another result the second time");
    }
    compare(module, inputs, result);
    return 0;
  }
  const std::optional<Result> result = run_tensors(module, 0, inputs.values, mistake);
  if (!result || mistake) return 0;
  const std::optional<Result> again = run_tensors(module, 1, inputs.values, nullptr);
  require(result->refused == again->refused, module.name + ": another answer the second time");
  for (size_t i = 0; i < result->outputs.size() && module.reference; ++i) {
    require(same_bits(result->outputs[i], again->outputs[i]), module.name + ": another result the second time");
  }
  compare(module, inputs, *result);
  return 0;
}
