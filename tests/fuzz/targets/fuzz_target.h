// What the fuzz targets share. A target is one function, LLVMFuzzerTestOneInput: libFuzzer calls it with inputs that it
// makes up (preset `fuzz`), replay_main.cpp with the files that are in the repository (every build). Bad input is
// refused by one clear UserError; whatever else gets out, a crash, or more than some seconds or gigabytes, is a
// finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "support/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tessera::fuzz {

// Ends the process the way that libFuzzer takes for a finding.
[[noreturn]] inline void report(const std::string& what) {
  std::fprintf(stderr, "fuzz target: %s\n", what.c_str());
  std::abort();
}

inline void require(bool condition, const std::string& what) {
  if (!condition) report(what);
}

// Whether `work` came to its end; false when it refused its input in the way that users are told.
template <typename Work>
bool accepts(Work&& work) {
  try {
    work();
    return true;
  } catch (const UserError& error) {
    const Diagnostic& told = error.diagnostic();
    require(told.id.starts_with("TSR-") && told.id.size() == 8, "an error without an id: " + std::string(error.what()));
    require(!told.message.empty(), "error " + told.id + " has no message");
    return false;
  } catch (const std::exception& error) {
    report(std::string("no user's error: ") + error.what());
  }
}

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Numbers out of the bytes of an input, zeros behind its end.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  uint8_t byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  // 0 .. limit - 1
  uint32_t below(uint32_t limit) { return byte() % limit; }
  bool flag() { return (byte() & 1) != 0; }
  // Eight bytes, least first.
  int64_t number() {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value |= uint64_t{byte()} << (8 * i);
    return static_cast<int64_t>(value);
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace tessera::fuzz
