// Tensors of models: data that does not fit, external files, and every legal encoding beside them.
#include <filesystem>

#include "import/onnx/read/tensor_proto.h"
#include "interp/graph_interp.h"
#include "onnx_import_util.h"
#include "ops/op_table.h"
#include "support/test_data.h"

namespace tessera {
namespace {

using onnx::TensorProto;

// y = Identity(w): an import of it reads the initializer, and the interpreter gives its value.
OnnxModel initializer_model(const TensorProto& tensor) {
  OnnxModel model(25);
  *model.graph().add_initializer() = tensor;
  model.graph().mutable_initializer(0)->set_name("w");
  model.output("y");
  model.node("Identity", {"w"}, {"y"});
  return model;
}

TensorProto tensor_of(int data_type, const std::vector<int64_t>& dims) {
  TensorProto tensor;
  tensor.set_data_type(data_type);
  for (const int64_t dim : dims) tensor.add_dims(dim);
  return tensor;
}

Tensor value_of(const TensorProto& tensor) {
  GraphInterpreter interpreter;
  return interpreter.evaluate(initializer_model(tensor).import(), {}).at(0);
}

std::vector<double> numbers(const Tensor& tensor) {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) values.push_back(tensor.get_double(i));
  return values;
}

TEST(OnnxTensors, SizesThatDoNotFit) {
  TensorProto tensor = tensor_of(TensorProto::FLOAT, {3});
  tensor.set_raw_data(std::string(11, 'x'));
  expect_import_error(initializer_model(tensor), "TSR-1030",
                      {"11 bytes of raw_data", "12 bytes for f32[3]", "node:  w"});
  TensorProto typed = tensor_of(TensorProto::FLOAT, {3});
  typed.add_float_data(1);
  expect_import_error(initializer_model(typed), "TSR-1030", {"1 entries of float_data", "3 entries"});
  TensorProto other = tensor_of(TensorProto::FLOAT, {1});
  other.add_int64_data(1);
  expect_import_error(initializer_model(other), "TSR-1030",
                      {"0 entries of float_data and data in fields of other types"});
  TensorProto both = tensor_of(TensorProto::FLOAT, {1});
  both.add_float_data(1);
  both.set_raw_data("abcd");
  expect_import_error(initializer_model(both), "TSR-1030", {"raw_data and typed data"});
}

TEST(OnnxTensors, DimsThatLie) {
  expect_import_error(initializer_model(tensor_of(TensorProto::FLOAT, {-3})), "TSR-1030", {"the shape [-3]"});
  expect_import_error(initializer_model(tensor_of(TensorProto::FLOAT, {int64_t{1} << 32, int64_t{1} << 32})),
                      "TSR-1030", {"the shape [4294967296,4294967296]", "at most 2^40 elements"});
  // Nothing of that size is allocated: the data is looked at first.
  expect_import_error(initializer_model(tensor_of(TensorProto::FLOAT, {int64_t{1} << 39})), "TSR-1030", {"0 entries"});
}

TEST(OnnxTensors, TypesThatAreNotSupported) {
  expect_import_error(initializer_model(tensor_of(TensorProto::COMPLEX64, {1})), "TSR-1031",
                      {"the data type COMPLEX64", "node:  w"});
  expect_import_error(initializer_model(tensor_of(TensorProto::STRING, {1})), "TSR-1030",
                      {"the tensor has 0 entries of string_data", "1 entries, and no other data", "node:  w"});
  TensorProto bytes = tensor_of(TensorProto::STRING, {1});
  bytes.add_string_data("\xff");
  expect_import_error(initializer_model(bytes), "TSR-1030", {"a string that is not UTF-8", "node:  w"});
  expect_import_error(initializer_model(tensor_of(TensorProto::COMPLEX64, {1})), "TSR-1031", {"COMPLEX64"});
  expect_import_error(initializer_model(tensor_of(999, {1})), "TSR-1031", {"number 999"});
  expect_import_error(initializer_model(tensor_of(TensorProto::UNDEFINED, {1})), "TSR-1030", {"no data type"});
}

TEST(OnnxTensors, SparseInitializers) {
  OnnxModel model = initializer_model(tensor_of(TensorProto::FLOAT, {0}));
  model.graph().add_sparse_initializer()->mutable_values()->set_name("thin");
  expect_import_error(model, "TSR-1035", {"1 sparse initializers, the first is 'thin'"});
}

TEST(OnnxTensors, TypedFields) {
  TensorProto floats = tensor_of(TensorProto::FLOAT, {2});
  floats.add_float_data(1.5f);
  floats.add_float_data(-2);
  EXPECT_EQ(numbers(value_of(floats)), (std::vector<double>{1.5, -2}));

  TensorProto bytes = tensor_of(TensorProto::INT8, {2});
  bytes.add_int32_data(-5);
  bytes.add_int32_data(7);
  EXPECT_EQ(numbers(value_of(bytes)), (std::vector<double>{-5, 7}));

  TensorProto halves = tensor_of(TensorProto::FLOAT16, {1});
  halves.add_int32_data(0x3e00);
  EXPECT_EQ(numbers(value_of(halves)), (std::vector<double>{1.5}));

  TensorProto wide = tensor_of(TensorProto::UINT32, {1});
  wide.add_uint64_data(4000000000);
  EXPECT_EQ(numbers(value_of(wide)), (std::vector<double>{4e9}));

  TensorProto flags = tensor_of(TensorProto::BOOL, {2});
  flags.add_int32_data(2);
  flags.add_int32_data(0);
  EXPECT_EQ(numbers(value_of(flags)), (std::vector<double>{1, 0}));
}

TEST(OnnxTensors, EmptyTensorsHaveNoData) {
  EXPECT_EQ(value_of(tensor_of(TensorProto::INT64, {0})).dims(), std::vector<int64_t>{0});
  EXPECT_EQ(value_of(tensor_of(TensorProto::FLOAT, {2, 0})).num_elements(), 0);
}

TEST(OnnxTensors, PackedElements) {
  TensorProto nibbles = tensor_of(TensorProto::INT4, {3});
  nibbles.add_int32_data(0x8f);  // -1, -8
  nibbles.add_int32_data(0x03);
  EXPECT_EQ(numbers(value_of(nibbles)), (std::vector<double>{-1, -8, 3}));

  TensorProto raw = tensor_of(TensorProto::UINT4, {3});
  raw.set_raw_data(std::string("\x8f\x03", 2));
  EXPECT_EQ(numbers(value_of(raw)), (std::vector<double>{15, 8, 3}));

  TensorProto pairs = tensor_of(TensorProto::UINT2, {5});
  pairs.set_raw_data(std::string("\xe4\x02", 2));  // 0, 1, 2, 3, then 2
  EXPECT_EQ(numbers(value_of(pairs)), (std::vector<double>{0, 1, 2, 3, 2}));

  TensorProto floats = tensor_of(TensorProto::FLOAT4E2M1, {2});
  floats.add_int32_data(0xa2);  // 1, -1
  EXPECT_EQ(numbers(value_of(floats)), (std::vector<double>{1, -1}));
}

TEST(OnnxTensors, RawBoolsAreZeroOrOne) {
  TensorProto flags = tensor_of(TensorProto::BOOL, {2});
  flags.set_raw_data(std::string("\x02\x00", 2));
  const Tensor value = value_of(flags);
  EXPECT_EQ(std::to_integer<int>(value.bytes()[0]), 1);
}

class ExternalDataTest : public testing::Test {
 protected:
  TensorProto external(const std::string& location, const std::string& offset = "", const std::string& length = "") {
    TensorProto tensor = tensor_of(TensorProto::FLOAT, {3});
    tensor.set_data_location(TensorProto::EXTERNAL);
    for (const auto& [key, text] :
         {std::pair("location", location), std::pair("offset", offset), std::pair("length", length)}) {
      if (text.empty()) continue;
      auto& entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(text);
    }
    return tensor;
  }
  Graph import(const TensorProto& tensor) {
    GraphInterpreter evaluator;
    const std::string path = folder_.write("models/model.onnx", initializer_model(tensor).bytes());
    return import_onnx_file(path, {}, standard_ops(), evaluator);
  }
  void expect_error(const TensorProto& tensor, const std::string& id, const std::vector<std::string>& parts) {
    expect_user_error(id, parts, [&] { import(tensor); });
  }
  static std::string three_floats() {
    const float values[] = {1, 2, 3};
    return std::string(reinterpret_cast<const char*>(values), sizeof(values));
  }

  TemporaryFolder folder_;
};

TEST_F(ExternalDataTest, IsRead) {
  folder_.write("models/weights/w.bin", "pad!" + three_floats());
  GraphInterpreter interpreter;
  const Graph graph = import(external("weights/w.bin", "4", "12"));
  EXPECT_EQ(numbers(interpreter.evaluate(graph, {}).at(0)), (std::vector<double>{1, 2, 3}));
}

TEST_F(ExternalDataTest, IsReadAtAnUnalignedPlace) {
  folder_.write("models/w.bin", "x" + three_floats());
  GraphInterpreter interpreter;
  EXPECT_EQ(numbers(interpreter.evaluate(import(external("w.bin", "1")), {}).at(0)), (std::vector<double>{1, 2, 3}));
}

TEST_F(ExternalDataTest, StaysInTheModelsFolder) {
  folder_.write("secret.bin", three_floats());
  expect_error(external("../secret.bin"), "TSR-1032", {"'../secret.bin' contains '..'", "node:  w"});
  expect_error(external("a/../../secret.bin"), "TSR-1032", {"contains '..'"});
  expect_error(external((folder_.path() / "secret.bin").string()), "TSR-1032", {"is an absolute path"});
  expect_error(external(""), "TSR-1032", {"external data has no location"});
  expect_error(external(std::string("w\0.bin", 6)), "TSR-1032", {"zero byte"});
  std::filesystem::create_directories(folder_.path() / "models");
  std::filesystem::create_symlink("../secret.bin", folder_.path() / "models/link.bin");
  expect_error(external("link.bin"), "TSR-1032", {"leads out of the model's folder through a symbolic link"});
  std::filesystem::create_directory_symlink("..", folder_.path() / "models/up");
  expect_error(external("up/secret.bin"), "TSR-1032", {"symbolic link"});
}

TEST_F(ExternalDataTest, MustBeThere) {
  expect_error(external("w.bin"), "TSR-1033", {"'w.bin' is missing", "node:  w"});
  std::filesystem::create_directories(folder_.path() / "models/sub");
  expect_error(external("sub"), "TSR-1033", {"not a regular file"});
  expect_import_error(initializer_model(external("w.bin")), "TSR-1033",
                      {"external file 'w.bin'", "not read from a file"});
}

TEST_F(ExternalDataTest, MustFit) {
  folder_.write("models/w.bin", three_floats());
  expect_error(external("w.bin", "4"), "TSR-1034",
               {"offset 4 of 12 bytes lies outside of 'w.bin', which has 12 bytes"});
  expect_error(external("w.bin", "9223372036854775807"), "TSR-1034", {"lies outside"});
  expect_error(external("w.bin", "-4"), "TSR-1034", {"offset is '-4'"});
  expect_error(external("w.bin", "four"), "TSR-1034", {"offset is 'four'"});
  expect_error(external("w.bin", "99999999999999999999"), "TSR-1034", {"offset is"});
  expect_error(external("w.bin", "0", "8"), "TSR-1034", {"length 8", "need 12 bytes"});
}

TEST(TensorFiles, RoundTrip) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "t.pb").string();
  Tensor tensor(DType::kI4, {3});
  for (int i = 0; i < 3; ++i) tensor.set_int(i, i - 4);
  write_tensor_proto_file(path, tensor, "name");
  std::string name;
  EXPECT_TRUE(tensors_agree(read_tensor_proto_file(path, &name), tensor));
  EXPECT_EQ(name, "name");
}

TEST(TensorFiles, Errors) {
  const TemporaryFolder folder;
  expect_user_error("TSR-6001", {"cannot open the tensor file"}, [&] { read_tensor_proto_file("/nowhere.pb"); });
  const std::string path = folder.write("t.pb", "\xff\xff\xff");
  expect_user_error("TSR-6002", {"is not a serialised ONNX tensor"}, [&] { read_tensor_proto_file(path); });
  expect_user_error("TSR-6004", {"cannot write"},
                    [&] { write_tensor_proto_file("/nowhere/t.pb", Tensor(DType::kF32, {1})); });
}

}  // namespace
}  // namespace tessera
