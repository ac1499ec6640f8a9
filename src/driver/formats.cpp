#include "driver/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "driver/engine/input_sizes.h"
#include "driver/graph_reader.h"
#include "driver/model_file.h"
#include "import/aten/aten_import.h"
#include "import/caffe/caffe_import.h"
#include "import/gguf/gguf_import.h"
#include "import/onnx_json/onnx_json.h"
#include "import/stablehlo/stablehlo_import.h"
#include "import/tflite/tflite_import.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "support/error.h"
#include "support/mapped_file.h"

namespace tessera::inline driver {
namespace {

// The first bytes; none of a file that cannot be read.
std::string beginning_of(const std::string& path, size_t count) {
  std::string bytes(count, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

ModelReader open_graph_text(const ModelSource& source) {
  std::shared_ptr<const Graph> graph;
  if (!source.path) {
    graph = std::make_shared<const Graph>(read_graph_text(source.memory.bytes, source.place()));
  } else {
    const auto file = MappedFile::open(*source.path, "model", "TSR-1001");
    graph = std::make_shared<const Graph>(read_graph_text(file->text(), source.place()));
  }
  return reader_of_graph(std::move(graph));
}

ModelReader open_onnx_model(const ModelSource& source) {
  ModelReader reader;
  reader.read = [source](const ImportOptions& options) {
    GraphInterpreter evaluator;
    return !source.path
               ? read_onnx_model_bytes(source.memory.bytes, options, standard_ops(), evaluator, source.memory.folder)
               : read_onnx_model(*source.path, options, standard_ops(), evaluator);
  };
  reader.reads_symbols = true;
  reader.with_declared_sizes = [source](const CompileOptions& options) {
    if (!has_axis_names(options)) return options;
    const std::optional<ModelDeclarations> declared = declarations_of(source);
    return declared ? with_dim_names(declared->inputs, options) : options;
  };
  return reader;
}

// As the same model in binary form.
ModelReader open_onnx_json(const ModelSource& source) {
  const auto binary = std::make_shared<std::string>();
  ModelBytes memory = source.memory;
  if (source.path) {
    *binary = onnx_of_json(MappedFile::open(*source.path, "model", "TSR-1001")->text(), source.place());
    memory.folder = std::filesystem::path(*source.path).parent_path() / ".";
    memory.name = source.name();
  } else {
    *binary = onnx_of_json(memory.bytes, source.place());
  }
  memory.bytes = *binary;
  ModelReader reader = open_onnx_model({std::nullopt, memory});
  reader.read = [binary, read = reader.read](const ImportOptions& options) { return read(options); };
  return reader;
}

ModelReader open_tflite_model(const ModelSource& source) {
  ModelReader reader;
  reader.read = [source](const ImportOptions& options) {
    GraphInterpreter evaluator;
    return !source.path ? read_tflite_model_bytes(source.memory.bytes, options, standard_ops(), evaluator)
                        : read_tflite_model(*source.path, options, standard_ops(), evaluator);
  };
  reader.reads_open = false;
  return reader;
}

// Ranges for the dimensions of a language model that neither --dim nor --shape fixes.
CompileOptions with_usual_lengths(const GgufModel& model, const CompileOptions& options) {
  CompileOptions result = options;
  std::vector<std::string> names;
  for (const SequenceNames& sequence :
       sequence_names([&](const std::string& name) { return options.dims.contains(name); }))
    names.insert(names.end(), {sequence.length, sequence.past});
  names.emplace_back(kKept);
  for (const std::string& name : names) {
    const bool shaped = std::any_of(options.shapes.begin(), options.shapes.end(), [&](const auto& shape) {
      const std::string& input = shape.first;
      return name == (input == "tokens" ? kLength : input == "rows" ? kKept : kPast);
    });
    const DimRange usual = model.declared(name);
    if (!shaped && !options.dims.contains(name)) result.dims[name] = {usual.lo, usual.hi};
  }
  return result;
}

ModelReader open_gguf(const ModelSource& source) {
  const auto model = [&] {
    if (!source.path) return std::make_shared<GgufModel>(source.memory.bytes, source.place(), nullptr);
    const auto file = MappedFile::open(*source.path, "model", "TSR-1001");
    return std::make_shared<GgufModel>(file->text(), source.place(), file);
  }();
  ModelReader reader;
  reader.read = [model](const ImportOptions& options) -> ReadOutcome {
    GraphInterpreter evaluator;
    ImportedModel read;
    read.graph = bind_options(gguf_graph(*model, options, standard_ops(), evaluator), options);
    return read;
  };
  reader.with_declared_sizes = [model](const CompileOptions& options) { return with_usual_lengths(*model, options); };
  reader.reads_symbols = true;
  reader.reads_open = false;
  return reader;
}

// With the ranges that the program is exported for, of dimensions that neither --dim nor --shape fixes.
CompileOptions with_declared_ranges(const AtenProgram& program, const CompileOptions& given) {
  const ModelDeclarations declared = program_declarations(program);
  CompileOptions options = has_axis_names(given) ? with_dim_names(declared.inputs, given) : given;
  const auto check_within = [](const std::string& option, int64_t lo, int64_t hi, const AtenRange& range,
                               const std::string& symbol) {
    if (lo >= range.lo && hi <= range.hi.value_or(INT64_MAX)) return;
    throw UserError(
        {.id = "TSR-1022",
         .message = fmt::format(
             "{} contradicts the program, which is exported for {} of {}", option,
             range.hi ? fmt::format("{} to {}", range.lo, *range.hi) : fmt::format("{} and more", range.lo), symbol),
         .node = {},
         .legal = "sizes within that range",
         .hint = "leave the option out, or export the program for these sizes"});
  };
  for (const DeclaredTensor& input : declared.inputs) {
    const auto shape = options.shapes.find(input.name);
    for (size_t axis = 0; axis < input.dims.size(); ++axis) {
      const std::string& symbol = input.dims[axis].name;
      const auto range = program.ranges.find(symbol);
      if (range == program.ranges.end()) continue;
      if (shape != options.shapes.end()) {
        const int64_t size = axis < shape->second.size() ? shape->second[axis] : range->second.lo;
        check_within(fmt::format("--shape {}", input.name), size, size, range->second, symbol);
      } else if (const auto dim = options.dims.find(symbol); dim != options.dims.end()) {
        check_within(fmt::format("--dim {}", symbol), dim->second.lo, dim->second.hi, range->second, symbol);
      } else if (range->second.hi) {
        options.dims[symbol] = {range->second.lo, *range->second.hi};
      }
    }
  }
  return options;
}

ModelReader open_pt2_model(const ModelSource& source) {
  const auto program = [&] {
    if (!source.path)
      return std::make_shared<const AtenProgram>(open_pt2(source.memory.bytes, nullptr, source.place()));
    const auto file = MappedFile::open(*source.path, "model", "TSR-1001");
    return std::make_shared<const AtenProgram>(open_pt2(file->text(), file, fmt::format("'{}'", source.place())));
  }();
  ModelReader reader;
  reader.read = [program](const ImportOptions& options) {
    GraphInterpreter evaluator;
    return read_aten_program(*program, options, standard_ops(), evaluator);
  };
  reader.with_declared_sizes = [program](const CompileOptions& options) {
    return with_declared_ranges(*program, options);
  };
  reader.reads_symbols = true;
  reader.reads_open = false;
  return reader;
}

ModelReader open_stablehlo(const ModelSource& source) {
  const auto module = [&] {
    if (!source.path) return std::make_shared<const HloModule>(read_module_text(source.memory.bytes, source.place()));
    return std::make_shared<const HloModule>(
        read_module_text(MappedFile::open(*source.path, "model", "TSR-1001")->text(), source.place()));
  }();
  ModelReader reader;
  reader.read = [module](const ImportOptions& options) {
    GraphInterpreter evaluator;
    return read_stablehlo(*module, options, standard_ops(), evaluator);
  };
  reader.with_declared_sizes = [module](const CompileOptions& options) {
    return has_axis_names(options) ? with_dim_names(module_declarations(*module).inputs, options) : options;
  };
  reader.reads_symbols = true;
  reader.reads_open = false;
  return reader;
}

// NAME.caffemodel beside NAME.prototxt, or the only one in that folder; empty: there is none.
std::string weights_beside(const std::filesystem::path& network) {
  std::error_code failed;
  const std::filesystem::path same = std::filesystem::path(network).replace_extension(".caffemodel");
  if (std::filesystem::exists(same, failed)) return same;
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(network.parent_path() / ".", failed)) {
    if (entry.path().extension() != ".caffemodel") continue;
    if (!found.empty())
      throw UserError({.id = "TSR-1132",
                       .message = fmt::format("'{}' may have the weights of '{}' or of '{}'", network.string(), found,
                                              entry.path().string()),
                       .node = {},
                       .legal = "one .caffemodel in the folder, or one of the network's name",
                       .hint = fmt::format("call the right one '{}'", same.filename().string())});
    found = entry.path();
  }
  return found;
}

ModelReader open_caffe(const ModelSource& source) {
  const auto network = [&] {
    if (!source.path) return read_caffe_network(source.memory.bytes, source.place(), {}, {});
    const auto text = MappedFile::open(*source.path, "model", "TSR-1001");
    const std::string weights = weights_beside(*source.path);
    const auto bytes = weights.empty() ? nullptr : MappedFile::open(weights, "weights", "TSR-1001");
    return read_caffe_network(text->text(), source.place(), bytes ? bytes->text() : "", weights);
  }();
  ModelReader reader;
  reader.read = [network](const ImportOptions& options) {
    GraphInterpreter evaluator;
    return read_caffe(network, options, standard_ops(), evaluator);
  };
  reader.reads_open = false;
  return reader;
}

constexpr std::array kFormats = {
    ModelFormat{"graph text", looks_like_graph, open_graph_text},
    ModelFormat{"TFLite model", looks_like_tflite, open_tflite_model},
    ModelFormat{"GGUF model", looks_like_gguf, open_gguf},
    ModelFormat{"PyTorch program", looks_like_pt2, open_pt2_model},
    ModelFormat{"StableHLO module", looks_like_mlir, open_stablehlo},
    ModelFormat{"network of Caffe", looks_like_prototxt, open_caffe},
    ModelFormat{"ONNX model in JSON", looks_like_onnx_json, open_onnx_json, true},
    ModelFormat{"ONNX model", [](std::string_view) { return true; }, open_onnx_model, true},
};

}  // namespace

std::string ModelSource::name() const { return !path ? memory.name : std::filesystem::path(*path).stem().string(); }

std::string ModelSource::place() const { return !path ? memory.name : *path; }

std::span<const ModelFormat> model_formats() { return kFormats; }

const ModelFormat& format_of(const ModelSource& source) {
  const std::string of_file = !source.path ? "" : beginning_of(*source.path, kBeginning);
  const std::string_view beginning = !source.path ? source.memory.bytes.substr(0, kBeginning) : of_file;
  for (const ModelFormat& format : kFormats)
    if (format.recognize(beginning)) return format;
  return kFormats.back();
}

bool looks_like_module(const std::string& path) { return beginning_of(path, 4) == "\177ELF"; }

bool looks_like_graph_file(const std::string& path) { return looks_like_graph(beginning_of(path, kBeginning)); }

bool is_onnx_file(const std::string& path) { return format_of({path, {}}).is_onnx; }

}  // namespace tessera::inline driver
