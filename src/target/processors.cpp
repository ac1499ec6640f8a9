#include "target/processors.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tessera::inline target {
namespace {

struct Row {
  std::string_view vendor;
  int family, first_model, last_model;
  std::string_view llvm_cpus;  // each with a blank on both sides
  MeasuredRatios ratios;
};

constexpr MeasuredRatios kSlowThirdLevel{.l3_operations = 3.6};
constexpr MeasuredRatios kHalfRate{.memory_slots = 0.25};
constexpr std::string_view kZen4 = " znver4 ";

constexpr std::array kRows = {
    // Skylake and later. Measured on a Sapphire Rapids.
    Row{"GenuineIntel", 6, 0x4e, 0xff,
        " skylake skylake-avx512 skx cascadelake cooperlake cannonlake icelake-client icelake-server tigerlake "
        "rocketlake "
        "alderlake raptorlake meteorlake arrowlake arrowlake-s lunarlake pantherlake sapphirerapids emeraldrapids "
        "graniterapids graniterapids-d goldmont goldmont-plus tremont gracemont sierraforest grandridge "
        "clearwaterforest ",
        kSlowThirdLevel},
    Row{"AuthenticAMD", 0x19, 0x10, 0x1f, kZen4, kHalfRate},
    Row{"AuthenticAMD", 0x19, 0x60, 0x7f, kZen4, kHalfRate},
    Row{"AuthenticAMD", 0x19, 0xa0, 0xaf, kZen4, kHalfRate},
};

template <typename Matches>
MeasuredRatios ratios_where(const Matches& matches) {
  const auto it = std::find_if(kRows.begin(), kRows.end(), matches);
  return it == kRows.end() ? MeasuredRatios() : it->ratios;
}

}  // namespace

MeasuredRatios ratios_of(const ProcessorId& id) {
  return ratios_where([&](const Row& row) {
    return row.vendor == id.vendor && row.family == id.family && row.first_model <= id.model &&
           id.model <= row.last_model;
  });
}

MeasuredRatios ratios_of(std::string_view llvm_cpu) {
  const std::string word = " " + std::string(llvm_cpu) + " ";
  return ratios_where([&](const Row& row) { return row.llvm_cpus.find(word) != std::string_view::npos; });
}

MeasuredRatios ratios_of_this_machine() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(0, &a, &b, &c, &d)) return {};
  std::string vendor;
  for (const unsigned word : {b, d, c}) vendor.append(reinterpret_cast<const char*>(&word), sizeof(word));
  if (!__get_cpuid(1, &a, &b, &c, &d)) return {};
  int family = static_cast<int>(a >> 8 & 0xf), model = static_cast<int>(a >> 4 & 0xf);
  if (family == 6 || family == 0xf) model += static_cast<int>(a >> 16 & 0xf) << 4;
  if (family == 0xf) family += static_cast<int>(a >> 20 & 0xff);
  return ratios_of(ProcessorId{vendor, family, model});
#else
  return {};
#endif
}

}  // namespace tessera::inline target
