// Values of a run that have no fixed size, as the steps of a flow see them: immutable once made, counted references.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "abi/module_abi.h"
#include "tessera/tessera.h"

namespace tessera {

// Strings are numbers of the run's string table, i64 each. Items stand, as pointers, where a tensor's elements would,
// or in a store: a list with room behind its items. Lists that grew out of each other share one, each seeing as many
// items as it has, so that appending to the longest costs no copy.
struct Object {
  uint32_t references;
  uint32_t kind;   // tsr_value_kind
  uint32_t dtype;  // of a tensor; of the elements of a sequence
  int32_t rank;
  int64_t dims[TSR_MAX_RANK];
  int64_t count;  // elements or items
  int64_t bytes;  // of elements; of a store, the items that there is room for
  Object* store;  // of a list; null: the items are its own

  uint8_t* data() { return reinterpret_cast<uint8_t*>(this) + kHead; }
  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(this) + kHead; }
  int64_t* ints() { return reinterpret_cast<int64_t*>(data()); }
  const int64_t* ints() const { return reinterpret_cast<const int64_t*>(data()); }
  Object** items() { return reinterpret_cast<Object**>(store ? store->data() : data()); }
  Object* const* items() const { return reinterpret_cast<Object* const*>(store ? store->data() : data()); }
  bool is_tensor() const { return kind == TSR_TENSOR; }

  static constexpr size_t kHead = 192;  // a multiple of what any element needs
};
static_assert(sizeof(Object) <= Object::kHead && Object::kHead % 64 == 0);

// Bits of an element as it lies in a slot: 64 for strings.
int32_t slot_dtype_bits(uint32_t dtype);

// Memory of the caller.
struct Heap {
  tessera_allocator allocator;

  void* take(size_t bytes) { return allocator.allocate(allocator.user, bytes); }
  void give(void* memory) { allocator.release(allocator.user, memory); }

  // Null when there is not enough memory, or a size overflows. Elements are not set.
  Object* make_tensor(uint32_t dtype, int32_t rank, const int64_t* dims);
  // Items are null.
  Object* make_list(uint32_t kind, uint32_t dtype, int64_t count);
  // The sequence with one more item, which is shared; null when there is not enough memory. Takes constant time, over
  // all appends, when `list` is the longest that its store has.
  Object* append(Object* list, Object* item);
  void release(Object* object);  // null is fine
};
Heap heap_of(const tessera_allocator* allocator);

inline Object* share(Object* object) {
  ++object->references;
  return object;
}

}  // namespace tessera
