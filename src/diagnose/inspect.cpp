#include "diagnose/inspect.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "graph/op_def.h"
#include "import/onnx/edit/model_statistics.h"
#include "runtime/core/dtypes.h"
#include "runtime/core/module_file.h"
#include "support/error.h"

namespace tessera::inline diagnose {

namespace {

using nlohmann::json;

class OpenModule {
 public:
  explicit OpenModule(const std::string& path, bool check_digest = true) {
    tessera_error error = {};
    const tessera_status status = file_.open_path(path.c_str(), nullptr, check_digest, &error);
    if (status != TESSERA_OK) {
      throw UserError({.id = error.id, .message = error.message, .node = {}, .legal = {}, .hint = {}});
    }
  }
  ~OpenModule() { file_.close(); }
  OpenModule(const OpenModule&) = delete;
  OpenModule& operator=(const OpenModule&) = delete;
  const ModuleFile& file() const { return file_; }

 private:
  ModuleFile file_;
};

json tensors_of(const ModuleFile& file, const tsr_tensor_descr* tensors, uint32_t count) {
  json list = json::array();
  for (uint32_t i = 0; i < count; ++i) {
    const tsr_tensor_descr& tensor = tensors[i];
    const auto is_decided = [&](uint32_t axis) {
      const tsr_decided_descr *begin = file.decided(), *end = begin + file.descriptor->num_decided;
      return tensors == file.outputs() &&
             std::any_of(begin, end, [&](const tsr_decided_descr& dim) { return dim.output == i && dim.axis == axis; });
    };
    std::string shape;
    for (uint32_t d = 0; d < tensor.rank; ++d) {
      const int64_t dim = tensor.dims[d];
      shape += d > 0 ? "," : "";
      const int64_t number = -(dim + 1);
      const bool derived = number >= int64_t{file.descriptor->num_symbols};
      const std::string size = dim >= 0  ? std::to_string(dim)
                               : derived ? "?"
                                         : std::string(file.text(file.symbols()[number].name));
      shape += is_decided(d) ? "up to " + size : size;  // by the data of a run
    }
    list.push_back(
        {{"name", file.text(tensor.name)}, {"type", fmt::format("{}[{}]", module_dtype_name(tensor.dtype), shape)}});
  }
  return list;
}

// Bytes that live at each call, from the lifetimes of the arena's buffers.
json live_bytes(const json& arena, size_t calls) {
  std::vector<int64_t> change(calls + 1, 0);
  for (const json& buffer : arena) {
    change.at(buffer.at("first").get<size_t>()) += buffer.at("bytes").get<int64_t>();
    change.at(buffer.at("last").get<size_t>() + 1) -= buffer.at("bytes").get<int64_t>();
  }
  json live = json::array();
  int64_t bytes = 0;
  for (size_t call = 0; call < calls; ++call) live.push_back(bytes += change[call]);
  return live;
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

std::string line(const std::string& label, const std::string& text) {
  return text.empty() ? "" : fmt::format("{:<12}{}\n", label, text);
}

std::string tensor_lines(const json& inspection, const char* key, const std::string& label) {
  std::string text;
  for (const json& tensor : inspection.at(key)) {
    text += fmt::format("{:<12}{}: {}\n", text.empty() ? label : "", tensor.at("name").get<std::string>(),
                        tensor.at("type").get<std::string>());
  }
  return text;
}

std::string operator_text(const json& operators, const TextStyle& style) {
  std::vector<std::pair<int64_t, std::string>> sorted;
  for (const auto& [name, count] : operators.items()) sorted.emplace_back(-count.get<int64_t>(), name);
  std::sort(sorted.begin(), sorted.end());
  TextTable table({{"operator"}, {"nodes", TextTable::Align::kRight}});
  for (const auto& [count, name] : sorted) table.add({name, std::to_string(-count)});
  return table.empty() ? "" : "\n" + table.to_string(style);
}

// A kernel's count, or its formula where a run knows the sizes.
std::string work_text(const json& kernel, const std::string& key, std::string (*text)(double)) {
  if (const double count = kernel.at(key).get<double>(); count >= 0) return text(count);
  const std::string formula = text_of(kernel, (key + "_formula").c_str());
  return formula.empty() ? "?" : shortened(formula, 40);
}

// A bar a line; many calls share one, which then shows the most of them.
std::string arena_text(const json& inspection, const TextStyle& style) {
  if (!inspection.contains("live_bytes") || inspection.at("live_bytes").empty()) return "";
  const std::vector<int64_t> live = inspection.at("live_bytes").get<std::vector<int64_t>>();
  constexpr size_t kLines = 24;
  constexpr double kWidth = 48;
  const int64_t most = *std::max_element(live.begin(), live.end());
  const double arena = inspection.at("memory").at("arena_bytes").get<double>();
  if (most == 0 || arena == 0) return "";
  const size_t step = (live.size() + kLines - 1) / kLines;
  TextTable table({{"calls"}, {"live", TextTable::Align::kRight}, {"arena over time"}});
  for (size_t begin = 0; begin < live.size(); begin += step) {
    const size_t end = std::min(begin + step, live.size());
    const int64_t bytes = *std::max_element(live.begin() + static_cast<std::ptrdiff_t>(begin),
                                            live.begin() + static_cast<std::ptrdiff_t>(end));
    table.add({end - begin == 1 ? std::to_string(begin) : fmt::format("{}..{}", begin, end - 1),
               bytes_text(static_cast<double>(bytes)),
               std::string(static_cast<size_t>(static_cast<double>(bytes) / arena * kWidth + 0.5), '#')});
  }
  return fmt::format("\nthe arena has {}, of which at most {} live at once\n", bytes_text(arena),
                     bytes_text(static_cast<double>(most))) +
         table.to_string(style);
}

std::string module_text(const json& inspection, const TextStyle& style) {
  const json& sections = inspection.at("sections");
  const auto size = [&](const char* key) { return bytes_text(sections.at(key).get<double>()); };
  std::string text = fmt::format("{}: a module of {}: code {}, weights {}, descriptor {}, metadata {}\n",
                                 painted(inspection.at("path").get<std::string>(), "1", style),
                                 bytes_text(inspection.at("bytes").get<double>()), size("code"), size("weights"),
                                 size("descriptor"), size("metadata"));
  const json& target = inspection.at("target");
  text += line("model", fmt::format("{}{}", inspection.at("model").at("name").get<std::string>(),
                                    inspection.at("model").contains("digest")
                                        ? " (digest " + text_of(inspection.at("model"), "digest") + ")"
                                        : ""));
  text += line("made by", text_of(inspection, "producer"));
  text += line("target", fmt::format("{}{}{}", text_of(target, "triple"), target.contains("cpu") ? ", " : "",
                                     text_of(target, "cpu")));
  std::string features;
  for (const json& feature : target.at("features"))
    features += (features.empty() ? "" : " ") + feature.get<std::string>();
  text += line("needs", features);
  if (inspection.contains("variants")) {
    std::string names;
    for (const json& variant : inspection.at("variants"))
      names += (names.empty() ? "" : ", ") + variant.at("name").get<std::string>();
    text += line("variants", names + " (the first that the machine can run)");
  }
  std::string options;
  for (const auto& [name, value] : inspection.at("options").items())
    options += fmt::format("{}{}={}", options.empty() ? "" : " ", name, value.get<std::string>());
  text += line("options", options);
  text += tensor_lines(inspection, "inputs", "inputs") + tensor_lines(inspection, "outputs", "outputs");
  if (inspection.contains("states")) text += tensor_lines(inspection, "states", "states");
  if (inspection.contains("entries")) {
    std::string names;
    for (const json& entry : inspection.at("entries")) names += (names.empty() ? "" : ", ") + entry.get<std::string>();
    text += line("entries", names + " (this is the first)");
  }
  if (inspection.contains("sizes") && inspection.at("sizes").is_string())
    text += line("sizes", text_of(inspection, "sizes"));
  if (inspection.contains("flow") && inspection.at("flow").is_object()) {
    const std::string node = text_of(inspection.at("flow"), "node");
    text += line("flow", "because of " + node + (node.empty() ? "" : ": ") + text_of(inspection.at("flow"), "reason"));
  }
  const json& memory = inspection.at("memory");
  text += line("memory", fmt::format("weights {}, arena {}, scratch {} a thread",
                                     bytes_text(memory.at("weight_bytes").get<double>()),
                                     bytes_text(memory.at("arena_bytes").get<double>()),
                                     bytes_text(memory.at("scratch_bytes_per_worker").get<double>())));
  if (inspection.contains("operators")) text += operator_text(inspection.at("operators"), style);

  using Align = TextTable::Align;
  TextTable kernels({{"#", Align::kRight}, {"rule"}, {"FLOP", Align::kRight}, {"bytes", Align::kRight}, {"nodes"}});
  const json& list = inspection.at("kernels");
  constexpr size_t kNodesWidth = 60;  // JSON has all of them
  for (size_t i = 0; i < list.size(); ++i) {
    kernels.add({std::to_string(i), text_of(list[i], "rule"), work_text(list[i], "flops", count_text),
                 work_text(list[i], "bytes", bytes_text),
                 shortened(list[i].at("nodes").get<std::string>(), kNodesWidth)});
  }
  text += "\n" + kernels.to_string(style) + arena_text(inspection, style);

  if (inspection.contains("weights") && !inspection.at("weights").empty()) {
    std::vector<json> weights = inspection.at("weights").get<std::vector<json>>();
    std::stable_sort(weights.begin(), weights.end(),
                     [](const json& a, const json& b) { return a.at("bytes") > b.at("bytes"); });
    constexpr size_t kShown = 10;
    TextTable table({{weights.size() > kShown ? "largest weights" : "weights"}, {"type"}, {"bytes", Align::kRight}});
    for (size_t i = 0; i < std::min(kShown, weights.size()); ++i) {
      table.add({weights[i].at("name").get<std::string>(), weights[i].at("type").get<std::string>(),
                 bytes_text(weights[i].at("bytes").get<double>())});
    }
    text += "\n" + table.to_string(style);
    if (weights.size() > kShown) text += fmt::format("and {} more\n", weights.size() - kShown);
  }
  return text;
}

// "224 elements: f32 0.9 kB"
std::string weights_text(const json& weights) {
  std::string types;
  for (const auto& [type, bytes] : weights.at("bytes_of").items())
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", type, bytes_text(bytes.get<double>()));
  return fmt::format("{} elements{}{}", count_text(weights.at("elements").get<double>()), types.empty() ? "" : ": ",
                     types);
}

std::string onnx_text(const json& inspection, const TextStyle& style) {
  const json& weights = inspection.at("weights");
  const int64_t inner = inspection.at("inner_nodes").get<int64_t>();
  std::string text =
      fmt::format("{}: an ONNX model of {}: {} nodes{}, {} weights\n",
                  painted(inspection.at("path").get<std::string>(), "1", style),
                  bytes_text(inspection.at("bytes").get<double>()), inspection.at("nodes").get<int64_t>(),
                  inner > 0 ? fmt::format(" and {} in their bodies", inner) : "", weights.at("count").get<int64_t>());
  text += line("graph", text_of(inspection, "graph"));
  text += line("made by", text_of(inspection, "producer"));
  std::string opsets;
  for (const auto& [domain, version] : inspection.at("opsets").items())
    opsets += fmt::format("{}{} {}", opsets.empty() ? "" : ", ", domain, version.get<int64_t>());
  text += line("opsets", fmt::format("{} (IR version {})", opsets, inspection.at("ir_version").get<int64_t>()));
  text += tensor_lines(inspection, "inputs", "inputs") + tensor_lines(inspection, "outputs", "outputs");
  text += line("weights", weights_text(weights));
  if (weights.at("external").get<int64_t>() > 0)
    text += line("", fmt::format("{} of them in other files", weights.at("external").get<int64_t>()));
  if (inspection.at("functions").get<int64_t>() > 0)
    text += line("functions", std::to_string(inspection.at("functions").get<int64_t>()));
  std::string unsupported;
  for (const json& name : inspection.at("unsupported"))
    unsupported += (unsupported.empty() ? "" : ", ") + name.get<std::string>();
  if (!unsupported.empty()) text += painted(line("unsupported", " " + unsupported), "33", style);
  return text + operator_text(inspection.at("operators"), style);
}

std::string graph_text(const json& inspection, const TextStyle& style) {
  const int64_t inner = inspection.at("inner_nodes").get<int64_t>();
  std::string text = fmt::format(
      "{}: a {} of {}: {} nodes{}, {} constants\n", painted(inspection.at("path").get<std::string>(), "1", style),
      inspection.at("format").get<std::string>(), bytes_text(inspection.at("bytes").get<double>()),
      inspection.at("nodes").get<int64_t>(), inner > 0 ? fmt::format(" and {} in their regions", inner) : "",
      inspection.at("weights").at("count").get<int64_t>());
  text += line("graph", text_of(inspection, "graph"));
  std::string symbols;
  for (const json& symbol : inspection.at("symbols")) {
    if (symbol.contains("upto")) {
      symbols += fmt::format("{}{} upto {}", symbols.empty() ? "" : ", ", symbol.at("name").get<std::string>(),
                             symbol.at("upto").get<std::string>());
      continue;
    }
    symbols += fmt::format("{}{} in {}..{}", symbols.empty() ? "" : ", ", symbol.at("name").get<std::string>(),
                           symbol.at("lo").get<int64_t>(), text_of(symbol, "hi"));
    if (symbol.at("step").get<int64_t>() != 1) symbols += fmt::format(":{}", symbol.at("step").get<int64_t>());
  }
  text += line("sizes", symbols);
  for (const char* key : {"inputs", "outputs", "states"}) text += tensor_lines(inspection, key, key);
  text += line("constants", weights_text(inspection.at("weights")));
  return text + operator_text(inspection.at("operators"), style);
}

// Of a graph and of the regions of its nodes, those of composites excepted: a composite is an operator.
struct GraphCount {
  int64_t inner_nodes = 0, constants = 0, elements = 0, bytes = 0;
  std::map<std::string, int64_t> operators, bytes_of;

  void add(const Graph& graph, bool inner) {
    for (const Node& node : graph.nodes()) {
      if (node.op->kind == OpKind::kConstant) {
        const Tensor& value = *node.attrs.get<TensorPtr>("value");
        ++constants;
        elements += value.num_elements();
        bytes += value.num_bytes();
        bytes_of[std::string(dtype_name(value.dtype()))] += value.num_bytes();
        continue;
      }
      inner_nodes += inner;
      const bool composite = node.op->kind == OpKind::kComposite;
      ++operators[composite ? node.attrs.get_or<std::string>("name", node.op->name) : node.op->name];
      for (size_t i = 0; !composite && i < node.regions.size(); ++i) add(*node.regions[i], true);
    }
  }
};

}  // namespace

std::string module_metadata_of(const std::string& path) {
  const OpenModule module(path, false);
  return {module.file().metadata(), static_cast<size_t>(module.file().footer.metadata_size)};
}

json inspect_module(const std::string& path) {
  const OpenModule module(path);
  const ModuleFile& file = module.file();
  const tsr_descriptor& head = *file.descriptor;
  // What the loader needs stands in the descriptor; the metadata has more, as far as its writer knew it.
  json metadata = json::parse(file.metadata(), file.metadata() + file.footer.metadata_size, nullptr, false);
  if (!metadata.is_object()) metadata = json::object();
  const auto meta = [&](const char* key) { return metadata.contains(key) ? metadata.at(key) : json(); };

  json kernels = json::array();
  const json noted = meta("kernels");
  for (uint32_t i = 0; i < head.num_kernels; ++i) {
    const tsr_kernel_descr& kernel = file.kernels()[i];
    json entry = {{"nodes", file.text(kernel.name)}, {"flops", kernel.flops}, {"bytes", kernel.bytes}};
    if (noted.is_array() && i < noted.size() && noted[i].is_object()) {
      for (const char* key : {"name", "rule", "flops_formula", "bytes_formula"})
        if (noted[i].contains(key) && noted[i].at(key).is_string()) entry[key] = noted[i].at(key);
    }
    kernels.push_back(std::move(entry));
  }
  json result = {
      {"kind", "module"},
      {"path", path},
      {"bytes", file.size},
      {"sections",
       {{"code", file.footer.code_size},
        {"weights", file.footer.weights_size},
        {"descriptor", file.footer.descriptor_size},
        {"metadata", file.footer.metadata_size}}},
      {"producer", file.text(head.producer)},
      {"model", {{"name", file.text(head.model_name)}}},
      {"target", {{"triple", file.text(head.target)}, {"features", json::array()}}},
      {"options", meta("options").is_object() ? meta("options") : json::object()},
      {"inputs", tensors_of(file, file.inputs(), head.num_inputs)},
      {"outputs", tensors_of(file, file.outputs(), head.num_outputs)},
      {"kernels", std::move(kernels)},
      {"memory",
       {{"arena_bytes", head.arena_bytes},
        {"weight_bytes", file.footer.weights_size},
        {"scratch_bytes_per_worker", head.scratch_bytes}}},
  };
  for (uint64_t i = 0; i < file.bundle.num_entries; ++i)
    if (file.bundle.entries[i].kind == TSR_ENTRY_MODULE) result["entries"].push_back(file.bundle.entries[i].name);
  for (uint32_t i = 0; i < head.num_states; ++i) {
    json state = tensors_of(file, &file.states()[i].tensor, 1)[0];
    state["in_place"] = file.states()[i].in_place == 1;
    result["states"].push_back(std::move(state));
  }
  const std::string features = file.text(head.features);
  for (size_t begin = 0; begin < features.size();) {
    const size_t end = std::min(features.find(',', begin), features.size());
    result["target"]["features"].push_back(features.substr(begin, end - begin));
    begin = end + 1;
  }
  for (uint32_t i = 0; i < head.num_variants; ++i)
    result["variants"].push_back(
        {{"name", file.text(file.variants()[i].name)}, {"features", file.text(file.variants()[i].features)}});
  if (meta("model").is_object() && meta("model").contains("digest"))
    result["model"]["digest"] = meta("model")["digest"];
  for (const char* key : {"cpu", "threads"})
    if (meta("target").is_object() && meta("target").contains(key)) result["target"][key] = meta("target")[key];
  for (const char* key : {"operators", "weights", "arena", "calls", "sizes", "flow"})
    if (metadata.contains(key)) result[key] = metadata.at(key);
  if (result.contains("arena") && result.contains("calls")) {
    try {
      result["live_bytes"] = live_bytes(result["arena"], result["calls"].size());
    } catch (const std::exception&) {
      // Metadata that does not hold together is shown as it is; it is for people.
    }
  }
  return result;
}

json inspect_onnx(const OnnxStatistics& model, const std::string& path, int64_t bytes) {
  const auto tensors = [](const std::vector<OnnxTensorEntry>& list) {
    json result = json::array();
    for (const OnnxTensorEntry& tensor : list) result.push_back({{"name", tensor.name}, {"type", tensor.type}});
    return result;
  };
  return {{"kind", "onnx"},
          {"path", path},
          {"bytes", bytes},
          {"graph", model.graph_name},
          {"producer", model.producer},
          {"ir_version", model.ir_version},
          {"opsets", model.opsets},
          {"inputs", tensors(model.inputs)},
          {"outputs", tensors(model.outputs)},
          {"nodes", model.nodes.size()},
          {"inner_nodes", model.inner_nodes},
          {"operators", model.operators},
          {"unsupported", model.unsupported},
          {"functions", model.functions},
          {"weights",
           {{"count", model.weights},
            {"elements", model.weight_elements},
            {"bytes", model.weight_bytes},
            {"external", model.external_weights},
            {"bytes_of", model.weight_bytes_of}}}};
}

json inspect_graph(const Graph& graph, const std::string& path, int64_t bytes, std::string_view format) {
  const auto tensors = [&](const std::vector<ValueId>& values, size_t begin, size_t end) {
    json list = json::array();
    for (size_t i = begin; i < end; ++i)
      list.push_back({{"name", graph.value(values[i]).name}, {"type", graph.type(values[i]).to_string()}});
    return list;
  };
  json symbols = json::array();
  for (const SymbolRange& symbol : graph.symbols) {
    symbols.push_back({{"name", symbol.var->name}, {"lo", symbol.lo}, {"hi", nullptr}, {"step", symbol.step}});
    if (symbol.is_data()) symbols.back()["upto"] = to_string(symbol.bound);
    if (symbol.hi != INT64_MAX) symbols.back()["hi"] = symbol.hi;
  }
  json states = tensors(graph.inputs, graph.num_own_inputs(), graph.inputs.size());
  for (size_t i = 0; i < graph.states.size(); ++i) states[i]["name"] = graph.states[i].name;
  GraphCount count;
  count.add(graph, false);
  const auto is_node = [](const Node& node) { return node.op->kind != OpKind::kConstant; };
  return {{"kind", "graph"},
          {"format", format},
          {"path", path},
          {"bytes", bytes},
          {"graph", graph.name},
          {"symbols", std::move(symbols)},
          {"inputs", tensors(graph.inputs, 0, graph.num_own_inputs())},
          {"outputs", tensors(graph.outputs, 0, graph.num_own_outputs())},
          {"states", std::move(states)},
          {"nodes", std::count_if(graph.nodes().begin(), graph.nodes().end(), is_node)},
          {"inner_nodes", count.inner_nodes},
          {"operators", count.operators},
          {"weights",
           {{"count", count.constants},
            {"elements", count.elements},
            {"bytes", count.bytes},
            {"bytes_of", count.bytes_of}}}};
}

std::string inspection_text(const json& inspection, const TextStyle& style) {
  const json& kind = inspection.at("kind");
  if (kind == "graph") return graph_text(inspection, style);
  return kind == "module" ? module_text(inspection, style) : onnx_text(inspection, style);
}

}  // namespace tessera::inline diagnose
