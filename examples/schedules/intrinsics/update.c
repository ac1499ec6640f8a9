/* c[l] += a * b[l * step], for called.intrin. */
#include <stdint.h>

void update16(const float* a, const float* b, float* c, int64_t step) {
  for (int l = 0; l < 16; ++l) c[l] += *a * b[l * step];
}
