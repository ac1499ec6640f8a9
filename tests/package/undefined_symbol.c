// Generated code must not need anything of its host beyond the function table.
#include "abi/module_abi.h"

int32_t somewhere_else(void);

__attribute__((visibility("default"))) int32_t tessera_module_run(const tsr_call* call) {
  (void)call;
  return somewhere_else();
}
