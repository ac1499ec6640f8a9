// One run of a module with steps: its slots, and what every step sees.
#pragma once

#include "runtime/core/module_file.h"
#include "runtime/core/values_library.h"
#include "runtime/values/object.h"
#include "runtime/values/string_table.h"

struct tessera_session;

namespace tessera {

struct FlowRun {
  const CoreFunctions& core;
  tessera_session* session = nullptr;
  const ModuleFile* module = nullptr;
  Heap heap = {};
  StringTable strings{&heap};
  Object** slots = nullptr;
  tessera_error* error = nullptr;
  tessera_status status = TESSERA_OK;  // of the first step that failed

  FlowRun(const CoreFunctions& functions, const Heap& memory) : core(functions), heap(memory) {}
  FlowRun(const FlowRun&) = delete;
};

// A step as its operands: what the functions that do the work get. They return a negative number when the run ends.
struct Step {
  FlowRun& run;
  const tsr_step_descr& row;

  const Object* in(uint32_t i) const {
    const int32_t slot = run.module->slots(row.inputs)[i];
    return slot < 0 ? nullptr : run.slots[slot];
  }
  int64_t number(uint32_t i) const { return run.module->ints(row.ints)[i]; }
  // Takes over the reference. What has no memory (null) ends the run.
  int32_t out(uint32_t i, Object* object);
  // "<operator> '<node>': <found>; legal: <legal>"
  __attribute__((format(printf, 2, 3))) int32_t fail(const char* format, ...);
  int32_t no_memory();
};

// sequence_steps.cpp, tensor_steps.cpp, string_steps.cpp, map_steps.cpp: the steps of their kind; see graph/flow.h.
int32_t sequence_step(Step& step);
int32_t tensor_step(Step& step);
int32_t string_step(Step& step);
int32_t map_step(Step& step);

// The text of a shape, "[2,3]".
struct DimsText {
  char text[200];
};
DimsText dims_text(const Object& tensor);

// A number out of a tensor of integers with one element; fails the step when it is none.
int32_t read_number(Step& step, const Object* tensor, const char* what, int64_t* number);
// Elements as i64. REQUIRES: a tensor of i32 or i64.
int64_t int_at(const Object& tensor, int64_t index);
bool is_int_tensor(const Object* object);

}  // namespace tessera
