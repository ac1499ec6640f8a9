// Numbers of a model whose sums, products or counts would not fit what computes with them: one error each, before
// anything of that size is made.
#include <climits>
#include <functional>

#include "onnx_import_util.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;
constexpr auto kI64 = onnx::TensorProto::INT64;
constexpr auto kU8 = onnx::TensorProto::UINT8;
constexpr auto kBool = onnx::TensorProto::BOOL;
constexpr int64_t kLarge = int64_t{1} << 20, kHuge = int64_t{1} << 40;

// One node with the result y.
struct OneNode {
  OnnxModel model;
  onnx::NodeProto* node = nullptr;

  OneNode(int64_t opset, const std::string& op, const std::vector<std::string>& inputs,
          const std::function<void(OnnxModel&)>& declare, const std::string& domain = "")
      : model(opset) {
    declare(model);
    model.output("y");
    node = &model.node(op, inputs, {"y"});
    if (domain.empty()) return;
    node->set_domain(domain);
    onnx::OperatorSetIdProto& import = *model.proto.add_opset_import();
    import.set_domain(domain);
    import.set_version(domain == "ai.onnx.ml" ? 3 : 1);
  }
  template <typename Value>
  OneNode& with(const std::string& name, const Value& value) {
    set_attribute(*node, name, value);
    return *this;
  }
  OneNode& with(const std::string& name, int value) { return with(name, int64_t{value}); }
  OneNode& declared(const Ints& dims) {
    auto& shape = *model.graph().mutable_output(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
    for (const int64_t d : dims) shape.add_dim()->set_dim_value(d);
    return *this;
  }
  void fails(const std::string& id, const std::vector<std::string>& parts) const {
    expect_import_error(model, id, parts);
  }
};

TEST(OnnxLimits, SizesOfValues) {
  // Of a step between, not only of results.
  OneNode(17, "MatMul", {"a", "b"}, [](OnnxModel& m) {
    m.input("a", {kHuge, 1}).input("b", {1, 2});
  }).fails("TSR-1023", {"a result of MatMul has the shape [1099511627776,2]", "at most 2^40 elements"});
  OneNode(17, "Add", {"x", "x"}, [](OnnxModel& m) {
    m.input("x", Ints(65, 1));
  }).fails("TSR-1023", {"input 'x' has 65 dimensions", "64 dimensions"});
  OneNode(17, "Unsqueeze", {"x", "a"}, [](OnnxModel& m) {
    Ints axes;
    for (int64_t a = 0; a < 65; ++a) axes.push_back(a);
    m.input("x", {}).ints("a", {65}, axes);
  }).fails("TSR-1023", {"a result of Unsqueeze has 65 dimensions"});
  OneNode(17, "Identity", {"c"}, [](OnnxModel& m) {
    m.ints("c", Ints(65, 1), {3});
  }).fails("TSR-1030", {"the tensor has 65 dimensions", "at most 64 dimensions"});
}

TEST(OnnxLimits, Windows) {
  const auto x = [](OnnxModel& m) { m.input("x", {1, 1, 4}).input("w", {1, 1, kHuge}); };
  OneNode(17, "Conv", {"x", "w"}, x)
      .with("dilations", Ints{int64_t{1} << 31})
      .fails("TSR-1044", {"weights with a kernel of [1099511627776]", "up to 2^31"});
  const auto wide = [](OnnxModel& m) { m.input("x", {1, 1, kHuge}).input("w", {1, 1, 1}); };
  OneNode(17, "ConvTranspose", {"x", "w"}, wide)
      .with("strides", Ints{int64_t{1} << 31})
      .fails("TSR-1044", {"strides = [2147483648] for f32[1,1,1099511627776]"});
  OneNode(17, "ConvInteger", {"q", "v", "z"}, [](OnnxModel& m) {
    m.input("q", {}, kU8).input("v", {1, 1, 1}, kU8).input("z", {2}, kU8);
  }).fails("TSR-1044", {"a zero point of type i32[2]"});
  OneNode pool(12, "MaxPool", {"x"}, [](OnnxModel& m) { m.input("x", {1, 1, 1, 1, 1}); });
  const int64_t side = int64_t{1} << 30;
  pool.with("kernel_shape", Ints(3, 2 * side)).with("pads", Ints{side, side, side, side - 1, side - 1, side - 1});
  pool.node->add_output("i");
  pool.model.output("i");
  pool.fails("TSR-1040", {"the indices of maxima among 9223372036854775807 elements, more than 256"});
  OneNode(17, "MaxUnpool", {"x", "i"}, [](OnnxModel& m) { m.input("x", {1, 1, 4}).input("i", {1, 1, 4}, kI64); })
      .with("kernel_shape", Ints{2})
      .with("strides", Ints{INT64_MAX})
      .fails("TSR-1044", {"strides = [9223372036854775807]", "1 to 2^31"});
  OneNode(17, "MaxUnpool", {"x", "i"},
          [](OnnxModel& m) { m.input("x", {1, 1, kHuge}).input("i", {1, 1, kHuge}, kI64); })
      .with("kernel_shape", Ints{2})
      .with("strides", Ints{int64_t{1} << 31})
      .fails("TSR-1044", {"a result of shape [1,1,", "2^40"});
}

TEST(OnnxLimits, Images) {
  OneNode(18, "Col2Im", {"x", "i", "b"}, [](OnnxModel& m) {
    m.input("x", {1, 1, 1}).ints("i", {4}, Ints(4, kLarge)).ints("b", {4}, Ints(4, 1));
  }).fails("TSR-1044", {"a result of shape [1,1,1048576,1048576,1048576,1048576]", "2^40"});
  OneNode(20, "AffineGrid", {"t", "s"}, [](OnnxModel& m) {
    m.input("t", {1, 3, 4}).ints("s", {5}, {1, 1, 1 << 24, 1 << 24, 1 << 24});
  }).fails("TSR-1040", {"so large a grid"});
  OneNode(19, "DeformConv", {"x", "w", "o"},
          [](OnnxModel& m) { m.input("x", {1, 0, 3, 3}).input("w", {1, 0, 2, 2}).input("o", {1, 8, 2, 2}); })
      .with("offset_group", INT64_MAX)
      .fails("TSR-1044", {"9223372036854775807 groups of offsets"});
  OneNode(19, "DeformConv", {"x", "w", "o"}, [](OnnxModel& m) {
    m.input("x", {1, 1, 1, kHuge >> 4}).input("w", {1, 1, 1, 1}).input("o", {1, 2, 1, kHuge >> 4});
  }).fails("TSR-1040", {"so many places of so many taps"});
  OneNode(20, "GridSample", {"x", "g"},
          [](OnnxModel& m) {
            m.input("x", Ints(32, 1)).input("g", [] {
              Ints dims(32, 1);
              dims.back() = 30;
              return dims;
            }());
          })
      .with("mode", std::string("linear"))
      .fails("TSR-1040", {"30 spatial dimensions in the mode linear"});
  OneNode(18, "Resize", {"x", "", "", "s"}, [](OnnxModel& m) { m.input("x", {1, kHuge}).ints("s", {2}, {kHuge, 1}); })
      .with("keep_aspect_ratio_policy", std::string("not_smaller"))
      .fails("TSR-1044", {"keep_aspect_ratio_policy = not_smaller", "2^40"});
}

TEST(OnnxLimits, ListsAndCounts) {
  OneNode(17, "Einsum", {"x"}, [](OnnxModel& m) { m.input("x", Ints(40, 1)); })
      .with("equation", std::string("...->..."))
      .fails("TSR-1044", {"an ellipsis for 40 dimensions"});
  OneNode(17, "Einsum", {"x"}, [](OnnxModel& m) { m.input("x", {2}); })
      .with("equation", std::string("\1->\1"))
      .fails("TSR-1044", {"the character 1"});
  OneNode(17, "NonMaxSuppression", {"b", "s", "m"}, [](OnnxModel& m) {
    m.input("b", {1, 2, 4}).input("s", {1, 1, 2}).ints("m", {0}, {});
  }).fails("TSR-1044", {"input 2 of type i64[0]", "one element"});
  OneNode(17, "Dropout", {"x", "r", "t"}, [](OnnxModel& m) {
    m.input("x", {2}).floats("r", {}, {0.5f}).input("t", {0}, kBool);
  }).fails("TSR-1044", {"training_mode of type bool[0]", "one element"});
  OneNode(17, "RandomNormal", {}, [](OnnxModel&) {})
      .with("shape", Ints{kHuge, kHuge})
      .fails("TSR-1044", {"a result of shape [1099511627776,1099511627776]"});
  OneNode(17, "Cast", {"x"}, [](OnnxModel& m) { m.input("x", {2}); })
      .with("to", (int64_t{1} << 32) + 1)
      .fails("TSR-1040", {"a cast to the data type number 4294967297"});
  OneNode(17, "LSTM", {"x", "w", "r"}, [](OnnxModel& m) {
    m.input("x", {1, kHuge, 1}).input("w", {1, 0, 1}).input("r", {1, 0, kHuge});
  }).fails("TSR-1044", {"a result would have the shape [8796093022208]"});
}

TEST(OnnxLimits, Contrib) {
  const std::string contrib = "com.microsoft";
  const auto packed = [](OnnxModel& m) { m.input("a", {2, 32}).input("w", {4, 2, 8}, kU8).input("s", {4, 2}); };
  OneNode(17, "MatMulNBits", {"a", "w", "s"}, packed, contrib)
      .with("K", INT64_MAX)
      .with("N", INT64_MAX)
      .with("block_size", int64_t{1} << 62)
      .fails("TSR-1044", {"K = 9223372036854775807", "at most 2^40 weights"});
  OneNode(
      17, "GroupQueryAttention", {"q", "k", "v", "", "", "l", "t"},
      [](OnnxModel& m) {
        m.input("q", {1, 1, 8}).input("k", {1, 1, 8}).input("v", {1, 1, 8});
        m.input("l", {1}, onnx::TensorProto::INT32).input("t", {}, onnx::TensorProto::INT32);
      },
      contrib)
      .with("num_heads", int64_t{1} << 62)
      .with("kv_num_heads", int64_t{1} << 62)
      .fails("TSR-1044", {"4611686018427387904 heads of queries"});
  OneNode(
      17, "MultiHeadAttention", {"q", "k", "v", "", "m"},
      [](OnnxModel& m) {
        m.input("q", {1, 2, 8}).input("k", {1, 0, 3, 4}).input("v", {1, 0, 3, 4});
        m.input("m", {1, 3}, onnx::TensorProto::INT32);
      },
      contrib)
      .with("num_heads", 2)
      .fails("TSR-1044", {"2 heads of queries and 0 of keys"});
}

// Sums of numbers that a run adds to shapes are left to the run.
TEST(OnnxLimits, NumbersOfARun) {
  OneNode pads(17, "Pad", {"x", "p"}, [](OnnxModel& m) {
    m.open_input("x", {{0, "n"}, {2, ""}}).ints("p", {4}, {INT64_MAX, 0, INT64_MAX, 0});
  });
  const std::string text = "amounts of up to 2^40";
  ImportOptions open;
  open.leave_open = true;
  open.dims["n"] = {1, 8};
  expect_import_error(pads.model, "TSR-1044", {"pads of 9223372036854775807", text}, open);
}

}  // namespace
}  // namespace tessera
