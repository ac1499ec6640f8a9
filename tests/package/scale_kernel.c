// What generated code looks like to the linker: one exported function, hidden helpers, read-only data.
#include "abi/module_abi.h"

static const float kOffset[4] = {0.0f, 1.0f, 2.0f, 3.0f};

static void scale_rows(const void* arg, int64_t begin, int64_t end, int32_t worker) {
  const tsr_call* call = (const tsr_call*)arg;
  const float* x = (const float*)call->inputs[0];
  const float* w = (const float*)call->weights;
  float* y = (float*)call->outputs[0];
  (void)worker;
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t i = 0; i < 4; ++i) y[row * 4 + i] = x[row * 4 + i] * w[i] + kOffset[i];
  }
}

// y[row, i] = x[row, i] * weights[i] + i for 3 rows of 4.
__attribute__((visibility("default"))) int32_t tessera_module_run(const tsr_call* call) {
  call->host->parallel_for(call->host->self, scale_rows, call, 3, 1);
  return 0;
}
