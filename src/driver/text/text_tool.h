// Text IR in, passes by name, text IR out: `tessera opt`, the tool of the golden tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "driver/options.h"

namespace tessera::inline driver {

enum class IrKind : uint8_t { kGraph, kLoop, kProgram };

struct TextJob {
  std::string text;
  std::string file;  // for messages
  IrKind kind = IrKind::kGraph;
  std::vector<std::string> passes;  // in order. "lower" turns a graph into a program; loop passes run on all kernels
  CompileOptions compile;           // target and level that the passes see
  bool elide_constants = false;
};

// The text of the result, which was verified after parsing and after every pass, and reads back to the same text.
// UserError TSR-3xxx for text that is no IR, TSR-3300 for IR that breaks a rule, TSR-4020 for an unknown pass, TSR-4024
// for a pass of another level.
std::string run_text_job(const TextJob& job);

// The passes that exist at a level, each once.
std::vector<std::string> passes_of(IrKind kind);

// By the file's extension; UserError TSR-4025 for another one.
IrKind kind_of_file(const std::string& path);
IrKind parse_ir_kind(const std::string& name);  // "graph", "loop", "program"

}  // namespace tessera::inline driver
