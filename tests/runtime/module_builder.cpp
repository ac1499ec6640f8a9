#include "module_builder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera {

namespace {

constexpr char kScaleSource[] = R"(
#include "abi/module_abi.h"
struct scale { const float* x; const float* w; float* y; };
static void body(const void* arg, int64_t begin, int64_t end, int32_t worker) {
  const struct scale* s = arg;
  (void)worker;
  for (int64_t i = begin; i < end; ++i) s->y[i] = s->x[i] * s->w[i];
}
__attribute__((visibility("default"))) int32_t tessera_module_run(const tsr_call* call) {
  const tsr_host* host = call->host;
  struct scale s = {call->inputs[0], (const float*)call->weights, call->outputs[0]};
  if (host->trace) host->trace(host->self, 0, 0);
  host->parallel_for(host->self, body, &s, 4, 1);
  if (host->trace) host->trace(host->self, 0, 1);
  return 0;
}
)";

constexpr char kFlowSource[] = R"(
#include "abi/module_abi.h"
static int32_t piece(const tsr_call* call) {
  const float *x = call->inputs[0], *w = (const float*)call->weights;
  float* y = call->outputs[0];
  int64_t* check = call->outputs[1];
  for (int i = 0; i < 4; ++i) y[i] = x[i] * w[i];
  check[0] = x[0] >= 0;
  check[1] = (int64_t)x[0];
  return 0;
}
__attribute__((visibility("default"))) int32_t tessera_module_run(const tsr_call* call) {
  const tsr_host* host = call->host;
  return host->step(host->self, 0, piece) < 0 || host->step(host->self, 1, 0) < 0;
}
)";

Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

// The descriptor: head, tables, then strings.
class DescriptorWriter {
 public:
  explicit DescriptorWriter(const ModuleSpec& spec) : spec_(spec) {}

  Bytes write() {
    tsr_descriptor head = {};
    head.size = sizeof(head);
    head.abi_version = TSR_ABI_VERSION;
    head.arena_bytes = spec_.arena_bytes;
    head.scratch_bytes = spec_.scratch_bytes;
    head.num_inputs = static_cast<uint32_t>(spec_.inputs.size());
    head.num_outputs = static_cast<uint32_t>(spec_.outputs.size());
    head.num_symbols = static_cast<uint32_t>(spec_.symbols.size());
    head.num_kernels = static_cast<uint32_t>(spec_.kernels.size());
    head.num_checks = static_cast<uint32_t>(spec_.checks.size());
    head.num_aliases = static_cast<uint32_t>(spec_.aliases.size());
    head.num_states = static_cast<uint32_t>(spec_.states.size());
    head.num_variants = static_cast<uint32_t>(spec_.variants.size());
    head.num_value_inputs = static_cast<uint32_t>(spec_.value_inputs.size());
    head.num_value_outputs = static_cast<uint32_t>(spec_.value_outputs.size());
    head.num_steps = static_cast<uint32_t>(spec_.steps.size());
    head.num_pieces = static_cast<uint32_t>(spec_.pieces.size());
    head.num_slots = spec_.num_slots;
    uint32_t end = sizeof(head);
    auto place = [&end](size_t bytes) {
      const uint32_t at = end;
      end += static_cast<uint32_t>((bytes + TSR_SECTION_ALIGN - 1) / TSR_SECTION_ALIGN * TSR_SECTION_ALIGN);
      return at;
    };
    head.inputs = place(spec_.inputs.size() * sizeof(tsr_tensor_descr));
    head.outputs = place(spec_.outputs.size() * sizeof(tsr_tensor_descr));
    head.symbols = place(spec_.symbols.size() * sizeof(tsr_symbol_descr));
    head.kernels = place(spec_.kernels.size() * sizeof(tsr_kernel_descr));
    head.checks = place(spec_.checks.size() * sizeof(tsr_check_descr));
    head.aliases = place(spec_.aliases.size() * sizeof(tsr_alias_descr));
    head.states = place(spec_.states.size() * sizeof(tsr_state_descr));
    head.variants = place(spec_.variants.size() * sizeof(tsr_variant_descr));
    head.value_inputs = place(spec_.value_inputs.size() * sizeof(tsr_value_descr));
    head.value_outputs = place(spec_.value_outputs.size() * sizeof(tsr_value_descr));
    head.steps = place(spec_.steps.size() * sizeof(tsr_step_descr));
    head.pieces = place(spec_.pieces.size() * sizeof(tsr_piece_descr));
    std::vector<tsr_step_descr> steps;
    for (const StepSpec& step : spec_.steps) {
      steps.push_back({step.op, 0, step.piece, static_cast<uint32_t>(step.inputs.size()),
                       place(step.inputs.size() * sizeof(int32_t)), static_cast<uint32_t>(step.outputs.size()),
                       place(step.outputs.size() * sizeof(int32_t)), static_cast<uint32_t>(step.ints.size()),
                       place(step.ints.size() * sizeof(int64_t))});
    }
    bytes_.resize(end);
    head.target = text(spec_.target);
    head.features = text(spec_.features);
    head.model_name = text(spec_.model_name);
    head.producer = text(spec_.producer);
    write_at(bytes_, 0, head);
    write_tensors(spec_.inputs, head.inputs);
    write_tensors(spec_.outputs, head.outputs);
    for (size_t i = 0; i < spec_.variants.size(); ++i) {
      const VariantSpec& variant = spec_.variants[i];
      write_at(bytes_, head.variants + i * sizeof(tsr_variant_descr),
               tsr_variant_descr{text(variant.name), text(variant.features), text(variant.suffix), 0});
    }
    for (size_t i = 0; i < spec_.symbols.size(); ++i) {
      const SymbolSpec& symbol = spec_.symbols[i];
      write_at(bytes_, head.symbols + i * sizeof(tsr_symbol_descr),
               tsr_symbol_descr{text(symbol.name), 0, symbol.lo, symbol.hi});
    }
    for (size_t i = 0; i < spec_.kernels.size(); ++i) {
      const KernelSpec& kernel = spec_.kernels[i];
      write_at(bytes_, head.kernels + i * sizeof(tsr_kernel_descr),
               tsr_kernel_descr{text(kernel.name), 0, kernel.flops, kernel.bytes});
    }
    for (size_t i = 0; i < spec_.checks.size(); ++i) {
      const CheckSpec& check = spec_.checks[i];
      write_at(bytes_, head.checks + i * sizeof(tsr_check_descr),
               tsr_check_descr{text(check.what), text(check.legal), check.count, 0});
    }
    for (size_t i = 0; i < spec_.aliases.size(); ++i)
      write_at(bytes_, head.aliases + i * sizeof(tsr_alias_descr), spec_.aliases[i]);
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      const StateSpec& state = spec_.states[i];
      const uint32_t at = head.states + static_cast<uint32_t>(i * sizeof(tsr_state_descr));
      tsr_state_descr row = {};
      row.in_place = state.in_place ? 1 : 0;
      row.initial = state.initial;
      write_at(bytes_, at, row);
      write_tensors({state.tensor}, at);
    }
    write_values(spec_.value_inputs, head.value_inputs);
    write_values(spec_.value_outputs, head.value_outputs);
    for (size_t i = 0; i < steps.size(); ++i) {
      const StepSpec& step = spec_.steps[i];
      steps[i].name = text(step.name);
      write_at(bytes_, head.steps + i * sizeof(tsr_step_descr), steps[i]);
      for (size_t k = 0; k < step.inputs.size(); ++k) write_at(bytes_, steps[i].inputs + 4 * k, step.inputs[k]);
      for (size_t k = 0; k < step.outputs.size(); ++k) write_at(bytes_, steps[i].outputs + 4 * k, step.outputs[k]);
      for (size_t k = 0; k < step.ints.size(); ++k) write_at(bytes_, steps[i].ints + 8 * k, step.ints[k]);
    }
    for (size_t i = 0; i < spec_.pieces.size(); ++i)
      write_at(bytes_, head.pieces + i * sizeof(tsr_piece_descr), spec_.pieces[i]);
    return bytes_;
  }

 private:
  uint32_t text(const std::string& value) {
    const uint32_t at = static_cast<uint32_t>(bytes_.size());
    bytes_.insert(bytes_.end(), value.begin(), value.end());
    bytes_.push_back(0);
    return at;
  }
  void write_values(const std::vector<ValueSpec>& values, uint32_t offset) {
    for (size_t i = 0; i < values.size(); ++i) {
      tsr_value_descr value = {};
      value.name = text(values[i].name);
      value.dtype = values[i].dtype;
      value.key = TSR_I64;
      value.rank = values[i].any_rank ? -1 : static_cast<int32_t>(values[i].dims.size());
      value.slot = values[i].slot;
      for (size_t axis = 0; axis < values[i].dims.size(); ++axis) value.dims[axis] = values[i].dims[axis];
      write_at(bytes_, offset + i * sizeof(value), value);
    }
  }
  void write_tensors(const std::vector<TensorSpec>& tensors, uint32_t offset) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      tsr_tensor_descr tensor = {};
      tensor.name = text(tensors[i].name);
      tensor.dtype = tensors[i].dtype;
      tensor.rank = static_cast<uint32_t>(tensors[i].dims.size());
      for (size_t axis = 0; axis < tensors[i].dims.size() && axis < TSR_MAX_RANK; ++axis) {
        tensor.dims[axis] = tensors[i].dims[axis];
      }
      write_at(bytes_, offset + i * sizeof(tensor), tensor);
    }
  }

  const ModuleSpec& spec_;
  Bytes bytes_;
};

void append(Bytes& to, const void* data, size_t size) {
  const uint8_t* begin = static_cast<const uint8_t*>(data);
  to.insert(to.end(), begin, begin + size);
}

}  // namespace

ModuleSpec::ModuleSpec()
    : source(kScaleSource),
      inputs{{"x", TSR_F32, {4}}},
      outputs{{"y", TSR_F32, {4}}},
      kernels{{"Mul_0", 4, 48}},
      weights(16) {
  const float values[4] = {2, 3, 5, 7};
  std::memcpy(weights.data(), values, sizeof(values));
}

ModuleSpec flow_spec() {
  ModuleSpec spec;
  spec.source = kFlowSource;
  spec.checks = {{"the first of 'x'", "0 or more", 2}};
  spec.value_inputs = {{"x", TSR_F32, 0, {4}}, {"s", TSR_STRING, 1, {}, true}};
  spec.value_outputs = {{"y", TSR_F32, 2, {4}}, {"t", TSR_STRING, 3, {}, true}};
  spec.num_slots = 4;
  spec.pieces = {{0, 1, 0, 1, 0, 1, 0, 0}};
  spec.steps = {{TSR_FLOW_PIECE, "Mul 'm'", {0}, {2}, {0}, 0},
                {TSR_FLOW_STRING_CONCAT, "StringConcat 'c'", {1, 1}, {3}, {}}};
  return spec;
}

Bytes ModuleSpec::build() const {
  Bytes module = compile_shared_object(source);
  if (edit_code) edit_code(module);
  tsr_footer footer = {};
  footer.code_size = module.size();
  module.resize((module.size() + TSR_WEIGHTS_ALIGN - 1) / TSR_WEIGHTS_ALIGN * TSR_WEIGHTS_ALIGN);
  footer.weights_offset = module.size();
  footer.weights_size = weights.size();
  append(module, weights.data(), weights.size());
  module.resize((module.size() + TSR_BUFFER_ALIGN - 1) / TSR_BUFFER_ALIGN * TSR_BUFFER_ALIGN);
  footer.images_offset = module.size();
  footer.images_size = images.size();
  append(module, images.data(), images.size());
  module.resize((module.size() + TSR_SECTION_ALIGN - 1) / TSR_SECTION_ALIGN * TSR_SECTION_ALIGN);
  Bytes descriptor = DescriptorWriter(*this).write();
  if (edit_descriptor) edit_descriptor(descriptor);
  footer.descriptor_offset = module.size();
  footer.descriptor_size = descriptor.size();
  append(module, descriptor.data(), descriptor.size());
  footer.metadata_offset = module.size();
  footer.metadata_size = metadata.size();
  append(module, metadata.data(), metadata.size());
  module.resize(module.size() + sizeof(footer));
  footer.file_size = module.size();
  std::memcpy(footer.magic, TSR_FOOTER_MAGIC, sizeof(footer.magic));
  seal(module, footer, true);
  return module;
}

const Bytes& compile_shared_object(const std::string& source) {
  static std::map<std::string, Bytes> cache;
  const auto found = cache.find(source);
  if (found != cache.end()) return found->second;
  char folder[] = "/tmp/tessera-module-XXXXXX";
  if (!mkdtemp(folder)) throw std::runtime_error("no temporary folder");
  const std::string base = folder;
  std::ofstream(base + "/module.c") << source;
  const std::string command = std::string("'" TESSERA_TEST_CC
                                          "' -std=c11 -O1 -fPIC -shared -nostdlib -fno-builtin "
                                          "-fvisibility=hidden -I'" TESSERA_SOURCE_DIR "/src' -o ") +
                              base + "/module.so " + base + "/module.c";
  const int status = std::system(command.c_str());
  Bytes result = read_file(base + "/module.so");
  for (const char* file : {"/module.c", "/module.so"}) unlink((base + file).c_str());
  rmdir(folder);
  if (status != 0 || result.empty()) throw std::runtime_error("cannot compile the code of a test module: " + command);
  return cache[source] = result;
}

tsr_footer read_footer(const Bytes& module) { return read_at<tsr_footer>(module, module.size() - sizeof(tsr_footer)); }

void seal(Bytes& module, tsr_footer footer, bool sections) {
  if (sections) {
    footer.code_digest = XXH3_64bits(module.data(), footer.code_size);
    footer.weights_digest = XXH3_64bits(module.data() + footer.weights_offset, footer.weights_size);
    footer.images_digest = XXH3_64bits(module.data() + footer.images_offset, footer.images_size);
    footer.descriptor_digest = XXH3_64bits(module.data() + footer.descriptor_offset, footer.descriptor_size);
    footer.metadata_digest = XXH3_64bits(module.data() + footer.metadata_offset, footer.metadata_size);
  }
  footer.footer_digest = XXH3_64bits(&footer, offsetof(tsr_footer, footer_digest));
  write_at(module, module.size() - sizeof(footer), footer);
}

}  // namespace tessera
