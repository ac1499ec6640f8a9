// include/tessera/quantize.h on top of the driver.
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "driver/api/api_support.h"
#include "driver/engine/output_guard.h"
#include "driver/model_file.h"
#include "driver/open_sizes.h"
#include "driver/pass_runner.h"
#include "driver/quantization.h"
#include "driver/quantization_report.h"
#include "driver/quantization_request.h"
#include "driver/read_model.h"
#include "support/error.h"
#include "tessera/quantize.h"

namespace tessera {

std::string quantize_file(const std::string& model, const std::string& output, const QuantizeSettings& settings,
                          const QuantizeSamples& samples, const CompileOptions& options) {
  return translate_errors([&] {
    const QuantizationOptions chosen = quantization_options(settings, samples.count > 0);
    if (!samples.labels.empty() && samples.labels.size() != samples.count)
      throw UserError({.id = "TSR-4085",
                       .message = fmt::format("{} labels for {} samples", samples.labels.size(), samples.count),
                       .node = {},
                       .legal = "none, or one for each sample",
                       .hint = {}});
    refuse_to_overwrite(output, files_of_model(model));
    DriverOptions driver;
    driver.compile = options;
    PassRunner runner(driver);
    ImportedModel imported = read_model(model, driver, runner);
    if (!imported.symbols.empty()) refuse_ranges(imported, "quantize");
    const Graph graph = graph_alone(std::move(imported));
    const auto given = [&](size_t sample) {
      std::vector<Tensor> tensors;
      for (const tessera_tensor& tensor : samples.at(sample)) tensors.push_back(borrow(tensor));
      return tensors;
    };
    const SampleSource source =
        samples.count == 0 ? random_sample(graph) : SampleSource{samples.count, given, samples.labels};
    const QuantizedModel quantized = quantize_model(graph, source, chosen, driver, [&](std::string_view) {
      if (options.is_cancelled && options.is_cancelled())
        throw UserError(
            {.id = "TSR-5111", .message = "the quantisation was cancelled", .node = {}, .legal = {}, .hint = {}});
    });
    require_gain(settings, quantized.report);
    write_quantized(quantized.graph, output, driver);
    return quantization_json(quantized.report).dump();
  });
}

}  // namespace tessera
