#include "runtime/values/moves.h"

#include <string.h>

#include "runtime/core/dtypes.h"

namespace tessera {

namespace {

int64_t product(const int64_t* dims, int32_t begin, int32_t end) {
  int64_t result = 1;
  for (int32_t d = begin; d < end; ++d) result *= dims[d];
  return result;
}

}  // namespace

Object* copy_range(Heap& heap, const Object& x, int32_t axis, int64_t begin, int64_t size) {
  int64_t dims[TSR_MAX_RANK];
  memcpy(dims, x.dims, sizeof(dims));
  dims[axis] = size;
  Object* part = heap.make_tensor(x.dtype, x.rank, dims);
  if (!part || part->bytes == 0) return part;
  const int64_t width = slot_dtype_bits(x.dtype) / 8;
  const int64_t inner = product(x.dims, axis + 1, x.rank) * width, outer = product(x.dims, 0, axis);
  for (int64_t o = 0; o < outer; ++o) {
    memcpy(part->data() + o * size * inner, x.data() + (o * x.dims[axis] + begin) * inner,
           static_cast<size_t>(size * inner));
  }
  return part;
}

int32_t join_tensors(Step& step, Object* const* tensors, int64_t count, int64_t axis, bool new_axis) {
  const Object& first = *tensors[0];
  const int32_t rank = first.rank + (new_axis ? 1 : 0);
  if (axis < -rank || axis >= rank || rank > TSR_MAX_RANK) {
    return step.fail("axis %lld for elements of rank %d; legal: %d to %d", static_cast<long long>(axis), first.rank,
                     -rank, rank - 1);
  }
  if (slot_dtype_bits(first.dtype) < 8) return step.fail("elements of less than a byte; legal: wider elements");
  const int32_t at = static_cast<int32_t>(axis < 0 ? axis + rank : axis);
  int64_t dims[TSR_MAX_RANK] = {};
  for (int32_t d = 0; d < rank; ++d) dims[d] = first.dims[new_axis && d > at ? d - 1 : d];
  dims[at] = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Object& x = *tensors[i];
    bool fits = x.is_tensor() && x.dtype == first.dtype && x.rank == first.rank;
    for (int32_t d = 0; fits && d < x.rank; ++d) fits = x.dims[d] == first.dims[d] || (!new_axis && d == at);
    if (!fits) {
      return step.fail("elements %s%s and %s%s; legal: one type and shape%s", module_dtype_name(first.dtype),
                       dims_text(first).text, module_dtype_name(x.dtype), dims_text(x).text,
                       new_axis ? "" : " but for the axis");
    }
    if (__builtin_add_overflow(dims[at], new_axis ? 1 : x.dims[at], &dims[at])) return step.no_memory();
  }
  Object* result = step.run.heap.make_tensor(first.dtype, rank, dims);
  if (!result) return step.no_memory();
  const int64_t width = slot_dtype_bits(first.dtype) / 8;
  const int64_t inner = product(dims, at + 1, rank) * width, outer = product(dims, 0, at);
  int64_t begin = 0;
  for (int64_t i = 0; i < count && result->bytes > 0; ++i) {
    const int64_t size = (new_axis ? 1 : tensors[i]->dims[at]) * inner;
    for (int64_t o = 0; o < outer; ++o) {
      memcpy(result->data() + o * dims[at] * inner + begin, tensors[i]->data() + o * size, static_cast<size_t>(size));
    }
    begin += size;
  }
  return step.out(0, result);
}

Object* with_dims(Heap& heap, const Object& x, int32_t rank, const int64_t* dims) {
  Object* result = heap.make_tensor(x.dtype, rank, dims);
  if (result) memcpy(result->data(), x.data(), static_cast<size_t>(x.bytes));
  return result;
}

bool broadcast_dims(const Object* const* tensors, uint32_t count, int32_t* rank, int64_t* dims) {
  *rank = 0;
  for (uint32_t i = 0; i < count; ++i) *rank = tensors[i]->rank > *rank ? tensors[i]->rank : *rank;
  for (int32_t d = 0; d < *rank; ++d) {
    dims[d] = 1;
    for (uint32_t i = 0; i < count; ++i) {
      const int32_t own = d - (*rank - tensors[i]->rank);
      if (own < 0 || tensors[i]->dims[own] == 1) continue;
      if (dims[d] != 1 && dims[d] != tensors[i]->dims[own]) return false;
      dims[d] = tensors[i]->dims[own];
    }
  }
  return true;
}

BroadcastWalk::BroadcastWalk(const Object& x, int32_t full_rank, const int64_t* full_dims)
    : rank(full_rank), dims(full_dims), strides(), index(), place(0) {
  int64_t stride = 1;
  for (int32_t d = rank - 1; d >= 0; --d) {
    const int32_t own = d - (rank - x.rank);
    strides[d] = own < 0 || x.dims[own] == 1 ? 0 : stride;
    if (own >= 0) stride *= x.dims[own];
  }
}

void BroadcastWalk::skip(int64_t flat) {
  place = 0;
  for (int32_t d = rank - 1; d >= 0; --d) {
    index[d] = flat % dims[d];
    flat /= dims[d];
    place += index[d] * strides[d];
  }
}

void BroadcastWalk::next() {
  for (int32_t d = rank - 1; d >= 0; --d) {
    place += strides[d];
    if (++index[d] < dims[d]) return;
    place -= strides[d] * dims[d];
    index[d] = 0;
  }
}

}  // namespace tessera
