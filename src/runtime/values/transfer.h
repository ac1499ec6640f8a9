// Values from the caller into slots, and back.
#pragma once

#include "runtime/values/flow_run.h"

namespace tessera {

// Fills the input's slot with a copy.
tessera_status take_in(FlowRun& run, const tsr_value_descr& declared, const tessera_value* value);
// A copy of what the output's slot holds, in one piece of memory.
tessera_status give_out(FlowRun& run, const tsr_value_descr& declared, tessera_value** value);

// "f32[2,3]", "a sequence of 3 f32 tensors"
struct ValueText {
  char text[260];
};
ValueText value_text(const Object& value);

}  // namespace tessera
