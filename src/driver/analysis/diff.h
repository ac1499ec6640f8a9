// A compiled model beside another way to compute it, value by value: the two sides of `tessera diff`, which bisect and
// reduce use as well.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "diagnose/find_difference.h"
#include "diagnose/graph_parts.h"
#include "driver/engine/model.h"
#include "driver/options.h"
#include "graph/graph.h"

namespace tessera::inline driver {

// The values of a model's inputs.
using MakeInputs = std::function<std::vector<Tensor>(const std::vector<TensorInfo>& infos)>;

// A model with what is known of it before it is compiled.
struct DiffSubject {
  Graph graph;                     // as imported
  std::vector<TensorInfo> inputs;  // of the graph
  std::vector<Tensor> tensors;     // what it is run on
  // Of a graph with states the first call: they are inputs, with their initial values, and outputs.
  GraphParts parts;
  std::vector<Tensor> part_tensors;  // of the inputs of `parts`
  std::vector<TensorInfo> values;    // the values of nodes, constants excepted
};

struct DiffRequest {
  std::string model;  // of any format of formats.h
  DriverOptions driver;
  int num_threads = 0;
  std::string against = "interp";  // interp, O0, onnxruntime, or the path of a module
  MakeInputs make_inputs;
  // Makes the reference for "onnxruntime".
  std::function<std::unique_ptr<ValueSource>(const DiffSubject& subject)> onnxruntime;
  FindOptions find;
};

// UserError TSR-4043 when `model` is a module, TSR-4045 when `against` is nothing to compare with; whatever importing
// throws.
DiffSubject open_subject(const DiffRequest& request);
// The reference that `against` names. UserError TSR-4045 when it is a module with other inputs.
std::unique_ptr<ValueSource> open_reference(const DiffRequest& request, const DiffSubject& subject);
// The model compiled as the request says.
std::unique_ptr<ValueSource> open_tested(const DiffRequest& request, const DiffSubject& subject);
// Compiles and runs a part.
std::vector<Tensor> run_compiled(const Graph& part, const std::vector<Tensor>& inputs, const DriverOptions& options,
                                 int num_threads);
// Interprets it.
std::vector<Tensor> run_interpreted(const Graph& part, const std::vector<Tensor>& inputs);

Difference diff_model(const DiffRequest& request);
// The same for a subject and a reference that are open already.
Difference diff_subject(const DiffRequest& request, const DiffSubject& subject, ValueSource& reference);

// What a model that was cut out is written as.
enum class CutFormat : uint8_t {
  kLikeModel,  // ONNX for ONNX models where ONNX can say it, else text of the graph
  kOnnx,       // UserError TSR-1060 where ONNX cannot say it
  kGraph,      // text of the graph, with its constants
};

// DIR/model.onnx or DIR/model.graph, and DIR/test_data_set_0/input_*.pb, output_*.pb: a test case for `verify`, which
// fails as long as the difference is there. A model of the other format in the folder is removed. Returns the file's
// name. `model` is what the part was cut out of. UserError TSR-6103, TSR-61xx, TSR-6004 when it cannot be written.
std::string write_case(const Reproduction& reproduction, const std::string& model, const std::string& folder,
                       CutFormat format);

}  // namespace tessera::inline driver
