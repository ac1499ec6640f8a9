#include "runtime/values/transfer.h"

#include <stdio.h>
#include <string.h>

#include "runtime/core/dtypes.h"
#include "runtime/core/errors.h"
#include "runtime/core/utf8.h"

namespace tessera {

namespace {

// The caller's enum may hold a number that names no enumerator.
template <typename Enum>
uint32_t number_of(const Enum& value) {
  uint32_t number;
  static_assert(sizeof(number) == sizeof(value));
  memcpy(&number, &value, sizeof(number));
  return number;
}

const char* const kKinds[] = {"a tensor", "a sequence", "an optional", "a map"};

// What one input or output is checked for.
struct Transfer {
  FlowRun& run;
  const tsr_value_descr& declared;
  const char* direction;

  ClippedText name() const { return clip_name(run.module->text(declared.name)); }

  tessera_status refuse(const char* found, const char* legal) {
    return fail(run.error, kErrValueKind, "%s '%s' is %s; legal: %s", direction, name().text, found, legal);
  }

  tessera_status no_memory() {
    return fail(run.error, kErrMemory, "not enough memory for %s '%s': the allocator of the run refused it", direction,
                name().text);
  }

  uint32_t kind_at(uint32_t depth) const {
    return depth < declared.num_wrappers ? declared.wrappers[depth] : static_cast<uint32_t>(TSR_TENSOR);
  }

  tessera_status tensor(const tessera_value& value, uint32_t dtype, Object** result) {
    char found[80];
    if (number_of(value.dtype) != dtype) {
      snprintf(found, sizeof(found), "a tensor of dtype %s", module_dtype_name(number_of(value.dtype)));
      return refuse(found, module_dtype_name(dtype));
    }
    int64_t count = 1;
    bool sound = value.rank >= 0 && value.rank <= TSR_MAX_RANK;
    for (int32_t d = 0; sound && d < value.rank; ++d) {
      sound = value.dims[d] >= 0 && !__builtin_mul_overflow(count, value.dims[d], &count);
    }
    if (!sound) return refuse("a tensor of no sound shape", "a rank of up to 16, and dimensions of 0 or more");
    if (count > 0 && !value.data) return refuse("a tensor without data", "an address of the elements");
    Object* made = run.heap.make_tensor(dtype, value.rank, value.dims);
    if (!made) return no_memory();
    *result = made;
    if (dtype != TSR_STRING) {
      if (made->bytes > 0) memcpy(made->data(), value.data, static_cast<size_t>(made->bytes));
      return TESSERA_OK;
    }
    const tessera_string* texts = static_cast<const tessera_string*>(value.data);
    for (int64_t i = 0; i < made->count; ++i) {
      if (texts[i].size > 0 && !texts[i].data) return refuse("a tensor of strings without data", "an address of each");
      if (!is_utf8(texts[i].data, texts[i].size)) {
        return fail(run.error, kErrNotUtf8,
                    "%s '%s' has a string, number %lld, that is not UTF-8; give strings in UTF-8", direction,
                    name().text, static_cast<long long>(i));
      }
      made->ints()[i] = run.strings.number(texts[i].size > 0 ? texts[i].data : "", texts[i].size);
      if (made->ints()[i] < 0) return no_memory();
    }
    return TESSERA_OK;
  }

  // `*result` is released by the caller even on failure.
  tessera_status take(const tessera_value* value, uint32_t depth, Object** result) {
    const uint32_t kind = kind_at(depth);
    if (!value) return refuse("a null pointer", kKinds[kind]);
    if (const uint32_t given = number_of(value->kind); given != kind) {
      return refuse(given <= TSR_MAP ? kKinds[given] : "of no known kind", kKinds[kind]);
    }
    if (kind == TSR_TENSOR) return tensor(*value, declared.dtype, result);
    const int64_t count = value->num_items;
    if (count < 0 || (count > 0 && !value->items)) return refuse("a value without items", "an address of its items");
    if (kind == TSR_OPTIONAL && count > 1) return refuse("an optional of several elements", "none or one");
    if (kind == TSR_MAP && count != 2) return refuse("a map that is no pair", "keys and values");
    Object* list = run.heap.make_list(kind, declared.dtype, count);
    if (!list) return no_memory();
    *result = list;
    for (int64_t i = 0; i < count; ++i) {
      const tessera_value* item = value->items[i];
      tessera_status status;
      if (kind != TSR_MAP) {
        status = take(item, depth + 1, &list->items()[i]);
      } else if (!item || number_of(item->kind) != TSR_TENSOR || item->rank != 1) {
        return refuse("a map of other things than lists", "keys and values as tensors of rank 1");
      } else {
        status = tensor(*item, i == 0 ? declared.key : declared.dtype, &list->items()[i]);
      }
      if (status != TESSERA_OK) return status;
    }
    if (kind == TSR_MAP && list->items()[0]->count != list->items()[1]->count) {
      return refuse("a map with another number of keys than of values", "as many of both");
    }
    return TESSERA_OK;
  }
};

constexpr size_t kAlign = 64;
size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

size_t size_of(const FlowRun& run, const Object& object) {
  size_t bytes = aligned(sizeof(tessera_value));
  if (!object.is_tensor()) {
    bytes += aligned(static_cast<size_t>(object.count) * sizeof(void*));
    for (int64_t i = 0; i < object.count; ++i) bytes += size_of(run, *object.items()[i]);
    return bytes;
  }
  if (object.dtype != TSR_STRING) return bytes + aligned(static_cast<size_t>(object.bytes));
  bytes += aligned(static_cast<size_t>(object.count) * sizeof(tessera_string));
  size_t texts = 0;
  for (int64_t i = 0; i < object.count; ++i) texts += run.strings.text(object.ints()[i]).size;
  return bytes + aligned(texts);
}

tessera_value* copy(const FlowRun& run, const Object& object, uint8_t*& at) {
  tessera_value* value = reinterpret_cast<tessera_value*>(at);
  at += aligned(sizeof(tessera_value));
  *value = {};
  value->kind = static_cast<tessera_value_kind>(object.kind);
  uint8_t* own = at;
  if (!object.is_tensor()) {
    const tessera_value** items = reinterpret_cast<const tessera_value**>(own);
    at += aligned(static_cast<size_t>(object.count) * sizeof(void*));
    for (int64_t i = 0; i < object.count; ++i) items[i] = copy(run, *object.items()[i], at);
    value->num_items = object.count;
    value->items = items;
    return value;
  }
  value->dtype = static_cast<tessera_dtype>(object.dtype);
  value->rank = object.rank;
  memcpy(value->dims, object.dims, sizeof(value->dims));
  value->data = own;
  if (object.dtype != TSR_STRING) {
    at += aligned(static_cast<size_t>(object.bytes));
    memcpy(own, object.data(), static_cast<size_t>(object.bytes));
    return value;
  }
  tessera_string* texts = reinterpret_cast<tessera_string*>(own);
  at += aligned(static_cast<size_t>(object.count) * sizeof(tessera_string));
  char* end = reinterpret_cast<char*>(at);
  for (int64_t i = 0; i < object.count; ++i) {
    const tessera_string text = run.strings.text(object.ints()[i]);
    if (text.size > 0) memcpy(end, text.data, text.size);
    texts[i] = {end, text.size};
    end += text.size;
  }
  at += aligned(static_cast<size_t>(end - reinterpret_cast<char*>(at)));
  return value;
}

}  // namespace

tessera_status take_in(FlowRun& run, const tsr_value_descr& declared, const tessera_value* value) {
  Transfer transfer{run, declared, "input"};
  Object*& slot = run.slots[declared.slot];
  const tessera_status status = transfer.take(value, 0, &slot);
  if (status != TESSERA_OK || declared.num_wrappers > 0 || declared.rank < 0) return status;
  bool fits = slot->rank == declared.rank;
  for (int32_t d = 0; fits && d < slot->rank; ++d) fits = declared.dims[d] < 0 || declared.dims[d] == slot->dims[d];
  if (fits) return TESSERA_OK;
  Object wanted = {};
  wanted.rank = declared.rank;
  memcpy(wanted.dims, declared.dims, sizeof(wanted.dims));
  return fail(run.error, kErrTensorDims, "input '%s' has shape %s; this module was compiled for %s%s",
              transfer.name().text, dims_text(*slot).text, dims_text(wanted).text,
              memchr(dims_text(wanted).text, '-', strlen(dims_text(wanted).text)) ? " (-1: any)" : "");
}

tessera_status give_out(FlowRun& run, const tsr_value_descr& declared, tessera_value** value) {
  Transfer transfer{run, declared, "output"};
  const Object* object = run.slots[declared.slot];
  if (!object) {
    return fail(run.error, kErrModuleCode, "the code of '%s' gave output '%s' no value; compile the model again",
                run.module->name, transfer.name().text);
  }
  // A sequence that a branch took out of an optional is what the model declares as one, and the other way round.
  if (transfer.kind_at(0) != TSR_OPTIONAL && object->kind == TSR_OPTIONAL && object->count == 1) {
    object = object->items()[0];
  }
  if (transfer.kind_at(0) != object->kind &&
      !(transfer.kind_at(0) == TSR_OPTIONAL && transfer.kind_at(1) == object->kind)) {
    return transfer.refuse(object->kind == TSR_OPTIONAL ? "an optional without an element" : kKinds[object->kind],
                           kKinds[transfer.kind_at(0)]);
  }
  const size_t bytes = size_of(run, *object) + kAlign;
  uint8_t* memory = static_cast<uint8_t*>(run.heap.take(bytes));
  if (!memory) return transfer.no_memory();
  uint8_t* at = memory;
  *value = copy(run, *object, at);
  return TESSERA_OK;
}

ValueText value_text(const Object& value) {
  ValueText result;
  if (value.is_tensor()) {
    snprintf(result.text, sizeof(result.text), "%s%s", module_dtype_name(value.dtype), dims_text(value).text);
  } else {
    snprintf(result.text, sizeof(result.text), "%s of %lld elements", kKinds[value.kind],
             static_cast<long long>(value.count));
  }
  return result;
}

}  // namespace tessera
