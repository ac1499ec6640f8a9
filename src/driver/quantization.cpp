#include "driver/quantization.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "driver/analysis/kernel_times.h"
#include "driver/compile.h"
#include "driver/compile_options.h"
#include "driver/engine/native_model.h"
#include "driver/layer_losses.h"
#include "driver/output_comparison.h"
#include "graph_passes/pass.h"
#include "graph_passes/rewrite/decompose.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "quantize/equalize.h"
#include "quantize/layer_inputs.h"
#include "quantize/switched_graph.h"
#include "support/error.h"

namespace tessera::inline driver {
namespace {

using Step = std::function<void(std::string_view)>;

// Products of matrices as ONNX has them: with transpositions of their own, which are folded where they are constant.
Graph with_transposes(const Graph& graph) {
  GraphRewriter rewriter(graph);
  GraphBuilder builder(rewriter.target());
  return rewriter.run(
      [&](GraphRewriter&, const Node& node, const std::vector<ValueId>& inputs) -> std::vector<ValueId> {
        if (node.op->name != "matmul" || node.attrs.all().empty()) return {};
        builder.set_loc(node.loc);
        std::vector<ValueId> operands = inputs;
        for (size_t i = 0; i < 2; ++i) {
          if (!node.attrs.get_or<bool>(i == 0 ? "transpose_a" : "transpose_b", false)) continue;
          std::vector<int64_t> order(builder.graph().type(operands[i]).shape.size());
          std::iota(order.begin(), order.end(), 0);
          std::swap(order[order.size() - 2], order.back());
          operands[i] = builder.add(standard_ops().get("transpose"), {operands[i]}, {{"perm", std::move(order)}});
        }
        return {builder.add(*node.op, std::move(operands))};
      });
}

Graph passed(Graph graph, std::span<const char* const> passes, const DriverOptions& driver) {
  GraphInterpreter evaluator;
  const Target target = deciding_target(driver.compile);
  const PassContext context{standard_ops(), evaluator, target, driver.compile.opt_level, nullptr, DType::kF32};
  for (const char* pass : passes) graph = find_graph_pass(pass)->run(graph, context);
  return graph;
}

// The weights in f32 among it.
Graph without_dead_code(Graph graph, const DriverOptions& driver) {
  constexpr std::array kPasses = {"dce"};
  return passed(std::move(graph), kPasses, driver);
}

std::unique_ptr<Model> compiled(Graph graph, const DriverOptions& driver) {
  DriverOptions options = driver;
  options.compile.dims.clear();
  options.compile.shapes.clear();
  options.emit = Emit::kModule;
  PassRunner runner(options);
  const std::string name = graph.name;
  return load_module(module_in_memory(compile_graph(std::move(graph), options, runner)), name,
                     options.compile.num_threads);
}

std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('+', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// The time of the kernels that a node is part of, by the node's name.
std::map<std::string, double, std::less<>> times_by_node(Model& model) {
  constexpr int kRuns = 15;
  std::map<std::string, double, std::less<>> times;
  for (const KernelTime& time : time_kernels(model, kRuns)) {
    std::vector<std::string_view> parts = parts_of(model.kernels()[static_cast<size_t>(time.kernel)].name);
    std::sort(parts.begin(), parts.end());
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    for (const std::string_view part : parts) times[std::string(part)] += time.median_us;
  }
  return times;
}

struct TimesInTurn {
  double real_ms = 0, byte_ms = 0;
};

// One after the other, so that both have the same neighbours on the machine; the least times, which those disturb
// least: a longer run is interrupted more often than a shorter one, so medians would flatter the faster model.
TimesInTurn time_in_turn(Model& real, Model& bytes) {
  using Clock = std::chrono::steady_clock;
  constexpr int kMostRuns = 200;
  constexpr std::chrono::milliseconds kBudget(1500);
  std::vector<double> real_ms, byte_ms;
  const auto timed = [](Model& model, std::vector<double>& to) {
    const auto begin = Clock::now();
    model.run();
    to.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  };
  const auto begin = Clock::now();
  for (int run = 0; run < kMostRuns && (run < 7 || Clock::now() - begin < kBudget); ++run) {
    timed(real, real_ms);
    timed(bytes, byte_ms);
  }
  return {*std::min_element(real_ms.begin(), real_ms.end()), *std::min_element(byte_ms.begin(), byte_ms.end())};
}

class Quantization {
  static constexpr int64_t kMostGramBytes = int64_t{64} << 20;

 public:
  Quantization(const Graph& model, const SampleSource& samples, const QuantizationOptions& options,
               const DriverOptions& driver, const Step& on_step)
      : samples_(samples), options_(options), driver_(driver), step_(on_step), graph_(prepared(model)) {}

  QuantizedModel run() {
    find_layers();
    calibrate();
    round_weights();
    if (options_.ada_round) round_weights_for_data();
    if (options_.correct_bias) correct_biases();
    auto [real, bytes] = contest();
    if (options_.losses) weigh_losses(*real, bytes);
    step_("comparing");
    compare(*real, *bytes);
    return {quantized(), std::move(report_)};
  }

 private:
  Graph prepared(const Graph& model) {
    Graph graph = quantizable(model, driver_);
    if (!options_.equalize) return graph;
    Equalized made = equalized(graph);
    report_.equalized_pairs = made.pairs;
    return std::move(made.graph);
  }

  // Runs all samples and calls `use` with the results of each.
  void run_samples(Graph graph, std::string_view what, const std::function<void(const std::vector<Tensor>&)>& use) {
    step_(fmt::format("compiling for {}", what));
    const auto model = compiled(std::move(graph), driver_);
    for (size_t sample = 0; sample < samples_.count; ++sample) {
      step_(fmt::format("{}: sample {} of {}", what, sample + 1, samples_.count));
      model->bind(samples_.at(sample));
      model->run();
      use(model->results());
    }
  }

  // In turns of as many layers as kMostGramBytes have room for, so that memory does not grow with the model.
  void round_weights_for_data() {
    std::vector<WeightedProduct> turn;
    std::set<std::pair<ValueId, size_t>> seen;
    int64_t bytes = 0;
    for (const LayerReport& layer : report_.layers) {
      const WeightedProduct& product = layer.product;
      if (layer.choice != LayerChoice::kBytes || !seen.emplace(product.weights, product.outputs_axis).second) continue;
      const ProductTerms terms = product_terms(graph_, product);
      const int64_t needed = terms.groups * terms.terms * terms.terms * 4;
      if (terms.terms > kMostGramBytes / 4 || needed > kMostGramBytes) continue;
      if (bytes + needed > kMostGramBytes) round_turn(std::exchange(turn, {})), bytes = 0;
      turn.push_back(product);
      bytes += needed;
    }
    if (!turn.empty()) round_turn(turn);
  }

  void round_turn(const std::vector<WeightedProduct>& products) {
    std::vector<std::vector<float>> grams(products.size());
    run_samples(gram_graph(graph_, products, standard_ops()), "rounding", [&](const std::vector<Tensor>& results) {
      for (size_t i = 0; i < products.size(); ++i) {
        const std::span<const float> numbers = results[i].as<float>();
        grams[i].resize(numbers.size());
        for (size_t k = 0; k < numbers.size(); ++k) grams[i][k] += numbers[k];
      }
    });
    for (size_t i = 0; i < products.size(); ++i) {
      const WeightedProduct& product = products[i];
      step_(fmt::format("rounding layer {}", product.name));
      const ProductTerms terms = product_terms(graph_, product);
      const WeightRows numbers = rows_of(constant_tensor(graph_, product.weights), product.outputs_axis);
      std::shared_ptr<const IntegerRows>& rows = weights_.at({product.weights, product.outputs_axis});
      IntegerRows rounded = *rows;
      round_for_data(rounded, numbers, weight_grid(numbers.terms, options_.form), grams[i], terms.groups);
      rows = std::make_shared<const IntegerRows>(std::move(rounded));
      ++report_.rounded_layers;
    }
  }

  void correct_biases() {
    std::vector<QuantizedProduct> products;
    for (const LayerReport& layer : report_.layers)
      if (layer.choice == LayerChoice::kBytes) products.push_back(product_of(layer));
    std::vector<std::vector<double>> sums(products.size());
    run_samples(shift_graph(graph_, products, options_.form, standard_ops()), "correcting",
                [&](const std::vector<Tensor>& results) {
                  for (size_t i = 0; i < products.size(); ++i) {
                    const std::span<const float> numbers = results[i].as<float>();
                    sums[i].resize(numbers.size());
                    for (size_t k = 0; k < numbers.size(); ++k) sums[i][k] += numbers[k];
                  }
                });
    for (size_t i = 0; i < products.size(); ++i) {
      std::vector<float>& correction = corrections_[products[i].product.node];
      for (const double sum : sums[i])
        correction.push_back(static_cast<float>(sum / static_cast<double>(samples_.count)));
      if (!std::all_of(correction.begin(), correction.end(), [](float c) { return std::isfinite(c); }))
        correction.clear();
    }
  }

  void find_layers() {
    std::set<std::string> unused(options_.keep.begin(), options_.keep.end());
    for (WeightedProduct& product : weighted_products(graph_)) {
      LayerReport layer;
      for (const std::string& pattern : options_.keep)
        if (matches_pattern(pattern, product.name)) {
          layer.choice = LayerChoice::kKept;
          unused.erase(pattern);
        }
      if (const auto precision = options_.plan.precision_of(product.name)) {
        layer.is_asked = true;
        layer.choice = *precision == DType::kI8    ? LayerChoice::kBytes
                       : *precision == DType::kF32 ? LayerChoice::kKept
                                                   : LayerChoice::kNarrow;
      }
      if (layer.choice == LayerChoice::kBytes && !has_form(graph_, product, options_.form.scheme))
        layer.choice = LayerChoice::kNoForm;
      layer.product = std::move(product);
      report_.layers.push_back(std::move(layer));
    }
    std::vector<std::string> names;
    for (const LayerReport& layer : report_.layers) names.push_back(layer.product.name);
    for (const std::string& pattern : options_.plan.unused(names))
      throw UserError({.id = "TSR-4088",
                       .message = fmt::format("'{}' is the name of no layer", pattern),
                       .node = {},
                       .legal = fmt::format("{}", fmt::join(names, ", ")),
                       .hint = {}});
    if (!unused.empty()) {
      throw UserError({.id = "TSR-4085",
                       .message = fmt::format("--keep {}: no layer has such a name", *unused.begin()),
                       .node = {},
                       .legal = fmt::format("{}", fmt::join(names, ", ")),
                       .hint = {}});
    }
    if (count_bytes() == 0)
      throw UserError({.id = "TSR-2092",
                       .message = !is_any_kept() ? "the model has no layer to quantise" : "every layer is kept in f32",
                       .node = {},
                       .legal = options_.form.scheme == Scheme::kWeightOnly
                                    ? "matrix products in f32 with constant weights"
                                    : "convolutions or matrix products in f32 with constant weights",
                       .hint = is_any_kept() ? "let fewer layers match --keep" : ""});
  }

  bool is_any_kept() const {
    return std::any_of(report_.layers.begin(), report_.layers.end(), [](const LayerReport& layer) {
      return layer.choice == LayerChoice::kKept || layer.choice == LayerChoice::kNarrow;
    });
  }

  size_t count_bytes() const {
    return static_cast<size_t>(
        std::count_if(report_.layers.begin(), report_.layers.end(),
                      [](const LayerReport& layer) { return layer.choice == LayerChoice::kBytes; }));
  }

  void calibrate() {
    report_.samples = samples_.count;
    if (options_.form.scheme != Scheme::kStatic) return;
    std::vector<ValueId> seen;
    for (const LayerReport& layer : report_.layers)
      if (layer.choice == LayerChoice::kBytes && std::find(seen.begin(), seen.end(), layer.product.data) == seen.end())
        seen.push_back(layer.product.data);
    step_("compiling for calibration");
    const auto model = compiled(with_outputs(graph_, seen, standard_ops()), driver_);
    std::vector<ValueHistogram> histograms(seen.size());
    for (size_t sample = 0; sample < samples_.count; ++sample) {
      step_(fmt::format("calibrating: sample {} of {}", sample + 1, samples_.count));
      model->bind(samples_.at(sample));
      model->run();
      for (size_t i = 0; i < seen.size(); ++i) {
        histograms[i].add(model->results()[i].as<float>());
        if (histograms[i].non_finite() > 0)
          throw UserError({.id = "TSR-2093",
                           .message = fmt::format("sample {} makes {} numbers that are not finite", sample + 1,
                                                  histograms[i].non_finite()),
                           .node = graph_.value(seen[i]).name,
                           .legal = "samples for which the model computes numbers",
                           .hint = "see what the sample holds, and --scale, --mean and --std for pictures"});
      }
    }
    for (LayerReport& layer : report_.layers) {
      if (layer.choice != LayerChoice::kBytes) continue;
      const auto at = static_cast<size_t>(std::find(seen.begin(), seen.end(), layer.product.data) - seen.begin());
      if (histograms[at].count() == 0) layer.choice = LayerChoice::kUnseen;
      else layer.range = chosen_range(histograms[at], options_.range);
      const bool has_numbers = layer.range.low != 0 || layer.range.high != 0;
      layer.data_vanish = has_numbers && !has_byte_scale(layer.range, options_.form.activations);
    }
  }

  // The integers of all weights that may become such, once: each network that is tried has them.
  void round_weights() {
    step_("rounding weights");
    for (LayerReport& layer : report_.layers) {
      std::shared_ptr<const IntegerRows>& rows = weights_[{layer.product.weights, layer.product.outputs_axis}];
      if (layer.choice != LayerChoice::kBytes) continue;
      const WeightRows numbers = rows_of(constant_tensor(graph_, layer.product.weights), layer.product.outputs_axis);
      if (!rows)
        rows = std::make_shared<const IntegerRows>(
            nearest_integers(numbers, weight_grid(numbers.terms, options_.form), layer.product.name));
      layer.vanished_outputs = vanished_rows(*rows, numbers);
    }
  }

  Graph quantized() const {
    std::vector<QuantizedProduct> products;
    for (const LayerReport& layer : report_.layers)
      if (layer.choice == LayerChoice::kBytes) products.push_back(product_of(layer));
    return without_dead_code(quantized_graph(graph_, products, options_.form, standard_ops()), driver_);
  }

  struct Candidate {
    std::unique_ptr<Model> model;
    std::vector<LayerReport> layers;
    double least_ms = 0;
  };

  Candidate candidate(Model& real) {
    Candidate made{compiled(quantized(), driver_), report_.layers};
    made.model->bind(samples_.at(0));
    made.model->run();
    made.least_ms = time_in_turn(real, *made.model).byte_ms;
    return made;
  }

  // Layers whose kernels are slower in bytes go back to f32, until none does: their neighbours' kernels change with
  // them. The fastest network of those that were met is taken.
  std::pair<std::unique_ptr<Model>, std::unique_ptr<Model>> contest() {
    constexpr int kRounds = 4;
    step_("compiling in f32");
    auto real = compiled(graph_, driver_);
    real->bind(samples_.at(0));
    real->run();
    report_.threads = real->num_threads();
    const auto real_times = times_by_node(*real);
    Candidate best;
    for (int round = 0; round < kRounds; ++round) {
      step_(round == 0 ? "compiling in bytes" : "compiling without the layers that are slower");
      Candidate now = candidate(*real);
      step_("timing layers");
      const auto byte_times = times_by_node(*now.model);
      bool changed = false;
      for (size_t i = 0; i < report_.layers.size(); ++i) {
        LayerReport& layer = report_.layers[i];
        const auto before = real_times.find(layer.product.name), after = byte_times.find(layer.product.name);
        if (layer.choice != LayerChoice::kBytes || before == real_times.end() || after == byte_times.end()) continue;
        layer.real_us = now.layers[i].real_us = before->second;
        layer.byte_us = now.layers[i].byte_us = after->second;
        if (!options_.contest || layer.is_asked || layer.byte_us < layer.real_us) continue;
        layer.choice = LayerChoice::kSlower;
        changed = true;
      }
      if (!best.model || now.least_ms < best.least_ms) best = std::move(now);
      if (!changed) break;
    }
    step_("timing the network");
    const TimesInTurn times = time_in_turn(*real, *best.model);
    report_.layers = std::move(best.layers);
    report_.real_ms = times.real_ms;
    report_.byte_ms = times.byte_ms;
    return {std::move(real), std::move(best.model)};
  }

  QuantizedProduct product_of(const LayerReport& layer) const {
    const auto correction = corrections_.find(layer.product.node);
    return {.product = layer.product,
            .range = layer.range,
            .weights = weights_.at({layer.product.weights, layer.product.outputs_axis}),
            .correction = correction == corrections_.end() ? std::vector<float>{} : correction->second};
  }

  // What each layer loses by itself; then layers go back to f32 until what all lose together is within the limits.
  void weigh_losses(Model& real, std::unique_ptr<Model>& bytes) {
    std::vector<LayerReport*> layers;
    std::vector<QuantizedProduct> products;
    for (LayerReport& layer : report_.layers) {
      if (layer.choice != LayerChoice::kBytes && layer.choice != LayerChoice::kSlower) continue;
      layers.push_back(&layer);
      products.push_back(product_of(layer));
    }
    step_("compiling with switches");
    LayerLosses losses(compiled(switched_graph(graph_, products, options_.form, standard_ops()), driver_), samples_,
                       layers.size());
    std::vector<size_t> in_bytes;
    std::vector<LayerGain> gains;
    for (size_t i = 0; i < layers.size(); ++i) {
      step_(fmt::format("losses: layer {} of {}", i + 1, layers.size()));
      std::vector<bool> alone(layers.size(), false);
      alone[i] = true;
      double least = std::numeric_limits<double>::infinity();
      for (const OutputReport& output : losses.measure(alone)) least = std::min(least, output.sqnr_db);
      layers[i]->sqnr_db = least;
      if (layers[i]->choice != LayerChoice::kBytes || layers[i]->is_asked) continue;
      in_bytes.push_back(i);
      gains.push_back({(layers[i]->real_us - layers[i]->byte_us) / 1000, std::pow(10, -least / 10)});
    }
    size_t tried = 0;
    const ChosenLayers chosen =
        choose_layers(gains, report_.real_ms, options_.limits, [&](const std::vector<bool>& choice) {
          step_(fmt::format("losses: choice {} of {}", ++tried, gains.size() + 1));
          std::vector<bool> all(layers.size(), false);
          for (size_t i = 0; i < layers.size(); ++i)
            all[i] = layers[i]->choice == LayerChoice::kBytes && layers[i]->is_asked;
          for (size_t i = 0; i < choice.size(); ++i) all[in_bytes[i]] = choice[i];
          return losses.measure(all);
        });
    report_.selections = chosen.selections;
    bool changed = false;
    for (size_t i = 0; i < in_bytes.size(); ++i) {
      if (chosen.layers[i]) continue;
      layers[in_bytes[i]]->choice = LayerChoice::kLoss;
      changed = true;
    }
    if (!changed) return;
    step_("compiling without the layers that lose too much");
    bytes = compiled(quantized(), driver_);
    bytes->bind(samples_.at(0));
    bytes->run();
    step_("timing the network");
    const TimesInTurn times = time_in_turn(real, *bytes);
    report_.real_ms = times.real_ms;
    report_.byte_ms = times.byte_ms;
  }

  void compare(Model& real, Model& bytes) {
    std::vector<OutputComparison> outputs;
    for (const TensorInfo& output : real.outputs()) outputs.emplace_back(output.name);
    for (size_t sample = 0; sample < samples_.count; ++sample) {
      for (Model* model : {&real, &bytes}) {
        model->bind(samples_.at(sample));
        model->run();
      }
      for (size_t i = 0; i < outputs.size(); ++i)
        outputs[i].add(real.results()[i], bytes.results()[i],
                       i == 0 && !samples_.labels.empty() ? std::optional(samples_.labels[sample]) : std::nullopt);
    }
    for (const OutputComparison& output : outputs) report_.outputs.push_back(output.report());
  }

  const SampleSource& samples_;
  const QuantizationOptions& options_;
  const DriverOptions& driver_;
  const Step& step_;
  QuantizationReport report_;
  const Graph graph_;
  std::map<NodeId, std::vector<float>> corrections_;
  std::map<std::pair<ValueId, size_t>, std::shared_ptr<const IntegerRows>> weights_;
};

}  // namespace

// What is between a product's data and the product could not be folded into it behind a pair.
Graph quantizable(const Graph& model, const DriverOptions& driver) {
  constexpr std::array<std::string_view, 1> kOpened = {"gemm"};
  constexpr std::array kPasses = {"fold_constants", "dce", "fold_pads", "fold_batch_norm_forward", "fold_batch_norm",
                                  "fold_constants", "dce"};
  Graph graph = passed(with_transposes(open_composites(model, standard_ops(), kOpened)), kPasses, driver);
  // Times are told apart by names.
  for (const WeightedProduct& product : weighted_products(graph))
    if (Node& node = graph.node(product.node); node.loc.empty()) node.loc = product.name;
  return graph;
}

std::string_view layer_choice_text(LayerChoice choice) {
  switch (choice) {
    case LayerChoice::kBytes: return "bytes";
    case LayerChoice::kKept: return "f32: kept";
    case LayerChoice::kNarrow: return "f32: bf16 or f16 when it is compiled";
    case LayerChoice::kSlower: return "f32: bytes are not faster";
    case LayerChoice::kUnseen: return "f32: no numbers seen";
    case LayerChoice::kLoss: return "f32: the outputs would lose too much";
    case LayerChoice::kNoForm: return "f32: the scheme has no form for it";
  }
  return "";
}

QuantizedModel quantize_model(const Graph& model, const SampleSource& samples, const QuantizationOptions& options,
                              const DriverOptions& driver, const Step& on_step) {
  return Quantization(model, samples, options, driver, on_step).run();
}

}  // namespace tessera::inline driver
