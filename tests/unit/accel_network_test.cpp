// Kernels of networks on units of random sizes: convolutions and products of random shapes are taken, their loops and
// their streams give what their definitions say, bit for bit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "accel/network/offload.h"
#include "accel/network/unit_kernel.h"
#include "accel/simulate.h"
#include "accel/stream.h"
#include "arith/simplify.h"
#include "interp/loop_interp.h"
#include "loop/naive_loops.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using Random = std::mt19937;

int64_t pick(Random& random, std::vector<int64_t> values) {
  return values[std::uniform_int_distribution<size_t>(0, values.size() - 1)(random)];
}

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

const Accelerator& vdla() {
  static const Accelerator unit =
      read_accelerator(file_text(TESSERA_SOURCE_DIR "/examples/accel/vdla.json"), "vdla.json");
  return unit;
}

struct Conv {
  int64_t batch = 1, in = 16, out = 16, height = 8, width = 8, kernel = 3, stride = 1, pad = 1, dilation = 1;
  bool adds = false, relu = true, bytes = true;
  int64_t result(int64_t extent) const { return (extent + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1; }
};

// What the reader of QDQ models and fusion make of it.
std::shared_ptr<TensorProgram> definition(const Conv& c) {
  auto program = std::make_shared<TensorProgram>();
  program->name = "conv";
  const auto param = [&](const char* name, DType dtype, std::vector<int64_t> dims, OperandKind kind) {
    program->params.push_back({make_buffer(name, dtype, make_shape(dims)), {}, kind});
    return program->params.back().buffer;
  };
  const int64_t h = c.result(c.height), w = c.result(c.width);
  const BufferPtr x = param("x", DType::kI8, {c.batch, c.in, c.height, c.width}, OperandKind::kActivation);
  const BufferPtr weights = param("w", DType::kI8, {c.out, c.in, c.kernel, c.kernel}, OperandKind::kConstant);
  const BufferPtr factor = param("m", DType::kF32, {1, c.out, 1, 1}, OperandKind::kConstant);
  const BufferPtr shift = param("b", DType::kF32, {c.out, 1, 1}, OperandKind::kConstant);
  const Shape shape = make_shape({c.batch, c.out, h, w});
  const BufferPtr other =
      c.adds ? param("r", DType::kF32, {c.batch, c.out, h, w}, OperandKind::kActivation) : BufferPtr();
  Stage sum;
  sum.out = make_buffer("sum", DType::kI32, shape);
  sum.body.inputs = {x, weights};
  sum.body.axes = make_axes("i", shape);
  sum.body.reduce_axes = make_axes("k", make_shape({c.in, c.kernel, c.kernel}));
  sum.body.combiner = Combiner::kSum;
  const auto place = [&](int axis) {
    return sum.body.axes[static_cast<size_t>(axis)].var * Expr(c.stride) +
           sum.body.reduce_axes[static_cast<size_t>(axis) - 1].var * Expr(c.dilation) - Expr(c.pad);
  };
  const Expr y = place(2), v = place(3), channel = sum.body.reduce_axes[0].var;
  const Expr inside =
      logical_and(logical_and(Expr(0) <= y, y < Expr(c.height)), logical_and(Expr(0) <= v, v < Expr(c.width)));
  const Expr factor_x = cast(DType::kI32, load(x, {sum.body.axes[0].var, channel, y, v}));
  sum.body.value =
      (c.pad ? select(inside, factor_x, const_int(DType::kI32, 0)) : factor_x) *
      cast(DType::kI32,
           load(weights, {sum.body.axes[1].var, channel, sum.body.reduce_axes[1].var, sum.body.reduce_axes[2].var}));
  Stage out;
  out.out = make_buffer("y", c.bytes ? DType::kI8 : DType::kF32, shape);
  out.body.axes = make_axes("i", shape);
  const std::vector<Expr> at = out.body.axis_vars();
  Expr value = cast(DType::kF32, load(sum.out, at)) * load(factor, {0, at[1], 0, 0}) + load(shift, {at[1], 0, 0});
  if (c.adds) value = value + load(other, at);
  if (c.relu) value = max(value, const_float(DType::kF32, 0));
  if (c.bytes)
    value =
        cast(DType::kI8, min(max(unary(UnaryOp::kRound, binary(BinaryOp::kDiv, value, const_float(DType::kF32, 0.37f))),
                                 const_float(DType::kF32, -128)),
                             const_float(DType::kF32, 127)));
  out.body.value = value;
  for (const TensorParam& p : program->params) out.body.inputs.push_back(p.buffer);
  out.body.inputs.push_back(sum.out);
  program->stages = {sum, out};
  return program;
}

Tensor random_tensor(Random& random, DType dtype, std::vector<int64_t> dims) {
  Tensor result(dtype, std::move(dims));
  for (int64_t i = 0; i < result.num_elements(); ++i) {
    if (dtype == DType::kI8) result.set_int(i, static_cast<int8_t>(random()));
    else result.set_double(i, std::uniform_real_distribution<double>(-1, 1)(random) / 64);
  }
  return result;
}

// A program that calls the kernel once, weights in it.
Program program_of_kernel(const std::shared_ptr<TensorProgram>& kernel, Random& random) {
  Program program;
  Kernel made;
  made.program = naive_loops(*kernel);
  made.definition = kernel;
  made.loc = kernel->name;
  program.kernels.push_back(made);
  KernelCall call{0, {}, kernel->name};
  const auto add = [&](const BufferPtr& logical, BufferKind kind, int32_t index) {
    ProgramBuffer buffer;
    buffer.name = logical->name;
    buffer.kind = kind;
    buffer.index = index;
    buffer.type = {logical->dtype, logical->shape, {}};
    buffer.bytes = dtype_bytes(logical->dtype, buffer.type.num_elements());
    if (kind == BufferKind::kWeight)
      buffer.data = std::make_shared<Tensor>(random_tensor(random, logical->dtype, buffer.type.dims()));
    program.buffers.push_back(buffer);
    call.args.push_back(static_cast<BufferId>(program.buffers.size()) - 1);
    return call.args.back();
  };
  for (const TensorParam& param : kernel->params) {
    if (param.is_constant()) add(param.buffer, BufferKind::kWeight, -1);
    else program.inputs.push_back(add(param.buffer, BufferKind::kInput, static_cast<int32_t>(program.inputs.size())));
  }
  program.outputs.push_back(add(kernel->stages.back().out, BufferKind::kOutput, 0));
  program.calls.push_back(call);
  return program;
}

std::vector<Tensor> random_inputs(const Program& program, Random& random) {
  std::vector<Tensor> inputs;
  for (const BufferId id : program.inputs) {
    const TensorType& type = program.buffers[static_cast<size_t>(id)].type;
    inputs.push_back(random_tensor(random, type.dtype, type.dims()));
  }
  return inputs;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.num_bytes() == b.num_bytes() && std::memcmp(a.bytes(), b.bytes(), static_cast<size_t>(a.num_bytes())) == 0;
}

// Runs the program's calls one after the other; those of `streams` as streams.
std::vector<Tensor> run(const Program& program, const std::vector<Tensor>& inputs, const Accelerator* unit,
                        const std::set<int32_t>& streams) {
  std::vector<Tensor> memory;
  for (const ProgramBuffer& buffer : program.buffers) {
    if (buffer.data) {
      memory.push_back(Tensor(*buffer.data));
      continue;
    }
    std::vector<int64_t> dims = *static_dims(physical_shape(buffer.type.shape, buffer.type.layout));
    memory.emplace_back(buffer.type.dtype, dims);
  }
  for (size_t i = 0; i < inputs.size(); ++i) memory[static_cast<size_t>(program.inputs[i])] = inputs[i];
  for (const KernelCall& call : program.calls) {
    std::vector<Tensor*> args;
    for (const BufferId id : call.args) args.push_back(&memory[static_cast<size_t>(id)]);
    const LoopProgram& loops = program.kernels[static_cast<size_t>(call.kernel)].program;
    if (unit && streams.contains(call.kernel)) {
      const InstructionStream stream = stream_of(*unit, loops);
      run_stream(*unit, decode(*unit, encode(*unit, stream)), args);
    } else {
      interpret(loops, std::span<Tensor* const>(args));
    }
  }
  std::vector<Tensor> outputs;
  for (const BufferId id : program.outputs) outputs.push_back(memory[static_cast<size_t>(id)]);
  return outputs;
}

void expect_same(const Conv& c, const Accelerator& unit, Random& random, bool splits, int threads = 2) {
  SCOPED_TRACE(fmt::format("{} x {} -> {}, {} x {}, kernel {} stride {} pad {} dilation {}{}{}{}", c.batch, c.in, c.out,
                           c.height, c.width, c.kernel, c.stride, c.pad, c.dilation, c.adds ? " add" : "",
                           c.relu ? " relu" : "", c.bytes ? " bytes" : ""));
  Program program = program_of_kernel(definition(c), random);
  const std::vector<Tensor> inputs = random_inputs(program, random);
  const std::vector<Tensor> want = run(program, inputs, nullptr, {});
  std::string why;
  OffloadOptions options;
  options.threads = threads;
  options.candidates = 2;
  const std::set<int32_t> taken = offload_calls(
      program, unit, options, [](const KernelCall&) { return true; },
      [&](const KernelCall&, const std::string& reason) { why = reason; });
  ASSERT_EQ(taken.size(), 1u) << why;
  bool has_rest = false;
  for (const KernelCall& call : program.calls)
    has_rest = has_rest || program.kernels[static_cast<size_t>(call.kernel)].program.name.ends_with("_rest");
  EXPECT_EQ(has_rest, splits);
  const std::vector<Tensor> loops = run(program, inputs, nullptr, {}), streams = run(program, inputs, &unit, taken);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(same_bits(want[i], loops[i])) << "loops";
    EXPECT_TRUE(same_bits(want[i], streams[i])) << "stream";
  }
}

Conv random_conv(Random& random) {
  Conv c;
  c.batch = pick(random, {1, 1, 2});
  c.in = pick(random, {1, 3, 16, 24, 32, 40});
  c.out = pick(random, {1, 7, 16, 32, 33});
  c.kernel = pick(random, {1, 1, 2, 3, 5});
  c.stride = pick(random, {1, 1, 2, 3});
  c.pad = pick(random, {0, 1, 2});
  c.dilation = pick(random, {1, 1, 2});
  c.height = pick(random, {1, 4, 7, 12});
  c.width = pick(random, {1, 5, 8, 13});
  c.adds = random() % 3 == 0, c.relu = random() % 2, c.bytes = random() % 3;
  c.height = std::max(c.height, c.dilation * (c.kernel - 1) + 1);
  c.width = std::max(c.width, c.dilation * (c.kernel - 1) + 1);
  return c;
}

TEST(AccelNetworkTest, RandomConvolutionsGiveTheSameBits) {
  Random random(20261127);
  for (int i = 0; i < 40; ++i) expect_same(random_conv(random), vdla(), random, false, i % 4 ? 2 : 1);
}

TEST(AccelNetworkTest, WhatNoInstructionComputesStaysOnTheHost) {
  // Without its maximum, what follows from sums is computed on the host.
  std::string text = file_text(TESSERA_SOURCE_DIR "/examples/accel/vdla.json");
  const size_t begin = text.find("{\"name\": \"relu\""), end = text.find("{\"name\": \"quantize\"");
  ASSERT_LT(begin, end);
  text.erase(begin, end - begin);
  const Accelerator unit = read_accelerator(text, "no_relu.json");
  Random random(2);
  for (int i = 0; i < 8; ++i) {
    Conv c = random_conv(random);
    expect_same(c, unit, random, c.relu);
  }
}

TEST(AccelNetworkTest, WhatDoesNotFitIsToldWithNumbers) {
  std::string text = file_text(TESSERA_SOURCE_DIR "/examples/accel/vdla.json");
  const std::string from = "\"inp\", \"bytes\": 32768";
  text.replace(text.find(from), from.size(), "\"inp\", \"bytes\": 64");
  const Accelerator unit = read_accelerator(text, "small.json");
  Random random(3);
  Program program = program_of_kernel(definition({.in = 64}), random);
  std::string why;
  const auto taken = offload_calls(
      program, unit, {}, [](const KernelCall&) { return true; },
      [&](const KernelCall&, const std::string& reason) { why = reason; });
  EXPECT_TRUE(taken.empty());
  EXPECT_THAT(why, HasSubstr("its smallest tile needs 144 bytes of inp"));
  EXPECT_THAT(why, HasSubstr("which have 64, 32768 and 131072"));
}

}  // namespace
}  // namespace tessera
