// Targets by name, and objects for other architectures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "codegen_harness.h"
#include "loop/parser.h"
#include "loop_passes/expand_math.h"
#include "support/error.h"

namespace tessera {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

Diagnostic error_of(const std::string& spec) {
  try {
    parse_target(spec);
  } catch (const UserError& error) {
    return error.diagnostic();
  }
  ADD_FAILURE() << spec << " is accepted";
  return {};
}

TEST(CodegenTarget, Levels) {
  const Target v2 = parse_target("x86-64-v2");
  EXPECT_EQ(v2.triple, "x86_64-unknown-linux-gnu");
  EXPECT_THAT(v2.features, Contains("sse4.2"));
  EXPECT_THAT(v2.features, Not(Contains("avx")));
  EXPECT_EQ(v2.vector_bits(), 128);
  EXPECT_FALSE(v2.has_fma());
  const Target v3 = parse_target("x86-64-v3");
  EXPECT_TRUE(v3.has("avx2") && v3.has_fma() && v3.has("f16c"));
  EXPECT_EQ(v3.vector_bits(), 256);
  const Target v4 = parse_target("x86-64-v4");
  EXPECT_TRUE(v4.has("avx512f") && v4.has("avx512vl") && v4.has("avx512dq"));
  EXPECT_EQ(v4.f32_lanes(), 16);
  EXPECT_EQ(v4.vector_registers(), 32);
}

TEST(CodegenTarget, WhatFollowsFromFeatures) {
  const Target arm = parse_target("aarch64-unknown-linux-gnu");
  EXPECT_EQ(arm.isa(), Isa::kAArch64);
  EXPECT_EQ(arm.vector_bits(), 128);
  EXPECT_EQ(arm.vector_registers(), 32);
  EXPECT_TRUE(arm.has_fma());
  EXPECT_EQ(parse_target("riscv64-unknown-linux-gnu").isa(), Isa::kRiscv64);
  EXPECT_TRUE(parse_target("riscv64-unknown-linux-gnu").has_fma());
  EXPECT_FALSE(parse_target("riscv64-unknown-linux-gnu,-d").has_fma());
  EXPECT_FALSE(parse_target("x86-64-v3,-fma").has_fma());
  EXPECT_EQ(parse_target("x86-64-v3,-fma").vector_bits(), 256);
  EXPECT_TRUE(parse_target("x86-64-v4").vectors().masked);
  EXPECT_EQ(parse_target("x86-64-v4").matrix_unit(), nullptr);
  EXPECT_EQ(parse_target("x86-64-v4,+amx-bf16").matrix_unit()->name, "AMX");
  const Target emulated = parse_target("x86-64-v3,+portable-tiles");
  EXPECT_EQ(emulated.matrix_unit()->name, "memory");
  EXPECT_TRUE(runs_here(emulated) || !runs_here(parse_target("x86-64-v3"))) << "no processor need have it";
  EXPECT_THAT(required_features(emulated), Not(Contains("portable-tiles")));
  EXPECT_EQ(reference_machine().vector_bits(), 256);
  EXPECT_TRUE(reference_machine().features.empty());
  EXPECT_EQ(memory_spaces(parse_target("x86-64-v4"))[0].bytes, 32 * 64);
}

TEST(CodegenTarget, WhatWasMeasuredIsKnownByTheProcessor) {
  const MeasuredRatios others;
  EXPECT_EQ(parse_target("x86-64-v4").ratios.l3_operations, others.l3_operations);
  EXPECT_EQ(parse_target("x86-64-v4,+clflushopt").ratios.l3_operations, others.l3_operations);
  EXPECT_EQ(parse_target("x86_64-linux-gnu,cpu=sapphirerapids").ratios.l3_operations, 3.6);
  EXPECT_EQ(parse_target("x86_64-linux-gnu,cpu=znver4").ratios.memory_slots, 0.25);
  EXPECT_EQ(parse_target("x86_64-linux-gnu,cpu=znver5").ratios.memory_slots, others.memory_slots);
  EXPECT_EQ(ratios_of(ProcessorId{"GenuineIntel", 6, 0x8f}).l3_operations, 3.6);
  EXPECT_EQ(ratios_of(ProcessorId{"GenuineIntel", 6, 0x3c}).l3_operations, others.l3_operations);
  EXPECT_EQ(ratios_of(ProcessorId{"AuthenticAMD", 0x19, 0x11}).memory_slots, 0.25);
  EXPECT_EQ(ratios_of(ProcessorId{"AuthenticAMD", 0x19, 0x01}).memory_slots, others.memory_slots);
}

TEST(CodegenTarget, Native) {
  const Target native = parse_target("native");
  EXPECT_TRUE(runs_here(native));
  EXPECT_GE(native.num_threads, 1);
  EXPECT_GE(native.l1_bytes, 4096);
  EXPECT_GE(native.l2_bytes, native.l1_bytes);
  for (const std::string& feature : native.features) EXPECT_THAT(feature, Not(HasSubstr("avx10")));
}

TEST(CodegenTarget, FeaturesBringAndTakeOthers) {
  EXPECT_TRUE(parse_target("x86_64-unknown-linux-gnu,+avx2").has("avx")) << "avx2 needs avx";
  const Target no_avx512 = parse_target("x86_64-linux-gnu,cpu=x86-64-v4,-avx512f");
  EXPECT_FALSE(no_avx512.has("avx512vl")) << "avx512vl needs avx512f";
  EXPECT_TRUE(no_avx512.has("avx2"));
  EXPECT_EQ(no_avx512.vector_bits(), 256);
  EXPECT_FALSE(parse_target("x86_64-linux-gnu,cpu=x86-64-v3,-fma").has_fma());
}

TEST(CodegenTarget, Errors) {
  const Diagnostic triple = error_of("x86-64-v9");
  EXPECT_EQ(triple.id, "TSR-5001");
  EXPECT_THAT(triple.message, HasSubstr("'x86-64-v9'"));
  EXPECT_THAT(triple.legal, HasSubstr("x86-64-v3"));
  EXPECT_EQ(error_of("").id, "TSR-5001");
  EXPECT_EQ(error_of("i686-linux-gnu").id, "TSR-5001") << "32 bits";
  EXPECT_EQ(error_of("s390x-linux-gnu").id, "TSR-5001") << "big-endian";
  EXPECT_EQ(error_of("x86_64-windows-msvc").id, "TSR-5001") << "not ELF";
  const Diagnostic cpu = error_of("x86_64-linux-gnu,cpu=pentium9");
  EXPECT_EQ(cpu.id, "TSR-5002");
  EXPECT_THAT(cpu.message, HasSubstr("'pentium9'"));
  EXPECT_THAT(cpu.legal, HasSubstr("skylake-avx512"));
  const Diagnostic feature = error_of("x86_64-linux-gnu,+avx1024");
  EXPECT_EQ(feature.id, "TSR-5003");
  EXPECT_THAT(feature.message, HasSubstr("'avx1024'"));
  EXPECT_THAT(feature.legal, HasSubstr("avx2"));
  EXPECT_EQ(error_of("x86_64-linux-gnu,avx2").id, "TSR-5003");
  EXPECT_EQ(error_of("x86_64-linux-gnu,").id, "TSR-5003");
}

TEST(CodegenTarget, FeaturesOfTheTargetDecideNotTheCpu) {
  // The cpu implies AVX-512; switched off, no zmm register may appear.
  const LoopProgram loops = parse_loop_program(
      "kernel @k(x: f32[64]) -> (y: f32[64]) { vectorized for i in 0..64 { y[i] = fma(x[i], x[i], 1:f32) } }");
  CodegenOptions options;
  options.want_asm = true;
  const Target target = parse_target("x86_64-linux-gnu,cpu=x86-64-v4,-avx512f,-fma");
  const std::string assembly = generate_llvm(program_of(loops), target, options).assembly;
  EXPECT_TRUE(contains(assembly, "ymm"));
  EXPECT_FALSE(contains(assembly, "zmm"));
  EXPECT_FALSE(contains(assembly, "vfmadd"));
}

// The functions that are called but not defined in the assembly.
std::vector<std::string> calls_of_others(const std::string& assembly) {
  std::vector<std::string> missing;
  for (const char* call : {"\tbl\t", "\tb\tk", "\tcall\t", "\ttail\t"}) {
    for (size_t at = assembly.find(call); at != std::string::npos; at = assembly.find(call, at + 1)) {
      const size_t begin = assembly.rfind('\t', at + std::strlen(call) - 1) + 1;
      const std::string name = assembly.substr(begin, assembly.find('\n', begin) - begin);
      if (!contains(assembly, "\n" + name + ":")) missing.push_back(name);
    }
  }
  return missing;
}

// Objects for machines that are not at hand: they are made, and the linker finds nothing missing in them.
TEST(CodegenTarget, OtherArchitectures) {
  const LoopProgram loops =
      expand_math(parse_loop_program(R"(kernel @k(x: f32[37,50], h: f16[50]) -> (y: f32[37,50], z: f16[50]) {
    parallel for i in 0..37 { vectorized for j in 0..50 {
      y[i, j] = (exp(x[i, j]) + round(x[i, j]) + select((j > 2), x[i, (j - 3)], 0:f32)) } }
    vectorized for j in 0..50 { z[j] = (h[j] * h[j]) } })"));
  struct Machine {
    const char* spec;
    uint16_t elf_machine;
    const char* expected;  // in the assembly
  };
  for (const Machine& machine :
       {Machine{"aarch64-unknown-linux-gnu", 183, "fmla"}, Machine{"riscv64-unknown-linux-gnu", 243, "fmadd.s"}}) {
    CodegenOptions options;
    options.want_asm = true;
    const ObjectCode code = generate_llvm(program_of(loops), parse_target(machine.spec), options);
    uint16_t elf_machine = 0;
    std::memcpy(&elf_machine, code.object.data() + 18, 2);
    EXPECT_EQ(elf_machine, machine.elf_machine);
    EXPECT_TRUE(contains(code.assembly, machine.expected)) << machine.spec;
    EXPECT_THAT(calls_of_others(code.assembly), testing::IsEmpty()) << machine.spec;
  }
}

}  // namespace
}  // namespace tessera
