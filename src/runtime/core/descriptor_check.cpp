#include "runtime/core/descriptor_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "abi/module_abi.h"
#include "runtime/core/dtypes.h"
#include "runtime/core/errors.h"
#include "runtime/core/utf8.h"

namespace tessera {

namespace {

class DescriptorChecker {
 public:
  DescriptorChecker(const uint8_t* bytes, uint64_t size, uint64_t weights_size, uint64_t images_size,
                    const char* module_name, tessera_error* error)
      : bytes_(bytes),
        size_(size),
        weights_size_(weights_size),
        images_size_(images_size),
        module_name_(module_name),
        error_(error) {}

  tessera_status check();

 private:
  tessera_status check_tables();
  tessera_status check_symbol(uint32_t index);
  tessera_status check_tensor(const char* kind, uint32_t index, const tsr_tensor_descr& tensor);
  tessera_status check_symbols_are_bound();
  tessera_status check_variant(uint32_t index);
  tessera_status check_decided(uint32_t index);
  tessera_status check_kernel(uint32_t index);
  tessera_status check_check(uint32_t index);
  tessera_status check_alias(uint32_t index);
  tessera_status check_state(uint32_t index);
  tessera_status check_device(uint32_t index);
  tessera_status check_operation(uint32_t index);
  tessera_status check_value(const char* kind, uint32_t index, const tsr_value_descr& value);
  tessera_status check_piece(uint32_t index);
  tessera_status check_step(uint32_t index);
  tessera_status check_string(uint32_t index);
  // The format says what it is: "the name of symbol 3".
  __attribute__((format(printf, 3, 4))) tessera_status check_text(uint32_t offset, const char* format, ...);
  bool table_fits(uint32_t offset, uint32_t count, uint64_t element) const {
    return offset % TSR_SECTION_ALIGN == 0 && offset <= size_ && count <= (size_ - offset) / element;
  }
  template <typename T>
  const T* table(uint32_t offset) const {
    return reinterpret_cast<const T*>(bytes_ + offset);
  }
  const char* text(uint32_t offset) const { return reinterpret_cast<const char*>(bytes_ + offset); }
  __attribute__((format(printf, 2, 3))) tessera_status wrong(const char* format, ...);

  const uint8_t* bytes_;
  uint64_t size_;
  uint64_t weights_size_;
  uint64_t images_size_;
  const char* module_name_;
  tessera_error* error_;
  tsr_descriptor descriptor_ = {};
};

tessera_status DescriptorChecker::wrong(const char* format, ...) {
  char what[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof(what), format, arguments);
  va_end(arguments);
  return fail(error_, kErrDescriptor, "'%s' has an inconsistent descriptor: %s; compile the model again", module_name_,
              what);
}

tessera_status DescriptorChecker::check() {
  if (size_ < sizeof(tsr_descriptor)) {
    return wrong("it has %llu bytes, at least %zu are needed", static_cast<unsigned long long>(size_),
                 sizeof(tsr_descriptor));
  }
  memcpy(&descriptor_, bytes_, sizeof(descriptor_));
  if (descriptor_.abi_version < TSR_ABI_OLDEST_VERSION || descriptor_.abi_version > TSR_ABI_VERSION) {
    return fail(error_, kErrAbiVersion,
                "'%s' was compiled for runtime interface %u; this runtime (%s) has interface "
                "%u; compile the model with the tessera of this runtime's version",
                module_name_, descriptor_.abi_version, tessera_version(), TSR_ABI_VERSION);
  }
  if (descriptor_.size != sizeof(tsr_descriptor)) {
    return wrong("its head has %u bytes instead of %zu", descriptor_.size, sizeof(tsr_descriptor));
  }
  if (descriptor_.scratch_bytes % TSR_BUFFER_ALIGN != 0) {
    return wrong("its scratch of %llu bytes per thread is not a multiple of %u",
                 static_cast<unsigned long long>(descriptor_.scratch_bytes), TSR_BUFFER_ALIGN);
  }
  if (descriptor_.num_computed > TSR_MAX_COMPUTED || descriptor_.num_derived > descriptor_.num_computed ||
      (descriptor_.num_symbols == 0 && descriptor_.num_computed > 0) ||
      descriptor_.num_data_symbols > descriptor_.num_symbols ||
      descriptor_.num_decided > descriptor_.num_computed - descriptor_.num_derived) {
    return wrong("it has %u symbols, %u computed sizes and %u derived dimensions", descriptor_.num_symbols,
                 descriptor_.num_computed, descriptor_.num_derived);
  }
  tessera_status status = check_tables();
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor_.num_symbols; ++i) status = check_symbol(i);
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor_.num_inputs; ++i) {
    status = check_tensor("input", i, table<tsr_tensor_descr>(descriptor_.inputs)[i]);
  }
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor_.num_outputs; ++i) {
    status = check_tensor("output", i, table<tsr_tensor_descr>(descriptor_.outputs)[i]);
  }
  if (status == TESSERA_OK) status = check_symbols_are_bound();
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor_.num_decided; ++i) status = check_decided(i);
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor_.num_kernels; ++i) status = check_kernel(i);
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor_.num_checks; ++i) status = check_check(i);
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor_.num_aliases; ++i) status = check_alias(i);
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor_.num_states; ++i) status = check_state(i);
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor_.num_devices; ++i) status = check_device(i);
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor_.num_operations; ++i) status = check_operation(i);
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor_.num_variants; ++i) status = check_variant(i);
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor_.num_value_inputs; ++i) {
    status = check_value("input", i, table<tsr_value_descr>(descriptor_.value_inputs)[i]);
  }
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor_.num_value_outputs; ++i) {
    status = check_value("output", i, table<tsr_value_descr>(descriptor_.value_outputs)[i]);
  }
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor_.num_pieces; ++i) status = check_piece(i);
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor_.num_strings; ++i) status = check_string(i);
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor_.num_steps; ++i) status = check_step(i);
  return status;
}

tessera_status DescriptorChecker::check_tables() {
  const struct {
    const char* name;
    uint32_t offset, count;
    uint64_t element;
  } tables[] = {{"inputs", descriptor_.inputs, descriptor_.num_inputs, sizeof(tsr_tensor_descr)},
                {"outputs", descriptor_.outputs, descriptor_.num_outputs, sizeof(tsr_tensor_descr)},
                {"symbols", descriptor_.symbols, descriptor_.num_symbols, sizeof(tsr_symbol_descr)},
                {"decided dimensions", descriptor_.decided, descriptor_.num_decided, sizeof(tsr_decided_descr)},
                {"kernels", descriptor_.kernels, descriptor_.num_kernels, sizeof(tsr_kernel_descr)},
                {"checks", descriptor_.checks, descriptor_.num_checks, sizeof(tsr_check_descr)},
                {"aliases", descriptor_.aliases, descriptor_.num_aliases, sizeof(tsr_alias_descr)},
                {"states", descriptor_.states, descriptor_.num_states, sizeof(tsr_state_descr)},
                {"devices", descriptor_.devices, descriptor_.num_devices, sizeof(tsr_device_descr)},
                {"operations", descriptor_.operations, descriptor_.num_operations, sizeof(tsr_operation_descr)},
                {"value inputs", descriptor_.value_inputs, descriptor_.num_value_inputs, sizeof(tsr_value_descr)},
                {"value outputs", descriptor_.value_outputs, descriptor_.num_value_outputs, sizeof(tsr_value_descr)},
                {"steps", descriptor_.steps, descriptor_.num_steps, sizeof(tsr_step_descr)},
                {"pieces", descriptor_.pieces, descriptor_.num_pieces, sizeof(tsr_piece_descr)},
                {"variants", descriptor_.variants, descriptor_.num_variants, sizeof(tsr_variant_descr)},
                {"strings", descriptor_.strings, descriptor_.num_strings, sizeof(tsr_string_descr)}};
  for (const auto& table : tables) {
    if (!table_fits(table.offset, table.count, table.element)) {
      return wrong("its table of %u %s at offset %u does not fit or is not aligned", table.count, table.name,
                   table.offset);
    }
    if (table.count > INT32_MAX) return wrong("it has %u %s", table.count, table.name);
  }
  if (descriptor_.num_slots > INT32_MAX) return wrong("it has %u slots", descriptor_.num_slots);
  const struct {
    const char* name;
    uint32_t offset;
  } texts[] = {{"the target triple", descriptor_.target},
               {"the list of CPU features", descriptor_.features},
               {"the model's name", descriptor_.model_name},
               {"the producer's name", descriptor_.producer}};
  tessera_status status = TESSERA_OK;
  for (const auto& entry : texts) {
    if (status == TESSERA_OK) status = check_text(entry.offset, "%s", entry.name);
  }
  return status;
}

tessera_status DescriptorChecker::check_text(uint32_t offset, const char* format, ...) {
  char what[64];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof(what), format, arguments);
  va_end(arguments);
  if (offset >= size_ || !memchr(bytes_ + offset, 0, size_ - offset)) {
    return wrong("%s at offset %u is not a string inside it", what, offset);
  }
  if (!is_utf8(text(offset))) return wrong("%s at offset %u is not UTF-8", what, offset);
  return TESSERA_OK;
}

tessera_status DescriptorChecker::check_symbol(uint32_t index) {
  const tsr_symbol_descr& symbol = table<tsr_symbol_descr>(descriptor_.symbols)[index];
  const tessera_status status = check_text(symbol.name, "the name of symbol %u", index);
  if (status != TESSERA_OK) return status;
  if (symbol.lo < 0 || symbol.lo > symbol.hi) {
    return wrong("symbol '%s' has the range %lld..%lld", clip_name(text(symbol.name)).text,
                 static_cast<long long>(symbol.lo), static_cast<long long>(symbol.hi));
  }
  return TESSERA_OK;
}

tessera_status DescriptorChecker::check_tensor(const char* kind, uint32_t index, const tsr_tensor_descr& tensor) {
  const tessera_status status = check_text(tensor.name, "the name of %s %u", kind, index);
  if (status != TESSERA_OK) return status;
  const ClippedText name = clip_name(text(tensor.name));
  const int32_t bits = module_dtype_bits(tensor.dtype);
  if (bits == 0)
    return wrong("%s '%s' has dtype number %u, which this runtime cannot pass", kind, name.text, tensor.dtype);
  if (tensor.rank > TSR_MAX_RANK) {
    return wrong("%s '%s' has rank %u, above %d", kind, name.text, tensor.rank, TSR_MAX_RANK);
  }
  // The product of all dims but zeros, so that a zero cannot hide an overflow of strides.
  int64_t elements = 1;
  for (uint32_t axis = 0; axis < tensor.rank; ++axis) {
    int64_t dim = tensor.dims[axis];
    if (dim < 0) {
      const uint64_t symbol = static_cast<uint64_t>(-(dim + 1));
      if (symbol >= uint64_t{descriptor_.num_symbols} + descriptor_.num_derived) {
        return wrong("%s '%s' uses symbol %llu of %u", kind, name.text, static_cast<unsigned long long>(symbol),
                     descriptor_.num_symbols);
      }
      // Derived dimensions are held against their limit when they are known.
      if (symbol >= descriptor_.num_symbols || descriptor_.num_steps > 0) continue;
      dim = table<tsr_symbol_descr>(descriptor_.symbols)[symbol].hi;
    }
    if (dim != 0 && __builtin_mul_overflow(elements, dim, &elements)) {
      return wrong("the size of %s '%s' overflows", kind, name.text);
    }
  }
  int64_t total_bits;
  if (__builtin_mul_overflow(elements, static_cast<int64_t>(bits), &total_bits)) {
    return wrong("the size of %s '%s' overflows", kind, name.text);
  }
  return TESSERA_OK;
}

tessera_status DescriptorChecker::check_symbols_are_bound() {
  const tsr_tensor_descr* inputs = table<tsr_tensor_descr>(descriptor_.inputs);
  for (uint32_t symbol = 0; symbol < descriptor_.num_symbols - descriptor_.num_data_symbols; ++symbol) {
    const int64_t wanted = -static_cast<int64_t>(symbol) - 1;
    bool bound = false;
    for (uint32_t i = 0; i < descriptor_.num_inputs && !bound; ++i) {
      for (uint32_t axis = 0; axis < inputs[i].rank; ++axis) bound |= inputs[i].dims[axis] == wanted;
    }
    if (!bound) {
      const uint32_t name = table<tsr_symbol_descr>(descriptor_.symbols)[symbol].name;
      return wrong("symbol '%s' is no dimension of any input", clip_name(text(name)).text);
    }
  }
  return TESSERA_OK;
}

tessera_status DescriptorChecker::check_variant(uint32_t index) {
  const tsr_variant_descr& variant = table<tsr_variant_descr>(descriptor_.variants)[index];
  tessera_status status = check_text(variant.name, "the name of variant %u", index);
  if (status == TESSERA_OK) status = check_text(variant.features, "the list of CPU features of variant %u", index);
  if (status == TESSERA_OK) status = check_text(variant.suffix, "the suffix of variant %u", index);
  if (status == TESSERA_OK && strlen(text(variant.suffix)) > TSR_MAX_SUFFIX)
    return wrong("the suffix of variant %u has more than %d bytes", index, TSR_MAX_SUFFIX);
  return status;
}

tessera_status DescriptorChecker::check_decided(uint32_t index) {
  const tsr_decided_descr& row = table<tsr_decided_descr>(descriptor_.decided)[index];
  const uint64_t sizes = uint64_t{descriptor_.num_symbols} + descriptor_.num_computed;
  if (row.output >= descriptor_.num_outputs || descriptor_.num_steps > 0 ||
      row.axis >= table<tsr_tensor_descr>(descriptor_.outputs)[row.output].rank ||
      row.size != sizes - descriptor_.num_decided + index) {
    return wrong("decided dimension %u is size %u, at axis %u of output %u", index, row.size, row.axis, row.output);
  }
  return TESSERA_OK;
}

tessera_status DescriptorChecker::check_kernel(uint32_t index) {
  const tsr_kernel_descr& kernel = table<tsr_kernel_descr>(descriptor_.kernels)[index];
  const tessera_status status = check_text(kernel.name, "the name of kernel %u", index);
  if (status != TESSERA_OK) return status;
  if (kernel.flops < -1 || kernel.bytes < -1) {
    return wrong("kernel %u has %lld flops and %lld bytes", index, static_cast<long long>(kernel.flops),
                 static_cast<long long>(kernel.bytes));
  }
  return TESSERA_OK;
}

tessera_status DescriptorChecker::check_check(uint32_t index) {
  const tsr_check_descr& row = table<tsr_check_descr>(descriptor_.checks)[index];
  const tessera_status status = check_text(row.what, "the text of check %u", index);
  if (status != TESSERA_OK) return status;
  if (row.count < 1 || row.count > TSR_MAX_CHECK_COUNT) {
    return wrong("check %u has %u values; legal are 1..%d", index, row.count, TSR_MAX_CHECK_COUNT);
  }
  return check_text(row.legal, "the text of check %u", index);
}

tessera_status DescriptorChecker::check_alias(uint32_t index) {
  const tsr_alias_descr* rows = table<tsr_alias_descr>(descriptor_.aliases);
  const tsr_alias_descr& row = rows[index];
  if (row.output >= descriptor_.num_outputs || row.input >= descriptor_.num_inputs) {
    return wrong("alias %u is of output %u of %u and input %u of %u", index, row.output, descriptor_.num_outputs,
                 row.input, descriptor_.num_inputs);
  }
  const bool in_order = index == 0 || rows[index - 1].output < row.output ||
                        (rows[index - 1].output == row.output && rows[index - 1].input < row.input);
  return in_order ? TESSERA_OK : wrong("alias %u is not behind the one before it", index);
}

tessera_status DescriptorChecker::check_state(uint32_t index) {
  const tsr_state_descr& state = table<tsr_state_descr>(descriptor_.states)[index];
  const tessera_status status = check_tensor("state", index, state.tensor);
  if (status != TESSERA_OK) return status;
  const ClippedText name = clip_name(text(state.tensor.name));
  uint64_t bits = static_cast<uint64_t>(module_dtype_bits(state.tensor.dtype));
  for (uint32_t axis = 0; axis < state.tensor.rank; ++axis) {
    if (state.tensor.dims[axis] < 0) return wrong("state '%s' has a dimension that is not fixed", name.text);
    bits *= static_cast<uint64_t>(state.tensor.dims[axis]);
  }
  if (state.in_place > 1) return wrong("state '%s' is in place %u times", name.text, state.in_place);
  if (descriptor_.num_steps > 0) return wrong("it has steps and the state '%s'", name.text);
  const uint64_t bytes = (bits + 7) / 8;
  if (state.initial == TSR_NO_INITIAL || (bytes <= weights_size_ && state.initial <= weights_size_ - bytes))
    return TESSERA_OK;
  return wrong("the initial value of state '%s' does not lie in the weights", name.text);
}

tessera_status DescriptorChecker::check_value(const char* kind, uint32_t index, const tsr_value_descr& value) {
  const tessera_status status = check_text(value.name, "the name of %s value %u", kind, index);
  if (status != TESSERA_OK) return status;
  bool sound = value.num_wrappers <= TSR_MAX_WRAPPERS && value.rank >= -1 && value.rank <= TSR_MAX_RANK &&
               value.slot < descriptor_.num_slots &&
               (value.dtype == TSR_STRING || module_dtype_bits(value.dtype) > 0) &&
               (value.key == TSR_STRING || value.key == TSR_I64);
  for (uint32_t i = 0; sound && i < value.num_wrappers; ++i) {
    const bool last = i + 1 == value.num_wrappers;
    sound = value.wrappers[i] >= TSR_SEQUENCE && value.wrappers[i] <= TSR_MAP && (value.wrappers[i] != TSR_MAP || last);
  }
  for (int32_t d = 0; sound && d < value.rank; ++d) sound = value.dims[d] >= -1;
  return sound ? TESSERA_OK : wrong("%s value '%s' has no sound type or slot", kind, clip_name(text(value.name)).text);
}

tessera_status DescriptorChecker::check_piece(uint32_t index) {
  const tsr_piece_descr& piece = table<tsr_piece_descr>(descriptor_.pieces)[index];
  const auto within = [](uint32_t first, uint32_t count, uint32_t all) { return first <= all && count <= all - first; };
  if (within(piece.first_input, piece.num_inputs, descriptor_.num_inputs) &&
      within(piece.first_output, piece.num_outputs, descriptor_.num_outputs) &&
      within(piece.first_check, piece.num_checks, descriptor_.num_checks) &&
      within(piece.first_symbol, piece.num_symbols, descriptor_.num_symbols)) {
    return TESSERA_OK;
  }
  return wrong("piece %u has rows beyond the tables", index);
}

tessera_status DescriptorChecker::check_string(uint32_t index) {
  const tsr_string_descr& row = table<tsr_string_descr>(descriptor_.strings)[index];
  if (row.offset <= size_ && row.size <= size_ - row.offset && is_utf8(text(row.offset), row.size)) return TESSERA_OK;
  return wrong("string %u is not UTF-8 inside it", index);
}

// How many operands and integers a step of each kind has at least; steps of a kind that is not here are refused.
struct StepShape {
  uint32_t op, inputs, outputs, ints;
};
constexpr StepShape kStepShapes[] = {
    {TSR_FLOW_PIECE, 0, 0, 0},
    {TSR_FLOW_ELEMENTWISE, 1, 1, 1},
    {TSR_FLOW_MOVE, 0, 0, 0},
    {TSR_FLOW_NUMBER, 0, 1, 1},
    {TSR_FLOW_TRUTH, 0, 1, 1},
    {TSR_FLOW_COUNT, 1, 1, 0},
    {TSR_FLOW_IF, 1, 0, 0},
    {TSR_FLOW_WHILE, 3, 0, 0},
    {TSR_FLOW_SEQUENCE, 0, 1, 1},
    {TSR_FLOW_INSERT, 3, 1, 0},
    {TSR_FLOW_ERASE, 2, 1, 0},
    {TSR_FLOW_AT, 2, 1, 0},
    {TSR_FLOW_LENGTH, 1, 1, 0},
    {TSR_FLOW_SPLIT, 2, 1, 2},
    {TSR_FLOW_JOIN, 1, 1, 2},
    {TSR_FLOW_OPTIONAL, 1, 1, 0},
    {TSR_FLOW_HAS_ELEMENT, 1, 1, 0},
    {TSR_FLOW_GET_ELEMENT, 1, 1, 0},
    {TSR_FLOW_SHAPE, 1, 1, 2},
    {TSR_FLOW_SIZE, 1, 1, 0},
    {TSR_FLOW_SLICE, 5, 1, 0},
    {TSR_FLOW_RESHAPE, 2, 1, 1},
    {TSR_FLOW_SQUEEZE, 2, 1, 0},
    {TSR_FLOW_UNSQUEEZE, 2, 1, 0},
    {TSR_FLOW_TRANSPOSE, 1, 1, 0},
    {TSR_FLOW_GATHER, 2, 1, 1},
    {TSR_FLOW_EXPAND, 2, 1, 0},
    {TSR_FLOW_CONCAT, 1, 1, 1},
    {TSR_FLOW_FLATTEN, 1, 1, 1},
    {TSR_FLOW_RANGE, 3, 1, 0},
    {TSR_FLOW_PAD, 4, 1, 1},
    {TSR_FLOW_STRING_CONCAT, 2, 1, 0},
    {TSR_FLOW_STRING_SPLIT, 1, 2, 2},
    {TSR_FLOW_STRING_NORMALIZE, 1, 1, 2},
    {TSR_FLOW_TO_STRING, 1, 1, 0},
    {TSR_FLOW_FROM_STRING, 1, 1, 1},
    {TSR_FLOW_STRING_RANK, 1, 1, 0},
    {TSR_FLOW_ZIP_MAP, 2, 1, 0},
    {TSR_FLOW_DICT_VECTORIZE, 2, 1, 0},
    {TSR_FLOW_CAST_MAP, 1, 1, 3},
};

// Whether operand `i` of a step may be left out (slot -1).
bool may_be_absent(uint32_t op, uint32_t i) {
  switch (op) {
    case TSR_FLOW_WHILE: return i < 2;
    case TSR_FLOW_INSERT: return i == 2;
    case TSR_FLOW_ERASE:
    case TSR_FLOW_SPLIT:
    case TSR_FLOW_SQUEEZE: return i == 1;
    case TSR_FLOW_OPTIONAL:
    case TSR_FLOW_HAS_ELEMENT: return i == 0;
    case TSR_FLOW_SLICE: return i >= 3;
    case TSR_FLOW_PAD: return i >= 2;
    default: return false;
  }
}

tessera_status DescriptorChecker::check_device(uint32_t index) {
  const tsr_device_descr& device = table<tsr_device_descr>(descriptor_.devices)[index];
  tessera_status status = check_text(device.name, "the name of device %u", index);
  if (status == TESSERA_OK) status = check_text(device.kind, "the kind of device %u", index);
  if (status != TESSERA_OK) return status;
  // It becomes part of a library's name.
  const char* kind = text(device.kind);
  const size_t length = strspn(kind, "abcdefghijklmnopqrstuvwxyz0123456789_");
  if (length == 0 || length > 32 || kind[length] != '\0')
    return wrong("device %u is of a kind that has no name", index);
  const auto fits = [&](uint64_t offset, uint64_t size) {
    return offset <= images_size_ && size <= images_size_ - offset;
  };
  if (!fits(device.image_offset, device.image_size) || !fits(device.weights_offset, device.weights_size) ||
      device.weights_offset % TSR_BUFFER_ALIGN != 0) {
    return wrong("the code or the weights of device %u are not among the images", index);
  }
  return TESSERA_OK;
}

tessera_status DescriptorChecker::check_operation(uint32_t index) {
  const tsr_operation_descr& operation = table<tsr_operation_descr>(descriptor_.operations)[index];
  const tessera_status status = check_text(operation.entry, "the entry of operation %u", index);
  if (status != TESSERA_OK) return status;
  return operation.device < descriptor_.num_devices ? TESSERA_OK : wrong("operation %u is of no device", index);
}

tessera_status DescriptorChecker::check_step(uint32_t index) {
  const tsr_step_descr& step = table<tsr_step_descr>(descriptor_.steps)[index];
  const tessera_status status = check_text(step.name, "the name of step %u", index);
  if (status != TESSERA_OK) return status;
  const StepShape* shape = nullptr;
  for (const StepShape& row : kStepShapes) shape = row.op == step.op ? &row : shape;
  if (!shape || step.num_inputs < shape->inputs || step.num_outputs < shape->outputs || step.num_ints < shape->ints ||
      !table_fits(step.ints, step.num_ints, sizeof(int64_t)) ||
      !table_fits(step.inputs, step.num_inputs, sizeof(int32_t)) ||
      !table_fits(step.outputs, step.num_outputs, sizeof(int32_t))) {
    return wrong("step %u of kind %u has operands that do not fit", index, step.op);
  }
  const int32_t* inputs = table<int32_t>(step.inputs);
  const int32_t* outputs = table<int32_t>(step.outputs);
  bool sound = step.op != TSR_FLOW_MOVE || step.num_inputs == step.num_outputs;
  for (uint32_t i = 0; i < step.num_inputs; ++i) {
    sound = sound && inputs[i] < static_cast<int32_t>(descriptor_.num_slots) &&
            (inputs[i] >= 0 || (inputs[i] == -1 && may_be_absent(step.op, i)));
  }
  for (uint32_t i = 0; i < step.num_outputs; ++i) {
    sound = sound && outputs[i] >= 0 && outputs[i] < static_cast<int32_t>(descriptor_.num_slots);
  }
  const bool runs_piece = step.op == TSR_FLOW_PIECE || step.op == TSR_FLOW_ELEMENTWISE;
  sound = sound && runs_piece == (step.piece >= 0);
  if (sound && runs_piece) {
    sound = step.piece < static_cast<int32_t>(descriptor_.num_pieces);
    if (sound) {
      const tsr_piece_descr& piece = table<tsr_piece_descr>(descriptor_.pieces)[step.piece];
      sound = piece.num_inputs == step.num_inputs && piece.num_outputs == step.num_outputs &&
              step.num_ints == step.num_outputs && (step.op == TSR_FLOW_PIECE || piece.num_symbols == 0);
    }
  }
  // Numbers of strings.
  const int64_t* ints = table<int64_t>(step.ints);
  const uint32_t first = step.op == TSR_FLOW_STRING_SPLIT       ? 0
                         : step.op == TSR_FLOW_STRING_NORMALIZE ? 2
                                                                : step.num_ints;
  const uint32_t last = step.op == TSR_FLOW_STRING_SPLIT ? 1 : step.num_ints;
  for (uint32_t i = first; i < last; ++i) {
    sound = sound && ints[i] >= (step.op == TSR_FLOW_STRING_SPLIT ? -1 : 0) &&
            ints[i] < static_cast<int64_t>(descriptor_.num_strings);
  }
  if (step.op == TSR_FLOW_SEQUENCE || step.op == TSR_FLOW_FROM_STRING) {
    sound = sound && (ints[0] == TSR_STRING ||
                      (ints[0] > 0 && ints[0] < 256 && module_dtype_bits(static_cast<uint32_t>(ints[0])) > 0));
  }
  return sound ? TESSERA_OK : wrong("step %u of kind %u has slots, a piece or numbers out of range", index, step.op);
}

}  // namespace

tessera_status check_descriptor(const uint8_t* bytes, uint64_t size, uint64_t weights_size, uint64_t images_size,
                                const char* module_name, tessera_error* error) {
  return DescriptorChecker(bytes, size, weights_size, images_size, module_name, error).check();
}

}  // namespace tessera
