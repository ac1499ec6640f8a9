// ONNX models built in tests, legal and malformed ones.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "import/onnx/onnx_import.h"
#include "onnx-ml.pb.h"

namespace tessera {

// A model of opset 17 unless said otherwise; the proto is open for anything the functions do not do.
class OnnxModel {
 public:
  explicit OnnxModel(int64_t opset = 17);

  onnx::ModelProto proto;
  onnx::GraphProto& graph() { return *proto.mutable_graph(); }

  using Dim = std::pair<int64_t, std::string>;  // a value, or a name when the name is not empty
  static Dim named(const std::string& name) { return {0, name}; }
  OnnxModel& input(const std::string& name, const std::vector<int64_t>& dims, int data_type = onnx::TensorProto::FLOAT);
  OnnxModel& open_input(const std::string& name, const std::vector<Dim>& dims);
  OnnxModel& output(const std::string& name);  // of no declared type
  // An initializer of float or int64 values in the typed field.
  OnnxModel& floats(const std::string& name, const std::vector<int64_t>& dims, const std::vector<float>& values);
  OnnxModel& ints(const std::string& name, const std::vector<int64_t>& dims, const std::vector<int64_t>& values);
  // The node is named like its first output, upper case N in front: "Ny"; an empty `name` leaves it without one.
  onnx::NodeProto& node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs);

  std::string bytes() const { return proto.SerializeAsString(); }
  Graph import(const ImportOptions& options = {}) const;  // with the standard operators and the interpreter
};

void set_attribute(onnx::NodeProto& node, const std::string& name, int64_t value);
void set_attribute(onnx::NodeProto& node, const std::string& name, float value);
void set_attribute(onnx::NodeProto& node, const std::string& name, const std::string& value);
void set_attribute(onnx::NodeProto& node, const std::string& name, const std::vector<int64_t>& values);

}  // namespace tessera
