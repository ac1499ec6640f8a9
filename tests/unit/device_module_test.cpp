// Modules whose kernels run on the null device, beside the interpreter: random programs of branches and loops, calls
// given to the host and to devices at random, and runs in which a device fails.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "../runtime/module_builder.h"
#include "../support/module_session.h"
#include "codegen/llvm/llvm_codegen.h"
#include "codegen/llvm/target.h"
#include "interp/program_interp.h"
#include "loop_passes/pass.h"
#include "package/link.h"
#include "package/module_writer.h"
#include "program/assign_devices.h"
#include "program/memory_plan.h"
#include "program/pass.h"
#include "program_checks.h"
#include "random_steps.h"
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
    link.exports = {kOperationNames};
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

std::vector<Tensor> empty_like(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) result.emplace_back(tensor.dtype(), tensor.dims());
  return result;
}

// With two devices of the same kind now and then.
Program on_devices(const Program& program, uint64_t seed) {
  Program result = program;
  std::vector<ProgramDevice> devices = {{"first", "null"}};
  if (seed % 3 == 0) devices.push_back({"second", "null"});
  std::mt19937_64 random(seed);
  assign_devices(
      result, devices, [&](const KernelCall&) { return static_cast<int32_t>(random() % (devices.size() + 1)); },
      seed % 2 == 0 ? std::set<std::string>{"null"} : std::set<std::string>{});
  return result;
}

TEST(DeviceModules, ComputeWhatTheHostAloneDoes) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Program before = random_steps(seed);
    const std::vector<Tensor> inputs = random_step_inputs(before, seed), expected = interpret(before, inputs);
    const Program program = on_devices(before, seed);
    ModuleSession session(module_of(program, seed % 2 == 0 ? 3 : 0));
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
      ModuleSession session(module);
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

// What loading says, or making a session; "" when both went well.
std::string outcome(const std::vector<std::byte>& bytes) {
  try {
    const ModuleSession session(bytes);
    return "";
  } catch (const InternalError& error) {
    return error.what();
  }
}

TEST(DeviceModules, AnotherKindOfDeviceIsMissing) {
  Program program = on_devices(random_steps(1), 1);
  for (ProgramDevice& device : program.devices) device.kind = "nowhere";
  EXPECT_THAT(outcome(module_of(program, 0)),
              HasSubstr("TSR-7019: 'module in memory' needs a device of the kind 'nowhere', and its library cannot be "
                        "loaded: libtessera_nowhere.so.0"));
  for (ProgramDevice& device : program.devices) device.kind = "../null";
  EXPECT_THAT(outcome(module_of(program, 0)), HasSubstr("TSR-7011: 'module in memory' has an inconsistent descriptor: "
                                                        "device 0 is of a kind that has no name"));
}

// The tables of devices and operations and what they lead to, changed: an error, never a crash.
TEST(DeviceModules, DamageIsFound) {
  const std::vector<std::byte> module = module_of(on_devices(random_steps(1), 1), 0);
  const auto* first = reinterpret_cast<const Bytes::value_type*>(module.data());
  const Bytes good(first, first + module.size());
  const tsr_footer footer = read_footer(good);
  const auto head = read_at<tsr_descriptor>(good, footer.descriptor_offset);
  const uint64_t device_at = footer.descriptor_offset + head.devices,
                 operation_at = footer.descriptor_offset + head.operations;
  const auto with = [&](const auto& edit) {
    Bytes bad = good;
    auto device = read_at<tsr_device_descr>(bad, device_at);
    auto operation = read_at<tsr_operation_descr>(bad, operation_at);
    edit(bad, device, operation);
    write_at(bad, device_at, device);
    write_at(bad, operation_at, operation);
    seal(bad, footer, true);
    const auto* bytes = reinterpret_cast<const std::byte*>(bad.data());
    return outcome({bytes, bytes + bad.size()});
  };
  using Device = tsr_device_descr;
  using Operation = tsr_operation_descr;
  EXPECT_EQ(with([](Bytes&, Device&, Operation&) {}), "");
  EXPECT_THAT(with([](Bytes&, Device& device, Operation&) { device.name = ~0u; }),
              HasSubstr("TSR-7011: 'module in memory' has an inconsistent descriptor: the name of device 0 at offset "
                        "4294967295 is not a string inside it"));
  for (const auto& edit : {+[](Device& device) { device.image_offset = ~uint64_t{0}; },
                           +[](Device& device) { device.image_size += uint64_t{1} << 32; },
                           +[](Device& device) { device.weights_size = ~uint64_t{0}; },
                           +[](Device& device) { device.weights_offset -= 1; }})
    EXPECT_THAT(with([&](Bytes&, Device& device, Operation&) { edit(device); }),
                HasSubstr("the code or the weights of device 0 are not among the images"));
  EXPECT_THAT(with([](Bytes&, Device&, Operation& operation) { operation.device = 99; }),
              HasSubstr("operation 0 is of no device"));
  EXPECT_THAT(with([&](Bytes& bytes, Device&, Operation& operation) {
                bytes[footer.descriptor_offset + operation.entry] = 'x';
              }),
              HasSubstr("TSR-7019: 'module in memory' needs a device of the kind 'null', and the module's code for it "
                        "lacks an operation: xp_"));
  EXPECT_THAT(
      with([&](Bytes& bytes, Device& device, Operation&) { bytes[footer.images_offset + device.image_offset] = 0; }),
      HasSubstr("and it does not take the module's code: "));
  EXPECT_THAT(with([](Bytes&, Device& device, Operation&) { device.arena_bytes = uint64_t{1} << 60; }),
              HasSubstr("and it has not that much memory free: values of a run take 1152921504606846976 bytes"));
  EXPECT_THAT(with([](Bytes&, Device& device, Operation&) { device.scratch_bytes = uint64_t{1} << 60; }),
              HasSubstr("and it has no queue: no memory for a queue with 1152921504606846976 bytes of scratch"));
}

}  // namespace
}  // namespace tessera
