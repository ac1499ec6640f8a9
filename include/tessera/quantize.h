// Post-training quantisation (docs/quantisation.md): a model in f32 becomes one whose convolutions and matrix products
// read small integers, where that is measured to be faster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/compiler.h"
#include "tessera/tessera.h"

namespace tessera {

struct QuantizeSettings {
  std::string scheme = "static";   // or "dynamic", "weight-only"
  std::string method = "minmax";   // static: or "percentile", "mse", "entropy"
  std::string activations = "u8";  // static: or "i8", without a zero point
  std::string granularity;         // "tensor", "channel", "group"; empty: group for weight-only, otherwise channel
  int64_t bits = 0;                // of a weight; 0: 4 for weight-only, otherwise 8
  int64_t group = 32;              // terms that share a scale
  bool zero_points = true;         // weight-only: groups have one each
  double percentile = 99.99;
  std::vector<std::string> keep;  // patterns of layers that stay in f32
  std::string per_layer;          // lines of a pattern and "f32" or "i8": what these layers are, whatever is measured
  std::string per_layer_source;   // the file that has them, for messages
  bool all = false;               // layers become integers even where they are slower so
  bool equalize = false;          // scale channels between layers first
  bool ada_round = false;         // round weights for what samples make of them
  bool correct_bias = true;       // take off what rounding shifts means by
  bool sensitivity = false;       // measure what each layer loses
  double max_drop = 100;          // percent that an output may lose
  double min_sqnr = 0;            // decibels that each output has to have
  double min_speedup = 1;         // refused unless the network is so many times as fast
};

// Samples are asked for one after the other, each several times.
struct QuantizeSamples {
  size_t count = 0;  // 0: none, for the schemes that need none
  // One tensor for each input, borrowed until the next call.
  std::function<std::vector<tessera_tensor>(size_t sample)> at;
  std::vector<int64_t> labels;  // none, or for each sample the right place of the first output's largest element
};

// Writes `output`: FILE.onnx, FILE.graph, or a module. Answers the report as JSON (docs/cli.md). CompileError TSR-4085
// for settings that make no sense, TSR-4086 and TSR-4087 for a quantisation that would not pay or loses too much, with
// nothing written, and what compiling throws.
std::string quantize_file(const std::string& model, const std::string& output, const QuantizeSettings& settings,
                          const QuantizeSamples& samples, const CompileOptions& options = {});

}  // namespace tessera
