#include "diagnose/probe_loops.h"

#include "runtime/cpu/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera::inline diagnose {

namespace {

bool has(const char* features) {
  char missing[256];
  return find_missing_cpu_features(features, missing, sizeof(missing)) == 0;
}

// Keeps a value alive without storing it anywhere.
template <typename T>
[[gnu::always_inline]] inline void keep(T& value) {
#if defined(__x86_64__)
  __asm__ volatile("" : "+x"(value));
#else
  __asm__ volatile("" : "+w"(value));
#endif
}

// What every machine has: four lanes of f32, multiply and add.
using Lanes4 = float __attribute__((vector_size(16)));

double plain_fma(int64_t iterations) {
  constexpr int kChains = 8;
  const Lanes4 a = {0.999F, 0.999F, 0.999F, 0.999F}, b = {1e-3F, 1e-3F, 1e-3F, 1e-3F};
  Lanes4 chains[kChains] = {};
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 8
    for (int k = 0; k < kChains; ++k) {
      chains[k] = chains[k] * a + b;
      keep(chains[k]);
    }
  }
  return kChains * 4 * 2;
}

void plain_read(const float* data, int64_t bytes) {
  Lanes4 sum0 = {}, sum1 = {}, sum2 = {}, sum3 = {};
  const auto* lanes = reinterpret_cast<const Lanes4*>(data);
  for (int64_t i = 0; i < bytes / 16; i += 4) {
    sum0 += lanes[i];
    sum1 += lanes[i + 1];
    sum2 += lanes[i + 2];
    sum3 += lanes[i + 3];
  }
  sum0 += sum1 + sum2 + sum3;
  keep(sum0);
}

#if defined(__x86_64__)

// Enough chains to cover four or five cycles of latency on two pipes.
constexpr int kChains = 12;

[[gnu::target("avx2,fma")]] double avx2_fma(int64_t iterations) {
  const __m256 a = _mm256_set1_ps(0.999F), b = _mm256_set1_ps(1e-3F);
  __m256 chains[kChains] = {};
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int k = 0; k < kChains; ++k) {
      chains[k] = _mm256_fmadd_ps(chains[k], a, b);
      __asm__ volatile("" : "+x"(chains[k]));
    }
  }
  return kChains * 8 * 2;
}

[[gnu::target("avx512f")]] double avx512_fma(int64_t iterations) {
  const __m512 a = _mm512_set1_ps(0.999F), b = _mm512_set1_ps(1e-3F);
  __m512 chains[kChains] = {};
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int k = 0; k < kChains; ++k) {
      chains[k] = _mm512_fmadd_ps(chains[k], a, b);
      __asm__ volatile("" : "+v"(chains[k]));
    }
  }
  return kChains * 16 * 2;
}

[[gnu::target("avxvnni,avx2")]] double avx_vnni(int64_t iterations) {
  const __m256i a = _mm256_set1_epi8(1), b = _mm256_set1_epi8(1);
  __m256i chains[kChains] = {};
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int k = 0; k < kChains; ++k) {
      chains[k] = _mm256_dpbusd_avx_epi32(chains[k], a, b);
      __asm__ volatile("" : "+x"(chains[k]));
    }
  }
  return kChains * 32 * 2;
}

[[gnu::target("avx512f,avx512vnni")]] double avx512_vnni(int64_t iterations) {
  const __m512i a = _mm512_set1_epi32(0x01010101), b = a;
  __m512i chains[kChains] = {};
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int k = 0; k < kChains; ++k) {
      chains[k] = _mm512_dpbusd_epi32(chains[k], a, b);
      __asm__ volatile("" : "+v"(chains[k]));
    }
  }
  return kChains * 64 * 2;
}

// Eight tiles of 16 rows by 64 bytes, as the instruction wants them described.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64);

[[gnu::target("amx-tile")]] void configure_tiles() {
  const TileShapes shapes;
  // GCC 12 believes that the instruction reads 8 bytes, and drops the stores of the others.
  __asm__ volatile("" : : "m"(shapes));
  _tile_loadconfig(&shapes);
}

// Four accumulators; zeros in, so that the values never matter.
[[gnu::target("amx-tile,amx-int8")]] double amx_i8(int64_t iterations) {
  configure_tiles();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t i = 0; i < iterations; ++i) {
    _tile_dpbssd(0, 4, 5);
    _tile_dpbssd(1, 4, 5);
    _tile_dpbssd(2, 4, 5);
    _tile_dpbssd(3, 4, 5);
  }
  _tile_release();
  return 4.0 * 16 * 16 * 64 * 2;
}

[[gnu::target("amx-tile,amx-bf16")]] double amx_bf16(int64_t iterations) {
  configure_tiles();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t i = 0; i < iterations; ++i) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
  return 4.0 * 16 * 16 * 32 * 2;
}

[[gnu::target("avx2")]] void avx2_read(const float* data, int64_t bytes) {
  __m256 sum0 = {}, sum1 = {}, sum2 = {}, sum3 = {};
  for (int64_t i = 0; i < bytes / 4; i += 32) {
    sum0 = _mm256_add_ps(sum0, _mm256_load_ps(data + i));
    sum1 = _mm256_add_ps(sum1, _mm256_load_ps(data + i + 8));
    sum2 = _mm256_add_ps(sum2, _mm256_load_ps(data + i + 16));
    sum3 = _mm256_add_ps(sum3, _mm256_load_ps(data + i + 24));
  }
  sum0 = _mm256_add_ps(_mm256_add_ps(sum0, sum1), _mm256_add_ps(sum2, sum3));
  __asm__ volatile("" : "+x"(sum0));
}

[[gnu::target("avx512f")]] void avx512_read(const float* data, int64_t bytes) {
  __m512 sum0 = {}, sum1 = {}, sum2 = {}, sum3 = {};
  for (int64_t i = 0; i < bytes / 4; i += 64) {
    sum0 = _mm512_add_ps(sum0, _mm512_load_ps(data + i));
    sum1 = _mm512_add_ps(sum1, _mm512_load_ps(data + i + 16));
    sum2 = _mm512_add_ps(sum2, _mm512_load_ps(data + i + 32));
    sum3 = _mm512_add_ps(sum3, _mm512_load_ps(data + i + 48));
  }
  sum0 = _mm512_add_ps(_mm512_add_ps(sum0, sum1), _mm512_add_ps(sum2, sum3));
  __asm__ volatile("" : "+v"(sum0));
}

#endif

}  // namespace

ArithmeticLoop widest_fma_loop() {
#if defined(__x86_64__)
  if (has("avx512f")) return {"avx512f", avx512_fma};
  if (has("avx2,fma")) return {"avx2, fma", avx2_fma};
  return {"sse2", plain_fma};
#else
  return {"128-bit vectors", plain_fma};
#endif
}

ReadLoop widest_read_loop() {
#if defined(__x86_64__)
  if (has("avx512f")) return avx512_read;
  if (has("avx2")) return avx2_read;
#endif
  return plain_read;
}

std::optional<ArithmeticLoop> vnni_loop() {
#if defined(__x86_64__)
  if (has("avx512f,avx512vnni")) return ArithmeticLoop{"avx512vnni", avx512_vnni};
  if (has("avx2,avxvnni")) return ArithmeticLoop{"avxvnni", avx_vnni};
#endif
  return std::nullopt;
}

std::optional<ArithmeticLoop> amx_i8_loop() {
#if defined(__x86_64__)
  if (has("amx-tile,amx-int8")) return ArithmeticLoop{"amx-int8", amx_i8};
#endif
  return std::nullopt;
}

std::optional<ArithmeticLoop> amx_bf16_loop() {
#if defined(__x86_64__)
  if (has("amx-tile,amx-bf16")) return ArithmeticLoop{"amx-bf16", amx_bf16};
#endif
  return std::nullopt;
}

}  // namespace tessera::inline diagnose
