// lld in process, for whatever is linked: objects go in as files in memory, what it writes comes out of a pipe.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "package/anonymous_file.h"

namespace tessera::inline package {

// A pipe that a thread empties into memory. lld replaces regular output files by name, which an anonymous file does not
// allow; a pipe it simply writes to. Nothing touches the disk that way.
class OutputPipe {
 public:
  OutputPipe();
  ~OutputPipe();
  OutputPipe(const OutputPipe&) = delete;
  OutputPipe& operator=(const OutputPipe&) = delete;

  std::string path() const;
  // Everything that was written. Call once, when nobody writes any more.
  std::vector<std::byte> finish();

 private:
  void drain();

  int read_end_ = -1, write_end_ = -1;
  std::vector<std::byte> bytes_;  // the reader's until it is joined
  std::thread reader_;
};

AnonymousFile file_with(const char* label, std::span<const std::byte> bytes);

struct LinkerResult {
  bool done = false;
  std::string errors;  // its words
};

// `arguments` begin with the linker's name: "ld.lld" or "wasm-ld". Thread-safe; calls wait for each other, because lld
// is not re-entrant.
LinkerResult run_linker(const std::vector<const char*>& arguments);

}  // namespace tessera::inline package
