// random_bits: random numbers by counter. Block number n of a key is Threefry-2x32 with 20 rounds (J. Salmon, M.
// Moraes, R. Dror, D. Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011) of the 64 bits of n: two words, the
// same on every machine and however many threads compute them.
#include <array>
#include <bit>

#include "graph/adjoint.h"
#include "ops/loop_util.h"
#include "ops/op_util.h"
#include "ops/primitives.h"

namespace tessera::inline ops {
namespace {

constexpr uint32_t kParity = 0x1BD11BDA;  // makes the third word of the key schedule
constexpr std::array<std::array<int, 4>, 2> kRotations = {{{13, 15, 26, 6}, {17, 29, 16, 24}}};
constexpr int kGroups = 5;      // of four rounds, each with words of the key behind it
constexpr int64_t kLanes = 16;  // blocks side by side

std::vector<TensorType> infer(const OpContext& ctx) {
  const auto& shape = ctx.attrs.get_ints("shape");
  require_ints(ctx, "shape", shape.size(), 0, kMaxExtent);
  const TensorType& key = ctx.inputs[0];
  if (key.dtype != DType::kU32) ctx.fail("TSR-2020", describe_operand(ctx, 0), "u32");
  if (static_dims(key.shape) != std::vector<int64_t>{2}) ctx.fail("TSR-2024", describe_operand(ctx, 0), "u32[2]");
  if (ctx.inputs.size() > 1) {
    const TensorType& first = ctx.inputs[1];
    if (first.dtype != DType::kI64) ctx.fail("TSR-2020", describe_operand(ctx, 1), "i64");
    if (!first.is_static() || first.num_elements() != 1) ctx.fail("TSR-2024", describe_operand(ctx, 1), "one element");
  }
  return {TensorType{DType::kU32, make_shape(shape), {}}};
}

Tensor evaluate(const OpContext& ctx, const std::vector<const Tensor*>& inputs) {
  Tensor y(DType::kU32, ctx.attrs.get_ints("shape"));
  const auto k0 = static_cast<uint32_t>(inputs[0]->get_int(0)), k1 = static_cast<uint32_t>(inputs[0]->get_int(1));
  const uint32_t schedule[] = {k0, k1, k0 ^ k1 ^ kParity};
  const uint64_t first = inputs.size() > 1 ? static_cast<uint64_t>(inputs[1]->get_int(0)) : 0;
  for (int64_t i = 0; i < y.num_elements(); i += 2) {
    const uint64_t block = first + static_cast<uint64_t>(i / 2);
    uint32_t x0 = static_cast<uint32_t>(block) + k0, x1 = static_cast<uint32_t>(block >> 32) + k1;
    for (uint32_t round = 0; round < 20; ++round) {
      x0 += x1;
      x1 = std::rotl(x1, kRotations[round / 4 % 2][round % 4]) ^ x0;
      if (round % 4 != 3) continue;
      const uint32_t group = round / 4 + 1;
      x0 += schedule[group % 3];
      x1 += schedule[(group + 1) % 3] + group;
    }
    y.set_int(i, x0);
    if (i + 1 < y.num_elements()) y.set_int(i + 1, x1);
  }
  return y;
}

Expr word(int64_t value) { return const_int(DType::kU32, value); }
Expr exclusive_or(Expr a, Expr b) { return binary(BinaryOp::kXor, std::move(a), std::move(b)); }

LoopProgram loops(const OpContext& ctx) {
  int64_t count = 1;
  for (const int64_t extent : ctx.attrs.get_ints("shape")) count *= extent;
  LoopProgram program = start_loops(ctx, DType::kU32, count);
  const BufferPtr &key = program.params[0], &out = program.params.back();
  const int64_t blocks = (count + 1) / 2;
  if (count == 0) {
    program.body = seq({});
    return program;
  }
  const Expr first = ctx.inputs.size() > 1 ? load(program.params[1], {0}) : Expr(0);
  program.body = parallel_loop("t", (blocks + kLanes - 1) / kLanes, [&](const Var& t) {
    const BufferPtr x0 = make_buffer("x0", DType::kU32, {kLanes}, MemoryScope::kRegister),
                    x1 = make_buffer("x1", DType::kU32, {kLanes}, MemoryScope::kRegister);
    std::vector<Cell> schedule;
    for (const char* name : {"k0", "k1", "k2"}) schedule.emplace_back(name, DType::kU32);
    std::vector<Stmt> body = {
        schedule[0].set(load(key, {0})), schedule[1].set(load(key, {1})),
        schedule[2].set(exclusive_or(exclusive_or(load(key, {0}), load(key, {1})), word(kParity)))};
    const auto lanes = [&](const BufferPtr& x, const std::function<Expr(const Var&)>& value) {
      body.push_back(vector_loop("l", kLanes, [&](const Var& l) { return store(x, {l}, value(l)); }));
    };
    const auto add = [&](const BufferPtr& x, const Expr& more) {
      lanes(x, [&](const Var& l) { return load(x, {l}) + more; });
    };
    const auto block = [&](const Var& l) { return first + t * Expr(kLanes) + l; };
    lanes(x0, [&](const Var& l) { return cast(DType::kU32, block(l)); });
    lanes(x1, [&](const Var& l) {
      return cast(DType::kU32, binary(BinaryOp::kShr, cast(DType::kU64, block(l)), const_int(DType::kU64, 32)));
    });
    add(x0, schedule[0].get());
    add(x1, schedule[1].get());
    for (int group = 0; group < kGroups; ++group) {
      for (const int bits : kRotations[static_cast<size_t>(group % 2)]) {
        lanes(x0, [&](const Var& l) { return load(x0, {l}) + load(x1, {l}); });
        lanes(x1, [&](const Var& l) {
          const Expr x = load(x1, {l});
          return exclusive_or(
              binary(BinaryOp::kOr, binary(BinaryOp::kShl, x, word(bits)), binary(BinaryOp::kShr, x, word(32 - bits))),
              load(x0, {l}));
        });
      }
      add(x0, schedule[static_cast<size_t>(group + 1) % 3].get());
      add(x1, schedule[static_cast<size_t>(group + 2) % 3].get() + word(group + 1));
    }
    body.push_back(unrolled_loop("l", kLanes, [&](const Var& l) {
      const Expr place = (t * Expr(kLanes) + l) * Expr(2);
      return seq({if_then(place < Expr(count), store(out, {place}, load(x0, {l}))),
                  if_then(place + Expr(1) < Expr(count), store(out, {place + Expr(1)}, load(x1, {l})))});
    }));
    return with({x0, x1, schedule[0].buffer, schedule[1].buffer, schedule[2].buffer}, body);
  });
  return program;
}

}  // namespace

const OpDef& random_bits_op() {
  static const OpDef op{
      .name = "random_bits",
      .doc =
          "Random words (Threefry-2x32, 20 rounds): element i, row-major, is word i mod 2 of block i / 2 of the key, "
          "counted from the number in operand 1, or from 0.",
      .kind = OpKind::kProcedure,
      .min_inputs = 1,
      .max_inputs = 2,
      .attrs = {{"shape", AttrKind::kInts, true, "the result's extents"}},
      .infer = infer,
      .evaluate = evaluate,
      .loops = loops,
      .gradient = no_gradient("its results are integers"),
      // Known answers of the paper's library, Random123: tests/kat_vectors, threefry2x32 of 20 rounds.
      .example = R"(
graph @main(%key: u32[2], %n: i64[]) -> (%y: u32[2]) {
  %y = random_bits(%key, %n) {shape = [2]} : u32[2]
}
run key = 0 0 ; n = 0 -> y = 1797259609 2579123966
run key = 4294967295 4294967295 ; n = -1 -> y = 481924860 3137350631
)",
  };
  return op;
}

}  // namespace tessera::inline ops
