#include "runtime/core/tensor_check.h"

#include <stdio.h>
#include <string.h>

#include "runtime/core/dtypes.h"
#include "runtime/core/errors.h"

namespace tessera {

namespace {

// What an input without elements is bound to, whose data may be null: code for all sizes may read the first elements
// before it knows that there are none. Nobody writes it; without `const` it takes no room in the file.
alignas(64) uint8_t no_elements[4096];

bool has_elements(const tessera_tensor& tensor) {
  for (int32_t axis = 0; axis < tensor.rank; ++axis)
    if (tensor.dims[axis] == 0) return false;
  return true;
}

struct DimsText {
  char text[200];
};

// "[batch,3,224,224]"; symbols by name.
DimsText print_dims(const ModuleFile& module, const int64_t* dims, int64_t rank) {
  DimsText result;
  size_t used = static_cast<size_t>(snprintf(result.text, sizeof(result.text), "["));
  for (int64_t axis = 0; axis < rank && used < sizeof(result.text); ++axis) {
    const char* comma = axis > 0 ? "," : "";
    const int64_t symbol = dims[axis] < 0 ? -(dims[axis] + 1) : INT64_MAX;
    const size_t room = sizeof(result.text) - used;
    const bool named = symbol < static_cast<int64_t>(module.descriptor->num_symbols);
    used += static_cast<size_t>(
        named ? snprintf(result.text + used, room, "%s%s", comma,
                         clip_name(module.text(module.symbols()[symbol].name)).text)
              : snprintf(result.text + used, room, "%s%lld", comma, static_cast<long long>(dims[axis])));
  }
  if (used < sizeof(result.text)) snprintf(result.text + used, sizeof(result.text) - used, "]");
  return result;
}

// One tensor against its declaration. `kind` is "input" or "output".
class TensorCheck {
 public:
  TensorCheck(const ModuleFile& module, const char* kind, const tsr_tensor_descr& declared, const tessera_tensor& given,
              int64_t* symbols, tessera_error* error)
      : module_(module), kind_(kind), declared_(declared), given_(given), symbols_(symbols), error_(error) {}

  // Everything but derived dimensions and data.
  tessera_status check_type() {
    uint32_t dtype;  // the caller's enum may hold a number that is no dtype
    static_assert(sizeof(dtype) == sizeof(given_.dtype));
    memcpy(&dtype, &given_.dtype, sizeof(dtype));
    if (dtype != declared_.dtype) {
      return fail(error_, kErrTensorDtype,
                  "%s '%s' has dtype %s; the module takes %s; convert the data before the "
                  "call",
                  kind_, name().text, module_dtype_name(dtype), module_dtype_name(declared_.dtype));
    }
    if (given_.rank < 0 || static_cast<uint32_t>(given_.rank) != declared_.rank) {
      const int64_t printable = given_.rank >= 0 && given_.rank <= TESSERA_MAX_RANK ? given_.rank : 0;
      return fail(error_, kErrTensorRank,
                  "%s '%s' has rank %d %s; the module takes rank %u %s; reshape the data "
                  "before the call",
                  kind_, name().text, given_.rank, print_dims(module_, given_.dims, printable).text, declared_.rank,
                  print_dims(module_, declared_.dims, declared_.rank).text);
    }
    return check_dims(false);
  }

  // What is left, when the derived dimensions are known.
  tessera_status check_rest() {
    const tessera_status status = check_dims(true);
    return status == TESSERA_OK ? check_data() : status;
  }

 private:
  ClippedText name() const { return clip_name(module_.text(declared_.name)); }

  tessera_status wrong_dims(uint32_t axis) {
    return fail(error_, kErrTensorDims,
                "%s '%s' has shape %s; the module takes %s (they differ at axis %u); resize "
                "the data, or compile the model for this shape",
                kind_, name().text, print_dims(module_, given_.dims, given_.rank).text,
                print_dims(module_, declared_.dims, declared_.rank).text, axis);
  }

  tessera_status check_dims(bool derived) {
    for (uint32_t axis = 0; axis < declared_.rank; ++axis) {
      const int64_t want = declared_.dims[axis], got = given_.dims[axis];
      if (want >= 0 ? got != want : got < 0) return wrong_dims(axis);
      if (want >= 0) continue;
      int64_t& value = symbols_[-(want + 1)];
      if (-(want + 1) >= static_cast<int64_t>(module_.descriptor->num_symbols)) {
        if (!derived || got == value) continue;
        return fail(error_, kErrTensorDims,
                    "%s '%s' has shape %s; with these inputs the module takes %lld at axis %u; resize the data", kind_,
                    name().text, print_dims(module_, given_.dims, given_.rank).text, static_cast<long long>(value),
                    axis);
      }
      const tsr_symbol_descr& symbol = module_.symbols()[-(want + 1)];
      if (value < 0) {
        value = got;  // the first input that has this symbol decides
        if (got >= symbol.lo && got <= symbol.hi) {
          if (symbol.step < 2 || (got - symbol.lo) % symbol.step == 0) continue;
          return fail(error_, kErrSymbolRange,
                      "%s '%s' has %lld at axis %u; the module was compiled for '%s' in %lld..%lld in steps of %u; pad "
                      "or resize the data, or compile the model for other steps (--dim %s=LO..HI:STEP)",
                      kind_, name().text, static_cast<long long>(got), axis, clip_name(module_.text(symbol.name)).text,
                      static_cast<long long>(symbol.lo), static_cast<long long>(symbol.hi), symbol.step,
                      clip_name(module_.text(symbol.name)).text);
        }
        return fail(error_, kErrSymbolRange,
                    "%s '%s' has %lld at axis %u; the module was compiled for '%s' in "
                    "%lld..%lld; compile the model for a wider range (--dim %s=LO..HI)",
                    kind_, name().text, static_cast<long long>(got), axis, clip_name(module_.text(symbol.name)).text,
                    static_cast<long long>(symbol.lo), static_cast<long long>(symbol.hi),
                    clip_name(module_.text(symbol.name)).text);
      }
      if (got != value) {
        return fail(error_, kErrSymbolConflict,
                    "%s '%s' has %lld at axis %u; '%s' is %lld by an earlier input; all "
                    "dimensions of that name must agree",
                    kind_, name().text, static_cast<long long>(got), axis, clip_name(module_.text(symbol.name)).text,
                    static_cast<long long>(value));
      }
    }
    return TESSERA_OK;
  }

  tessera_status check_data() {
    if (!has_elements(given_)) return TESSERA_OK;  // data is not looked at and may be null
    int64_t elements = 1;
    for (int32_t axis = 0; axis < given_.rank; ++axis) elements *= given_.dims[axis];
    if (!given_.data) {
      return fail(error_, kErrTensorNull, "%s '%s' has no data (null pointer); %lld elements of %s are needed", kind_,
                  name().text, static_cast<long long>(elements), module_dtype_name(declared_.dtype));
    }
    const uint32_t bytes = static_cast<uint32_t>(module_dtype_bits(declared_.dtype)) / 8;
    if (bytes > 1 && reinterpret_cast<uintptr_t>(given_.data) % bytes != 0) {
      return fail(error_, kErrTensorAlign,
                  "%s '%s' has data at an address that is not a multiple of %u, the size of "
                  "its %s elements; copy the data to aligned memory",
                  kind_, name().text, bytes, module_dtype_name(declared_.dtype));
    }
    return TESSERA_OK;
  }

  const ModuleFile& module_;
  const char* kind_;
  const tsr_tensor_descr& declared_;
  const tessera_tensor& given_;
  int64_t* symbols_;
  tessera_error* error_;
};

struct Extent {
  uintptr_t begin, end;
  bool meets(const Extent& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Extent& other) const { return begin == other.begin && end == other.end; }
};

// Of a checked tensor: its size cannot overflow.
Extent extent_of(const tessera_tensor& tensor) {
  uint64_t bits = static_cast<uint64_t>(module_dtype_bits(static_cast<uint32_t>(tensor.dtype)));
  for (int32_t axis = 0; axis < tensor.rank; ++axis) bits *= static_cast<uint64_t>(tensor.dims[axis]);
  const uintptr_t begin = bits == 0 ? 0 : reinterpret_cast<uintptr_t>(tensor.data);
  return {begin, begin + (bits + 7) / 8};
}

bool same_type(const tsr_tensor_descr& a, const tsr_tensor_descr& b) {
  return a.dtype == b.dtype && a.rank == b.rank && memcmp(a.dims, b.dims, a.rank * sizeof(a.dims[0])) == 0;
}

tessera_status overlap(const ModuleFile& module, uint32_t output, const char* kind, uint32_t other_name,
                       const char* advice, tessera_error* error) {
  return fail(error, kErrTensorOverlap, "output '%s' shares memory with %s '%s'; %s",
              clip_name(module.text(module.outputs()[output].name)).text, kind, clip_name(module.text(other_name)).text,
              advice);
}

constexpr char kOwnMemory[] = "give every output memory of its own";

// An output may have the memory of one input of its type: the module writes it there when it has read the input, or
// into spare memory, from which it is copied after the run. One that begins with an input may begin in its memory.
tessera_status check_overlaps(const ModuleFile& module, const tessera_tensor* inputs, const tessera_tensor* outputs,
                              const BoundTensors& bound, tessera_error* error) {
  for (uint32_t i = 0; i < module.descriptor->num_outputs; ++i) {
    const Extent extent = extent_of(outputs[i]);
    for (uint32_t j = 0; j < module.descriptor->num_inputs; ++j) {
      const Extent input = extent_of(inputs[j]);
      if (!extent.meets(input)) continue;
      const tsr_tensor_descr& row = module.inputs()[j];
      if (extent.begin == input.begin && input.end <= extent.end && module.may_alias(i, j)) continue;
      if (!(extent == input) || !same_type(row, module.outputs()[i])) {
        return overlap(module, i, "input", row.name,
                       "it may have all of the memory of an input of its type and shape, "
                       "or memory of its own",
                       error);
      }
      if (!bound.spare[i]) return overlap(module, i, "input", row.name, kOwnMemory, error);
      bound.outputs[i] = bound.spare[i];
    }
    for (uint32_t j = 0; j < i; ++j) {
      if (extent.meets(extent_of(outputs[j])))
        return overlap(module, i, "output", module.outputs()[j].name, kOwnMemory, error);
    }
  }
  return TESSERA_OK;
}

}  // namespace

tessera_status check_count(const char* kind, int32_t given, uint32_t wanted, tessera_error* error) {
  if (given >= 0 && static_cast<uint32_t>(given) == wanted) return TESSERA_OK;
  return fail(error, kErrTensorCount,
              "the run was given %d %ss; the module has %u; give them all, in the module's "
              "order",
              given, kind, wanted);
}

uint64_t spare_bytes(const ModuleFile& module, uint32_t output) {
  if (module.has_values()) return 0;  // memory of its pieces is the run's own
  const tsr_tensor_descr& row = module.outputs()[output];
  uint64_t bits = static_cast<uint64_t>(module_dtype_bits(row.dtype));
  for (uint32_t axis = 0; axis < row.rank; ++axis) {
    if (row.dims[axis] < 0 || __builtin_mul_overflow(bits, static_cast<uint64_t>(row.dims[axis]), &bits)) return 0;
  }
  for (uint32_t i = 0; i < module.descriptor->num_inputs; ++i) {
    if (same_type(row, module.inputs()[i]) && !module.may_alias(output, i)) return (bits + 7) / 8;
  }
  return 0;
}

tessera_status bind_sizes(const ModuleFile& module, const tessera_tensor* inputs, int32_t num_inputs, int64_t* symbols,
                          tessera_error* error) {
  const tsr_descriptor& descriptor = *module.descriptor;
  tessera_status status = check_count("input", num_inputs, descriptor.num_inputs, error);
  for (uint32_t i = 0; i < descriptor.num_symbols; ++i) symbols[i] = -1;
  for (uint32_t i = 0; status == TESSERA_OK && i < descriptor.num_inputs; ++i) {
    status = TensorCheck(module, "input", module.inputs()[i], inputs[i], symbols, error).check_type();
  }
  return status;
}

tessera_status check_and_bind(const ModuleFile& module, const tessera_tensor* inputs, const tessera_tensor* outputs,
                              const BoundTensors& bound, tessera_error* error) {
  const tsr_descriptor& descriptor = *module.descriptor;
  tessera_status status = TESSERA_OK;
  for (uint32_t i = 0; i < descriptor.num_inputs; ++i) {
    status = TensorCheck(module, "input", module.inputs()[i], inputs[i], bound.symbols, error).check_rest();
    if (status != TESSERA_OK) return status;
    bound.inputs[i] = has_elements(inputs[i]) ? inputs[i].data : no_elements;
  }
  for (uint32_t i = 0; i < descriptor.num_outputs; ++i) {
    TensorCheck check(module, "output", module.outputs()[i], outputs[i], bound.symbols, error);
    status = check.check_type();
    if (status == TESSERA_OK) status = check.check_rest();
    if (status != TESSERA_OK) return status;
    bound.outputs[i] = outputs[i].data;
  }
  return check_overlaps(module, inputs, outputs, bound, error);
}

}  // namespace tessera
