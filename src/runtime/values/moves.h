// Tensors made of the elements of others.
#pragma once

#include "runtime/values/flow_run.h"

namespace tessera {

// `size` places of `axis` from `begin` on; null without memory. REQUIRES: within x; elements of at least a byte.
Object* copy_range(Heap& heap, const Object& x, int32_t axis, int64_t begin, int64_t size);

// Tensors one behind the other along an axis, or stacked along a new one; the result of the step.
int32_t join_tensors(Step& step, Object* const* tensors, int64_t count, int64_t axis, bool new_axis);

// The same elements in another shape of as many.
Object* with_dims(Heap& heap, const Object& x, int32_t rank, const int64_t* dims);

// The shape that tensors are broadcast to. False when they do not fit.
bool broadcast_dims(const Object* const* tensors, uint32_t count, int32_t* rank, int64_t* dims);
// Element number of `x` for each element of a larger shape, one after the other.
struct BroadcastWalk {
  int32_t rank;
  const int64_t* dims;
  int64_t strides[TSR_MAX_RANK];  // of x; 0 where it is repeated
  int64_t index[TSR_MAX_RANK];
  int64_t place;

  BroadcastWalk(const Object& x, int32_t rank, const int64_t* dims);
  void next();
  // To the element number `flat` of the larger shape. REQUIRES: it has elements.
  void skip(int64_t flat);
};

}  // namespace tessera
