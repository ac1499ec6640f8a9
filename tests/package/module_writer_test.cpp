#include "package/module_writer.h"

#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "package/atomic_file.h"
#include "package/link.h"
#include "runtime/core/module_loader.h"
#include "samples.h"
#include "support/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A folder of its own for each test, removed afterwards.
class ModuleWriter : public ::testing::Test {
 protected:
  ModuleWriter() : folder_(fs::temp_directory_path() / ("tessera-writer-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~ModuleWriter() override {
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  fs::path folder_;
};

ProgramBuffer buffer(const std::string& name, BufferKind kind, std::vector<int64_t> dims) {
  ProgramBuffer result;
  result.name = name;
  result.kind = kind;
  result.type = {DType::kF32, make_shape(dims), {}};
  result.bytes = dtype_bytes(DType::kF32, result.type.num_elements());
  return result;
}

// y[3,4] = x[3,4] * w[4] + iota, with a second weight that starts after a gap.
Program sample_program() {
  Program program;
  program.buffers = {buffer("x", BufferKind::kInput, {3, 4}), buffer("y", BufferKind::kOutput, {3, 4}),
                     buffer("w", BufferKind::kWeight, {4}), buffer("late", BufferKind::kWeight, {2})};
  Tensor w(DType::kF32, {4}), late(DType::kF32, {2});
  for (int i = 0; i < 4; ++i) w.set_double(i, i + 1);
  late.set_double(1, 7);
  program.buffers[2].data = std::make_shared<Tensor>(std::move(w));
  program.buffers[2].offset = 0;
  program.buffers[3].data = std::make_shared<Tensor>(std::move(late));
  program.buffers[3].offset = 64;
  program.buffers.push_back(program.buffers[2]);  // equal weights share their place
  program.buffers.back().name = "w_again";
  program.buffers.push_back(buffer("none", BufferKind::kWeight, {0, 3}));  // without bytes: in the place of another
  program.buffers.back().data = std::make_shared<Tensor>(DType::kF32, std::vector<int64_t>{0, 3});
  program.buffers.back().offset = 0;
  program.weight_bytes = 128;
  program.arena_bytes = 192;
  program.inputs = {0};
  program.outputs = {1};
  Kernel kernel;
  kernel.program.name = "scale";
  kernel.loc = "Mul_0+Add_1";
  kernel.flops = 24;
  kernel.bytes = 112;
  program.kernels = {kernel};
  program.calls = {{0, {}, kernel.loc}};  // a module lists calls, not kernels
  return program;
}

ModuleInfo sample_info() {
  ModuleInfo info;
  info.model_name = "scaling";
  info.model_digest = "0123456789abcdef";
  info.producer = "tessera test";
  info.target_triple = "x86_64-unknown-linux-gnu";
  info.options = {{"O", "3"}};
  return info;
}

std::vector<float> run(tessera_module* module, std::vector<float> x) {
  tessera_session* session = nullptr;
  tessera_error error = {};
  EXPECT_EQ(tessera_session_create(module, nullptr, &session, &error), TESSERA_OK) << error.message;
  std::vector<float> y(12);
  const tessera_tensor input = {x.data(), TESSERA_F32, 2, {3, 4}}, output = {y.data(), TESSERA_F32, 2, {3, 4}};
  EXPECT_EQ(tessera_session_run(session, &input, 1, &output, 1, &error), TESSERA_OK) << error.message;
  tessera_session_free(session);
  return y;
}

TEST_F(ModuleWriter, WhatItWritesLoadsAndRuns) {
  const std::vector<std::byte> code = link_shared_object(scale_kernel(), {});
  const Program program = sample_program();
  const ModuleInfo info = sample_info();
  const std::string path = folder_ / "m.so";
  write_module_file(path, {code, program, info});
  EXPECT_THAT(files(), ElementsAre("m.so"));

  tessera_module* module = nullptr;
  tessera_error error = {};
  ASSERT_EQ(tessera_module_load(path.c_str(), nullptr, &module, &error), TESSERA_OK) << error.message;
  EXPECT_EQ(tessera_module_arena_bytes(module), 192u);
  EXPECT_EQ(tessera_module_weights_bytes(module), 128u);
  tessera_kernel_info kernel;
  ASSERT_EQ(tessera_module_kernel(module, 0, &kernel), TESSERA_OK);
  EXPECT_STREQ(kernel.name, "Mul_0+Add_1");
  EXPECT_EQ(kernel.flops, 24);
  EXPECT_THAT(run(module, {1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 1}), ElementsAre(1, 3, 5, 7, 2, 5, 8, 11, 0, 1, 2, 7));

  size_t size = 0;
  const char* text = tessera_module_metadata(module, &size);
  const nlohmann::json metadata = nlohmann::json::parse(text, text + size);
  EXPECT_EQ(metadata["model"]["name"], "scaling");
  EXPECT_EQ(metadata["producer"], "tessera test");
  EXPECT_EQ(metadata["inputs"][0]["type"], "f32[3,4]");
  EXPECT_EQ(metadata["kernels"][0]["loc"], "Mul_0+Add_1");
  EXPECT_EQ(metadata["options"]["O"], "3");
  tessera_module_free(module);
}

TEST_F(ModuleWriter, NamesThatAreNotUtf8StillMakeALoadableModule) {
  const std::vector<std::byte> code = link_shared_object(scale_kernel(), {});
  Program program = sample_program();
  program.buffers[0].name = "x\xff\xc3\xa9\xed\xa0\x80";  // a stray byte, an e with acute, half a surrogate pair
  const ModuleInfo info = sample_info();
  const std::vector<std::byte> bytes = write_module_memory({code, program, info}).contents();
  tessera_module* module = nullptr;
  tessera_error error = {};
  ASSERT_EQ(tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module, &error), TESSERA_OK)
      << error.message;
  tessera_tensor_info input;
  ASSERT_EQ(tessera_module_input(module, 0, &input), TESSERA_OK);
  EXPECT_STREQ(input.name, "x\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  tessera_module_free(module);
}

TEST_F(ModuleWriter, MemoryAndFileHoldTheSameBytesEveryTime) {
  const std::vector<std::byte> code = link_shared_object(scale_kernel(), {});
  const Program program = sample_program();
  const ModuleInfo info = sample_info();
  write_module_file(folder_ / "a.so", {code, program, info});
  write_module_file(folder_ / "b.so", {code, program, info});
  AnonymousFile memory = write_module_memory({code, program, info});
  EXPECT_EQ(read_bytes(folder_ / "a.so"), read_bytes(folder_ / "b.so"));
  EXPECT_EQ(read_bytes(folder_ / "a.so"), memory.contents());

  tessera_module* module = nullptr;
  tessera_error error = {};
  ASSERT_EQ(load_from_fd(memory.release(), "in memory", nullptr, true, &module, &error), TESSERA_OK) << error.message;
  EXPECT_EQ(run(module, std::vector<float>(12, 1.0f))[1], 3.0f);
  tessera_module_free(module);
}

TEST_F(ModuleWriter, ReplacesAnOldFileWithoutTouchingItsContents) {
  const std::string path = folder_ / "m.so", other = folder_ / "link.so";
  AtomicFile old(path, "module");
  old.write(std::string_view("old"));
  old.commit();
  fs::create_hard_link(path, other);
  AtomicFile fresh(path, "module");
  fresh.write(std::string_view("new!"));
  EXPECT_EQ(fs::file_size(path), 3u);
  fresh.commit();
  EXPECT_EQ(fs::file_size(path), 4u);
  EXPECT_EQ(fs::file_size(other), 3u);
}

std::string error_of(const std::string& path) {
  try {
    AtomicFile(path, "module");
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(ModuleWriter, UnwritablePlacesAreTheUsersErrorAndLeaveNothing) {
  EXPECT_THAT(error_of(folder_ / "missing" / "m.so"),
              AllOf(HasSubstr("TSR-6102"), HasSubstr("missing/m.so"), HasSubstr("No such file or directory")));
  EXPECT_THAT(error_of(folder_), AllOf(HasSubstr("TSR-6102"), HasSubstr("it is a folder")));
  EXPECT_THAT(files(), ElementsAre());
}

TEST_F(ModuleWriter, AFullDiskIsTheUsersError) {
  AtomicFile file("/dev/full", "module");
  try {
    file.write(std::string_view("text"));
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(error.diagnostic().id, "TSR-6101");
    EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
  }
}

TEST_F(ModuleWriter, NothingIsLeftWhenWritingStops) {
  {
    AtomicFile file(folder_ / "m.so", "module");
    file.write(std::string_view("half of it"));
    EXPECT_EQ(files().size(), 1u);
  }
  EXPECT_THAT(files(), ElementsAre());

  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGINT, [](int) {
      remove_unfinished_files();
      _exit(7);
    });
    AtomicFile file(folder_ / "m.so", "module");
    file.write(std::string_view("half of it"));
    raise(SIGINT);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_THAT(files(), ElementsAre());
}

}  // namespace
}  // namespace tessera
