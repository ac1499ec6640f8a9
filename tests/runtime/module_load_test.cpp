// Loading what is valid; and damage of every kind, which must end in an error and never in a crash.
#include <fcntl.h>

#include <random>
#include <thread>

#include "module_fixture.h"

namespace tessera {
namespace {

using ModuleLoad = ModuleFolder;
using ModuleDamage = ModuleFolder;

std::string scale_by_module(const ModulePtr& module) {
  const SessionPtr session = make_session(module, 1);
  const float x[4] = {1, 10, 100, 1000};
  float y[4] = {};
  const std::string result = run_outcome(session, {tensor(x, TESSERA_F32, {4})}, {tensor(y, TESSERA_F32, {4})});
  return result + " " + std::to_string(static_cast<int>(y[0])) + " " + std::to_string(static_cast<int>(y[1])) + " " +
         std::to_string(static_cast<int>(y[2])) + " " + std::to_string(static_cast<int>(y[3]));
}
constexpr char kScaled[] = "ok 2 30 500 7000";

ModulePtr load_path(const char* path, const tessera_load_options* options = nullptr) {
  tessera_module* module = nullptr;
  tessera_error error = {};
  const tessera_status status = tessera_module_load(path, options, &module, &error);
  EXPECT_EQ(outcome(status, error), "ok");
  return ModulePtr(module);
}

TEST_F(ModuleLoad, FromFile) {
  write("m.so", ModuleSpec().build());
  EXPECT_EQ(scale_by_module(load_path("m.so")), kScaled);
  EXPECT_EQ(scale_by_module(load_path((folder_ / "m.so").c_str())), kScaled);
}

TEST_F(ModuleLoad, FromMemoryWhichMayGoAway) {
  Bytes bytes = ModuleSpec().build();
  const ModulePtr module = load_bytes(bytes);
  std::fill(bytes.begin(), bytes.end(), uint8_t{0xff});
  EXPECT_EQ(scale_by_module(module), kScaled);
}

TEST_F(ModuleLoad, FromOpenFile) {
  write("m.so", ModuleSpec().build());
  tessera_module* module = nullptr;
  tessera_error error = {};
  ASSERT_EQ(outcome(load_from_fd(open("m.so", O_RDONLY), "m.so", nullptr, true, &module, &error), error), "ok");
  EXPECT_EQ(scale_by_module(ModulePtr(module)), kScaled);
}

TEST_F(ModuleLoad, TwoModulesAtOnceAndAgainAfterFreeing) {
  ModuleSpec other;
  other.source = std::string(other.source).replace(other.source.find("* s->w"), 6, "- s->w");
  write("a.so", ModuleSpec().build());
  write("b.so", other.build());
  for (int i = 0; i < 3; ++i) {
    const ModulePtr a = load_path("a.so"), b = load_path("b.so"), a_again = load_path("a.so");
    const ModulePtr c = load_bytes(other.build()), d = load_bytes(ModuleSpec().build());
    EXPECT_EQ(scale_by_module(a), kScaled);
    EXPECT_EQ(scale_by_module(a_again), kScaled);
    EXPECT_EQ(scale_by_module(d), kScaled);
    EXPECT_NE(scale_by_module(b), kScaled);
    EXPECT_NE(scale_by_module(c), kScaled);
  }
}

// The second of two loads of one file is gone; the file that is opened next has its number.
TEST_F(ModuleLoad, AnotherFileAfterOneOfTwoLoadsIsFreed) {
  ModuleSpec other;
  other.source = std::string(other.source).replace(other.source.find("* s->w"), 6, "- s->w");
  write("a.so", ModuleSpec().build());
  write("b.so", other.build());
  const ModulePtr a = load_path("a.so");
  load_path("a.so").reset();
  const ModulePtr b = load_path("b.so");
  EXPECT_NE(scale_by_module(b), kScaled);
  EXPECT_EQ(scale_by_module(a), kScaled);
}

TEST_F(ModuleLoad, ReplacedFileIsLoadedAfreshWhileTheOldOneIsInUse) {
  write("m.so", ModuleSpec().build());
  const ModulePtr old = load_path("m.so");
  ModuleSpec other;
  other.source = std::string(other.source).replace(other.source.find("* s->w"), 6, "- s->w");
  write("new.so", other.build());
  std::filesystem::rename("new.so", "m.so");
  const ModulePtr fresh = load_path("m.so");
  EXPECT_EQ(scale_by_module(old), kScaled);
  EXPECT_NE(scale_by_module(fresh), kScaled);
}

TEST_F(ModuleLoad, DescribesItself) {
  ModuleSpec spec;
  spec.inputs = {{"x", TSR_F32, {-1, 3}}, {"n", TSR_I64, {}}};
  spec.symbols = {{"batch", 1, 64}};
  spec.kernels = {{"Conv_1+Relu_2", 1000, 2000}, {"Softmax_3", -1, -1}};
  const ModulePtr module = load_bytes(spec.build());
  EXPECT_EQ(tessera_module_num_inputs(module.get()), 2);
  EXPECT_EQ(tessera_module_num_outputs(module.get()), 1);
  EXPECT_EQ(tessera_module_num_symbols(module.get()), 1);
  EXPECT_EQ(tessera_module_num_kernels(module.get()), 2);
  EXPECT_EQ(tessera_module_arena_bytes(module.get()), 256u);
  EXPECT_EQ(tessera_module_weights_bytes(module.get()), 16u);
  size_t size = 0;
  const char* metadata = tessera_module_metadata(module.get(), &size);
  EXPECT_EQ(std::string(metadata, size), spec.metadata);

  tessera_tensor_info info;
  ASSERT_EQ(tessera_module_input(module.get(), 0, &info), TESSERA_OK);
  EXPECT_STREQ(info.name, "x");
  EXPECT_EQ(info.dtype, TESSERA_F32);
  EXPECT_EQ(info.rank, 2);
  EXPECT_EQ(info.dims[0], -1);
  EXPECT_EQ(info.dims[1], 3);
  EXPECT_EQ(info.dims[2], 0);
  ASSERT_EQ(tessera_module_input(module.get(), 1, &info), TESSERA_OK);
  EXPECT_EQ(info.rank, 0);
  ASSERT_EQ(tessera_module_output(module.get(), 0, &info), TESSERA_OK);
  EXPECT_STREQ(info.name, "y");
  for (const int32_t index : {-1, 2, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tessera_module_input(module.get(), index, &info), TESSERA_NOT_FOUND);
    EXPECT_EQ(tessera_module_output(module.get(), index, &info), TESSERA_NOT_FOUND);
  }
  tessera_symbol_info symbol;
  ASSERT_EQ(tessera_module_symbol(module.get(), 0, &symbol), TESSERA_OK);
  EXPECT_STREQ(symbol.name, "batch");
  EXPECT_EQ(symbol.lo, 1);
  EXPECT_EQ(symbol.hi, 64);
  EXPECT_EQ(tessera_module_symbol(module.get(), 1, &symbol), TESSERA_NOT_FOUND);
  tessera_kernel_info kernel;
  ASSERT_EQ(tessera_module_kernel(module.get(), 0, &kernel), TESSERA_OK);
  EXPECT_STREQ(kernel.name, "Conv_1+Relu_2");
  EXPECT_EQ(kernel.flops, 1000);
  EXPECT_EQ(kernel.bytes, 2000);
  EXPECT_EQ(tessera_module_kernel(module.get(), 2, &kernel), TESSERA_NOT_FOUND);
  EXPECT_EQ(tessera_module_input(nullptr, 0, &info), TESSERA_INVALID_ARGUMENT);
  EXPECT_EQ(tessera_module_num_inputs(nullptr), 0);
}

TEST_F(ModuleLoad, WeightsStayInTheFile) {
  ModuleSpec spec;
  spec.weights.resize(32 << 20, 1);
  write("m.so", spec.build());
  const ModulePtr module = load_path("m.so");
  const uint8_t* weights = module->file.weights();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(weights) % TSR_BUFFER_ALIGN, 0u);
  std::ifstream maps("/proc/self/maps");
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin, end;
    char access[8];
    if (sscanf(line.c_str(), "%lx-%lx %7s", &begin, &end, access) != 3) continue;
    const uintptr_t at = reinterpret_cast<uintptr_t>(weights);
    if (at < begin || at >= end) continue;
    found = true;
    EXPECT_NE(line.find("m.so"), std::string::npos) << line;
    EXPECT_EQ(std::string(access), "r--p") << line;
    EXPECT_GE(end, at + spec.weights.size());
  }
  EXPECT_TRUE(found);
}

TEST_F(ModuleLoad, WeightsDigestCanBeSkipped) {
  Bytes bytes = ModuleSpec().build();
  bytes[read_footer(bytes).weights_offset + 3] ^= 1;
  write("m.so", bytes);
  const tessera_load_options options = {sizeof(options), 1};
  EXPECT_TRUE(load_path("m.so", &options));
  EXPECT_NE(load_outcome("m.so"), "ok");
}

TEST_F(ModuleLoad, NoWeightsNoMetadataNoTensors) {
  ModuleSpec spec;
  spec.source = R"(#include "abi/module_abi.h"
__attribute__((visibility("default"))) int32_t tessera_module_run(const tsr_call* call) {
  return call->symbols != 0;
})";
  spec.inputs = spec.outputs = {};
  spec.kernels = {};
  spec.weights = {};
  spec.metadata = "";
  spec.arena_bytes = spec.scratch_bytes = 0;
  const ModulePtr module = load_bytes(spec.build());
  EXPECT_EQ(run_outcome(make_session(module, 1), {}, {}), "ok");
}

TEST_F(ModuleLoad, ManyThreadsLoadTheSameFile) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not see the dynamic loader's own lock";
  write("m.so", ModuleSpec().build());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int j = 0; j < 10; ++j) EXPECT_EQ(scale_by_module(load_path("m.so")), kScaled);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Through the same checks as a file, without a disk's pace.
std::string memory_outcome(const Bytes& bytes) {
  tessera_module* module = nullptr;
  tessera_error error = {};
  const uint8_t none = 0;
  const tessera_status status =
      tessera_module_load_memory(bytes.empty() ? &none : bytes.data(), bytes.size(), nullptr, &module, &error);
  EXPECT_EQ(status == TESSERA_OK, module != nullptr);
  tessera_module_free(module);
  return outcome(status, error);
}

TEST_F(ModuleDamage, EveryFlippedByteIsNoticed) {
  const Bytes good = ModuleSpec().build();
  ASSERT_EQ(memory_outcome(good), "ok");
  const tsr_footer footer = read_footer(good);
  const auto flip = [&](size_t at, uint8_t bits) {
    Bytes bad = good;
    bad[at] ^= bits;
    EXPECT_NE(memory_outcome(bad), "ok") << "byte " << at << " of " << good.size();
  };
  // All of weights, descriptor, metadata and footer; one in 61 of code and padding.
  for (size_t at = footer.weights_offset; at < good.size(); ++at) flip(at, static_cast<uint8_t>(1u << at % 8));
  for (size_t at = 0; at < footer.weights_offset; at += 61) flip(at, 0xff);
  flip(footer.code_size, 1);
  flip(footer.weights_offset - 1, 1);
}

TEST_F(ModuleDamage, EveryCutIsNoticed) {
  const Bytes good = ModuleSpec().build();
  const tsr_footer footer = read_footer(good);
  const auto cut = [&](size_t size) {
    EXPECT_NE(memory_outcome(Bytes(good.begin(), good.begin() + static_cast<long>(size))), "ok") << size;
  };
  for (size_t size = footer.weights_offset; size < good.size(); ++size) cut(size);
  for (size_t size = 0; size < footer.weights_offset; size += 997) cut(size);
  Bytes longer = good;
  longer.push_back(0);
  EXPECT_NE(memory_outcome(longer), "ok");
}

TEST_F(ModuleDamage, ForeignFiles) {
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    Bytes bytes(random() % 5000);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    EXPECT_NE(memory_outcome(bytes), "ok");
  }
  EXPECT_NE(load_outcome("/proc/self/exe"), "ok");
  EXPECT_NE(load_outcome("/proc/self/maps"), "ok");
  EXPECT_NE(load_outcome("/dev/zero"), "ok");
}

// Damage that someone sealed with right digests reaches the checks behind them: any answer will do but a crash, and
// what is accepted can be described and given a session's checks.
TEST_F(ModuleDamage, SealedNonsenseInFooterAndDescriptorDoesNoHarm) {
  ModuleSpec spec;
  spec.inputs = {{"x", TSR_F32, {-1, 4}}, {"z", TSR_I8, {2, 3, -2}}};
  spec.symbols = {{"batch", 1, 64}, {"length", 0, 1000}};
  const Bytes good = spec.build();
  const tsr_footer footer = read_footer(good);
  std::mt19937_64 random(2);
  const uint64_t values[] = {0,
                             1,
                             2,
                             7,
                             8,
                             63,
                             64,
                             0x7f,
                             0x80,
                             0xff,
                             0x7fffffff,
                             0x80000000,
                             0xffffffff,
                             0x7fffffffffffffff,
                             0x8000000000000000,
                             ~uint64_t{0},
                             good.size(),
                             good.size() - 1};
  const auto value = [&] { return random() % 3 == 0 ? random() : values[random() % std::size(values)]; };
  int accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    Bytes bad = good;
    tsr_footer bad_footer = footer;
    const bool in_footer = i % 4 == 0;
    if (in_footer) {
      uint64_t fields[7];
      std::memcpy(fields, &bad_footer, sizeof(fields));
      fields[random() % 7] = value();
      std::memcpy(&bad_footer, fields, sizeof(fields));
    } else {
      const size_t width = random() % 2 ? 4 : 8;
      const size_t at = random() % ((footer.descriptor_size - 8) / 4) * 4;
      const uint64_t number = value();
      std::memcpy(bad.data() + footer.descriptor_offset + at, &number, width);
    }
    seal(bad, bad_footer, !in_footer);
    tessera_module* module = nullptr;
    tessera_error error = {};
    if (tessera_module_load_memory(bad.data(), bad.size(), nullptr, &module, &error) != TESSERA_OK) {
      EXPECT_EQ(std::string(error.id).substr(0, 4), "TSR-");
      continue;
    }
    ++accepted;
    tessera_tensor_info info;
    for (int32_t j = 0; j < tessera_module_num_inputs(module) && j < 100; ++j) {
      EXPECT_EQ(tessera_module_input(module, j, &info), TESSERA_OK);
      EXPECT_LE(strlen(info.name), footer.descriptor_size);
    }
    tessera_session* session = nullptr;
    if (tessera_session_create(module, nullptr, &session, &error) == TESSERA_OK) {
      EXPECT_NE(tessera_session_run(session, nullptr, 0, nullptr, 0, &error), TESSERA_OK);
    }
    tessera_session_free(session);
    tessera_module_free(module);
  }
  EXPECT_GT(accepted, 100) << "the test should also get past the checks";
}

}  // namespace
}  // namespace tessera
