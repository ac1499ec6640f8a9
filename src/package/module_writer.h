// The module file: code, weights, descriptor, metadata and footer, laid out as abi/module_abi.h says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "package/anonymous_file.h"
#include "program/program.h"

namespace tessera::inline package {

// Code of a module for one kind of processor.
struct CodeVariant {
  std::string name;                   // of its target: "x86-64-v4"
  std::vector<std::string> features;  // that it needs
  std::string suffix;                 // behind the names of its functions
};

// What a module says about itself beyond its program. Nothing in it may depend on when or where it was made, so that
// the same model and options give the same bytes.
struct ModuleInfo {
  std::string model_name;
  std::string model_digest;  // hex; of the model file and its external data
  std::string producer;      // "tessera 0.1.0"
  std::string target_triple;
  std::string target_cpu;                      // a tuning hint, for people
  std::vector<std::string> features;           // that the code needs, LLVM's names, sorted
  std::vector<CodeVariant> variants;           // the best one first; none where there is code for `features` alone
  int num_threads = 1;                         // that parallel loops are cut for
  std::map<std::string, std::string> options;  // compile options that change the code, as on the command line
  std::map<std::string, int64_t> operators;    // of the imported graph: how many nodes each has
  std::string sizes;  // of a range: at how many of its sizes the program was held against the model's; "" without one
};

// The code for one of the program's devices, in the form that the device's library takes.
struct DeviceImage {
  std::vector<std::byte> code;
  int64_t scratch_bytes = 0;  // that an operation needs
};

// A module about to be written. Borrows everything.
struct ModuleContents {
  std::span<const std::byte> code;  // the ELF shared object
  const Program& program;           // planned: weights have offsets, the arena a size
  const ModuleInfo& info;
  std::span<const DeviceImage> images = {};  // one for each of the program's devices
};

// Writes the module to `fd` from where that stands; its size. `what` names the file in messages; UserError TSR-6101.
uint64_t write_module(int fd, const std::string& what, const ModuleContents& contents);

// Writes the module to `path`, which appears whole or not at all; UserError TSR-61xx when it cannot be written.
// Weights go from their tensors straight to the file.
void write_module_file(const std::string& path, const ModuleContents& contents);

// The same to a file in memory, ready for the runtime's loader.
AnonymousFile write_module_memory(const ModuleContents& contents);

// A program that runs the module on .npy files (src/launcher), which is in it. UserError TSR-4078 when it is for another
// machine than this compiler's own.
void write_executable(const std::string& path, const ModuleContents& contents);

// The metadata section alone.
std::string module_metadata(const Program& program, const ModuleInfo& info);

}  // namespace tessera::inline package
