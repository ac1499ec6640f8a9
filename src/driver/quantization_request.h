// A quantisation as it is asked for in words and numbers: what they mean, what is refused, and what is written.
#pragma once

#include <string>

#include "driver/options.h"
#include "driver/quantization.h"
#include "tessera/quantize.h"

namespace tessera::inline driver {

// UserError TSR-4085 for words and numbers that make no sense; TSR-4088, TSR-2090.
QuantizationOptions quantization_options(const QuantizeSettings& settings, bool has_samples);

// A quantisation that does not pay is not written: UserError TSR-4086, TSR-4087.
void require_gain(const QuantizeSettings& settings, const QuantizationReport& report);

// FILE.onnx, FILE.graph, or a module.
void write_quantized(const Graph& graph, const std::string& output, DriverOptions driver);

}  // namespace tessera::inline driver
