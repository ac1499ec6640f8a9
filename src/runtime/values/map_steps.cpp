// Maps: keys and values, two tensors of rank 1.
#include <string.h>

#include "runtime/core/dtypes.h"
#include "runtime/values/flow_run.h"
#include "runtime/values/moves.h"

namespace tessera {

namespace {

int32_t require_map(Step& step, const Object* map) {
  if (map && map->kind == TSR_MAP) return 0;
  return step.fail("an operand is no map; legal: a map");
}

// Rows of scores as maps from the keys.
int32_t zip(Step& step) {
  const Object &scores = *step.in(0), &keys = *step.in(1);
  const int64_t columns = scores.rank == 0 ? 1 : scores.dims[scores.rank - 1];
  if (scores.rank > 2 || columns != keys.count) {
    return step.fail("scores of shape %s for %lld classes; legal: a column for each", dims_text(scores).text,
                     static_cast<long long>(keys.count));
  }
  Heap& heap = step.run.heap;
  const int64_t rows = scores.rank == 2 ? scores.dims[0] : 1;
  Object* list = heap.make_list(TSR_SEQUENCE, scores.dtype, rows);
  if (!list) return step.no_memory();
  const size_t bytes = static_cast<size_t>(columns) * static_cast<size_t>(slot_dtype_bits(scores.dtype) / 8);
  for (int64_t row = 0; row < rows; ++row) {
    Object* map = heap.make_list(TSR_MAP, scores.dtype, 2);
    Object* values = heap.make_tensor(scores.dtype, 1, &columns);
    if (!map || !values) {
      heap.release(map);
      heap.release(values);
      heap.release(list);
      return step.no_memory();
    }
    memcpy(values->data(), scores.data() + static_cast<size_t>(row) * bytes, bytes);
    map->items()[0] = share(const_cast<Object*>(&keys));
    map->items()[1] = values;
    list->items()[row] = map;
  }
  return step.out(0, list);
}

// The values of the keys, in their order; 0 for those that the map lacks.
int32_t vectorize(Step& step) {
  const Object &map = *step.in(0), &keys = *step.in(1);
  if (const int32_t code = require_map(step, &map)) return code;
  const Object &own = *map.items()[0], &values = *map.items()[1];
  const int64_t dims[] = {1, keys.count};
  Object* result = step.run.heap.make_tensor(values.dtype, 2, dims);
  if (!result) return step.no_memory();
  const size_t width = static_cast<size_t>(slot_dtype_bits(values.dtype) / 8);
  memset(result->data(), 0, static_cast<size_t>(result->bytes));
  for (int64_t i = 0; i < own.count; ++i) {
    for (int64_t k = 0; k < keys.count; ++k) {
      if (own.ints()[i] != keys.ints()[k]) continue;
      memcpy(result->data() + static_cast<size_t>(k) * width, values.data() + static_cast<size_t>(i) * width, width);
    }
  }
  return step.out(0, result);
}

// The values in order of their keys; filled up with zeros, each at the place that is its key.
int32_t cast(Step& step) {
  const Object& map = *step.in(0);
  if (const int32_t code = require_map(step, &map)) return code;
  const Object &keys = *map.items()[0], &values = *map.items()[1];
  const bool fill = step.number(1) != 0;
  const int64_t dims[] = {1, fill ? step.number(2) : keys.count};
  Object* result = step.run.heap.make_tensor(values.dtype, 2, dims);
  if (!result) return step.no_memory();
  const size_t width = static_cast<size_t>(slot_dtype_bits(values.dtype) / 8);
  memset(result->data(), 0, static_cast<size_t>(result->bytes));
  for (int64_t i = 0; i < keys.count; ++i) {
    int64_t place = keys.ints()[i];
    if (fill && (place < 0 || place >= dims[1])) {
      if (place >= 0) continue;  // more columns than the result has
      step.run.heap.release(result);
      return step.fail("the key %lld; legal: 0 or more", static_cast<long long>(place));
    }
    if (!fill) {
      place = 0;
      for (int64_t k = 0; k < keys.count; ++k) place += keys.ints()[k] < keys.ints()[i];
    }
    memcpy(result->data() + static_cast<size_t>(place) * width, values.data() + static_cast<size_t>(i) * width, width);
  }
  return step.out(0, result);
}

}  // namespace

int32_t map_step(Step& step) {
  switch (step.row.op) {
    case TSR_FLOW_ZIP_MAP: return zip(step);
    case TSR_FLOW_DICT_VECTORIZE: return vectorize(step);
    default: return cast(step);
  }
}

}  // namespace tessera
