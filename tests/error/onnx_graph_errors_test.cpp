// Models whose file or graph is malformed: each gets one error that names what is wrong, and where.
#include "interp/graph_interp.h"
#include "onnx_import_util.h"
#include "ops/op_table.h"
#include "support/test_data.h"

namespace tessera {
namespace {

OnnxModel relu_model() {
  OnnxModel model;
  model.input("x", {2, 3}).output("y");
  model.node("Relu", {"x"}, {"y"});
  return model;
}

void import_bytes(const std::string& bytes) {
  GraphInterpreter evaluator;
  import_onnx_bytes(bytes, {}, standard_ops(), evaluator);
}

void import_file(const std::string& path) {
  GraphInterpreter evaluator;
  import_onnx_file(path, {}, standard_ops(), evaluator);
}

TEST(OnnxFileErrors, MissingFile) {
  expect_user_error("TSR-1001", {"cannot open the model '/nowhere/model.onnx'", "No such file"},
                    [] { import_file("/nowhere/model.onnx"); });
}

TEST(OnnxFileErrors, FolderInsteadOfAFile) {
  expect_user_error("TSR-1001", {"is not a regular file"}, [] { import_file("/"); });
}

TEST(OnnxFileErrors, NotAModel) {
  expect_user_error("TSR-1002", {"is not an ONNX model", "the file is empty"}, [] { import_bytes(""); });
  expect_user_error("TSR-1002", {"text file"}, [] { import_bytes("this is not a model, whatever its name says"); });
  expect_user_error("TSR-1002", {"Git LFS pointer", "git lfs pull"},
                    [] { import_bytes("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"); });
  expect_user_error("TSR-1002", {"web page"}, [] { import_bytes("<!DOCTYPE html>"); });
  expect_user_error("TSR-1002", {"zip archive"}, [] { import_bytes(std::string("PK\x03\x04\xff\xff", 6)); });
}

TEST(OnnxFileErrors, EveryTruncationIsRefused) {
  const std::string bytes = relu_model().bytes();
  ASSERT_NO_THROW(import_bytes(bytes));
  for (size_t size = 0; size < bytes.size(); ++size) {
    try {
      import_bytes(bytes.substr(0, size));
      // What is left out may have been optional: then the rest is a model of its own.
      ADD_FAILURE() << "accepted the first " << size << " of " << bytes.size() << " bytes";
    } catch (const UserError& error) {
      EXPECT_EQ(error.diagnostic().id.substr(0, 5), "TSR-1") << error.what();
    }
  }
}

// A protobuf field with a length: tag, varint, bytes.
std::string field(char tag, const std::string& bytes) {
  std::string text(1, tag);
  size_t rest = bytes.size();
  for (; rest > 127; rest >>= 7) text += static_cast<char>((rest & 127) | 128);
  return text + static_cast<char>(rest) + bytes;
}

// A graph in an attribute of a node of a graph, and so on: written by hand, since protobuf refuses to build it.
TEST(OnnxFileErrors, NestedTooDeep) {
  std::string graph;
  for (int i = 0; i < 400; ++i) graph = field('\x0a', field('\x2a', field('\x32', graph)));
  expect_user_error("TSR-1002", {"is not an ONNX model"}, [&] { import_bytes(field('\x3a', graph)); });
}

TEST(OnnxFileErrors, NoGraph) {
  OnnxModel model = relu_model();
  model.proto.clear_graph();
  expect_import_error(model, "TSR-1004", {"has no graph"});
}

TEST(OnnxFileErrors, IrVersion) {
  OnnxModel model = relu_model();
  model.proto.set_ir_version(99);
  expect_import_error(model, "TSR-1005", {"IR version 99", "1 to 14"});
}

TEST(OnnxFileErrors, Opset) {
  expect_import_error(OnnxModel(0).input("x", {1}).output("x"), "TSR-1006", {"opset 0 of ai.onnx", "opset 1 to 28"});
  expect_import_error(OnnxModel(29).input("x", {1}).output("x"), "TSR-1006", {"opset 29 of ai.onnx", "opset 1 to 28"});
  OnnxModel none = relu_model();
  none.proto.clear_opset_import();
  expect_import_error(none, "TSR-1006", {"imports no opset", "only models before IR version 3 need no opset"});
  none.proto.set_ir_version(2);  // such a model means opset 1
  EXPECT_EQ(none.import().outputs.size(), 1u);
  OnnxModel twice = relu_model();
  auto& second = *twice.proto.add_opset_import();
  second.set_domain("ai.onnx");
  second.set_version(11);
  expect_import_error(twice, "TSR-1006", {"'ai.onnx' twice, as 17 and 11"});
}

TEST(OnnxGraphErrors, NamesOfInputsAndInitializers) {
  OnnxModel inputs = relu_model();
  inputs.input("x", {2, 3});
  expect_import_error(inputs, "TSR-1007", {"two graph inputs named 'x'"});
  OnnxModel initializers = relu_model();
  initializers.floats("w", {1}, {1}).floats("w", {1}, {2});
  expect_import_error(initializers, "TSR-1007", {"two initializers named 'w'"});
  expect_import_error(relu_model().input("", {1}), "TSR-1007", {"a graph input has no name"});
  expect_import_error(relu_model().floats("", {1}, {1}), "TSR-1007", {"an initializer has no name"});
}

TEST(OnnxGraphErrors, DanglingName) {
  OnnxModel model;
  model.input("x", {2}).output("y");
  model.node("Add", {"x", "ghost"}, {"y"});
  expect_import_error(model, "TSR-1010", {"reads the value 'ghost', which nothing defines", "node:  Ny"});
}

TEST(OnnxGraphErrors, NodeWithoutANameIsCountedByItsPlace) {
  OnnxModel model;
  model.input("x", {2}).output("y");
  model.node("Relu", {"x"}, {"a"});
  model.node("Add", {"a", "ghost"}, {"y"}).clear_name();
  expect_import_error(model, "TSR-1010", {"node:  Add#1"});
}

TEST(OnnxGraphErrors, ValueDefinedTwice) {
  OnnxModel model = relu_model();
  model.node("Neg", {"x"}, {"y"}).set_name("second");
  expect_import_error(model, "TSR-1011", {"'y' is defined twice: by this node and by node 'Ny'", "node:  second"});
  OnnxModel input;
  input.input("x", {2}).output("x");
  input.node("Relu", {"x"}, {"x"});
  expect_import_error(input, "TSR-1011", {"'x' is defined twice", "graph input or initializer", "node:  Nx"});
}

TEST(OnnxGraphErrors, Cycle) {
  OnnxModel model;
  model.input("x", {2}).output("y");
  model.node("Add", {"x", "b"}, {"a"});
  model.node("Relu", {"a"}, {"b"});
  model.node("Relu", {"b"}, {"y"});
  expect_import_error(model, "TSR-1012", {"the nodes form a cycle: ", "Na", "Nb"});
  OnnxModel self;
  self.input("x", {2}).output("y");
  self.node("Add", {"x", "y"}, {"y"});
  expect_import_error(self, "TSR-1012", {"Ny -> Ny"});
}

TEST(OnnxGraphErrors, Outputs) {
  OnnxModel none = relu_model();
  none.graph().clear_output();
  expect_import_error(none, "TSR-1013", {"the graph has no outputs"});
  expect_import_error(relu_model().output("phantom"), "TSR-1013", {"nothing produces the graph output 'phantom'"});
  expect_import_error(relu_model().output("y"), "TSR-1014", {"'y' is listed twice"});
}

TEST(OnnxGraphErrors, DeclaredOutputType) {
  OnnxModel model = relu_model();
  auto& type = *model.graph().mutable_output(0)->mutable_type()->mutable_tensor_type();
  type.set_elem_type(onnx::TensorProto::INT64);
  expect_import_error(model, "TSR-1015", {"'y' is declared as INT64", "f32[2,3]"});
  type.set_elem_type(onnx::TensorProto::FLOAT);
  // A stale shape is not held against the model.
  type.mutable_shape()->add_dim()->set_dim_value(2);
  EXPECT_NO_THROW(model.import());
  type.mutable_shape()->add_dim()->set_dim_value(99);
  EXPECT_NO_THROW(model.import());
}

TEST(OnnxGraphErrors, InputTypes) {
  OnnxModel complex;
  complex.input("x", {2}, onnx::TensorProto::COMPLEX64).output("y");
  complex.node("Identity", {"x"}, {"y"});
  expect_import_error(complex, "TSR-1024", {"input 'x' has the data type COMPLEX64", "node:  Ny"});
  OnnxModel strings;
  strings.input("x", {2}, onnx::TensorProto::STRING).output("y");
  strings.node("Identity", {"x"}, {"y"});
  expect_import_error(strings, "TSR-1046", {"the model has strings", "tensors of numbers with fixed shapes"});
  OnnxModel untyped = relu_model();
  untyped.graph().mutable_input(0)->clear_type();
  expect_import_error(untyped, "TSR-1024", {"input 'x' is a value without a type"});
  OnnxModel sequence = relu_model();
  sequence.graph().mutable_input(0)->mutable_type()->mutable_sequence_type();
  expect_import_error(sequence, "TSR-1024", {"input 'x' is a sequence"});
}

TEST(OnnxGraphErrors, FunctionsThatCallThemselves) {
  OnnxModel model;
  auto& domain = *model.proto.add_opset_import();
  domain.set_domain("local");
  domain.set_version(1);
  for (const auto& [name, callee] : {std::pair("f", "g"), std::pair("g", "f")}) {
    auto& function = *model.proto.add_functions();
    function.set_name(name);
    function.set_domain("local");
    function.add_input("a");
    function.add_output("b");
    auto& node = *function.add_node();
    node.set_op_type(callee);
    node.set_domain("local");
    node.add_input("a");
    node.add_output("b");
  }
  model.input("x", {2}).output("y");
  model.node("f", {"x"}, {"y"}).set_domain("local");
  expect_import_error(model, "TSR-1050", {"call each other in a circle: f -> g -> f"});
  model.graph().mutable_node(0)->add_input("x");
  expect_import_error(model, "TSR-1052", {"a call of function f with 2 inputs and 1 outputs", "at most 1 inputs"});
}

// Each function calls the next one twice: 2^40 nodes in a file of a few kilobytes.
TEST(OnnxGraphErrors, FunctionsThatMultiply) {
  OnnxModel model;
  auto& domain = *model.proto.add_opset_import();
  domain.set_domain("local");
  domain.set_version(1);
  for (int i = 0; i < 40; ++i) {
    auto& function = *model.proto.add_functions();
    function.set_name("f" + std::to_string(i));
    function.set_domain("local");
    function.add_input("a");
    function.add_output("c");
    for (const auto& [from, to] : {std::pair("a", "b"), std::pair("b", "c")}) {
      auto& node = *function.add_node();
      node.set_op_type(i < 39 ? "f" + std::to_string(i + 1) : "Relu");
      if (i < 39) node.set_domain("local");
      node.add_input(from);
      node.add_output(to);
    }
    auto& standard = *function.add_opset_import();
    standard.set_version(17);
  }
  model.input("x", {2}).output("y");
  model.node("f0", {"x"}, {"y"}).set_domain("local");
  expect_import_error(model, "TSR-1051", {"expand to more than"});
}

}  // namespace
}  // namespace tessera
