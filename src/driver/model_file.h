// What tools ask a model's file for without importing it, whatever its format is: what it declares, its nodes as
// whoever made it knows them, an ONNX model to cut.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "driver/formats.h"
#include "import/aten/aten_import.h"
#include "import/onnx/edit/model_edit.h"
#include "import/onnx/edit/model_statistics.h"
#include "import/onnx/read/declarations.h"
#include "import/stablehlo/stablehlo_import.h"

namespace tessera::inline driver {

// An ONNX model in binary form.
struct OnnxBytes {
  std::string_view bytes;
  std::shared_ptr<const void> owner;  // of the bytes
};

// Of an ONNX model in binary form or in JSON; empty for a graph as text. UserError TSR-1001 when the file is missing,
// TSR-1002 for JSON that is no model.
std::optional<OnnxBytes> onnx_of(const ModelSource& source);

ModelDeclarations program_declarations(const AtenProgram& program);
ModelDeclarations module_declarations(const HloModule& module);
// What a model declares at its border; none where the file has no known format, or cannot be read. A graph as text has
// no names for extents that are expressions of its symbols.
std::optional<ModelDeclarations> declarations_of(const ModelSource& source);
inline std::optional<ModelDeclarations> declarations_of_file(const std::string& path) {
  return declarations_of({path, {}});
}

// The graph of a model of any format, for the sizes that the file declares. UserError TSR-1046 when it takes a flow.
Graph graph_of_source(const ModelSource& source);

// REQUIRES of both: is_onnx_file(path). UserError TSR-10xx when the file is missing or no ONNX model.
OnnxStatistics statistics_of_file(const std::string& path);
EditableModel editable_model_of_file(const std::string& path);

}  // namespace tessera::inline driver
