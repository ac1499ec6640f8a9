#include "runtime/values/object.h"

#include <stdlib.h>

#include "runtime/core/dtypes.h"

namespace tessera {

namespace {

void* allocate_by_malloc(void*, size_t size) { return malloc(size); }
void release_by_free(void*, void* memory) { free(memory); }

}  // namespace

int32_t slot_dtype_bits(uint32_t dtype) { return dtype == TSR_STRING ? 64 : module_dtype_bits(dtype); }

Heap heap_of(const tessera_allocator* allocator) {
  if (allocator) return {*allocator};
  return {{nullptr, allocate_by_malloc, release_by_free}};
}

Object* Heap::make_tensor(uint32_t dtype, int32_t rank, const int64_t* dims) {
  int64_t count = 1, bits, real = 1;
  for (int32_t axis = 0; axis < rank; ++axis) {
    if (dims[axis] < 0) return nullptr;
    real *= dims[axis] == 0 ? 0 : 1;
    if (dims[axis] != 0 && __builtin_mul_overflow(count, dims[axis], &count)) return nullptr;
  }
  if (__builtin_mul_overflow(count, static_cast<int64_t>(slot_dtype_bits(dtype)), &bits) || bits > INT64_MAX - 512) {
    return nullptr;
  }
  if (real == 0) count = bits = 0;
  const int64_t bytes = (bits + 7) / 8;
  Object* object = static_cast<Object*>(take(Object::kHead + static_cast<size_t>(bytes)));
  if (!object) return nullptr;
  *object = {1, TSR_TENSOR, dtype, rank, {}, count, bytes, nullptr};
  for (int32_t axis = 0; axis < rank; ++axis) object->dims[axis] = dims[axis];
  return object;
}

Object* Heap::make_list(uint32_t kind, uint32_t dtype, int64_t count) {
  if (count < 0 || count > (INT64_MAX >> 8)) return nullptr;
  Object* object = static_cast<Object*>(take(Object::kHead + static_cast<size_t>(count) * sizeof(Object*)));
  if (!object) return nullptr;
  *object = {1, kind, dtype, 0, {}, count, 0, nullptr};
  for (int64_t i = 0; i < count; ++i) object->items()[i] = nullptr;
  return object;
}

Object* Heap::append(Object* list, Object* item) {
  Object* view = make_list(list->kind, list->dtype, 0);
  if (!view) return nullptr;
  Object* store = list->store;
  if (store && store->count == list->count && store->count < store->bytes) {
    share(store);
  } else {
    const int64_t room = list->count < 4 ? 8 : 2 * list->count;
    store = make_list(list->kind, list->dtype, room);
    if (!store) {
      give(view);
      return nullptr;
    }
    store->count = list->count;
    store->bytes = room;
    for (int64_t i = 0; i < list->count; ++i) store->items()[i] = share(list->items()[i]);
  }
  store->items()[store->count++] = share(item);
  view->store = store;
  view->count = list->count + 1;
  return view;
}

void Heap::release(Object* object) {
  if (!object || --object->references > 0) return;
  if (!object->is_tensor() && object->store) {
    release(object->store);
  } else if (!object->is_tensor()) {
    for (int64_t i = 0; i < object->count; ++i) release(object->items()[i]);
  }
  give(object);
}

}  // namespace tessera
