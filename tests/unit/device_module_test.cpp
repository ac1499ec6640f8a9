// Modules whose kernels run on the null device, beside the interpreter: random programs of branches and loops, calls
// given to the host and to devices at random, and runs in which a device fails.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "codegen/llvm/llvm_codegen.h"
#include "codegen/llvm/target.h"
#include "interp/program_interp.h"
#include "loop_passes/pass.h"
#include "package/link.h"
#include "package/module_writer.h"
#include "program/assign_devices.h"
#include "program/memory_plan.h"
#include "program/pass.h"
#include "program/printer.h"
#include "random_steps.h"
#include "support/error.h"
#include "tessera/tessera.h"

namespace tessera {
namespace {

using testing::HasSubstr;

std::vector<std::byte> module_of(Program program, int opt_level) {
  const Target target = parse_target("native");
  for (const LoopPass& pass : loop_pipeline())
    for (Kernel& kernel : program.kernels) kernel.program = pass.run(kernel.program, {target, opt_level});
  for (const ProgramPass& pass : program_pipeline())
    if (pass.phase == ProgramPhase::kScheduled) pass.run(program, target);
  plan_memory(program);
  CodegenOptions options;
  options.opt_level = opt_level;
  const ObjectCode object = generate_llvm(program, target, options);
  program.scratch_bytes = object.scratch_bytes;
  std::vector<DeviceImage> images;
  for (size_t d = 0; d < program.devices.size(); ++d) {
    const DeviceCode code = generate_llvm_operations(program, static_cast<int32_t>(d) + 1, target, options);
    LinkOptions link;
    link.exports = {"op_*"};
    images.push_back({link_shared_object(code.object, link), code.scratch_bytes});
  }
  ModuleInfo info;
  info.model_name = "steps";
  info.model_digest = "0";
  info.producer = "test";
  info.target_triple = target.triple;
  const std::vector<std::byte> code = link_shared_object(object.object, {});
  return write_module_memory({code, program, info, images}).contents();
}

class Session {
 public:
  explicit Session(const std::vector<std::byte>& bytes) {
    tessera_error error = {};
    if (tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module_, &error) != TESSERA_OK ||
        tessera_session_create(module_, nullptr, &session_, &error) != TESSERA_OK)
      throw InternalError(error.message);
  }
  ~Session() {
    tessera_session_free(session_);
    tessera_module_free(module_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The error's id and message, or "".
  std::string run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
    std::vector<tessera_tensor> in, out;
    std::vector<std::vector<int64_t>> dims;
    for (const auto* list : {&inputs, static_cast<const std::vector<Tensor>*>(&outputs)})
      for (const Tensor& tensor : *list) dims.push_back(tensor.dims());
    const auto describe = [&](const Tensor& tensor, const std::byte* data, const std::vector<int64_t>& shape) {
      tessera_tensor result = {};
      result.data = const_cast<std::byte*>(data);
      result.dtype = static_cast<tessera_dtype>(tensor.dtype());
      result.rank = static_cast<int32_t>(shape.size());
      std::copy(shape.begin(), shape.end(), result.dims);
      return result;
    };
    for (size_t i = 0; i < inputs.size(); ++i) in.push_back(describe(inputs[i], inputs[i].bytes(), dims[i]));
    for (size_t i = 0; i < outputs.size(); ++i)
      out.push_back(describe(outputs[i], outputs[i].mutable_bytes(), dims[inputs.size() + i]));
    tessera_error error = {};
    const tessera_status status = tessera_session_run(session_, in.data(), static_cast<int32_t>(in.size()), out.data(),
                                                      static_cast<int32_t>(out.size()), &error);
    return status == TESSERA_OK ? "" : fmt::format("{}: {}", error.id, error.message);
  }

 private:
  tessera_module* module_ = nullptr;
  tessera_session* session_ = nullptr;
};

std::vector<Tensor> empty_like(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) result.emplace_back(tensor.dtype(), tensor.dims());
  return result;
}

void expect_same(const std::vector<Tensor>& found, const std::vector<Tensor>& expected, const Program& program) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(std::memcmp(found[i].bytes(), expected[i].bytes(), static_cast<size_t>(found[i].num_bytes())), 0)
        << i << print(program);
}

// With two devices of the same kind now and then.
Program on_devices(const Program& program, uint64_t seed) {
  Program result = program;
  std::vector<ProgramDevice> devices = {{"first", "null"}};
  if (seed % 3 == 0) devices.push_back({"second", "null"});
  std::mt19937_64 random(seed);
  assign_devices(result, devices,
                 [&](const KernelCall&) { return static_cast<int32_t>(random() % (devices.size() + 1)); });
  return result;
}

TEST(DeviceModules, ComputeWhatTheHostAloneDoes) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Program before = random_steps(seed);
    const std::vector<Tensor> inputs = random_step_inputs(before, seed), expected = interpret(before, inputs);
    const Program program = on_devices(before, seed);
    Session session(module_of(program, seed % 2 == 0 ? 3 : 0));
    for (int run = 0; run < 2; ++run) {
      std::vector<Tensor> outputs = empty_like(expected);
      ASSERT_EQ(session.run(inputs, outputs), "");
      expect_same(outputs, expected, program);
    }
  }
}

// The run ends with the device's own words, and the next one is right again.
TEST(DeviceModules, AFailureEndsTheRun) {
  int failures = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const Program before = random_steps(seed);
    const std::vector<Tensor> inputs = random_step_inputs(before, seed), expected = interpret(before, inputs);
    const Program program = on_devices(before, seed);
    const std::vector<std::byte> module = module_of(program, 3);
    for (const int failing : {1, 2, 5}) {
      setenv("TESSERA_NULL_FAIL", std::to_string(failing).c_str(), 1);
      Session session(module);
      unsetenv("TESSERA_NULL_FAIL");
      for (int run = 0; run < 4; ++run) {
        std::vector<Tensor> outputs = empty_like(expected);
        const std::string error = session.run(inputs, outputs);
        if (error.empty()) {
          expect_same(outputs, expected, program);
          continue;
        }
        EXPECT_THAT(error, HasSubstr("TSR-7026: device '"));
        EXPECT_THAT(error, HasSubstr(fmt::format("operation {} of its queue failed", failing)));
        ++failures;
      }
    }
  }
  EXPECT_GE(failures, 12);
}

// Bytes of the module's table of devices, changed: an error, never a crash.
TEST(DeviceModules, AnotherKindOfDeviceIsMissing) {
  Program program = on_devices(random_steps(1), 1);
  for (ProgramDevice& device : program.devices) device.kind = "nowhere";
  const std::vector<std::byte> bytes = module_of(program, 0);
  tessera_module* module = nullptr;
  tessera_error error = {};
  EXPECT_EQ(tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module, &error), TESSERA_UNSUPPORTED);
  EXPECT_STREQ(error.id, "TSR-7019");
  EXPECT_THAT(error.message, HasSubstr("needs a device of the kind 'nowhere', and its library cannot be loaded"));
}

}  // namespace
}  // namespace tessera
