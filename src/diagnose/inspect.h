// What a file holds: a module, read as data (its code is never mapped as code), an ONNX model that need not be one we
// can import, or a graph as text. The JSON form is the stable one (docs/cli.md); the text is made from it.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "diagnose/text_table.h"
#include "graph/graph.h"
#include "import/onnx/edit/model_statistics.h"

namespace tessera::inline diagnose {

// UserError TSR-70xx, in the runtime's words, when the file is missing, damaged or no module.
nlohmann::json inspect_module(const std::string& path);

// The metadata section of a module, JSON; nothing else of it is checked. The same errors.
std::string module_metadata_of(const std::string& path);

// Of the ONNX model in the file at `path`, of so many bytes.
nlohmann::json inspect_onnx(const OnnxStatistics& model, const std::string& path, int64_t bytes);

// Of a graph that was read from the file at `path`, of so many bytes and of that format ("graph text").
nlohmann::json inspect_graph(const Graph& graph, const std::string& path, int64_t bytes, std::string_view format);

// Of what any of the three above returned.
std::string inspection_text(const nlohmann::json& inspection, const TextStyle& style);

}  // namespace tessera::inline diagnose
