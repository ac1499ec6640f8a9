#include "runtime/values/flow_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/core/dtypes.h"
#include "runtime/core/errors.h"
#include "runtime/core/session.h"
#include "runtime/values/moves.h"
#include "runtime/values/transfer.h"

namespace tessera {

int32_t Step::fail(const char* format, ...) {
  char what[600];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof(what), format, arguments);
  va_end(arguments);
  run.status = tessera::fail(run.error, kErrStep, "%s: %s; the run has no outputs",
                             clip_name(run.module->text(row.name)).text, what);
  return -1;
}

int32_t Step::no_memory() {
  run.status = tessera::fail(run.error, kErrMemory, "not enough memory in %s: the allocator of the run refused it",
                             clip_name(run.module->text(row.name)).text);
  return -1;
}

int32_t Step::out(uint32_t i, Object* object) {
  if (!object) return no_memory();
  Object*& slot = run.slots[run.module->slots(row.outputs)[i]];
  run.heap.release(slot);
  slot = object;
  return 0;
}

DimsText dims_text(const Object& tensor) {
  DimsText result;
  char* end = stpcpy(result.text, "[");
  for (int32_t d = 0; d < tensor.rank && end < result.text + 170; ++d) {
    end += sprintf(end, "%s%lld", d > 0 ? "," : "", static_cast<long long>(tensor.dims[d]));
  }
  stpcpy(end, "]");
  return result;
}

bool is_int_tensor(const Object* object) {
  return object && object->is_tensor() && (object->dtype == TSR_I64 || object->dtype == TSR_I32);
}

int64_t int_at(const Object& tensor, int64_t index) {
  if (tensor.dtype == TSR_I64) return tensor.ints()[index];
  int32_t value;
  memcpy(&value, tensor.data() + 4 * index, sizeof(value));
  return value;
}

int32_t read_number(Step& step, const Object* tensor, const char* what, int64_t* number) {
  if (!is_int_tensor(tensor) || tensor->count != 1) {
    return step.fail("%s is no single integer; legal: one i32 or i64", what);
  }
  *number = int_at(*tensor, 0);
  return 0;
}

namespace {

// Whether a tensor in a slot is what a piece was compiled for; strings are i64 there. Open dimensions get a value, or
// must be what they are.
bool fits(FlowRun& run, const Object& tensor, const tsr_tensor_descr& declared) {
  const uint32_t dtype = tensor.dtype == TSR_STRING ? static_cast<uint32_t>(TSR_I64) : tensor.dtype;
  if (dtype != declared.dtype || tensor.rank != static_cast<int32_t>(declared.rank)) return false;
  for (int32_t d = 0; d < tensor.rank; ++d) {
    const int64_t want = declared.dims[d], got = tensor.dims[d];
    if (want >= 0 && got != want) return false;
    if (want >= 0) continue;
    const int64_t number = -(want + 1);
    if (number >= static_cast<int64_t>(run.module->descriptor->num_symbols)) return false;
    int64_t& size = run.session->bound.symbols[number];
    const tsr_symbol_descr& symbol = run.module->symbols()[number];
    if (size < 0) size = got;
    if (size != got || got < symbol.lo || got > symbol.hi) return false;
  }
  return true;
}

int32_t refuse(Step& step, const Object& found, const tsr_tensor_descr& declared) {
  char text[400];
  char* end = stpcpy(text, "[");
  for (uint32_t d = 0; d < declared.rank && end < text + 300; ++d) {
    const int64_t want = declared.dims[d], number = -(want + 1);
    if (d > 0) *end++ = ',';
    if (want >= 0) {
      end += sprintf(end, "%lld", static_cast<long long>(want));
    } else if (number < static_cast<int64_t>(step.run.module->descriptor->num_symbols)) {
      const tsr_symbol_descr& symbol = step.run.module->symbols()[number];
      const int64_t size = step.run.session->bound.symbols[number];
      if (size >= symbol.lo && size <= symbol.hi) end += sprintf(end, "%lld", static_cast<long long>(size));
      else end += sprintf(end, "%lld..%lld", static_cast<long long>(symbol.lo), static_cast<long long>(symbol.hi));
    } else {
      *end++ = '?';
    }
  }
  stpcpy(end, "]");
  return step.fail("an operand is %s; this module was compiled for %s%s", value_text(found).text,
                   module_dtype_name(declared.dtype), text);
}

// The dimensions of a result, open ones with their values; false when the code gave one that cannot be.
bool result_dims(const FlowRun& run, const tsr_tensor_descr& declared, int64_t* dims) {
  constexpr int64_t kMost = int64_t{1} << 40;
  for (uint32_t d = 0; d < declared.rank; ++d) {
    dims[d] = declared.dims[d] >= 0 ? declared.dims[d] : run.session->bound.symbols[-(declared.dims[d] + 1)];
    if (dims[d] < 0 || dims[d] > kMost) return false;
  }
  return true;
}

int32_t run_piece(Step& step, tsr_run_fn code) {
  FlowRun& run = step.run;
  const uint32_t number = static_cast<uint32_t>(step.row.piece);
  const tsr_piece_descr& piece = run.module->pieces()[number];
  tsr_call call = run.session->call;
  const void** inputs = run.session->bound.inputs;
  void** outputs = run.session->bound.outputs;
  int64_t* sizes = run.session->bound.symbols;
  for (uint32_t i = 0; i < piece.num_symbols; ++i) sizes[piece.first_symbol + i] = -1;
  for (uint32_t i = 0; i < piece.num_inputs; ++i) {
    const tsr_tensor_descr& declared = run.module->inputs()[piece.first_input + i];
    const Object* tensor = step.in(i);
    if (!tensor || !tensor->is_tensor() || !fits(run, *tensor, declared)) return refuse(step, *tensor, declared);
    inputs[piece.first_input + i] = tensor->data();
  }
  // The sizes that follow from those of the operands, and memory for what is between operands and results.
  bool sound = true;
  void* arena = nullptr;
  if (piece.num_symbols > 0) {
    for (uint32_t i = 0; i < piece.num_symbols; ++i) sound = sound && sizes[piece.first_symbol + i] >= 0;
    const tsr_prepare_fn prepare = run.session->module->code.prepare;
    const uint64_t bytes = sound && prepare ? prepare(sizes, number) : 0;
    if (bytes > 0) {
      arena = bytes <= SIZE_MAX - TSR_BUFFER_ALIGN ? run.heap.take(bytes + TSR_BUFFER_ALIGN) : nullptr;
      if (!arena) return step.no_memory();
      const uintptr_t begin = reinterpret_cast<uintptr_t>(arena);
      call.arena = static_cast<uint8_t*>(arena) + (TSR_BUFFER_ALIGN - begin % TSR_BUFFER_ALIGN) % TSR_BUFFER_ALIGN;
    }
  }
  Object** made = static_cast<Object**>(run.heap.take((size_t{piece.num_outputs} + 1) * sizeof(Object*)));
  if (!made) {
    if (arena) run.heap.give(arena);
    return step.no_memory();
  }
  uint32_t count = 0;
  for (; count < piece.num_outputs && sound; ++count) {
    const tsr_tensor_descr& declared = run.module->outputs()[piece.first_output + count];
    const uint32_t dtype = step.number(count) != 0 ? static_cast<uint32_t>(TSR_STRING) : declared.dtype;
    int64_t dims[TSR_MAX_RANK];
    sound = result_dims(run, declared, dims);
    made[count] = sound ? run.heap.make_tensor(dtype, static_cast<int32_t>(declared.rank), dims) : nullptr;
    if (!made[count]) break;
    outputs[piece.first_output + count] = made[count]->data();
  }
  int32_t result = 0;
  if (!sound) {
    result = step.fail("sizes that cannot be; compile the model again");
  } else if (count < piece.num_outputs) {
    result = step.no_memory();
  } else if (const int32_t failure = code(&call); failure != 0) {
    run.status = tessera::fail(run.error, kErrModuleCode,
                               "the code of '%s' reported error %d, which its metadata "
                               "explains; the run has no outputs",
                               run.module->name, failure);
    result = -1;
  } else {
    run.status = run.core.read_checks(*run.session, piece.first_check, piece.num_checks, run.error);
    result = run.status == TESSERA_OK ? 0 : -1;
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (result == 0) step.out(i, made[i]);
    else run.heap.release(made[i]);
  }
  run.heap.give(made);
  if (arena) run.heap.give(arena);
  return result;
}

// The piece computes a block of elements at a time; operands are brought into such blocks, broadcast.
int32_t run_elementwise(Step& step, tsr_run_fn code) {
  FlowRun& run = step.run;
  const tsr_piece_descr& piece = run.module->pieces()[step.row.piece];
  const uint32_t operands = piece.num_inputs, results = piece.num_outputs;
  const Object* given[64];
  if (operands > 64 || results > 8) return step.fail("more than 64 operands; legal: fewer");
  for (uint32_t i = 0; i < operands; ++i) {
    const tsr_tensor_descr& declared = run.module->inputs()[piece.first_input + i];
    given[i] = step.in(i);
    const bool tensor = given[i] && given[i]->is_tensor();
    if (!tensor || (given[i]->dtype == TSR_STRING ? static_cast<uint32_t>(TSR_I64) : given[i]->dtype) != declared.dtype)
      return refuse(step, *given[i], declared);
    if (slot_dtype_bits(given[i]->dtype) < 8) return step.fail("elements of less than a byte; legal: wider elements");
  }
  int32_t rank;
  int64_t dims[TSR_MAX_RANK];
  if (!broadcast_dims(given, operands, &rank, dims)) {
    return step.fail("operands of shapes %s and %s; legal: shapes that broadcast", dims_text(*given[0]).text,
                     dims_text(*given[operands - 1]).text);
  }
  Heap& heap = run.heap;
  Object* made[8] = {};
  size_t bytes = 0;  // of all blocks, each of at most 8 bytes an element
  bytes = static_cast<size_t>(operands + results) * TSR_FLOW_BLOCK * 8;
  uint8_t* blocks = static_cast<uint8_t*>(heap.take(bytes));
  bool failed = !blocks;
  for (uint32_t i = 0; i < results && !failed; ++i) {
    const uint32_t dtype =
        step.number(i) != 0 ? static_cast<uint32_t>(TSR_STRING) : run.module->outputs()[piece.first_output + i].dtype;
    made[i] = heap.make_tensor(dtype, rank, dims);
    failed = !made[i];
  }
  int32_t result = failed ? step.no_memory() : 0;
  if (!failed) {
    memset(blocks, 0, bytes);
    for (uint32_t i = 0; i < operands; ++i) {
      run.session->bound.inputs[piece.first_input + i] = blocks + static_cast<size_t>(i) * TSR_FLOW_BLOCK * 8;
    }
    for (uint32_t i = 0; i < results; ++i) {
      run.session->bound.outputs[piece.first_output + i] =
          blocks + static_cast<size_t>(operands + i) * TSR_FLOW_BLOCK * 8;
    }
    const int64_t count = made[0]->count;
    for (int64_t begin = 0; begin < count && result == 0; begin += TSR_FLOW_BLOCK) {
      const int64_t size = count - begin < TSR_FLOW_BLOCK ? count - begin : TSR_FLOW_BLOCK;
      for (uint32_t i = 0; i < operands; ++i) {
        uint8_t* block = blocks + static_cast<size_t>(i) * TSR_FLOW_BLOCK * 8;
        const size_t width = static_cast<size_t>(slot_dtype_bits(given[i]->dtype) / 8);
        if (given[i]->count == count) {
          memcpy(block, given[i]->data() + static_cast<size_t>(begin) * width, static_cast<size_t>(size) * width);
          continue;
        }
        BroadcastWalk walk(*given[i], rank, dims);
        walk.skip(begin);
        for (int64_t k = 0; k < size; ++k, walk.next()) {
          memcpy(block + static_cast<size_t>(k) * width, given[i]->data() + static_cast<size_t>(walk.place) * width,
                 width);
        }
      }
      if (const int32_t failure = code(&run.session->call); failure != 0) {
        run.status =
            tessera::fail(run.error, kErrModuleCode, "the code of '%s' reported error %d", run.module->name, failure);
        result = -1;
      }
      for (uint32_t i = 0; i < results; ++i) {
        const size_t width = static_cast<size_t>(slot_dtype_bits(made[i]->dtype) / 8);
        memcpy(made[i]->data() + static_cast<size_t>(begin) * width,
               blocks + static_cast<size_t>(operands + i) * TSR_FLOW_BLOCK * 8, static_cast<size_t>(size) * width);
      }
    }
  }
  if (blocks) heap.give(blocks);
  for (uint32_t i = 0; i < results; ++i) {
    if (result == 0) step.out(i, made[i]);
    else heap.release(made[i]);
  }
  return result;
}

// The slots get what the others held before any of them was written.
int32_t move(Step& step) {
  Heap& heap = step.run.heap;
  const uint32_t count = step.row.num_inputs;
  Object** values = static_cast<Object**>(heap.take((size_t{count} + 1) * sizeof(Object*)));
  if (!values) return step.no_memory();
  for (uint32_t i = 0; i < count; ++i) values[i] = share(const_cast<Object*>(step.in(i)));
  for (uint32_t i = 0; i < count; ++i) step.out(i, values[i]);
  heap.give(values);
  return 0;
}

int32_t scalar(Step& step, uint32_t dtype, int64_t value) {
  Object* result = step.run.heap.make_tensor(dtype, 0, nullptr);
  if (result) memcpy(result->data(), &value, static_cast<size_t>(result->bytes));
  return step.out(0, result);
}

// One bool: 0 or 1.
int32_t truth(Step& step, const Object* tensor) {
  if (!tensor->is_tensor() || tensor->dtype != TSR_BOOL || tensor->count != 1) {
    return step.fail("the condition is %s; legal: one bool", value_text(*tensor).text);
  }
  return tensor->data()[0] != 0;
}

int32_t runs_again(Step& step) {
  const Object *limit = step.in(0), *condition = step.in(1);
  int64_t most = INT64_MAX, count = 0;
  if (limit) {
    if (const int32_t code = read_number(step, limit, "the trip count", &most)) return code;
  }
  if (const int32_t code = read_number(step, step.in(2), "the count", &count)) return code;
  if (count >= most) return 0;
  return condition ? truth(step, condition) : 1;
}

int32_t run_step(void* self, uint32_t number, tsr_run_fn piece) {
  tessera_session* session = static_cast<tessera_session*>(self);
  FlowRun& run = *session->flow;
  Step step{run, run.module->steps()[number]};
  const uint32_t op = step.row.op;
  for (uint32_t i = 0; i < step.row.num_inputs; ++i) {
    const int32_t slot = run.module->slots(step.row.inputs)[i];
    if (slot >= 0 && !run.slots[slot]) {
      run.status = fail(run.error, kErrModuleCode,
                        "step %u of '%s' reads slot %d, which has no value; compile the "
                        "model again",
                        number, run.module->name, slot);
      return -1;
    }
  }
  switch (op) {
    case TSR_FLOW_PIECE: return run_piece(step, piece);
    case TSR_FLOW_ELEMENTWISE: return run_elementwise(step, piece);
    case TSR_FLOW_MOVE: return move(step);
    case TSR_FLOW_NUMBER: return scalar(step, TSR_I64, step.number(0));
    case TSR_FLOW_TRUTH: return scalar(step, TSR_BOOL, step.number(0) != 0);
    case TSR_FLOW_COUNT: return scalar(step, TSR_I64, step.in(0)->ints()[0] + 1);
    case TSR_FLOW_IF: return truth(step, step.in(0));
    case TSR_FLOW_WHILE: return runs_again(step);
    default: break;
  }
  if (op < TSR_FLOW_SHAPE) return sequence_step(step);
  if (op < TSR_FLOW_STRING_CONCAT) return tensor_step(step);
  return op < TSR_FLOW_ZIP_MAP ? string_step(step) : map_step(step);
}

tessera_status run_flow(const CoreFunctions& core, tessera_session* session, const tessera_value* const* inputs,
                        tessera_value** outputs, const tessera_allocator* allocator, tessera_error* error) {
  const ModuleFile& module = session->module->file;
  const tsr_descriptor& descriptor = *module.descriptor;
  FlowRun run(core, heap_of(allocator));
  run.session = session;
  run.module = &module;
  run.error = error;
  for (uint32_t i = 0; i < descriptor.num_value_outputs; ++i) outputs[i] = nullptr;
  run.slots = static_cast<Object**>(run.heap.take((size_t{descriptor.num_slots} + 1) * sizeof(Object*)));
  bool ready = run.slots != nullptr;
  for (uint32_t i = 0; ready && i < descriptor.num_slots; ++i) run.slots[i] = nullptr;
  for (uint32_t i = 0; ready && i < descriptor.num_strings; ++i) {
    const tsr_string_descr& text = module.strings()[i];
    ready = run.strings.number(module.text(text.offset), text.size, true) == static_cast<int64_t>(i);
  }
  if (!ready) run.status = fail(error, kErrMemory, "not enough memory for a run: the allocator refused it");
  for (uint32_t i = 0; run.status == TESSERA_OK && i < descriptor.num_value_inputs; ++i) {
    run.status = take_in(run, module.value_inputs()[i], inputs[i]);
  }
  if (run.status == TESSERA_OK) {
    session->flow = &run;
    const int32_t code = core.run_code(session);
    session->flow = nullptr;
    if (code != 0 && run.status == TESSERA_OK) {
      run.status = fail(error, kErrModuleCode,
                        "the code of '%s' reported error %d, which its metadata explains; the "
                        "run has no outputs",
                        module.name, code);
    }
  }
  for (uint32_t i = 0; run.status == TESSERA_OK && i < descriptor.num_value_outputs; ++i) {
    run.status = give_out(run, module.value_outputs()[i], &outputs[i]);
  }
  if (run.status != TESSERA_OK) {
    for (uint32_t i = 0; i < descriptor.num_value_outputs; ++i) {
      if (outputs[i]) run.heap.give(outputs[i]);
      outputs[i] = nullptr;
    }
  }
  if (run.slots) {
    for (uint32_t i = 0; i < descriptor.num_slots; ++i) run.heap.release(run.slots[i]);
    run.heap.give(run.slots);
  }
  run.strings.clear();
  return run.status;
}

}  // namespace

}  // namespace tessera

extern "C" {
extern const tessera::ValuesLibrary tessera_values_library;
const tessera::ValuesLibrary tessera_values_library = {sizeof(tessera::ValuesLibrary),
                                                       sizeof(tessera_session),
                                                       sizeof(tessera_module),
                                                       TESSERA_VERSION,
                                                       tessera::run_flow,
                                                       tessera::run_step};
}
