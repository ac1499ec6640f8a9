// What tests of modules share: a folder of their own as current folder (so that messages have short file names), and
// errors as one string.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "module_builder.h"
#include "runtime/core/module_loader.h"
#include "tessera/tessera.h"

namespace tessera {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

struct FreeModule {
  void operator()(tessera_module* module) const { tessera_module_free(module); }
};
struct FreeSession {
  void operator()(tessera_session* session) const { tessera_session_free(session); }
};
using ModulePtr = std::unique_ptr<tessera_module, FreeModule>;
using SessionPtr = std::unique_ptr<tessera_session, FreeSession>;

// "TSR-7003: text", or "ok".
inline std::string outcome(tessera_status status, const tessera_error& error) {
  if (status == TESSERA_OK) return "ok";
  EXPECT_EQ(status, error.status);
  return std::string(error.id) + ": " + error.message;
}

class ModuleFolder : public testing::Test {
 protected:
  void SetUp() override {
    before_ = std::filesystem::current_path();
    std::string pattern = (std::filesystem::temp_directory_path() / "tessera-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::filesystem::current_path(folder_);
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }

  static void write(const std::string& path, const Bytes& bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }

  static std::string load_outcome(const std::string& path) {
    tessera_module* module = nullptr;
    tessera_error error = {};
    const tessera_status status = tessera_module_load(path.c_str(), nullptr, &module, &error);
    EXPECT_EQ(status == TESSERA_OK, module != nullptr);
    tessera_module_free(module);
    return outcome(status, error);
  }
  static std::string load_outcome(const Bytes& bytes) {
    write("m.so", bytes);
    return load_outcome("m.so");
  }
  static std::string check_outcome(const Bytes& bytes) {
    write("m.so", bytes);
    tessera_error error = {};
    const tessera_status status = tessera_module_check("m.so", &error);
    return outcome(status, error);
  }

  std::filesystem::path before_, folder_;
};

inline ModulePtr load_bytes(const Bytes& bytes) {
  tessera_module* module = nullptr;
  tessera_error error = {};
  const tessera_status status = tessera_module_load_memory(bytes.data(), bytes.size(), nullptr, &module, &error);
  EXPECT_EQ(outcome(status, error), "ok");
  return ModulePtr(module);
}

inline SessionPtr make_session(const ModulePtr& module, int32_t threads) {
  tessera_session* session = nullptr;
  tessera_error error = {};
  const tessera_session_options options = {sizeof(options), threads};
  const tessera_status status = tessera_session_create(module.get(), &options, &session, &error);
  EXPECT_EQ(outcome(status, error), "ok");
  return SessionPtr(session);
}

// A tensor of the caller; dims in the braces.
inline tessera_tensor tensor(const void* data, tessera_dtype dtype, std::initializer_list<int64_t> dims) {
  tessera_tensor result = {};
  result.data = const_cast<void*>(data);
  result.dtype = dtype;
  for (const int64_t dim : dims) result.dims[result.rank++] = dim;
  return result;
}

inline std::string run_outcome(const SessionPtr& session, const std::vector<tessera_tensor>& inputs,
                               const std::vector<tessera_tensor>& outputs) {
  tessera_error error = {};
  const tessera_status status = tessera_session_run(session.get(), inputs.data(), static_cast<int32_t>(inputs.size()),
                                                    outputs.data(), static_cast<int32_t>(outputs.size()), &error);
  return outcome(status, error);
}

}  // namespace tessera
