#include "import/tflite/graph_importer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "graph/subgraph.h"
#include "import/common/failure_list.h"
#include "import/common/finished_graph.h"
#include "import/common/limits.h"
#include "import/tflite/resource_table.h"
#include "import/tflite/subgraph_importer.h"
#include "support/error.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

// The first graph of a model, and those that it runs.
// Counts a graph that runs inside others while it is imported, however that ends.
class Nesting {
 public:
  explicit Nesting(int& depth) : depth_(depth) { ++depth_; }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  int& depth_;
};

class TfliteImporter final : public Subgraphs {
 public:
  TfliteImporter(const TfliteModel& model, const ImportOptions& options, const OpTable& ops, Evaluator& evaluator)
      : model_(model),
        proto_(model.subgraph(0)),
        options_(options),
        evaluator_(evaluator),
        builder_(graph_),
        level_{ops, graph_, builder_},
        resources_(model),
        main_(model, proto_, level_, evaluator, *this, failures_) {
    if (!proto_.outputs() || proto_.outputs()->size() == 0)
      throw UserError({"TSR-1013", "the graph has no outputs", "", "one output or more", "convert the model again"});
  }

  ReadOutcome run() {
    KnownSymbols known(graph_.symbols);
    if (options_.data_sizes) level_.symbols = &known;
    add_inputs();
    add_states();
    main_.import_operators();
    if (!failures_.empty()) return failures_.refusal();
    set_outputs();
    return ImportedModel{needed_part(graph_), nullptr};
  }

  std::vector<SubgraphValue> inlined(GraphLevel& level, int32_t index,
                                     const std::vector<SubgraphValue>& inputs) override {
    constexpr int kMostNested = 32;
    constexpr size_t kMostOperators = 1'000'000;
    const tflite::SubGraph& proto = model_.subgraph(index);
    const size_t count = proto.inputs() ? proto.inputs()->size() : 0;
    if (count != inputs.size())
      throw UserError({"TSR-1102",
                       fmt::format("graph {} has {} inputs and is run with {}", index, count, inputs.size()), "",
                       "as many", "convert the model again"});
    operators_ += 1 + (proto.operators() ? proto.operators()->size() : 0);
    if (nested_ >= kMostNested || operators_ > kMostOperators)
      throw UserError({"TSR-1102",
                       fmt::format("graphs run each other without end, or more than {} operators", kMostOperators), "",
                       fmt::format("at most {} inside each other", kMostNested), "convert the model again"});
    const Nesting nesting(nested_);
    const std::string loc = level.builder.loc();
    const size_t failed = failures_.size();
    SubgraphImporter importer(model_, proto, level, evaluator_, *this, failures_);
    for (size_t i = 0; i < count; ++i) importer.bind(proto.inputs()->Get(static_cast<uint32_t>(i)), inputs[i]);
    importer.import_operators();
    if (failures_.size() > failed) throw SubgraphRefused{};
    level.builder.set_loc(loc);
    std::vector<SubgraphValue> results;
    if (proto.outputs())
      for (const int32_t output : *proto.outputs()) results.push_back(importer.result(output));
    return results;
  }

  void run_once(int32_t index) override {
    Graph graph;
    GraphBuilder builder(graph);
    GraphLevel level{level_.ops, graph, builder};
    inlined(level, index, {});
    ConstantFinder constants(graph, evaluator_);
    for (const auto& [resource, value] : level.resources) {
      const auto known = constants.find(value);
      if (!known) throw UnsupportedNode{"values that are computed before the first run"};
      resources_.set_initial(resource, std::make_shared<const Tensor>(*known));
    }
  }

  const std::set<int>& resources_of(int32_t index) override { return resources_.of_graph(index); }
  int resource_named(const std::string& name) override { return resources_.number(name); }
  const std::string& resource_name(int resource) const override { return resources_.name(resource); }
  const TensorType* resource_type(int resource) const override { return resources_.type(resource); }

 private:
  const TfliteTensor& tensor_of(int32_t index) const { return main_.tensors()[static_cast<size_t>(index)]; }

  void add_inputs() {
    std::set<std::string> shapes, dims, known, names;
    for (const auto& [name, shape] : options_.shapes) shapes.insert(name);
    for (const auto& [name, range] : options_.dims) dims.insert(name);
    if (!proto_.inputs()) return check_options(shapes, dims, known, names);
    for (const int32_t index : *proto_.inputs()) {
      const TfliteTensor& tensor = tensor_of(index);
      if (tensor.is_resource)
        throw UserError({"TSR-1031", fmt::format("input '{}' is the handle of a resource", tensor.name), "",
                         "floats, integers or bools", "change the model's input"});
      if (tensor.is_complex)
        throw UserError({"TSR-1031", fmt::format("input '{}' has complex numbers", tensor.name), "",
                         "floats, integers or bools", "change the model's input"});
      if (tensor.is_string)
        throw UserError({"TSR-1024", fmt::format("input '{}' has strings", tensor.name), "",
                         "floats, integers or bools", "change the model's input"});
      names.insert(tensor.name);
      Ints extents = tensor.dims;
      for (size_t d = 0; d < extents.size(); ++d) {
        const std::string dim = fmt::format("{}[{}]", tensor.name, d);
        if (d < tensor.open.size() && tensor.open[d]) known.insert(dim);
        const auto given = options_.dims.find(dim);
        if (given == options_.dims.end()) continue;
        dims.erase(dim);
        if (given->second.lo != given->second.hi)
          throw UserError({"TSR-1025",
                           fmt::format("--dim {}={}..{}: TFLite models are read for one size", dim, given->second.lo,
                                       given->second.hi),
                           "", "one value", ""});
        set_extent(tensor, extents, d, given->second.lo);
      }
      if (const auto given = options_.shapes.find(tensor.name); given != options_.shapes.end()) {
        shapes.erase(tensor.name);
        if (given->second.size() != extents.size())
          throw UserError({"TSR-1022",
                           fmt::format("--shape gives {} dimensions for input '{}', which has {}", given->second.size(),
                                       tensor.name, extents.size()),
                           "", fmt::format("{} dimensions", extents.size()), ""});
        for (size_t d = 0; d < extents.size(); ++d) set_extent(tensor, extents, d, given->second[d]);
      }
      if (!checked_num_elements(extents))
        throw UserError({"TSR-1023",
                         fmt::format("input '{}' would have the shape [{}]", tensor.name, fmt::join(extents, ",")), "",
                         "at most 2^40 elements", ""});
      main_.bind(index,
                 {graph_.add_input(graph_.unique_name(tensor.name), {tensor.dtype, make_shape(extents), {}}), -1});
    }
    check_options(shapes, dims, known, names);
  }

  void set_extent(const TfliteTensor& tensor, Ints& extents, size_t d, int64_t value) const {
    const bool open = d < tensor.open.size() && tensor.open[d];
    if (!open && value != extents[d])
      throw UserError({"TSR-1022",
                       fmt::format("dimension {} of input '{}' is {} in the model, and {} is asked for", d, tensor.name,
                                   extents[d], value),
                       "", fmt::format("{}", extents[d]), ""});
    extents[d] = value;
  }

  void check_options(const std::set<std::string>& shapes, const std::set<std::string>& dims,
                     const std::set<std::string>& known, const std::set<std::string>& names) const {
    if (!shapes.empty())
      throw UserError({"TSR-1021", fmt::format("--shape names '{}', which is no input of the model", *shapes.begin()),
                       "", fmt::format("{}", fmt::join(names, ", ")), ""});
    if (!dims.empty())
      throw UserError({"TSR-1021", fmt::format("--dim names '{}', which the model does not leave open", *dims.begin()),
                       "", known.empty() ? "no dimension is open" : fmt::format("{}", fmt::join(known, ", ")), ""});
  }

  void add_states() {
    constexpr int64_t kMost = int64_t{1} << 28;
    for (size_t i = 0; i < main_.tensors().size(); ++i) {
      const TfliteTensor& tensor = main_.tensors()[i];
      const auto index = static_cast<int32_t>(i);
      if (!tensor.is_variable || main_.is_bound(index)) continue;
      if (*checked_num_elements(tensor.dims) > kMost)
        throw UserError({"TSR-1103",
                         fmt::format("the variable '{}' has the shape [{}]", tensor.name, fmt::join(tensor.dims, ",")),
                         "", fmt::format("at most {} elements", kMost), "convert the model again"});
      const ValueId value =
          graph_.add_input(graph_.unique_name(tensor.name), {tensor.dtype, make_shape(tensor.dims), {}});
      main_.add_state(index, value);
      states_.push_back({index, value});
    }
    for (const int resource : resources_of(0)) {
      const TensorType* type = resources_.type(resource);
      // Nothing reads or writes it.
      if (!type) continue;
      if (*checked_num_elements(*static_dims(type->shape)) > kMost)
        throw UserError({"TSR-1103", fmt::format("the variable '{}' is {}", resource_name(resource), type->to_string()),
                         "", fmt::format("at most {} elements", kMost), "convert the model again"});
      level_.resources[resource] = graph_.add_input(graph_.unique_name(resource_name(resource)), *type);
      before_[resource] = level_.resources[resource];
    }
  }

  void set_outputs() {
    OutputList outputs(builder_, level_.ops);
    for (const int32_t index : *proto_.outputs()) {
      const SubgraphValue result = main_.result(index);
      if (result.resource >= 0)
        throw UserError({"TSR-1031", fmt::format("output '{}' is the handle of a resource", main_.tensor_name(index)),
                         "", "floats, integers or bools", "change the model's outputs"});
      outputs.add(result.value, main_.tensor_name(index));
    }
    for (const auto& [index, before] : states_) {
      const auto after = main_.new_states().find(index);
      outputs.add(after == main_.new_states().end() ? before : after->second, main_.tensor_name(index));
      graph_.states.push_back({graph_.value(before).name, initial_value(tensor_of(index))});
    }
    for (const auto& [resource, before] : before_) {
      outputs.add(level_.resources[resource], resource_name(resource));
      const TensorPtr initial = resources_.initial(resource);
      const TensorType& type = graph_.type(before);
      if (initial && (initial->dtype() != type.dtype || initial->dims() != *static_dims(type.shape)))
        throw UserError({"TSR-1105",
                         fmt::format("the variable '{}' is {}, and {} before the first run", resource_name(resource),
                                     type.to_string(), dtype_name(initial->dtype())),
                         "", "one type", "convert the model again"});
      graph_.states.push_back({graph_.value(before).name, initial});
    }
  }

  // What stands for zero; null: zeros.
  static TensorPtr initial_value(const TfliteTensor& tensor) {
    const Ints& zeros = tensor.quantization.zero_points;
    if (tensor.dtype != DType::kI8 || zeros.size() != 1 || zeros[0] == 0) return nullptr;
    auto value = std::make_shared<Tensor>(tensor.dtype, tensor.dims);
    for (int64_t i = 0; i < value->num_elements(); ++i) value->set_int(i, zeros[0]);
    return value;
  }

  const TfliteModel& model_;
  const tflite::SubGraph& proto_;
  const ImportOptions& options_;
  Evaluator& evaluator_;
  Graph graph_;
  GraphBuilder builder_;
  GraphLevel level_;
  FailureList failures_;
  ResourceTable resources_;
  SubgraphImporter main_;
  std::vector<std::pair<int32_t, ValueId>> states_;  // tensors, and what they are before a run
  std::map<int, ValueId> before_;                    // resources likewise
  int nested_ = 0;
  size_t operators_ = 0;
};

}  // namespace

ReadOutcome build_graph(const TfliteModel& model, const ImportOptions& options, const OpTable& ops,
                        Evaluator& evaluator) {
  return TfliteImporter(model, options, ops, evaluator).run();
}

}  // namespace tessera::inline tflite_import
