// Which ONNX operators are imported, from which opset on, and by which handler.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "import/onnx/read/model_file.h"

namespace tessera::inline onnx_import {

class NodeContext;

struct OperatorImporter {
  std::string_view op_type;
  int64_t since;  // the first opset that has the operator
  void (*handler)(NodeContext&);
  std::string_view primitive = "";  // for handlers that serve several operators: which of ours it stands for
  int64_t until = kNewestOpset;     // the last opset that has the operator
};

// What a file of operators/ exports: its rows of each domain.
struct OperatorRows {
  std::string_view domain;  // the standard one is empty
  std::span<const OperatorImporter> rows;
};
using OperatorFamily = std::vector<OperatorRows>;

// Operators of the standard domain, sorted by name.
std::span<const OperatorImporter> operator_importers();
// Operators that other runtimes add and exporters write, of the domain kContribDomain.
std::span<const OperatorImporter> contrib_importers();
inline constexpr std::string_view kContribDomain = "com.microsoft";
// Further domains of the standard; each counts versions of its own.
inline constexpr std::string_view kMlDomain = "ai.onnx.ml";
inline constexpr std::string_view kPreviewDomain = "ai.onnx.preview";
inline constexpr std::string_view kTrainingDomain = "ai.onnx.preview.training";
// Null when the operator is unknown. The standard domain is the empty one.
const OperatorImporter* find_importer(std::string_view domain, std::string_view op_type);

}  // namespace tessera::inline onnx_import
