#include "runtime/cpu/cpu_features.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace tessera {

namespace {

#if defined(__x86_64__)

// Registers of cpuid that hold feature bits, as leaf (and sub-leaf) and register.
enum Word : uint8_t { k1c, k1d, k7b, k7c, k7d, k71a, k71d, kD1a, kE1c, kE1d, kNumWords };
// What the operating system must save and restore for the feature to be usable: bits of XCR0.
enum State : uint8_t { kNone, kYmm, kZmm, kTile };

struct Feature {
  char name[19];  // not a pointer, which would have to be relocated
  Word word;
  uint8_t bit;
  State state;
};

constexpr Feature kFeatures[] = {
    {"x87", k1d, 0, kNone},
    {"cx8", k1d, 8, kNone},
    {"cmov", k1d, 15, kNone},
    {"mmx", k1d, 23, kNone},
    {"fxsr", k1d, 24, kNone},
    {"sse", k1d, 25, kNone},
    {"sse2", k1d, 26, kNone},
    {"sse3", k1c, 0, kNone},
    {"pclmul", k1c, 1, kNone},
    {"ssse3", k1c, 9, kNone},
    {"fma", k1c, 12, kYmm},
    {"cx16", k1c, 13, kNone},
    {"sse4.1", k1c, 19, kNone},
    {"sse4.2", k1c, 20, kNone},
    {"crc32", k1c, 20, kNone},
    {"movbe", k1c, 22, kNone},
    {"popcnt", k1c, 23, kNone},
    {"aes", k1c, 25, kNone},
    {"xsave", k1c, 26, kNone},
    {"avx", k1c, 28, kYmm},
    {"f16c", k1c, 29, kYmm},
    {"rdrnd", k1c, 30, kNone},
    {"fsgsbase", k7b, 0, kNone},
    {"bmi", k7b, 3, kNone},
    {"avx2", k7b, 5, kYmm},
    {"bmi2", k7b, 8, kNone},
    {"invpcid", k7b, 10, kNone},
    {"avx512f", k7b, 16, kZmm},
    {"evex512", k7b, 16, kZmm},
    {"avx512dq", k7b, 17, kZmm},
    {"rdseed", k7b, 18, kNone},
    {"adx", k7b, 19, kNone},
    {"avx512ifma", k7b, 21, kZmm},
    {"clflushopt", k7b, 23, kNone},
    {"clwb", k7b, 24, kNone},
    {"avx512cd", k7b, 28, kZmm},
    {"sha", k7b, 29, kNone},
    {"avx512bw", k7b, 30, kZmm},
    {"avx512vl", k7b, 31, kZmm},
    {"avx512vbmi", k7c, 1, kZmm},
    {"pku", k7c, 4, kNone},
    {"waitpkg", k7c, 5, kNone},
    {"avx512vbmi2", k7c, 6, kZmm},
    {"shstk", k7c, 7, kNone},
    {"gfni", k7c, 8, kNone},
    {"vaes", k7c, 9, kYmm},
    {"vpclmulqdq", k7c, 10, kYmm},
    {"avx512vnni", k7c, 11, kZmm},
    {"avx512bitalg", k7c, 12, kZmm},
    {"avx512vpopcntdq", k7c, 14, kZmm},
    {"rdpid", k7c, 22, kNone},
    {"cldemote", k7c, 25, kNone},
    {"movdiri", k7c, 27, kNone},
    {"movdir64b", k7c, 28, kNone},
    {"avx512vp2intersect", k7d, 8, kZmm},
    {"serialize", k7d, 14, kNone},
    {"amx-bf16", k7d, 22, kTile},
    {"avx512fp16", k7d, 23, kZmm},
    {"amx-tile", k7d, 24, kTile},
    {"amx-int8", k7d, 25, kTile},
    {"avxvnni", k71a, 4, kYmm},
    {"avx512bf16", k71a, 5, kZmm},
    {"amx-fp16", k71a, 21, kTile},
    {"avxifma", k71a, 23, kYmm},
    {"avxvnniint8", k71d, 4, kYmm},
    {"avxneconvert", k71d, 5, kYmm},
    {"amx-complex", k71d, 8, kTile},
    {"avxvnniint16", k71d, 10, kYmm},
    {"prefetchi", k71d, 14, kNone},
    {"xsaveopt", kD1a, 0, kNone},
    {"xsavec", kD1a, 1, kNone},
    {"xsaves", kD1a, 3, kNone},
    {"sahf", kE1c, 0, kNone},
    {"lzcnt", kE1c, 5, kNone},
    {"sse4a", kE1c, 6, kNone},
    {"prfchw", kE1c, 8, kNone},
    {"fma4", kE1c, 16, kYmm},
    {"64bit", kE1d, 29, kNone},
};

class CpuFeatures {
 public:
  CpuFeatures() {
    uint32_t a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) {
      words_[k1c] = c, words_[k1d] = d;
      if (c & (1u << 27)) {  // OSXSAVE: xgetbv may be executed
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        saved_state_ = low;
      }
    }
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
      words_[k7b] = b, words_[k7c] = c, words_[k7d] = d;
      if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) words_[k71a] = a, words_[k71d] = d;
    }
    if (__get_cpuid_count(0xd, 1, &a, &b, &c, &d)) words_[kD1a] = a;
    if (__get_cpuid(0x80000001, &a, &b, &c, &d)) words_[kE1c] = c, words_[kE1d] = d;
  }

  bool has(const char* name, size_t size) const {
    for (const Feature& feature : kFeatures) {
      if (strlen(feature.name) != size || memcmp(feature.name, name, size) != 0) continue;
      return (words_[feature.word] >> feature.bit & 1u) && is_saved(feature.state);
    }
    return false;
  }

 private:
  bool is_saved(State state) const {
    constexpr uint32_t kYmmBits = 0x6, kZmmBits = 0xe6, kTileBits = 0x60000;
    switch (state) {
      case kNone: return true;
      case kYmm: return (saved_state_ & kYmmBits) == kYmmBits;
      case kZmm: return (saved_state_ & kZmmBits) == kZmmBits;
      case kTile: return (saved_state_ & kTileBits) == kTileBits && may_use_tiles();
    }
    return false;
  }
  static bool may_use_tiles() {
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, absent from older headers
    constexpr long kTileData = 18;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }

  uint32_t words_[kNumWords] = {};
  uint32_t saved_state_ = 0;  // XCR0
};

#elif defined(__aarch64__)

class CpuFeatures {
 public:
  bool has(const char* name, size_t size) const {
    static constexpr struct {
      const char* name;
      unsigned long bit, bit2;  // of AT_HWCAP or AT_HWCAP2
    } kFeatures[] = {{"fp-armv8", HWCAP_FP, 0},     {"neon", HWCAP_ASIMD, 0}, {"fullfp16", HWCAP_ASIMDHP, 0},
                     {"dotprod", HWCAP_ASIMDDP, 0}, {"sve", HWCAP_SVE, 0},    {"sve2", 0, HWCAP2_SVE2},
                     {"i8mm", 0, HWCAP2_I8MM},      {"bf16", 0, HWCAP2_BF16}};
    for (const auto& feature : kFeatures) {
      if (strlen(feature.name) == size && memcmp(feature.name, name, size) == 0)
        return (bits_ & feature.bit) || (bits2_ & feature.bit2);
    }
    return false;
  }

 private:
  unsigned long bits_ = getauxval(AT_HWCAP), bits2_ = getauxval(AT_HWCAP2);
};

#else

class CpuFeatures {
 public:
  bool has(const char*, size_t) const { return false; }
};

#endif

}  // namespace

int find_missing_cpu_features(const char* features, char* missing, size_t missing_size) {
  constexpr size_t kEllipsis = 6;  // ", ..." and the NUL
  const CpuFeatures cpu;
  int count = 0;
  bool cut = false;
  size_t used = 0;
  missing[0] = 0;
  for (const char* name = features; *name;) {
    const size_t size = strcspn(name, ",");
    if (size > 0 && !cpu.has(name, size)) {
      const char* comma = count > 0 ? ", " : "";
      const bool fits = !cut && used + size + 2 + kEllipsis <= missing_size;
      if (fits) {
        used += static_cast<size_t>(
            snprintf(missing + used, missing_size - used, "%s%.*s", comma, static_cast<int>(size), name));
      } else if (!cut) {
        snprintf(missing + used, missing_size - used, "%s...", comma);
        cut = true;
      }
      ++count;
    }
    name += size;
    if (*name == ',') ++name;
  }
  return count;
}

}  // namespace tessera
