// Packing at run time against packing at compile time: random descriptions of every kind that rules write, for elements
// of every width, interpreted and as code of every level of x86-64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <numeric>
#include <random>

#include "codegen_harness.h"
#include "interp/loop_interp.h"
#include "loop/printer.h"
#include "loop/verify.h"
#include "loop_passes/pass.h"
#include "program/single_kernel_program.h"
#include "schedule/kernel/pack_loops.h"
#include "schedule/kernel/winograd_matrices.h"

namespace tessera {
namespace {

struct Packing {
  Tensor source;
  PackedParam how;
};

class RandomPacking {
 public:
  explicit RandomPacking(unsigned seed) : random_(seed) {}

  int64_t pick(std::initializer_list<int64_t> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random_() % choices.size()));
  }

  Tensor filled(DType dtype, int64_t elements) {
    Tensor tensor(dtype, {elements});
    if (is_float(dtype)) {
      for (int64_t i = 0; i < elements; ++i)
        tensor.set_double(i, static_cast<double>(static_cast<int>(random_() % 2001) - 1000) / 256);
    } else {
      for (int64_t i = 0; i < tensor.num_bytes(); ++i) tensor.mutable_bytes()[i] = static_cast<std::byte>(random_());
    }
    return tensor;
  }

  // Logical axes in the order of the source, of which one has the lanes; each cut into digits, in any order.
  Packing plain(DType dtype, int64_t lanes) {
    const size_t count = 1 + random_() % 4;
    std::vector<int64_t> extents(count);
    for (int64_t& extent : extents) extent = pick({1, 2, 3, 4, 7, 8, 9, 16, 17, 24, 33, 40});
    PackSpec spec;
    int64_t elements = 1;
    spec.axes.resize(count);
    for (size_t a = count; a-- > 0; elements *= extents[a]) spec.axes[a] = {extents[a], elements};
    const auto lane_axis = static_cast<int>(random_() % count);
    const int64_t group = 32 / dtype_bits(dtype);
    const bool grouped = group > 1 && count > 1 && random_() % 2 == 0;
    const int group_axis =
        grouped ? static_cast<int>((static_cast<size_t>(lane_axis) + 1 + random_() % (count - 1)) % count) : -1;
    if (random_() % 3 == 0) {  // a part of some axis
      const auto a = random_() % count;
      const int64_t first = static_cast<int64_t>(random_()) % extents[a];
      spec.offset = first * spec.axes[a].stride;
      spec.axes[a].extent -= first;
    }
    std::vector<PackDim> dims;
    for (int a = 0; a < static_cast<int>(count); ++a) {
      const int64_t extent = spec.axes[static_cast<size_t>(a)].extent;
      int64_t digit = a == lane_axis ? lanes : a == group_axis ? group : 1;
      int64_t places = (extent + digit - 1) / digit;
      while (places > 1 && random_() % 2 == 0) {
        const int64_t inner = pick({2, 3, 4, 8, 16});
        if (inner >= places) break;
        dims.push_back({inner, a, digit});
        digit *= inner;
        places = (places + inner - 1) / inner;
      }
      if (random_() % 6 == 0) ++places;  // zeros behind the end
      dims.push_back({places, a, digit});
    }
    std::shuffle(dims.begin(), dims.end(), random_);
    dims.push_back({lanes, lane_axis, 1});
    if (grouped) dims.push_back({group, group_axis, 1});
    spec.dims = std::move(dims);
    Packing result{filled(dtype, elements), {0, {spec}}};
    if (random_() % 4 == 0) result.how.parts.push_back(spec);
    return result;
  }

  // As winograd_packing writes it.
  Packing winograd() {
    const int64_t lanes = pick({4, 8, 16}), groups = pick({1, 1, 2}), blocks = pick({1, 2, 3}),
                  frames = pick({1, 1, 2}), channel_blocks = pick({1, 2});
    const int64_t out = groups == 1 ? blocks * lanes - pick({0, 1, 3}) : blocks * lanes;
    const int64_t channels = channel_blocks * lanes * frames;
    PackedParam::FilterTransform tile = {2, 2, 3, 3};
    switch (random_() % 5) {
      case 0: tile = {4, 4, 3, 3}; break;
      case 1: tile = {2, 2, 5, 5}; break;
      case 2: tile = {1, 4, 1, 3}; break;
      case 3: tile = {2, 1, 7, 1}; break;
      default: break;
    }
    const int64_t places =
        winograd_matrices(tile.rows, tile.height).alpha * winograd_matrices(tile.columns, tile.width).alpha;
    PackSpec spec;
    spec.axes = {{groups * out, channels * places}, {channels, places}, {places, 1}};
    spec.dims = {{groups, 0, blocks * lanes},
                 {places, 2, 1},
                 {blocks, 0, lanes},
                 {channel_blocks, 1, lanes * frames},
                 {frames, 1, 1},
                 {lanes, 1, frames},
                 {lanes, 0, 1}};
    const Tensor flat = filled(DType::kF32, groups * out * channels * tile.height * tile.width);
    Tensor source(DType::kF32, {groups * out, channels, tile.height, tile.width});
    std::copy_n(flat.bytes(), flat.num_bytes(), source.mutable_bytes());
    return {source, {0, {spec}, tile}};
  }

 private:
  std::mt19937 random_;
};

Tensor viewed(const Tensor& tensor, const Buffer& buffer) {
  Tensor result(buffer.dtype, *static_dims(buffer.shape));
  EXPECT_EQ(result.num_bytes(), tensor.num_bytes());
  std::copy_n(tensor.bytes(), tensor.num_bytes(), result.mutable_bytes());
  return result;
}

// Where two packed tensors differ; Winograd's transform is rounded in another way.
std::string difference(const Tensor& want, const std::byte* got, bool rounded) {
  if (!rounded) return std::memcmp(want.bytes(), got, static_cast<size_t>(want.num_bytes())) == 0 ? "" : "other bits";
  const auto values = want.as<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    float value = 0;
    std::memcpy(&value, got + i * sizeof(float), sizeof value);
    if (!(std::abs(value - values[i]) <= 1e-4f)) return "element " + std::to_string(i);
  }
  return "";
}

void expect_packed(const Packing& packing, const Target& target, bool native) {
  const Tensor want = pack(packing.source, packing.how);
  std::vector<std::byte> got(static_cast<size_t>(want.num_bytes()), std::byte{0x55});
  int64_t begin = 0;
  std::string text;
  for (size_t part = 0; part < packing.how.parts.size(); ++part) {
    LoopProgram program =
        pack_loops("pack", packing.how, part, packing.source.dtype(), packing.source.num_elements(), target);
    text += print(program);
    ASSERT_TRUE(verify(program).empty()) << text;
    const Tensor source = viewed(packing.source, *program.params[0]);
    Tensor out(program.params[1]->dtype, *static_dims(program.params[1]->shape));
    if (native) {
      for (const LoopPass& pass : loop_pipeline()) program = pass.run(program, {target, 3});
      out = NativeModule(program_of(program), target).run({source})[0];
    } else {
      Tensor in = source;
      std::vector<Tensor*> params = {&in, &out};
      ASSERT_NO_THROW(interpret(program, params)) << text;
    }
    ASSERT_LE(begin + out.num_bytes(), want.num_bytes()) << text;
    std::copy_n(out.bytes(), out.num_bytes(), got.begin() + begin);
    begin += out.num_bytes();
  }
  ASSERT_EQ(begin, want.num_bytes()) << text;
  ASSERT_EQ(difference(want, got.data(), packing.how.winograd.rows != 0), "") << text;
}

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kI8, DType::kU8, DType::kI32, DType::kF64};

TEST(PackLoops, RandomPackings) {
  for (unsigned seed = 0; seed < 400 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomPacking random(seed);
    Target target = parse_target(random.pick({0, 1}) ? "x86-64-v3" : "x86-64-v4");
    target.num_threads = static_cast<int>(random.pick({1, 2}));
    expect_packed(random.plain(kTypes[seed % 7], random.pick({4, 8, 16, 32})), target, false);
  }
}

TEST(PackLoops, FilterTransforms) {
  for (unsigned seed = 0; seed < 60 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomPacking random(seed);
    expect_packed(random.winograd(), parse_target(random.pick({0, 1}) ? "x86-64-v2" : "x86-64-v4"), false);
  }
}

TEST(PackLoops, Compiled) {
  for (const std::string& name : runnable_targets()) {
    Target target = parse_target(name);
    for (unsigned seed = 1000; seed < 1030 && !testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE(name + " " + std::to_string(seed));
      RandomPacking random(seed);
      target.num_threads = static_cast<int>(random.pick({1, 2}));
      expect_packed(seed % 4 == 0 ? random.winograd() : random.plain(kTypes[seed % 7], random.pick({4, 8, 16, 32})),
                    target, true);
    }
  }
}

TEST(PackLoops, PiecesAreCutWhileCompiling) {
  PackedParam packed;
  packed.pieces = 3;
  EXPECT_NE(run_time_packing_problem(packed, DType::kF32), "");
  packed.pieces = 0;
  EXPECT_EQ(run_time_packing_problem(packed, DType::kF32), "");
}

}  // namespace
}  // namespace tessera
