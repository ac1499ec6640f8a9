// The emulator beside the manual: its instructions, one at a time, in this test's own assembly. Where the processor has
// AMX the same runs on it, and the tests of the emulator's faults are skipped.
#include "amx/amx_emulator.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "runtime/cpu/cpu_features.h"

#if defined(__x86_64__)

namespace tessera {
namespace {

struct alignas(64) Config {
  std::array<uint8_t, 64> bytes{};
  Config(int rows, int row_bytes) {
    bytes[0] = 1;
    for (size_t t = 0; t < 8; ++t) set(t, rows, row_bytes);
  }
  void set(size_t tile, int rows, int row_bytes) {
    bytes[16 + 2 * tile] = static_cast<uint8_t>(row_bytes);
    bytes[48 + tile] = static_cast<uint8_t>(rows);
  }
};

void configure(const Config& config) { __asm__ volatile("ldtilecfg %0" ::"m"(config)); }
void release() { __asm__ volatile("tilerelease"); }

template <typename T>
struct alignas(64) Matrix {
  std::array<T, 1024 / sizeof(T)> values{};
  T& operator()(size_t row, size_t column) { return values[row * (64 / sizeof(T)) + column]; }
};

template <typename T>
void load1(const Matrix<T>& m) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm1" ::"r"(m.values.data()), "r"(64L) : "memory");
}
template <typename T>
void load2(const Matrix<T>& m) {
  __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm2" ::"r"(m.values.data()), "r"(64L) : "memory");
}
template <typename T>
void load0(const Matrix<T>& m) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm0" ::"r"(m.values.data()), "r"(64L) : "memory");
}
template <typename T>
void store0(Matrix<T>& m) {
  __asm__ volatile("tilestored %%tmm0, (%0,%1,1)" ::"r"(m.values.data()), "r"(64L) : "memory");
}

uint16_t to_bf16(float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); }
float from_bf16(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

class Amx : public ::testing::Test {
 protected:
  void SetUp() override {
    is_emulated_ = emulate_amx();
    std::array<char, 64> missing{};
    if (!is_emulated_ && find_missing_cpu_features("amx-tile,amx-bf16,amx-int8", missing.data(), missing.size()) != 0)
      GTEST_SKIP() << "the processor has no right to use " << missing.data();
  }
  bool is_emulated_ = false;
};

TEST_F(Amx, MovesTilesByEveryFormOfAddress) {
  std::array<uint8_t, 4096> memory{}, out{};
  std::mt19937 random(1);
  for (uint8_t& byte : memory) byte = static_cast<uint8_t>(random());
  configure(Config(16, 64));
  const auto expect_rows = [&](size_t begin, size_t stride, const char* form) {
    out = {};
    __asm__ volatile("tilestored %%tmm6, (%0,%1,1)" ::"r"(out.data()), "r"(64L) : "memory");
    for (size_t row = 0; row < 16; ++row)
      EXPECT_EQ(memcmp(&out[64 * row], &memory[begin + stride * row], 64), 0) << form << " row " << row;
    __asm__ volatile("tilezero %tmm6");
  };
  const uint8_t* m = memory.data();
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm6" ::"r"(m), "r"(64L) : "memory");
  expect_rows(0, 64, "base and index");
  __asm__ volatile("tileloadd 8(%0,%1,2), %%tmm6" ::"r"(m), "r"(100L) : "memory");
  expect_rows(8, 200, "8 bits and scale 2");
  __asm__ volatile("tileloadd -128(%0,%1,1), %%tmm6" ::"r"(m + 200), "r"(64L) : "memory");
  expect_rows(72, 64, "negative 8 bits");
  __asm__ volatile("tileloadd 1000(%0,%1,8), %%tmm6" ::"r"(m), "r"(16L) : "memory");
  expect_rows(1000, 128, "32 bits and scale 8");
  __asm__ volatile("movq %0, %%r13\n\tmovq %1, %%r12\n\ttileloadd (%%r13,%%r12,1), %%tmm6" ::"r"(m), "r"(192L)
                   : "memory", "r12", "r13");
  expect_rows(0, 192, "r13 and r12");
  __asm__ volatile("movq %0, %%r12\n\tmovq %1, %%r9\n\ttileloaddt1 64(%%r12,%%r9,4), %%tmm6" ::"r"(m), "r"(16L)
                   : "memory", "r12", "r9");
  expect_rows(64, 64, "r12 and r9");
  __asm__ volatile("tileloadd (%0), %%tmm6" ::"r"(m) : "memory");  // an index of none: every row is the first
  expect_rows(0, 0, "no index");
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm6" ::"r"(m + 2048), "r"(-64L) : "memory");
  expect_rows(2048, static_cast<size_t>(-64), "a stride below zero");
  release();
}

TEST_F(Amx, ConfigurationIsKeptUntilItIsReleased) {
  Config config(16, 64), read(1, 4);
  config.set(3, 7, 20);
  configure(config);
  __asm__ volatile("sttilecfg %0" : "=m"(read));
  EXPECT_EQ(read.bytes, config.bytes);
  release();
  __asm__ volatile("sttilecfg %0" : "=m"(read));
  EXPECT_EQ(read.bytes, (std::array<uint8_t, 64>{}));
}

TEST_F(Amx, RowsAndBytesBeyondTheShapeAreZero) {
  Config config(16, 64);
  configure(config);
  Matrix<uint8_t> ones, out;
  ones.values.fill(1);
  load0(ones);
  config.set(0, 5, 12);
  configure(config);  // zeroes all tiles
  load0(ones);
  out.values.fill(9);
  store0(out);
  for (size_t row = 0; row < 16; ++row)
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(out(row, i), row < 5 && i < 12 ? 1 : 9) << row << " " << i;
  release();
}

TEST_F(Amx, ThreadsHaveTilesOfTheirOwn) {
  configure(Config(16, 64));
  Matrix<uint8_t> mine, out;
  mine.values.fill(3);
  load0(mine);
  std::thread([] {
    configure(Config(16, 64));
    Matrix<uint8_t> theirs, read;
    theirs.values.fill(4);
    load0(theirs);
    store0(read);
    EXPECT_EQ(read.values, theirs.values);
    release();
  }).join();
  store0(out);
  EXPECT_EQ(out.values, mine.values);
  release();
}

// Sums of even and of odd places, each with one rounding a product, then their sum, then the old sum.
TEST_F(Amx, ProductsOfBf16) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const auto& [rows, pairs, columns] : {std::tuple<size_t, size_t, size_t>{16, 16, 16}, {3, 5, 7}, {16, 1, 16}}) {
    Config config(16, 64);
    config.set(0, static_cast<int>(rows), static_cast<int>(4 * columns));
    config.set(1, static_cast<int>(rows), static_cast<int>(4 * pairs));
    config.set(2, static_cast<int>(pairs), static_cast<int>(4 * columns));
    configure(config);
    Matrix<uint16_t> a, b;
    Matrix<float> c, got;
    for (uint16_t& value : a.values) value = to_bf16(uniform(random));
    for (uint16_t& value : b.values) value = to_bf16(uniform(random));
    for (float& value : c.values) value = uniform(random);
    load0(c), load1(a), load2(b);
    __asm__ volatile("tdpbf16ps %tmm2, %tmm1, %tmm0");
    store0(got);
    for (size_t r = 0; r < rows; ++r)
      for (size_t n = 0; n < columns; ++n) {
        float even = 0, odd = 0;
        for (size_t k = 0; k < pairs; ++k) {
          even = std::fma(from_bf16(a(r, 2 * k)), from_bf16(b(k, 2 * n)), even);
          odd = std::fma(from_bf16(a(r, 2 * k + 1)), from_bf16(b(k, 2 * n + 1)), odd);
        }
        EXPECT_EQ(got(r, n), c(r, n) + (even + odd)) << r << " " << n;
      }
    release();
  }
}

TEST_F(Amx, DenormalsAreZeros) {
  configure(Config(16, 64));
  Matrix<uint16_t> a, b;
  Matrix<float> c, got;
  const auto product = [&](float x, float y, float sum) {
    a(0, 0) = to_bf16(x), b(0, 0) = to_bf16(y), c(0, 0) = sum;
    load0(c), load1(a), load2(b);
    __asm__ volatile("tdpbf16ps %tmm2, %tmm1, %tmm0");
    store0(got);
    return got(0, 0);
  };
  EXPECT_EQ(product(0x1p-130f, 0x1p10f, 0), 0);  // a factor
  EXPECT_EQ(product(0x1p-70f, 0x1p-70f, 0), 0);  // a product
  EXPECT_EQ(product(0, 0, 0x1p-130f), 0);        // the old sum
  EXPECT_EQ(product(0x1p-63f, 0x1p-63f, 0), 0x1p-126f);
  EXPECT_TRUE(std::isnan(product(INFINITY, 0, 0)));
  EXPECT_EQ(product(INFINITY, 1, 0), INFINITY);
  release();
}

template <typename A, typename B>
void check_int8(const std::function<void()>& instruction) {
  std::mt19937 random(3);
  Config config(16, 64);
  config.set(0, 11, 52);
  config.set(1, 11, 36);
  config.set(2, 9, 52);
  configure(config);
  Matrix<A> a;
  Matrix<B> b;
  Matrix<int32_t> c, got;
  for (A& value : a.values) value = static_cast<A>(random());
  for (B& value : b.values) value = static_cast<B>(random());
  for (int32_t& value : c.values) value = static_cast<int32_t>(random());  // wraps
  load0(c), load1(a), load2(b);
  instruction();
  store0(got);
  for (size_t r = 0; r < 11; ++r)
    for (size_t n = 0; n < 13; ++n) {
      auto sum = static_cast<uint32_t>(c(r, n));
      for (size_t k = 0; k < 9; ++k)
        for (size_t i = 0; i < 4; ++i) sum += static_cast<uint32_t>(a(r, 4 * k + i) * b(k, 4 * n + i));
      EXPECT_EQ(static_cast<uint32_t>(got(r, n)), sum) << r << " " << n;
    }
  release();
}

TEST_F(Amx, ProductsOfInt8) {
  check_int8<int8_t, int8_t>([] { __asm__ volatile("tdpbssd %tmm2, %tmm1, %tmm0"); });
  check_int8<int8_t, uint8_t>([] { __asm__ volatile("tdpbsud %tmm2, %tmm1, %tmm0"); });
  check_int8<uint8_t, int8_t>([] { __asm__ volatile("tdpbusd %tmm2, %tmm1, %tmm0"); });
  check_int8<uint8_t, uint8_t>([] { __asm__ volatile("tdpbuud %tmm2, %tmm1, %tmm0"); });
}

using AmxDeathTest = Amx;

// What a processor refuses ends the test.
TEST_F(AmxDeathTest, Faults) {
  if (!is_emulated_) GTEST_SKIP() << "the processor has AMX: faults are signals there";
  const Config whole(16, 64);
  const auto with = [&](const std::function<void(Config&)>& change) {
    Config config = whole;
    change(config);
    configure(config);
  };
  EXPECT_DEATH({ __asm__ volatile("tilezero %tmm0"); }, "tilezero: #UD: tiles are not configured");
  EXPECT_DEATH({ __asm__ volatile("tdpbf16ps %tmm2, %tmm1, %tmm0"); }, "#UD: tiles are not configured");
  EXPECT_DEATH(configure(whole); release(); load0(Matrix<int32_t>()), "tileloadd: #UD: tiles are not configured");
  EXPECT_DEATH(with([](Config& c) { c.bytes[0] = 2; }), "no such palette");
  EXPECT_DEATH(with([](Config& c) { c.bytes[7] = 1; }), "reserved byte");
  EXPECT_DEATH(with([](Config& c) { c.set(1, 17, 64); }), "more than 16 rows");
  EXPECT_DEATH(with([](Config& c) { c.set(1, 16, 68); }), "more than 64 bytes");
  EXPECT_DEATH(with([](Config& c) { c.set(1, 0, 64); }), "either rows or bytes");
  EXPECT_DEATH(with([](Config& c) { c.set(0, 0, 0); }); load0(Matrix<int32_t>()), "the tile has no rows");
  const auto multiply = [] { __asm__ volatile("tdpbf16ps %tmm2, %tmm1, %tmm0"); };
  EXPECT_DEATH(with([](Config& c) { c.set(1, 8, 64); }); multiply(), "different rows");
  EXPECT_DEATH(with([](Config& c) { c.set(2, 16, 32); }); multiply(), "different columns");
  EXPECT_DEATH(with([](Config& c) { c.set(2, 8, 64); }); multiply(), "different inner sizes");
  EXPECT_DEATH(with([](Config& c) { c.set(2, 16, 62); }); multiply(), "whole 32 bits");
  // tdpbssd %tmm1, %tmm1, %tmm0, which an assembler refuses
  EXPECT_DEATH(configure(whole); __asm__ volatile(".byte 0xc4, 0xe2, 0x73, 0x5e, 0xc1"), "a tile stands twice");
}

TEST_F(Amx, CountsWhatItRuns) {
  if (!is_emulated_) GTEST_SKIP() << "the processor has AMX: nothing is emulated";
  const AmxCounts before = amx_counts();
  configure(Config(16, 64));
  EXPECT_EQ(amx_counts().configured_threads, before.configured_threads + 1);
  load0(Matrix<int32_t>());
  release();
  const AmxCounts after = amx_counts();
  EXPECT_EQ(after.configures, before.configures + 1);
  EXPECT_EQ(after.releases, before.releases + 1);
  EXPECT_EQ(after.loads, before.loads + 1);
  EXPECT_EQ(after.configured_threads, before.configured_threads);
}

}  // namespace
}  // namespace tessera

#endif
