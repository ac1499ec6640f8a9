// What `quantize` found, as text and as JSON.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "diagnose/text_table.h"
#include "driver/quantization.h"

namespace tessera::inline driver {

// A table of layers, what the outputs lost, choices of layers where they were weighed, and the times; no line break at
// the end.
std::string quantization_text(const QuantizationReport& report, const TextStyle& style);
nlohmann::json quantization_json(const QuantizationReport& report);

}  // namespace tessera::inline driver
