#include "amx/amx_emulator.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <ucontext.h>
#endif

namespace tessera {

void forget_amx(std::vector<std::string>& features) {
  std::erase_if(features, [](const std::string& name) { return name.starts_with("amx-"); });
}

#if defined(__x86_64__)
namespace {

constexpr size_t kTiles = 8, kMostRows = 16, kRowBytes = 64;
using Tile = std::array<std::array<uint8_t, kRowBytes>, kMostRows>;

struct Shape {
  uint16_t row_bytes = 0;
  uint8_t rows = 0;
};

struct State {
  bool is_configured = false;
  uint8_t start_row = 0;
  std::array<Shape, kTiles> shapes{};
  alignas(64) std::array<Tile, kTiles> tiles{};
};

// In static storage of the thread: a handler must not allocate.
[[gnu::tls_model("initial-exec")]] thread_local State state;

struct Totals {
  std::atomic<uint64_t> configures, releases, zeros, loads, stores, bf16_products, int8_products;
  std::atomic<int64_t> configured_threads;
};
Totals totals;

[[noreturn]] void fault(const uint8_t* at, const char* instruction, const char* what) {
  std::array<char, 256> text{};
  int size = snprintf(text.data(), text.size(), "AMX emulator: %s: %s (bytes", instruction, what);
  for (int i = 0; i < 9; ++i)
    size += snprintf(text.data() + size, text.size() - static_cast<size_t>(size), " %02x", at[i]);
  size += snprintf(text.data() + size, text.size() - static_cast<size_t>(size), ")\n");
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), static_cast<size_t>(size));
  abort();
}

// One VEX-encoded instruction of the opcode map 0F38.
struct Instruction {
  const uint8_t* at = nullptr;
  int size = 0;
  enum Prefix : uint8_t { kNone, k66, kF3, kF2 } prefix = kNone;
  uint8_t opcode = 0;
  uint8_t mod = 0, reg = 0, rm = 0, vvvv = 0;  // registers with the bits of the prefix
  bool has_sib = false;
  uint64_t base = 0, index = 0;  // of the memory operand: the address without the index, and the scaled index
};

constexpr std::array<int, 16> kRegisters = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                            REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

// False for what is no AMX instruction.
bool decode(const ucontext_t& context, Instruction& out) {
  const auto value = [&](int number) {
    return static_cast<uint64_t>(context.uc_mcontext.gregs[kRegisters[static_cast<size_t>(number)]]);
  };
  const auto* at = reinterpret_cast<const uint8_t*>(context.uc_mcontext.gregs[REG_RIP]);
  out.at = at;
  // C4, then R X B (inverted) and the map, then W vvvv (inverted) L pp.
  if (at[0] != 0xc4 || (at[1] & 0x1f) != 2 || (at[2] & 0x84) != 0) return false;
  const int r = at[1] & 0x80 ? 0 : 8, x = at[1] & 0x40 ? 0 : 8, b = at[1] & 0x20 ? 0 : 8;
  out.vvvv = static_cast<uint8_t>(~at[2] >> 3 & 15);
  out.prefix = static_cast<Instruction::Prefix>(at[2] & 3);
  out.opcode = at[3];
  if (out.opcode != 0x49 && out.opcode != 0x4b && out.opcode != 0x5c && out.opcode != 0x5e) return false;
  const uint8_t modrm = at[4];
  out.mod = modrm >> 6;
  out.reg = static_cast<uint8_t>((modrm >> 3 & 7) + r);
  out.rm = static_cast<uint8_t>((modrm & 7) + b);
  out.size = 5;
  if (out.mod == 3) return true;
  bool without_base = false;
  if ((modrm & 7) == 4) {
    const uint8_t sib = at[out.size++];
    out.has_sib = true;
    if (const int index = (sib >> 3 & 7) + x; index != 4) out.index = value(index) << (sib >> 6);
    without_base = (sib & 7) == 5 && out.mod == 0;
    if (!without_base) out.base = value((sib & 7) + b);
  } else if ((modrm & 7) == 5 && out.mod == 0) {
    out.base = reinterpret_cast<uint64_t>(at) + 9;  // relative to the next instruction: its four bytes are the last
    without_base = true;
  } else {
    out.base = value(out.rm);
  }
  if (out.mod == 1) {
    out.base += static_cast<uint64_t>(static_cast<int64_t>(static_cast<int8_t>(at[out.size])));
    out.size += 1;
  } else if (out.mod == 2 || without_base) {
    int32_t displacement;
    memcpy(&displacement, at + out.size, 4);
    out.base += static_cast<uint64_t>(static_cast<int64_t>(displacement));
    out.size += 4;
  }
  return true;
}

void forget_state(bool configured) {
  if (state.is_configured != configured) totals.configured_threads += configured ? 1 : -1;
  state.is_configured = configured;
  state.start_row = 0;
  state.tiles = {};
  if (!configured) state.shapes = {};
}

void load_config(const Instruction& in) {
  std::array<uint8_t, 64> bytes;
  memcpy(bytes.data(), reinterpret_cast<const void*>(in.base + in.index), bytes.size());
  ++totals.configures;
  if (bytes[0] == 0) return forget_state(false);
  if (bytes[0] > 1) fault(in.at, "ldtilecfg", "#GP: there is no such palette");
  for (size_t i = 2; i < 64; ++i)
    if ((i < 16 || (i >= 32 && i < 48) || i >= 56) && bytes[i] != 0)
      fault(in.at, "ldtilecfg", "#GP: a reserved byte is not zero");
  forget_state(true);
  state.start_row = bytes[1];
  for (size_t t = 0; t < kTiles; ++t) {
    Shape& shape = state.shapes[t];
    shape.row_bytes = static_cast<uint16_t>(bytes[16 + 2 * t] + 256 * bytes[17 + 2 * t]);
    shape.rows = bytes[48 + t];
    if (shape.row_bytes > kRowBytes) fault(in.at, "ldtilecfg", "#GP: a row has more than 64 bytes");
    if (shape.rows > kMostRows) fault(in.at, "ldtilecfg", "#GP: a tile has more than 16 rows");
    if ((shape.rows == 0) != (shape.row_bytes == 0)) fault(in.at, "ldtilecfg", "#GP: either rows or bytes are 0");
  }
}

void store_config(const Instruction& in) {
  std::array<uint8_t, 64> bytes{};
  if (state.is_configured) {
    bytes[0] = 1;
    bytes[1] = state.start_row;
    for (size_t t = 0; t < kTiles; ++t) {
      bytes[16 + 2 * t] = static_cast<uint8_t>(state.shapes[t].row_bytes);
      bytes[48 + t] = state.shapes[t].rows;
    }
  }
  memcpy(reinterpret_cast<void*>(in.base + in.index), bytes.data(), bytes.size());
}

size_t valid_tile(const Instruction& in, const char* name, uint8_t number) {
  if (!state.is_configured) fault(in.at, name, "#UD: tiles are not configured");
  if (number >= kTiles) fault(in.at, name, "#UD: there is no such tile");
  if (state.shapes[number].rows == 0) fault(in.at, name, "#UD: the tile has no rows");
  return number;
}

void move(const Instruction& in, const char* name, bool is_load) {
  const size_t tile = valid_tile(in, name, in.reg);
  if (!in.has_sib) fault(in.at, name, "#UD: the address has no SIB byte");
  if (in.vvvv != 0) fault(in.at, name, "#UD: VEX.vvvv is not 1111");
  const Shape shape = state.shapes[tile];
  if (state.start_row >= shape.rows) fault(in.at, name, "#GP: it would begin behind the last row");
  for (size_t row = state.start_row; row < shape.rows; ++row) {
    auto* memory = reinterpret_cast<uint8_t*>(in.base + row * in.index);
    auto& bytes = state.tiles[tile][row];
    if (is_load) {
      bytes = {};
      memcpy(bytes.data(), memory, shape.row_bytes);
    } else {
      memcpy(memory, bytes.data(), shape.row_bytes);
    }
  }
  if (is_load)
    for (size_t row = shape.rows; row < kMostRows; ++row) state.tiles[tile][row] = {};
  state.start_row = 0;
  ++(is_load ? totals.loads : totals.stores);
}

struct Product {
  size_t c = 0, a = 0, b = 0;
};

Product product_tiles(const Instruction& in, const char* name) {
  const Product t{valid_tile(in, name, in.reg), valid_tile(in, name, in.rm), valid_tile(in, name, in.vvvv)};
  if (t.c == t.a || t.a == t.b || t.c == t.b) fault(in.at, name, "#UD: a tile stands twice");
  const Shape c = state.shapes[t.c], a = state.shapes[t.a], b = state.shapes[t.b];
  if (c.row_bytes % 4 != 0 || a.row_bytes % 4 != 0 || b.row_bytes % 4 != 0)
    fault(in.at, name, "#UD: rows are not of whole 32 bits");
  if (c.rows != a.rows) fault(in.at, name, "#UD: sums and first factor have different rows");
  if (c.row_bytes != b.row_bytes) fault(in.at, name, "#UD: sums and second factor have different columns");
  if (a.row_bytes / 4 != b.rows) fault(in.at, name, "#UD: the factors have different inner sizes");
  state.start_row = 0;
  return t;
}

// 32 bits of row `row` from byte 4 * place on.
uint32_t word(const Tile& tile, size_t row, size_t place) {
  uint32_t bits;
  memcpy(&bits, &tile[row][4 * place], 4);
  return bits;
}

// Sums of the even and of the odd places. A function of its own, which no multiply-add leaves: the rounding mode is set
// around it.
[[gnu::target("avx2,fma"), gnu::noinline]] void sum_pairs(Tile& c, const Tile& a, const Tile& b, const Shape& shape,
                                                          size_t pairs) {
  const __m256i odd_mask = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  for (size_t row = 0; row < shape.rows; ++row)
    for (size_t half = 0; half < 2; ++half) {
      __m256 even = _mm256_setzero_ps(), odd = _mm256_setzero_ps();
      for (size_t k = 0; k < pairs; ++k) {
        const uint32_t pair = word(a, row, k);
        const __m256i columns = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&b[k][32 * half]));
        const __m256 a_even = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(pair << 16)));
        const __m256 a_odd = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(pair & 0xffff0000u)));
        even = _mm256_fmadd_ps(a_even, _mm256_castsi256_ps(_mm256_slli_epi32(columns, 16)), even);
        odd = _mm256_fmadd_ps(a_odd, _mm256_castsi256_ps(_mm256_and_si256(columns, odd_mask)), odd);
      }
      auto* sums = reinterpret_cast<float*>(&c[row][32 * half]);
      _mm256_storeu_ps(sums, _mm256_add_ps(_mm256_loadu_ps(sums), _mm256_add_ps(even, odd)));
    }
}

void dot_bf16(const Instruction& in) {
  const Product t = product_tiles(in, "tdpbf16ps");
  const Shape shape = state.shapes[t.c];
  const unsigned saved = _mm_getcsr();
  constexpr unsigned kFlush = 0x9fc0;  // denormals are zeros, to nearest even, no exceptions
  _mm_setcsr(kFlush);
  sum_pairs(state.tiles[t.c], state.tiles[t.a], state.tiles[t.b], shape, state.shapes[t.a].row_bytes / 4u);
  _mm_setcsr(saved);
  for (size_t row = 0; row < kMostRows; ++row)
    for (size_t i = row < shape.rows ? shape.row_bytes : 0; i < kRowBytes; ++i) state.tiles[t.c][row][i] = 0;
  ++totals.bf16_products;
}

void dot_int8(const Instruction& in, const char* name, bool a_signed, bool b_signed) {
  const Product t = product_tiles(in, name);
  Tile &c = state.tiles[t.c], &a = state.tiles[t.a], &b = state.tiles[t.b];
  const auto byte = [](uint8_t bits, bool is_signed) {
    return is_signed ? static_cast<int32_t>(static_cast<int8_t>(bits)) : static_cast<int32_t>(bits);
  };
  for (size_t row = 0; row < state.shapes[t.c].rows; ++row) {
    std::array<uint32_t, 16> sums{};
    memcpy(sums.data(), c[row].data(), state.shapes[t.c].row_bytes);
    for (size_t k = 0; k < state.shapes[t.a].row_bytes / 4u; ++k)
      for (size_t n = 0; n < state.shapes[t.c].row_bytes / 4u; ++n)
        for (size_t i = 0; i < 4; ++i)
          sums[n] += static_cast<uint32_t>(byte(a[row][4 * k + i], a_signed) * byte(b[k][4 * n + i], b_signed));
    memcpy(c[row].data(), sums.data(), kRowBytes);
  }
  for (size_t row = state.shapes[t.c].rows; row < kMostRows; ++row) c[row] = {};
  ++totals.int8_products;
}

// False for what is none of AMX's.
bool execute(const Instruction& in) {
  using P = Instruction::Prefix;
  switch (in.opcode) {
    case 0x49:
      if (in.mod == 3 && in.prefix == P::kNone && in.at[4] == 0xc0) {
        ++totals.releases;
        forget_state(false);
      } else if (in.mod == 3 && in.prefix == P::kF2 && in.rm == 0) {
        state.tiles[valid_tile(in, "tilezero", in.reg)] = {};
        state.start_row = 0;
        ++totals.zeros;
      } else if (in.mod != 3 && in.reg == 0 && in.prefix == P::kNone) {
        load_config(in);
      } else if (in.mod != 3 && in.reg == 0 && in.prefix == P::k66) {
        store_config(in);
      } else {
        return false;
      }
      return true;
    case 0x4b:
      if (in.mod == 3 || in.prefix == P::kNone) return false;
      move(in,
           in.prefix == P::kF2   ? "tileloadd"
           : in.prefix == P::k66 ? "tileloaddt1"
                                 : "tilestored",
           in.prefix != P::kF3);
      return true;
    case 0x5c:
      if (in.mod != 3 || in.prefix != P::kF3) return false;
      dot_bf16(in);
      return true;
    default:
      if (in.mod != 3) return false;
      dot_int8(in,
               in.prefix == P::kF2   ? "tdpbssd"
               : in.prefix == P::kF3 ? "tdpbsud"
               : in.prefix == P::k66 ? "tdpbusd"
                                     : "tdpbuud",
               in.prefix == P::kF2 || in.prefix == P::kF3, in.prefix == P::kF2 || in.prefix == P::k66);
      return true;
  }
}

void handle(int, siginfo_t*, void* data) {
  auto& context = *static_cast<ucontext_t*>(data);
  Instruction in;
  if (decode(context, in) && execute(in)) {
    context.uc_mcontext.gregs[REG_RIP] += in.size;
    return;
  }
  fault(reinterpret_cast<const uint8_t*>(context.uc_mcontext.gregs[REG_RIP]), "SIGILL", "no instruction of AMX");
}

bool has_amx() {
  uint32_t a, b, c, d;
  constexpr uint32_t kAmxTile = 1u << 24;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kAmxTile) != 0;
}

}  // namespace

bool emulate_amx() {
  static const bool is_emulated = [] {
    if (has_amx()) return false;
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGILL, &action, nullptr) == 0;
  }();
  return is_emulated;
}

AmxCounts amx_counts() {
  return {totals.configures, totals.releases,      totals.zeros,         totals.loads,
          totals.stores,     totals.bf16_products, totals.int8_products, totals.configured_threads};
}

#else

bool emulate_amx() { return false; }
AmxCounts amx_counts() { return {}; }

#endif

}  // namespace tessera
