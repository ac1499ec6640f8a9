// The files that models come in: which format a file has, and who reads it. A further format is a row of the list.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "graph/flow.h"
#include "import/onnx/onnx_import.h"
#include "tessera/compiler.h"

namespace tessera::inline driver {

// A model that can be read for one choice of sizes after another.
struct ModelReader {
  std::function<ReadOutcome(const ImportOptions& options)> read;
  // The options in the model's own words: with the ranges that it declares for dimensions that they do not mention, and
  // its names of dimensions for INPUT[AXIS]; null: it declares nothing.
  std::function<CompileOptions(const CompileOptions& options)> with_declared_sizes = nullptr;
  bool reads_symbols = false;  // whether `read` takes ImportOptions::symbols
  bool reads_open = true;      // whether `read` takes ImportOptions::leave_open
};

// A file, or bytes that a program has.
struct ModelSource {
  std::optional<std::string> path;  // none: the bytes
  ModelBytes memory;                // borrowed by whoever opens the source
  std::string name() const;         // of the model: the file's without its ending, or that of the bytes
  std::string place() const;        // for messages: the path or the name
};

struct ModelFormat {
  std::string_view name;                          // "graph text"
  bool (*recognize)(std::string_view beginning);  // by the first bytes of a file (kBeginning at most)
  ModelReader (*open)(const ModelSource& source);
};

inline constexpr size_t kBeginning = 1 << 16;

// In the order in which they are asked. The last is ONNX, which has no magic and takes everything: its reader says what
// a file that is none may be.
std::span<const ModelFormat> model_formats();
const ModelFormat& format_of(const ModelSource& source);

// True when the file begins as a module does (ELF). False for everything else, files that cannot be read included.
bool looks_like_module(const std::string& path);
// True when the file is a graph as text.
bool looks_like_graph_file(const std::string& path);
// True of that, and of a language model: there is a graph, and no ONNX model beside it.
bool is_graph_without_onnx(const std::string& path);

}  // namespace tessera::inline driver
