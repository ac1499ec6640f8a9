// What this processor and its operating system can run, in LLVM's spelling.
#pragma once

#include <stddef.h>

namespace tessera {

// `features` is a comma-separated list such as "avx2,fma" (may be empty). Writes the names that this machine lacks or
// this runtime does not know to `missing` ("avx512f, avx512bw"; cut with "..." if too long) and returns how many
// there are. A feature counts only if the operating system saves its registers. Asks the kernel for the right to use
// AMX tiles when the list names an amx feature: such a right is per process and cannot be given back.
int find_missing_cpu_features(const char* features, char* missing, size_t missing_size);

}  // namespace tessera
