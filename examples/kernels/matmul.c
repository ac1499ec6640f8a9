/* C[M,N] = A[M,K] * B[K,N]: a matrix product of one's own, for matmul.kernel. */
#include <stdint.h>

void my_matmul(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) c[i * n + j] = 0;
    for (int64_t x = 0; x < k; ++x)
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * k + x] * b[x * n + j];
  }
}
