/* C[M,N] = A[M,K] * B[K,N] by oneDNN, for onednn.kernel. Needs oneDNN's headers (Debian: libdnnl-dev; PyPI:
 * onednn-devel). */
#include <oneapi/dnnl/dnnl.h>
#include <stdint.h>

void onednn_matmul(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k) {
  dnnl_sgemm('N', 'N', m, n, k, 1, a, k, b, n, 0, c, n);
}
