// What moves elements of tensors whose shapes only the run knows, or asks for their shapes.
#include <stdio.h>
#include <string.h>

#include "runtime/core/dtypes.h"
#include "runtime/values/flow_run.h"
#include "runtime/values/moves.h"

namespace tessera {

namespace {

using ll = long long;

// An axis counted from the front; fails the step when there is none such.
int32_t find_axis(Step& step, int64_t axis, int32_t rank, int32_t* result) {
  if (axis < -rank || axis >= rank) {
    return step.fail("axis %lld for rank %d; legal: %d to %d", static_cast<ll>(axis), rank, -rank, rank - 1);
  }
  *result = static_cast<int32_t>(axis < 0 ? axis + rank : axis);
  return 0;
}

int32_t require_ints(Step& step, const Object* list, const char* what) {
  if (is_int_tensor(list) && list->rank <= 1) return 0;
  return step.fail("%s is no list of integers; legal: i32 or i64 of rank 1", what);
}

int32_t number_result(Step& step, const int64_t* values, int64_t count, int32_t rank) {
  Object* result = step.run.heap.make_tensor(TSR_I64, rank, &count);
  if (result) memcpy(result->data(), values, static_cast<size_t>(count) * sizeof(int64_t));
  return step.out(0, result);
}

int32_t shape(Step& step) {
  const Object& x = *step.in(0);
  int64_t start = step.number(0), end = step.number(1);
  const int64_t rank = x.rank;
  start += start < 0 ? rank : 0;
  end += end < 0 ? rank : 0;
  start = start < 0 ? 0 : start > rank ? rank : start;
  end = end < start ? start : end > rank ? rank : end;
  return number_result(step, x.dims + start, end - start, 1);
}

// Element (i0, i1, ...) of the result is element offset + sum of i * stride of x.
Object* strided(Heap& heap, const Object& x, int32_t rank, const int64_t* dims, const int64_t* strides,
                int64_t offset) {
  Object* result = heap.make_tensor(x.dtype, rank, dims);
  if (!result || result->count == 0) return result;
  const size_t width = static_cast<size_t>(slot_dtype_bits(x.dtype)) / 8;
  int64_t index[TSR_MAX_RANK] = {};
  for (int64_t i = 0; i < result->count; ++i) {
    memcpy(result->data() + static_cast<size_t>(i) * width, x.data() + static_cast<size_t>(offset) * width, width);
    for (int32_t d = rank - 1; d >= 0; --d) {
      offset += strides[d];
      if (++index[d] < dims[d]) break;
      offset -= strides[d] * dims[d];
      index[d] = 0;
    }
  }
  return result;
}

void row_major(const Object& x, int64_t* strides) {
  int64_t stride = 1;
  for (int32_t d = x.rank - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= x.dims[d];
  }
}

int32_t slice(Step& step) {
  const Object &x = *step.in(0), *starts = step.in(1), *ends = step.in(2), *axes = step.in(3), *steps = step.in(4);
  if (const int32_t code = require_ints(step, starts, "starts")) return code;
  if (const int32_t code = require_ints(step, ends, "ends")) return code;
  if (axes) {
    if (const int32_t code = require_ints(step, axes, "axes")) return code;
  }
  if (steps) {
    if (const int32_t code = require_ints(step, steps, "steps")) return code;
  }
  if (starts->count != ends->count || (axes && axes->count != starts->count) ||
      (steps && steps->count != starts->count) || starts->count > x.rank) {
    return step.fail("%lld starts and %lld ends for rank %d; legal: as many of each, and at most the rank",
                     static_cast<ll>(starts->count), static_cast<ll>(ends->count), x.rank);
  }
  int64_t dims[TSR_MAX_RANK], strides[TSR_MAX_RANK], offset = 0;
  memcpy(dims, x.dims, sizeof(dims));
  row_major(x, strides);
  bool seen[TSR_MAX_RANK] = {};
  for (int64_t i = 0; i < starts->count; ++i) {
    int32_t axis = 0;
    if (const int32_t code = find_axis(step, axes ? int_at(*axes, i) : i, x.rank, &axis)) return code;
    if (seen[axis]) return step.fail("axis %d is named twice; legal: each axis once", axis);
    seen[axis] = true;
    const int64_t extent = x.dims[axis], by = steps ? int_at(*steps, i) : 1;
    if (by == 0 || by == INT64_MIN) return step.fail("a step of %lld; legal: any but 0", static_cast<ll>(by));
    int64_t start = int_at(*starts, i), end = int_at(*ends, i);
    if (step.row.num_ints > 0 && step.number(0) != 0 && (end < 0 || end > extent)) {
      return step.fail("%lld elements of a dimension of %lld; legal: 0 to %lld", static_cast<ll>(end),
                       static_cast<ll>(extent), static_cast<ll>(extent));
    }
    start += start < 0 ? extent : 0;
    end += end < 0 ? extent : 0;
    const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? extent : extent - 1;
    start = start < (by > 0 ? 0 : 0) ? 0 : start > high ? high : start;
    end = end < low ? low : end > high ? high : end;
    const int64_t distance = by > 0 ? end - start : start - end, stride = by > 0 ? by : -by;
    dims[axis] = extent == 0 || distance <= 0 ? 0 : (distance - 1) / stride + 1;
    if (dims[axis] > 0) offset += start * strides[axis];
    strides[axis] = dims[axis] > 1 ? strides[axis] * by : 0;
  }
  return step.out(0, strided(step.run.heap, x, x.rank, dims, strides, offset));
}

int32_t reshape(Step& step) {
  const Object &x = *step.in(0), *wanted = step.in(1);
  if (const int32_t code = require_ints(step, wanted, "shape")) return code;
  if (wanted->count > TSR_MAX_RANK)
    return step.fail("a shape of rank %lld; legal: up to %d", static_cast<ll>(wanted->count), TSR_MAX_RANK);
  int64_t dims[TSR_MAX_RANK], known = 1;
  int32_t open = -1;
  bool fits = true;
  for (int32_t d = 0; d < wanted->count; ++d) {
    dims[d] = int_at(*wanted, d);
    if (dims[d] == 0 && step.number(0) == 0) {
      fits = fits && d < x.rank;
      dims[d] = d < x.rank ? x.dims[d] : 0;
    }
    if (dims[d] == -1 && open < 0) {
      open = d;
      continue;
    }
    fits = fits && dims[d] >= 0 && !__builtin_mul_overflow(known, dims[d] < 0 ? 0 : dims[d], &known);
  }
  if (fits && open >= 0) {
    fits = known > 0 && x.count % known == 0;
    dims[open] = fits ? x.count / known : 0;
    known *= dims[open];
  }
  if (!fits || known != x.count) {
    Object text = {};
    text.rank = static_cast<int32_t>(wanted->count);
    for (int32_t d = 0; d < text.rank; ++d) text.dims[d] = int_at(*wanted, d);
    return step.fail("the shape %s for %lld elements; legal: a shape of as many elements", dims_text(text).text,
                     static_cast<ll>(x.count));
  }
  return step.out(0, with_dims(step.run.heap, x, static_cast<int32_t>(wanted->count), dims));
}

int32_t squeeze(Step& step) {
  const Object &x = *step.in(0), *axes = step.in(1);
  bool drop[TSR_MAX_RANK] = {};
  for (int32_t d = 0; d < x.rank; ++d) drop[d] = !axes && x.dims[d] == 1;
  if (axes) {
    if (const int32_t code = require_ints(step, axes, "axes")) return code;
    for (int64_t i = 0; i < axes->count; ++i) {
      int32_t axis = 0;
      if (const int32_t code = find_axis(step, int_at(*axes, i), x.rank, &axis)) return code;
      if (x.dims[axis] != 1)
        return step.fail("dimension %d of %s cannot be left out; legal: dimensions of 1", axis, dims_text(x).text);
      drop[axis] = true;
    }
  }
  int64_t dims[TSR_MAX_RANK];
  int32_t rank = 0;
  for (int32_t d = 0; d < x.rank; ++d) {
    if (!drop[d]) dims[rank++] = x.dims[d];
  }
  return step.out(0, with_dims(step.run.heap, x, rank, dims));
}

int32_t unsqueeze(Step& step) {
  const Object &x = *step.in(0), *axes = step.in(1);
  if (const int32_t code = require_ints(step, axes, "axes")) return code;
  const int64_t rank = x.rank + axes->count;
  if (rank > TSR_MAX_RANK)
    return step.fail("a result of rank %lld; legal: up to %d", static_cast<ll>(rank), TSR_MAX_RANK);
  bool fresh[TSR_MAX_RANK] = {};
  for (int64_t i = 0; i < axes->count; ++i) {
    int32_t axis = 0;
    if (const int32_t code = find_axis(step, int_at(*axes, i), static_cast<int32_t>(rank), &axis)) return code;
    if (fresh[axis]) return step.fail("axis %d is named twice; legal: each axis once", axis);
    fresh[axis] = true;
  }
  int64_t dims[TSR_MAX_RANK];
  for (int32_t d = 0, own = 0; d < rank; ++d) dims[d] = fresh[d] ? 1 : x.dims[own++];
  return step.out(0, with_dims(step.run.heap, x, static_cast<int32_t>(rank), dims));
}

int32_t transpose(Step& step) {
  const Object& x = *step.in(0);
  const uint32_t given = step.row.num_ints;
  if (given != 0 && given != static_cast<uint32_t>(x.rank)) {
    return step.fail("perm has %u entries for rank %d; legal: one for each dimension", given, x.rank);
  }
  int64_t own[TSR_MAX_RANK], dims[TSR_MAX_RANK], strides[TSR_MAX_RANK];
  bool seen[TSR_MAX_RANK] = {};
  row_major(x, own);
  for (int32_t d = 0; d < x.rank; ++d) {
    const int64_t from = given == 0 ? x.rank - 1 - d : step.number(static_cast<uint32_t>(d));
    if (from < 0 || from >= x.rank || seen[from]) return step.fail("perm is no order of the dimensions");
    seen[from] = true;
    dims[d] = x.dims[from];
    strides[d] = own[from];
  }
  return step.out(0, strided(step.run.heap, x, x.rank, dims, strides, 0));
}

int32_t gather(Step& step) {
  const Object &x = *step.in(0), &places = *step.in(1);
  int32_t axis = 0;
  if (const int32_t code = find_axis(step, step.number(0), x.rank, &axis)) return code;
  const int32_t rank = x.rank - 1 + places.rank;
  if (!is_int_tensor(&places) || rank > TSR_MAX_RANK) return step.fail("indices that are no integers of a small rank");
  int64_t dims[TSR_MAX_RANK];
  int32_t to = 0;
  for (int32_t d = 0; d < axis; ++d) dims[to++] = x.dims[d];
  for (int32_t d = 0; d < places.rank; ++d) dims[to++] = places.dims[d];
  for (int32_t d = axis + 1; d < x.rank; ++d) dims[to++] = x.dims[d];
  const int64_t extent = x.dims[axis];
  for (int64_t i = 0; i < places.count; ++i) {
    const int64_t place = int_at(places, i);
    if (place < -extent || place >= extent) {
      return step.fail("index %lld of a dimension of %lld; legal: %lld to %lld", static_cast<ll>(place),
                       static_cast<ll>(extent), static_cast<ll>(-extent), static_cast<ll>(extent - 1));
    }
  }
  Object* result = step.run.heap.make_tensor(x.dtype, rank, dims);
  if (!result || result->bytes == 0) return step.out(0, result);
  int64_t inner = slot_dtype_bits(x.dtype) / 8, outer = 1;
  for (int32_t d = axis + 1; d < x.rank; ++d) inner *= x.dims[d];
  for (int32_t d = 0; d < axis; ++d) outer *= x.dims[d];
  uint8_t* out = result->data();
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < places.count; ++i, out += inner) {
      const int64_t place = int_at(places, i);
      memcpy(out, x.data() + (o * extent + (place < 0 ? place + extent : place)) * inner, static_cast<size_t>(inner));
    }
  }
  return step.out(0, result);
}

int32_t expand(Step& step) {
  const Object &x = *step.in(0), *wanted = step.in(1);
  if (const int32_t code = require_ints(step, wanted, "shape")) return code;
  Object target = {};
  target.rank = static_cast<int32_t>(wanted->count);
  if (wanted->count > TSR_MAX_RANK) return step.fail("a shape of rank %lld", static_cast<ll>(wanted->count));
  bool fits = true;
  for (int32_t d = 0; d < target.rank; ++d) {
    target.dims[d] = int_at(*wanted, d);
    fits = fits && target.dims[d] >= 0;
  }
  const Object* both[] = {&x, &target};
  int32_t rank;
  int64_t dims[TSR_MAX_RANK];
  if (!fits || !broadcast_dims(both, 2, &rank, dims)) {
    return step.fail("the shape %s for a tensor %s; legal: shapes that broadcast", dims_text(target).text,
                     dims_text(x).text);
  }
  const BroadcastWalk walk(x, rank, dims);
  return step.out(0, strided(step.run.heap, x, rank, dims, walk.strides, 0));
}

int32_t concat(Step& step) {
  Heap& heap = step.run.heap;
  Object** parts = static_cast<Object**>(heap.take(step.row.num_inputs * sizeof(Object*)));
  if (!parts) return step.no_memory();
  for (uint32_t i = 0; i < step.row.num_inputs; ++i) parts[i] = const_cast<Object*>(step.in(i));
  const int32_t code = join_tensors(step, parts, step.row.num_inputs, step.number(0), false);
  heap.give(parts);
  return code;
}

int32_t flatten(Step& step) {
  const Object& x = *step.in(0);
  const int64_t axis = step.number(0) < 0 ? step.number(0) + x.rank : step.number(0);
  if (axis < 0 || axis > x.rank) return step.fail("axis %lld for rank %d", static_cast<ll>(step.number(0)), x.rank);
  int64_t dims[2] = {1, 1};
  for (int32_t d = 0; d < x.rank; ++d) dims[d < axis ? 0 : 1] *= x.dims[d];
  return step.out(0, with_dims(step.run.heap, x, 2, dims));
}

// A number of steps, or -1 when it is none; elements of kinds that have no end are counted in the kind.
template <typename T>
int64_t count_steps(T start, T limit, T delta) {
  if (delta == 0) return -1;
  if (delta > 0 ? limit <= start : limit >= start) return 0;
  const uint64_t a = static_cast<uint64_t>(start), b = static_cast<uint64_t>(limit), by = static_cast<uint64_t>(delta);
  const uint64_t steps = delta > 0 ? (b - a - 1) / by + 1 : (a - b - 1) / (0 - by) + 1;
  return steps > INT64_MAX ? -1 : static_cast<int64_t>(steps);
}
int64_t count_steps(double start, double limit, double delta) {
  const double steps = (limit - start) / delta;
  if (steps <= 0) return 0;
  if (!(steps < 0x1p62)) return -1;  // NaN and infinity, too
  const int64_t whole = static_cast<int64_t>(steps);
  return static_cast<double>(whole) < steps ? whole + 1 : whole;
}

template <typename T>
int32_t range_of(Step& step) {
  T values[3];
  for (uint32_t i = 0; i < 3; ++i) memcpy(&values[i], step.in(i)->data(), sizeof(T));
  constexpr bool kFloat = static_cast<T>(0.5) != 0;
  int64_t count;
  if constexpr (kFloat) count = count_steps(double{values[0]}, double{values[1]}, double{values[2]});
  else count = count_steps(int64_t{values[0]}, int64_t{values[1]}, int64_t{values[2]});
  if (count < 0) return step.fail("a delta that leads to no end; legal: one that reaches the limit");
  Object* result = step.run.heap.make_tensor(step.in(0)->dtype, 1, &count);
  if (!result) return step.no_memory();
  T* out = reinterpret_cast<T*>(result->data());
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (kFloat) out[i] = values[0] + static_cast<T>(i) * values[2];
    else
      out[i] = static_cast<T>(static_cast<uint64_t>(values[0]) +
                              static_cast<uint64_t>(i) * static_cast<uint64_t>(values[2]));
  }
  return step.out(0, result);
}

int32_t range(Step& step) {
  const uint32_t dtype = step.in(0)->dtype;
  for (uint32_t i = 0; i < 3; ++i) {
    if (step.in(i)->dtype != dtype || step.in(i)->count != 1) {
      return step.fail("start, limit and delta that are no single numbers of one type; legal: three of those");
    }
  }
  switch (dtype) {
    case TSR_F64: return range_of<double>(step);
    case TSR_F32: return range_of<float>(step);
    case TSR_I64: return range_of<int64_t>(step);
    case TSR_I32: return range_of<int32_t>(step);
    case TSR_I16: return range_of<int16_t>(step);
    default: return step.fail("numbers of %s; legal: f64, f32, i64, i32, i16", module_dtype_name(dtype));
  }
}

// The place that place `i` of a padded dimension repeats; -1: it is the padding's value.
int64_t padded_place(int64_t i, int64_t extent, int64_t mode) {
  if (i >= 0 && i < extent) return i;
  if (mode == 0) return -1;
  if (mode == 1) return i < 0 ? 0 : extent - 1;
  const int64_t period = mode == 3 ? extent : extent > 1 ? 2 * (extent - 1) : 1;
  const int64_t place = (i % period + period) % period;
  return place < extent ? place : period - place;
}

int32_t pad(Step& step) {
  const Object &x = *step.in(0), *pads = step.in(1), *value = step.in(2), *axes = step.in(3);
  if (const int32_t code = require_ints(step, pads, "pads")) return code;
  if (axes) {
    if (const int32_t code = require_ints(step, axes, "axes")) return code;
  }
  const int64_t listed = axes ? axes->count : x.rank, mode = step.number(0);
  if (pads->count != 2 * listed) {
    return step.fail("%lld pads for %lld axes; legal: two for each", static_cast<ll>(pads->count),
                     static_cast<ll>(listed));
  }
  if (value && (value->dtype != x.dtype || value->count != 1)) {
    return step.fail("a value that is no single %s", module_dtype_name(x.dtype));
  }
  int64_t dims[TSR_MAX_RANK], begins[TSR_MAX_RANK] = {}, strides[TSR_MAX_RANK];
  bool seen[TSR_MAX_RANK] = {};
  memcpy(dims, x.dims, sizeof(dims));
  row_major(x, strides);
  for (int64_t i = 0; i < listed; ++i) {
    int32_t axis = 0;
    if (const int32_t code = find_axis(step, axes ? int_at(*axes, i) : i, x.rank, &axis)) return code;
    if (seen[axis]) return step.fail("axis %d is named twice; legal: each axis once", axis);
    seen[axis] = true;
    const int64_t begin = int_at(*pads, i), end = int_at(*pads, listed + i);
    constexpr int64_t kMost = int64_t{1} << 40;
    dims[axis] += begin + (begin > kMost || begin < -kMost || end > kMost || end < -kMost ? 0 : end);
    if (begin > kMost || begin < -kMost || end > kMost || end < -kMost || dims[axis] < 0 ||
        (mode != 0 && x.dims[axis] == 0 && dims[axis] > 0)) {
      return step.fail("pads of %lld and %lld for a dimension of %lld; legal: pads that leave 0 elements or more",
                       static_cast<ll>(begin), static_cast<ll>(end), static_cast<ll>(x.dims[axis]));
    }
    begins[axis] = begin;
  }
  Object* result = step.run.heap.make_tensor(x.dtype, x.rank, dims);
  if (!result || result->bytes == 0) return step.out(0, result);
  const size_t width = static_cast<size_t>(slot_dtype_bits(x.dtype)) / 8;
  const uint8_t zero[8] = {};
  const uint8_t* fill = value ? value->data() : zero;
  if (x.rank == 0) memcpy(result->data(), x.data(), width);
  const int32_t last = x.rank - 1;
  int64_t index[TSR_MAX_RANK] = {};
  uint8_t* out = result->data();
  for (int64_t row = 0; last >= 0 && row < result->count / dims[last]; ++row) {
    int64_t from = 0;  // where the row begins in x; -1: it is padding alone
    for (int32_t d = 0; d < last && from >= 0; ++d) {
      const int64_t place = padded_place(index[d] - begins[d], x.dims[d], mode);
      from = place < 0 ? -1 : from + place * strides[d];
    }
    for (int64_t i = 0; i < dims[last];) {
      const int64_t place = from < 0 ? -1 : padded_place(i - begins[last], x.dims[last], mode);
      // What lies within x is copied at once.
      const bool inside = place >= 0 && i - begins[last] == place;
      int64_t count = 1;
      if (inside) count = x.dims[last] - place < dims[last] - i ? x.dims[last] - place : dims[last] - i;
      memcpy(out, place < 0 ? fill : x.data() + static_cast<size_t>(from + place) * width,
             static_cast<size_t>(count) * width);
      out += static_cast<size_t>(count) * width;
      i += count;
    }
    for (int32_t d = last - 1; d >= 0; --d) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
  return step.out(0, result);
}

}  // namespace

int32_t tensor_step(Step& step) {
  for (uint32_t i = 0; i < step.row.num_inputs; ++i) {
    const Object* x = step.in(i);
    if (x && !x->is_tensor()) return step.fail("operand %u is no tensor; legal: tensors", i);
  }
  const Object& x = *step.in(0);
  if (step.row.op == TSR_FLOW_SHAPE) return shape(step);
  if (step.row.op == TSR_FLOW_SIZE && step.row.num_ints > 0) {
    Object* empty = step.run.heap.make_tensor(TSR_BOOL, 0, nullptr);
    if (empty) empty->data()[0] = x.count == 0;
    return step.out(0, empty);
  }
  if (step.row.op == TSR_FLOW_SIZE) return number_result(step, &x.count, 1, 0);
  if (slot_dtype_bits(x.dtype) < 8) return step.fail("elements of less than a byte; legal: wider elements");
  switch (step.row.op) {
    case TSR_FLOW_SLICE: return slice(step);
    case TSR_FLOW_RESHAPE: return reshape(step);
    case TSR_FLOW_SQUEEZE: return squeeze(step);
    case TSR_FLOW_UNSQUEEZE: return unsqueeze(step);
    case TSR_FLOW_TRANSPOSE: return transpose(step);
    case TSR_FLOW_GATHER: return gather(step);
    case TSR_FLOW_EXPAND: return expand(step);
    case TSR_FLOW_CONCAT: return concat(step);
    case TSR_FLOW_RANGE: return range(step);
    case TSR_FLOW_PAD: return pad(step);
    default: return flatten(step);
  }
}

}  // namespace tessera
