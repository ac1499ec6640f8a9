// Sequences and optionals.
#include <stdio.h>
#include <string.h>

#include "runtime/core/dtypes.h"
#include "runtime/values/flow_run.h"
#include "runtime/values/moves.h"

namespace tessera {

namespace {

const char* kind_name(const Object* object) {
  if (!object) return "nothing";
  switch (object->kind) {
    case TSR_TENSOR: return "a tensor";
    case TSR_SEQUENCE: return "a sequence";
    case TSR_OPTIONAL: return "an optional";
    default: return "a map";
  }
}

int32_t require_sequence(Step& step, const Object* object) {
  if (object && object->kind == TSR_SEQUENCE) return 0;
  return step.fail("an operand is %s; legal: a sequence", kind_name(object));
}

// A position, counted from the end when negative, as a place among `count` (or behind them).
int32_t find_place(Step& step, const Object* position, int64_t count, bool behind, int64_t* place) {
  if (const int32_t code = read_number(step, position, "position", place)) return code;
  const int64_t last = behind ? count : count - 1;
  if (*place < -count || *place > last) {
    if (last < 0)
      return step.fail("position %lld of a sequence without elements; legal: a sequence with elements",
                       static_cast<long long>(*place));
    return step.fail("position %lld of a sequence of %lld elements; legal: %lld to %lld",
                     static_cast<long long>(*place), static_cast<long long>(count), static_cast<long long>(-count),
                     static_cast<long long>(last));
  }
  if (*place < 0) *place += count;
  return 0;
}

int32_t insert(Step& step) {
  const Object *list = step.in(0), *item = step.in(1), *position = step.in(2);
  if (const int32_t code = require_sequence(step, list)) return code;
  int64_t place = list->count;
  if (position) {
    if (const int32_t code = find_place(step, position, list->count, true, &place)) return code;
  }
  if (!item || !item->is_tensor() || item->dtype != list->dtype) {
    return step.fail("an element %s for a sequence of %s; legal: elements of one type",
                     item && item->is_tensor() ? module_dtype_name(item->dtype) : kind_name(item),
                     module_dtype_name(list->dtype));
  }
  if (place == list->count) {
    return step.out(0, step.run.heap.append(const_cast<Object*>(list), const_cast<Object*>(item)));
  }
  Object* result = step.run.heap.make_list(TSR_SEQUENCE, list->dtype, list->count + 1);
  if (!result) return step.no_memory();
  for (int64_t i = 0; i < result->count; ++i) {
    Object* from = i == place ? const_cast<Object*>(item) : list->items()[i < place ? i : i - 1];
    result->items()[i] = share(from);
  }
  return step.out(0, result);
}

int32_t erase(Step& step) {
  const Object *list = step.in(0), *position = step.in(1);
  if (const int32_t code = require_sequence(step, list)) return code;
  int64_t place = list->count - 1;
  if (position || list->count == 0) {
    if (!position) return step.fail("a sequence without elements; legal: a sequence with elements");
    if (const int32_t code = find_place(step, position, list->count, false, &place)) return code;
  }
  Object* result = step.run.heap.make_list(TSR_SEQUENCE, list->dtype, list->count - 1);
  if (!result) return step.no_memory();
  for (int64_t i = 0; i < result->count; ++i) result->items()[i] = share(list->items()[i < place ? i : i + 1]);
  return step.out(0, result);
}

int32_t at(Step& step) {
  const Object* list = step.in(0);
  int64_t place = 0;
  if (const int32_t code = require_sequence(step, list)) return code;
  if (const int32_t code = find_place(step, step.in(1), list->count, false, &place)) return code;
  return step.out(0, share(list->items()[place]));
}

int32_t construct(Step& step) {
  Object* list = step.run.heap.make_list(TSR_SEQUENCE, static_cast<uint32_t>(step.number(0)), step.row.num_inputs);
  if (!list) return step.no_memory();
  for (uint32_t i = 0; i < step.row.num_inputs; ++i) list->items()[i] = share(const_cast<Object*>(step.in(i)));
  return step.out(0, list);
}

int32_t length(Step& step) {
  for (uint32_t i = 0; i < step.row.num_inputs; ++i) {
    if (const int32_t code = require_sequence(step, step.in(i))) return code;
    if (step.in(i)->count != step.in(0)->count) {
      return step.fail("sequences of %lld and %lld elements; legal: equal lengths",
                       static_cast<long long>(step.in(0)->count), static_cast<long long>(step.in(i)->count));
    }
  }
  Object* result = step.run.heap.make_tensor(TSR_I64, 0, nullptr);
  if (result) result->ints()[0] = step.in(0)->count;
  return step.out(0, result);
}

int32_t split(Step& step) {
  const Object *x = step.in(0), *sizes = step.in(1);
  int64_t axis = step.number(0);
  if (axis < 0) axis += x->rank;
  if (axis < 0 || axis >= x->rank) {
    return step.fail("axis %lld of a tensor of rank %d; legal: an axis of it", static_cast<long long>(step.number(0)),
                     x->rank);
  }
  if (slot_dtype_bits(x->dtype) < 8) return step.fail("elements of less than a byte; legal: wider elements");
  const int64_t extent = x->dims[axis];
  int64_t parts = extent, each = 1;
  const bool equal = !sizes || sizes->rank == 0;
  if (sizes && equal) {
    if (const int32_t code = read_number(step, sizes, "split", &each)) return code;
    if (each < 1) return step.fail("split is %lld; legal: 1 or more", static_cast<long long>(each));
    parts = extent == 0 ? 0 : (extent - 1) / each + 1;
  } else if (sizes) {
    if (!is_int_tensor(sizes) || sizes->rank != 1) return step.fail("split is no list of integers; legal: i32 or i64");
    int64_t sum = 0;
    bool fits = true;
    for (int64_t i = 0; i < sizes->count; ++i) {
      const int64_t size = int_at(*sizes, i);
      fits = fits && size >= 0 && !__builtin_add_overflow(sum, size, &sum);
    }
    if (!fits || sum != extent) {
      return step.fail(
          "split has %lld parts, which do not add up to dimension %lld of %lld elements; legal: parts of 0 "
          "or more elements that do",
          static_cast<long long>(sizes->count), static_cast<long long>(axis), static_cast<long long>(extent));
    }
    parts = sizes->count;
  }
  const bool drop = !sizes && step.number(1) == 0;
  Object* list = step.run.heap.make_list(TSR_SEQUENCE, x->dtype, parts);
  if (!list) return step.no_memory();
  int64_t begin = 0;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t left = extent - begin;
    const int64_t size = !equal ? int_at(*sizes, i) : each < left ? each : left;
    Object* part = copy_range(step.run.heap, *x, static_cast<int32_t>(axis), begin, size);
    begin += size;
    if (!part) {
      step.run.heap.release(list);
      return step.no_memory();
    }
    if (drop) {
      for (int32_t d = static_cast<int32_t>(axis); d + 1 < part->rank; ++d) part->dims[d] = part->dims[d + 1];
      --part->rank;
    }
    list->items()[i] = part;
  }
  return step.out(0, list);
}

int32_t join(Step& step) {
  const Object* list = step.in(0);
  if (const int32_t code = require_sequence(step, list)) return code;
  const bool new_axis = step.number(1) != 0;
  if (list->count == 0) {
    // What a loop without steps has collected.
    if (step.row.num_ints < 3) return step.fail("a sequence without elements; legal: a sequence with elements");
    int64_t dims[TSR_MAX_RANK] = {0};
    const int32_t rank = static_cast<int32_t>(step.row.num_ints) - 2;
    if (rank > TSR_MAX_RANK) return step.fail("a result of rank %d; legal: up to %d", rank, TSR_MAX_RANK);
    for (int32_t d = 1; d < rank; ++d) dims[d] = step.number(static_cast<uint32_t>(d) + 2);
    return step.out(0, step.run.heap.make_tensor(list->dtype, rank, dims));
  }
  return join_tensors(step, list->items(), list->count, step.number(0), new_axis);
}

}  // namespace

int32_t sequence_step(Step& step) {
  Heap& heap = step.run.heap;
  switch (step.row.op) {
    case TSR_FLOW_SEQUENCE: return construct(step);
    case TSR_FLOW_INSERT: return insert(step);
    case TSR_FLOW_ERASE: return erase(step);
    case TSR_FLOW_AT: return at(step);
    case TSR_FLOW_LENGTH: return length(step);
    case TSR_FLOW_SPLIT: return split(step);
    case TSR_FLOW_JOIN: return join(step);
    case TSR_FLOW_OPTIONAL: {
      const Object* value = step.in(0);
      Object* result = heap.make_list(TSR_OPTIONAL, value ? value->dtype : 0, value ? 1 : 0);
      if (result && value) result->items()[0] = share(const_cast<Object*>(value));
      return step.out(0, result);
    }
    case TSR_FLOW_HAS_ELEMENT: {
      const Object* value = step.in(0);
      Object* result = heap.make_tensor(TSR_BOOL, 0, nullptr);
      if (result) result->data()[0] = value && (value->kind != TSR_OPTIONAL || value->count > 0);
      return step.out(0, result);
    }
    default: {
      const Object* value = step.in(0);
      if (value->kind != TSR_OPTIONAL) return step.out(0, share(const_cast<Object*>(value)));
      if (value->count == 0) return step.fail("an optional without an element; legal: an optional that has one");
      return step.out(0, share(value->items()[0]));
    }
  }
}

}  // namespace tessera
