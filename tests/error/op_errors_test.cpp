// Every message of src/ops (TSR-2020 to TSR-2034), pinned.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "arith/simplify.h"
#include "ops/composites/composites.h"
#include "ops/op_table.h"

namespace tessera {
namespace {

using Dims = std::vector<int64_t>;
using Words = std::string;

// Runs `action`, which must throw a UserError; returns its text.
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no UserError";
  return "";
}

struct Operand {
  DType dtype;
  Dims dims;
};
const DType kF = DType::kF32;

std::string op_error(const std::string& op, const std::vector<Operand>& operands, const Attrs& attrs = {}) {
  std::vector<TensorType> types;
  for (const Operand& operand : operands) types.push_back(TensorType{operand.dtype, make_shape(operand.dims), {}});
  return error_of([&] { infer_types(standard_ops().get(op), types, attrs, {}, "n1"); });
}

std::string composite_error(const std::string& name, const std::vector<Operand>& operands, const Attrs& attrs = {}) {
  Graph graph;
  GraphBuilder builder(graph);
  builder.set_loc("n1");
  std::vector<ValueId> ids;
  for (const Operand& operand : operands)
    ids.push_back(graph.add_input("x", TensorType{operand.dtype, make_shape(operand.dims), {}}));
  return error_of([&] { add_composite(builder, standard_ops(), name, ids, attrs); });
}

Attrs window(const Dims& strides, const Dims& begin, const Dims& end, const Dims& dilations) {
  return {{"strides", strides}, {"pads_begin", begin}, {"pads_end", end}, {"dilations", dilations}};
}

Attrs conv_attrs(int64_t groups = 1) {
  Attrs attrs = window({1, 1}, {0, 0}, {0, 0}, {1, 1});
  attrs.set("input_dilations", Dims{1, 1});
  attrs.set("groups", groups);
  return attrs;
}

TEST(OpErrors, ElementTypes) {
  EXPECT_EQ(op_error("exp", {{DType::kI32, {3, 4}}}),
            "error TSR-2020: operator exp: operand 1 of type i32[3,4]\n"
            "  node:  n1\n"
            "  legal: f64, f32, f16, bf16\n"
            "  hint:  insert a cast to one of these types");
  EXPECT_EQ(op_error("logical_not", {{kF, {2}}}),
            "error TSR-2020: operator logical_not: operand 1 of type f32[2]\n"
            "  node:  n1\n"
            "  legal: bool\n"
            "  hint:  insert a cast to one of these types");
  EXPECT_EQ(op_error("bitwise_not", {{DType::kI4, {2}}}),
            "error TSR-2020: operator bitwise_not: operand 1 of type i4[2]\n"
            "  node:  n1\n"
            "  legal: i8 to i64, u8 to u64\n"
            "  hint:  insert a cast to one of these types");
  Attrs to_f32;
  to_f32.set("to", DType::kF32);
  EXPECT_EQ(op_error("bitcast", {{DType::kF16, {2}}}, to_f32),
            "error TSR-2020: operator bitcast: operand 1 of type f16[2] as f32\n"
            "  node:  n1\n"
            "  legal: an element type of as many bits");
  EXPECT_EQ(op_error("add", {{DType::kBool, {2}}, {DType::kBool, {2}}}),
            "error TSR-2020: operator add: operand 1 of type bool[2]\n"
            "  node:  n1\n"
            "  legal: f64, f32, f16, bf16, i8 to i64, u8 to u64\n"
            "  hint:  insert a cast to one of these types");
  EXPECT_EQ(op_error("add", {{kF, {2, 3}}, {DType::kI64, {3}}}),
            "error TSR-2021: operator add: operand 1 of type f32[2,3] and operand 2 of type i64[3]\n"
            "  node:  n1\n"
            "  legal: operands of the same element type\n"
            "  hint:  insert a cast");
  EXPECT_EQ(op_error("lt", {{DType::kBool, {}}, {DType::kBool, {}}}),
            "error TSR-2020: operator lt: operand 1 of type bool[]\n"
            "  node:  n1\n"
            "  legal: f64, f32, f16, bf16, i8 to i64, u8 to u64\n"
            "  hint:  insert a cast to one of these types");
  EXPECT_EQ(op_error("select", {{kF, {2}}, {kF, {2}}, {kF, {2}}}),
            "error TSR-2020: operator select: operand 1 of type f32[2]\n"
            "  node:  n1\n"
            "  legal: bool\n"
            "  hint:  insert a cast to one of these types");
  EXPECT_EQ(op_error("select", {{DType::kBool, {2}}, {kF, {2}}, {DType::kF64, {2}}}),
            "error TSR-2021: operator select: operand 2 of type f32[2] and operand 3 of type f64[2]\n"
            "  node:  n1\n"
            "  legal: operands of the same element type\n"
            "  hint:  insert a cast");
  EXPECT_EQ(op_error("cast", {{kF, {2}}}, {{"to", DType::kString}}),
            "error TSR-2020: operator cast: to = string\n"
            "  node:  n1\n"
            "  legal: every type but string");
  EXPECT_EQ(op_error("transpose", {{DType::kString, {2}}}, {{"perm", Dims{0}}}),
            "error TSR-2020: operator transpose: operand 1 of type string[2]\n"
            "  node:  n1\n"
            "  legal: every type but string");
  EXPECT_EQ(op_error("reduce", {{DType::kBool, {2}}}, {{"kind", Words("sum")}, {"axes", Dims{0}}, {"keepdims", false}}),
            "error TSR-2020: operator reduce: operand 1 of type bool[2]\n"
            "  node:  n1\n"
            "  legal: f64, f32, f16, bf16, i8 to i64, u8 to u64\n"
            "  hint:  insert a cast to one of these types");
  EXPECT_EQ(op_error("gather", {{kF, {2}}, {kF, {2}}}, {{"axis", int64_t{0}}}),
            "error TSR-2020: operator gather: operand 2 of type f32[2]\n"
            "  node:  n1\n"
            "  legal: i32, i64\n"
            "  hint:  insert a cast to one of these types");
  EXPECT_EQ(op_error("iota", {}, {{"shape", Dims{2}}, {"axis", int64_t{0}}, {"dtype", DType::kBool}}),
            "error TSR-2020: operator iota: dtype = bool\n"
            "  node:  n1\n"
            "  legal: f64, f32, f16, bf16, i8 to i64, u8 to u64");
  const Attrs by_operand = {
      {"mode", Words("linear")}, {"coordinate", Words("half_pixel")}, {"axes", Dims{1}}, {"sizes", Dims{2, 6}}};
  const auto resize_error = [&](const std::vector<Operand>& operands) {
    const std::string text = op_error("resize", operands, by_operand);
    return text.substr(0, text.find('\n'));
  };
  const Operand x{kF, {2, 3}}, one{DType::kF64, {1}}, two{DType::kF64, {2}};
  EXPECT_EQ(resize_error({x, two}), "error TSR-2024: operator resize: operand 2 of type f64[2]");
  EXPECT_EQ(resize_error({x, {kF, {1}}}), "error TSR-2020: operator resize: operand 2 of type f32[1]");
  EXPECT_EQ(resize_error({x}), "error TSR-2034: operator resize: 1 operand and no attribute 'scales'");
  EXPECT_EQ(resize_error({x, one, two}), "error TSR-2034: operator resize: 3 operands for coordinate = \"half_pixel\"");
  EXPECT_EQ(op_error("resize", {{DType::kU8, {2}}},
                     {{"mode", Words("linear")},
                      {"coordinate", Words("half_pixel")},
                      {"scales", std::vector<double>{2}},
                      {"sizes", Dims{4}}}),
            "error TSR-2020: operator resize: operand 1 of type u8[2]\n"
            "  node:  n1\n"
            "  legal: f64, f32, f16, bf16\n"
            "  hint:  insert a cast to one of these types");
  EXPECT_EQ(op_error("conv", {{DType::kF8E5M2, {1, 1, 3, 3}}, {DType::kF8E5M2, {1, 1, 3, 3}}}, conv_attrs()),
            "error TSR-2020: operator conv: operand 1 of type f8e5m2[1,1,3,3]\n"
            "  node:  n1\n"
            "  legal: f64, f32, f16, bf16, i8 to i64, u8 to u64\n"
            "  hint:  insert a cast to one of these types");
}

TEST(OpErrors, Shapes) {
  EXPECT_EQ(op_error("mul", {{kF, {2, 3}}, {kF, {4}}}),
            "error TSR-2023: operator mul: shapes [2,3] and [4]\n"
            "  node:  n1\n"
            "  legal: extents that are equal or 1, aligned at the last dimension\n"
            "  hint:  dimension 1 from the end has extents 3 and 4");
  EXPECT_EQ(op_error("broadcast", {{kF, {2, 3}}}, {{"shape", Dims{3}}}),
            "error TSR-2023: operator broadcast: operand 1 of type f32[2,3] to be stretched to [3]\n"
            "  node:  n1\n"
            "  legal: extents of the operand that are 1 or those of `shape`");
  EXPECT_EQ(
      op_error("reshape", {{kF, {2, 3}}}, {{"shape", Dims{4, 2}}}),
      "error TSR-2028: operator reshape: shape = [4, 2] (8 elements) for operand 1 of type f32[2,3] (6 elements)\n"
      "  node:  n1\n"
      "  legal: a shape of as many elements as the operand's");
  EXPECT_EQ(op_error("concat", {{kF, {2, 3}}, {kF, {3, 3}}}, {{"axis", int64_t{1}}}),
            "error TSR-2024: operator concat: operand 1 of type f32[2,3] and operand 2 of type f32[3,3]\n"
            "  node:  n1\n"
            "  legal: equal shapes except in dimension 1");
  EXPECT_EQ(op_error("concat", {{kF, {2, 3}}, {kF, {2}}}, {{"axis", int64_t{0}}}),
            "error TSR-2024: operator concat: operand 1 of type f32[2,3] and operand 2 of type f32[2]\n"
            "  node:  n1\n"
            "  legal: equal shapes except in dimension 0");
  EXPECT_EQ(op_error("gather", {{kF, {0, 3}}, {DType::kI64, {2}}}, {{"axis", int64_t{0}}}),
            "error TSR-2024: operator gather: dimension 0 of operand 1 of type f32[0,3], which has no elements\n"
            "  node:  n1\n"
            "  legal: a dimension with elements to choose from");
  EXPECT_EQ(op_error("matmul", {{kF, {3}}, {kF, {3, 4}}}),
            "error TSR-2022: operator matmul: operand 1 of type f32[3]\n"
            "  node:  n1\n"
            "  legal: rank 2 or more");
  EXPECT_EQ(op_error("matmul", {{kF, {2, 3}}, {kF, {4, 5}}}),
            "error TSR-2024: operator matmul: operand 1 of type f32[2,3] and operand 2 of type f32[4,5]\n"
            "  node:  n1\n"
            "  legal: as many columns in the first matrix as rows in the second: found 3 and 4");
  EXPECT_EQ(op_error("matmul", {{kF, {2, 3}}, {kF, {5, 3}}}, {{"transpose_a", true}, {"transpose_b", true}}),
            "error TSR-2024: operator matmul: operand 1 of type f32[2,3] (transposed) and operand 2 of type f32[5,3] "
            "(transposed)\n"
            "  node:  n1\n"
            "  legal: as many columns in the first matrix as rows in the second: found 2 and 3");
  EXPECT_EQ(op_error("pad", {{kF, {0}}}, {{"low", Dims{1}}, {"high", Dims{0}}, {"mode", Words("edge")}}),
            "error TSR-2024: operator pad: padding of dimension 0 of operand 1 of type f32[0]\n"
            "  node:  n1\n"
            "  legal: a dimension with elements to take the padding from\n"
            "  hint:  use the mode constant");
  EXPECT_EQ(op_error("resize", {{kF, {0}}},
                     {{"mode", Words("linear")},
                      {"coordinate", Words("half_pixel")},
                      {"scales", std::vector<double>{2}},
                      {"sizes", Dims{4}}}),
            "error TSR-2024: operator resize: dimension 0 of operand 1 of type f32[0] resized to 4\n"
            "  node:  n1\n"
            "  legal: a dimension with elements to interpolate");
}

TEST(OpErrors, ChannelShuffle) {
  EXPECT_EQ(op_error("channel_shuffle", {{kF, {1, 6, 2}}}, {{"groups", int64_t{4}}}),
            "error TSR-2025: operator channel_shuffle: groups = 4 for operand 1 of type f32[1,6,2]\n"
            "  node:  n1\n"
            "  legal: a number that divides the channels");
  EXPECT_EQ(op_error("channel_shuffle", {{kF, {6}}}, {{"groups", int64_t{2}}}),
            "error TSR-2022: operator channel_shuffle: operand 1 of type f32[6]\n"
            "  node:  n1\n"
            "  legal: rank 2 or more");
}

TEST(OpErrors, GatherElements) {
  EXPECT_EQ(op_error("gather_elements", {{kF, {2, 3}}, {DType::kI64, {3, 3}}}, {{"axis", int64_t{1}}}),
            "error TSR-2024: operator gather_elements: operand 2 of type i64[3,3] for operand 1 of type f32[2,3]\n"
            "  node:  n1\n"
            "  legal: indices no larger than the operand except in dimension 1");
  EXPECT_EQ(
      op_error("gather_elements", {{kF, {2, 0}}, {DType::kI64, {2, 1}}}, {{"axis", int64_t{1}}}),
      "error TSR-2024: operator gather_elements: dimension 1 of operand 1 of type f32[2,0], which has no elements\n"
      "  node:  n1\n"
      "  legal: a dimension with elements to choose from");
}

TEST(OpErrors, Collectives) {
  const auto attrs = [](const char* mesh, const char* axes) -> Attrs {
    return {{"axes", Words(axes)}, {"kind", Words("sum")}, {"mesh", Words(mesh)}};
  };
  const auto expect = [](const char* op, const Shape& shape, const Attrs& given, const std::string& found,
                         const std::string& legal) {
    EXPECT_EQ(op_error(op, {{kF, shape}}, given), fmt::format("error {}\n  node:  n1\n  legal: {}", found, legal));
  };
  const std::string meshes = "axes with extents, such as \"data=2,model=4\"",
                    axes = "axes of the mesh, such as \"data\"";
  const std::string mesh_of = "TSR-2037: operator all_reduce: mesh = ",
                    axes_of = "TSR-2037: operator all_reduce: axes = ";
  expect("all_reduce", {4}, attrs("data", "data"), mesh_of + "\"data\": 'data' is not NAME=EXTENT", meshes);
  expect("all_reduce", {4}, attrs("data=0", "data"), mesh_of + "\"data=0\": axis 'data' has the extent '0'", meshes);
  expect("all_reduce", {4}, attrs("a=256,b=257", "a"), mesh_of + "\"a=256,b=257\": axis 'b' has the extent '257'",
         meshes);
  expect("all_reduce", {4}, attrs("a=2,a=2", "a"), mesh_of + "\"a=2,a=2\": there are two axes 'a'", meshes);
  expect("all_reduce", {4}, attrs("2=a", "a"), mesh_of + "\"2=a\": '2' is no name of an axis", meshes);
  expect("all_reduce", {4}, attrs("a=2", "b"), axes_of + "\"b\": the mesh a=2 has no axis 'b'", axes);
  expect("all_reduce", {4}, attrs("a=2", "a,a"), axes_of + "\"a,a\": axis 'a' stands twice", axes);
  expect("reduce_scatter", {3}, attrs("a=2", "a"),
         "TSR-2024: operator reduce_scatter: operand 1 of type f32[3] for 2 ranks",
         "a dimension 0 that the ranks divide evenly");
}

TEST(OpErrors, Procedures) {
  const Attrs sum = {{"axis", int64_t{1}}, {"kind", Words("sum")}};
  EXPECT_EQ(op_error("cumulate", {{DType::kBool, {2, 3}}}, sum),
            "error TSR-2020: operator cumulate: operand 1 of type bool[2,3]\n"
            "  node:  n1\n"
            "  legal: f64, f32, f16, bf16, i8 to i64, u8 to u64\n"
            "  hint:  insert a cast to one of these types");
  EXPECT_EQ(op_error("cumulate", {{kF, {2}}}, sum),
            "error TSR-2025: operator cumulate: axis = 1\n"
            "  node:  n1\n"
            "  legal: 0");
  EXPECT_EQ(
      op_error("scatter", {{kF, {1, 4, 2}}, {DType::kI64, {1, 3}}, {kF, {1, 3, 1}}}, {{"join", Words("add")}}),
      "error TSR-2024: operator scatter: operand 2 of type i64[1,3] and operand 3 of type f32[1,3,1] for operand 1 "
      "of type f32[1,4,2]\n"
      "  node:  n1\n"
      "  legal: x [B, P, I], places [B, U] and updates [B, U, I]");
  EXPECT_EQ(op_error("scatter", {{kF, {1, 4, 2}}, {DType::kI64, {1, 3}}, {DType::kI32, {1, 3, 2}}},
                     {{"join", Words("none")}}),
            "error TSR-2021: operator scatter: operand 3 of type i32[1,3,2] for operand 1 of type f32[1,4,2]\n"
            "  node:  n1\n"
            "  legal: equal element types");
  EXPECT_EQ(op_error("order", {{kF, {1, int64_t{1} << 31, 1}}}, {{"count", int64_t{1}}}),
            "error TSR-2024: operator order: dimension 1 of operand 1 of type f32[1,2147483648,1]\n"
            "  node:  n1\n"
            "  legal: fewer than 2^31 elements to put in order");
  EXPECT_EQ(op_error("order", {{kF, {1, 5, 1}}}, {{"count", int64_t{6}}}),
            "error TSR-2025: operator order: count = 6\n"
            "  node:  n1\n"
            "  legal: 0 to 5");
  EXPECT_EQ(
      op_error("suppress", {{kF, {1, 5, 4}}, {kF, {1, 2, 6}}, {DType::kI64, {}}, {kF, {}}}, {{"most", int64_t{3}}}),
      "error TSR-2024: operator suppress: operand 2 of type f32[1,2,6] for operand 1 of type f32[1,5,4]\n"
      "  node:  n1\n"
      "  legal: boxes [images, boxes, 4] and scores [images, classes, boxes]");
  const Attrs bins = {{"rows", int64_t{2}}, {"columns", int64_t{2}}, {"scale", 1.0}, {"kind", Words("max")}};
  EXPECT_EQ(op_error("region_pool", {{kF, {1, 5, 5, 2}}, {kF, {3, 4}}, {DType::kI64, {2}}}, bins),
            "error TSR-2024: operator region_pool: operand 2 of type f32[3,4] and operand 3 of type i64[2]\n"
            "  node:  n1\n"
            "  legal: regions [R, 4] and the numbers of their images [R]");
  EXPECT_EQ(op_error("region_pool", {{kF, {1, 0, 5, 2}}, {kF, {3, 4}}, {DType::kI64, {3}}}, bins),
            "error TSR-2024: operator region_pool: dimension 1 of operand 1 of type f32[1,0,5,2], which has no "
            "elements\n"
            "  node:  n1\n"
            "  legal: a dimension with elements to choose from");
}

TEST(OpErrors, Attributes) {
  EXPECT_EQ(op_error("transpose", {{kF, {2, 3}}}, {{"perm", Dims{0}}}),
            "error TSR-2027: operator transpose: perm = [0] (1 entry)\n"
            "  node:  n1\n"
            "  legal: 2 entries");
  EXPECT_EQ(op_error("transpose", {{kF, {2, 3}}}, {{"perm", Dims{0, 2}}}),
            "error TSR-2025: operator transpose: perm = [0, 2]\n"
            "  node:  n1\n"
            "  legal: entries from 0 to 1");
  EXPECT_EQ(op_error("transpose", {{kF, {2, 3}}}, {{"perm", Dims{1, 1}}}),
            "error TSR-2025: operator transpose: perm = [1, 1] of a tensor of rank 2\n"
            "  node:  n1\n"
            "  legal: each of 0 to 1 at most once");
  EXPECT_EQ(op_error("broadcast", {{kF, {2}}}, {{"shape", Dims{-2}}}),
            "error TSR-2025: operator broadcast: shape = [-2]\n"
            "  node:  n1\n"
            "  legal: entries from 0 to 1099511627776");
  EXPECT_EQ(op_error("concat", {{kF, {}}}, {{"axis", int64_t{0}}}),
            "error TSR-2025: operator concat: axis = 0\n"
            "  node:  n1\n"
            "  legal: nothing: the operand has rank 0");
  EXPECT_EQ(op_error("concat", {{kF, {2}}}, {{"axis", int64_t{-1}}}),
            "error TSR-2025: operator concat: axis = -1\n"
            "  node:  n1\n"
            "  legal: 0");
  EXPECT_EQ(op_error("reduce", {{kF, {2, 3}}}, {{"kind", Words("max")}, {"axes", Dims{2}}, {"keepdims", false}}),
            "error TSR-2025: operator reduce: axes = [2] of a tensor of rank 2\n"
            "  node:  n1\n"
            "  legal: each of 0 to 1 at most once");
  EXPECT_EQ(op_error("reduce", {{kF, {2, 3}}}, {{"kind", Words("mean")}, {"axes", Dims{1}}, {"keepdims", false}}),
            "error TSR-2031: operator reduce: kind = \"mean\"\n"
            "  node:  n1\n"
            "  legal: sum, prod, min, max");
  EXPECT_EQ(op_error("reduce", {{kF, {}}}, {{"kind", Words("max")}, {"axes", Dims{0}}, {"keepdims", false}}),
            "error TSR-2025: operator reduce: axes = [0] of a tensor of rank 0\n"
            "  node:  n1\n"
            "  legal: an empty list");
  EXPECT_EQ(op_error("dynamic_slice", {{kF, {4, 2}}, {DType::kI64, {1}}}, {{"sizes", Dims{1, 1}}}),
            "error TSR-2024: operator dynamic_slice: operand 2 of type i64[1]\n"
            "  node:  n1\n"
            "  legal: 2 starts, one for each dimension of x");
  EXPECT_EQ(op_error("dynamic_slice", {{kF, {4}}, {kF, {1}}}, {{"sizes", Dims{1}}}),
            "error TSR-2020: operator dynamic_slice: operand 2 of type f32[1]\n"
            "  node:  n1\n"
            "  legal: i32, i64\n"
            "  hint:  insert a cast to one of these types");
  EXPECT_EQ(op_error("dynamic_slice", {{kF, {4}}, {DType::kI64, {1}}}, {{"sizes", Dims{5}}}),
            "error TSR-2024: operator dynamic_slice: sizes = [5] for operand 1 of type f32[4]\n"
            "  node:  n1\n"
            "  legal: a box that is no larger than x");
  EXPECT_EQ(op_error("dynamic_update_slice", {{kF, {4}}, {kF, {5}}, {DType::kI64, {1}}}),
            "error TSR-2024: operator dynamic_update_slice: operand 2 of type f32[5] for operand 1 of type f32[4]\n"
            "  node:  n1\n"
            "  legal: a box that is no larger than x");
  EXPECT_EQ(op_error("dynamic_update_slice", {{kF, {4}}, {DType::kI32, {1}}, {DType::kI64, {1}}}),
            "error TSR-2021: operator dynamic_update_slice: operand 2 of type i32[1] for operand 1 of type f32[4]\n"
            "  node:  n1\n"
            "  legal: equal element types");
  EXPECT_EQ(op_error("slice", {{kF, {4}}}, {{"starts", Dims{0}}, {"sizes", Dims{2}}, {"steps", Dims{0}}}),
            "error TSR-2025: operator slice: steps = [0]\n"
            "  node:  n1\n"
            "  legal: steps other than 0");
  EXPECT_EQ(
      op_error("slice", {{kF, {4}}}, {{"starts", Dims{1}}, {"sizes", Dims{3}}, {"steps", Dims{2}}}),
      "error TSR-2032: operator slice: dimension 0 of operand 1 of type f32[4]: 3 elements from 1 on in steps of 2\n"
      "  node:  n1\n"
      "  legal: indices within 0 to 3");
  EXPECT_EQ(
      op_error("slice", {{kF, {4}}}, {{"starts", Dims{1}}, {"sizes", Dims{3}}, {"steps", Dims{-1}}}),
      "error TSR-2032: operator slice: dimension 0 of operand 1 of type f32[4]: 3 elements from 1 on in steps of -1\n"
      "  node:  n1\n"
      "  legal: indices within 0 to 3");
  EXPECT_EQ(op_error("slice", {{kF, {4}}},
                     {{"starts", Dims{0}}, {"sizes", Dims{int64_t{1} << 39}}, {"steps", Dims{int64_t{1} << 39}}}),
            "error TSR-2032: operator slice: dimension 0 of operand 1 of type f32[4]: 549755813888 elements from 0 on "
            "in steps of 549755813888\n"
            "  node:  n1\n"
            "  legal: indices within 0 to 3");
  EXPECT_EQ(
      op_error("pad", {{kF, {4}}, {kF, {}}}, {{"low", Dims{-3}}, {"high", Dims{-2}}, {"mode", Words("constant")}}),
      "error TSR-2025: operator pad: low = [-3], high = [-2] for operand 1 of type f32[4]\n"
      "  node:  n1\n"
      "  legal: amounts that leave no dimension negative");
  EXPECT_EQ(op_error("pad", {{kF, {4}}}, {{"low", Dims{1}}, {"high", Dims{1}}, {"mode", Words("constant")}}),
            "error TSR-2034: operator pad: 1 operand\n"
            "  node:  n1\n"
            "  legal: x and the value to pad with");
  EXPECT_EQ(op_error("pad", {{kF, {4}}, {kF, {}}}, {{"low", Dims{1}}, {"high", Dims{1}}, {"mode", Words("edge")}}),
            "error TSR-2034: operator pad: 2 operands\n"
            "  node:  n1\n"
            "  legal: x alone in the modes edge, reflect and wrap");
  EXPECT_EQ(op_error("pad", {{kF, {4}}, {kF, {1}}}, {{"low", Dims{1}}, {"high", Dims{1}}, {"mode", Words("constant")}}),
            "error TSR-2022: operator pad: operand 2 of type f32[1]\n"
            "  node:  n1\n"
            "  legal: rank 0");
  EXPECT_EQ(op_error("pad", {{kF, {4}}}, {{"low", Dims{1}}, {"high", Dims{1}}, {"mode", Words("mirror")}}),
            "error TSR-2031: operator pad: mode = \"mirror\"\n"
            "  node:  n1\n"
            "  legal: constant, edge, reflect, wrap");
  EXPECT_EQ(
      op_error("resize", {{kF, {2}}},
               {{"mode", Words("nearest")},
                {"coordinate", Words("tf_crop_and_resize")},
                {"scales", std::vector<double>{2}},
                {"sizes", Dims{4}}}),
      "error TSR-2031: operator resize: coordinate = \"tf_crop_and_resize\"\n"
      "  node:  n1\n"
      "  legal: half_pixel, pytorch_half_pixel, half_pixel_symmetric, asymmetric, align_corners, tf_half_pixel_for_nn, "
      "crop");
  EXPECT_EQ(op_error("resize", {{kF, {2}}},
                     {{"mode", Words("nearest")},
                      {"coordinate", Words("asymmetric")},
                      {"scales", std::vector<double>{2, 2}},
                      {"sizes", Dims{4}}}),
            "error TSR-2027: operator resize: scales = [2, 2] (2 entries)\n"
            "  node:  n1\n"
            "  legal: 1 entry");
  EXPECT_EQ(op_error("resize", {{kF, {2}}},
                     {{"mode", Words("nearest")},
                      {"coordinate", Words("asymmetric")},
                      {"scales", std::vector<double>{-1}},
                      {"sizes", Dims{4}}}),
            "error TSR-2025: operator resize: scales = [-1]\n"
            "  node:  n1\n"
            "  legal: finite scales from 0");
  EXPECT_EQ(op_error("relayout", {{kF, {2}}}, {{"layout", Layout::blocked(2, 1, 8)}}),
            "error TSR-2025: operator relayout: layout = {0,1/8,1%8} for operand 1 of type f32[2]\n"
            "  node:  n1\n"
            "  legal: a layout of the operand's dimensions");
}

TEST(OpErrors, Windows) {
  EXPECT_EQ(op_error("conv", {{kF, {1, 3}}, {kF, {1, 3}}}, conv_attrs()),
            "error TSR-2022: operator conv: operand 1 of type f32[1,3]\n"
            "  node:  n1\n"
            "  legal: rank 3 to 5");
  EXPECT_EQ(op_error("conv", {{kF, {1, 3, 8, 8}}, {kF, {4, 3, 3}}}, conv_attrs()),
            "error TSR-2022: operator conv: operand 2 of type f32[4,3,3]\n"
            "  node:  n1\n"
            "  legal: rank 4");
  EXPECT_EQ(op_error("conv", {{kF, {1, 3, 8, 8}}, {kF, {4, 2, 3, 3}}}, conv_attrs()),
            "error TSR-2024: operator conv: operand 1 of type f32[1,3,8,8] with weights [4,2,3,3] in 1 group\n"
            "  node:  n1\n"
            "  legal: 2 input channels: dimension 1 of the weights times the groups");
  EXPECT_EQ(op_error("conv", {{kF, {1, 4, 8, 8}}, {kF, {3, 2, 3, 3}}}, conv_attrs(2)),
            "error TSR-2024: operator conv: 3 output channels in 2 groups\n"
            "  node:  n1\n"
            "  legal: a number of output channels that the groups divide");
  EXPECT_EQ(op_error("conv", {{kF, {1, 4, 8, 8}}, {kF, {3, 4, 3, 0}}}, conv_attrs()),
            "error TSR-2024: operator conv: weights [3,4,3,0]\n"
            "  node:  n1\n"
            "  legal: kernel extents of at least 1");
  EXPECT_EQ(
      op_error("conv", {{kF, {1, 4, 8, 8}}, {kF, {3, 4, 3, 9}}}, conv_attrs()),
      "error TSR-2026: operator conv: spatial dimension 1: a window spanning 9 over an input of 8, padding included\n"
      "  node:  n1\n"
      "  legal: a window that fits into the padded input");
  EXPECT_EQ(op_error("conv", {{kF, {1, 4, 8, 8}}, {kF, {3, 4, 3, 3}}}, conv_attrs(0)),
            "error TSR-2025: operator conv: groups = 0\n"
            "  node:  n1\n"
            "  legal: 1 to 2147483648");
  EXPECT_EQ(op_error("conv", {{kF, {1, 4, 8}}, {kF, {3, 4, 3}}}, conv_attrs()),
            "error TSR-2027: operator conv: strides = [1, 1] (2 entries)\n"
            "  node:  n1\n"
            "  legal: 1 entry");
  const auto gradient_of = [](int64_t groups, const Dims& extents) {
    Attrs a = conv_attrs(groups);
    a.set("window", extents);
    return a;
  };
  EXPECT_EQ(
      op_error("conv_weights", {{kF, {1, 4, 8, 8}}, {kF, {2, 3, 6, 6}}}, gradient_of(1, {3, 3})),
      "error TSR-2024: operator conv_weights: operand 1 of type f32[1,4,8,8] beside operand 2 of type f32[2,3,6,6]\n"
      "  node:  n1\n"
      "  legal: equal extents of dimension 0, the batch");
  EXPECT_EQ(op_error("conv_weights", {{kF, {1, 4, 8, 8}}, {kF, {1, 3, 6, 6}}}, gradient_of(2, {3, 3})),
            "error TSR-2024: operator conv_weights: operand 2 of type f32[1,3,6,6] in 2 groups\n"
            "  node:  n1\n"
            "  legal: a number of channels (dimension 1) that the groups divide");
  EXPECT_EQ(op_error("conv_weights", {{kF, {1, 3, 8, 8}}, {kF, {1, 4, 6, 6}}}, gradient_of(2, {3, 3})),
            "error TSR-2024: operator conv_weights: operand 1 of type f32[1,3,8,8] in 2 groups\n"
            "  node:  n1\n"
            "  legal: a number of channels (dimension 1) that the groups divide");
  EXPECT_EQ(
      op_error("conv_weights", {{kF, {1, 4, 8, 8}}, {kF, {1, 3, 6, 5}}}, gradient_of(1, {3, 3})),
      "error TSR-2024: operator conv_weights: spatial dimension 1: 6 windows, and operand 2 of type f32[1,3,6,5]\n"
      "  node:  n1\n"
      "  legal: as many places of the gradient as the convolution has windows");
  EXPECT_EQ(op_error("conv_weights", {{kF, {1, 4, 8, 8}}, {kF, {1, 3, 6, 6}}}, gradient_of(1, {3, 0})),
            "error TSR-2025: operator conv_weights: window = [3, 0]\n"
            "  node:  n1\n"
            "  legal: entries from 1 to 2147483648");
  EXPECT_EQ(op_error("conv_weights", {{kF, {1, 4, 8, 8}}, {kF, {1, 3, 6, 6}}}, gradient_of(1, {3})),
            "error TSR-2027: operator conv_weights: window = [3] (1 entry)\n"
            "  node:  n1\n"
            "  legal: 2 entries");
  EXPECT_EQ(
      op_error("conv_weights", {{kF, {1, 4, 8, 8}}, {kF, {1, 3, 6, 6}}}, gradient_of(1, {3, 9})),
      "error TSR-2026: operator conv_weights: spatial dimension 1: a window spanning 9 over an input of 8, padding "
      "included\n"
      "  node:  n1\n"
      "  legal: a window that fits into the padded input");
  EXPECT_EQ(op_error("reduce_window", {{kF, {1, 4, 8}}},
                     [] {
                       Attrs a = window({0}, {0}, {0}, {1});
                       a.set("window", Dims{2});
                       a.set("kind", Words("max"));
                       return a;
                     }()),
            "error TSR-2025: operator reduce_window: strides = [0]\n"
            "  node:  n1\n"
            "  legal: entries from 1 to 2147483648");
  EXPECT_EQ(op_error("reduce_window", {{kF, {1, 4, 8}}},
                     [] {
                       Attrs a = window({1}, {0}, {0}, {1});
                       a.set("window", Dims{2});
                       a.set("kind", Words("prod"));
                       return a;
                     }()),
            "error TSR-2031: operator reduce_window: kind = \"prod\"\n"
            "  node:  n1\n"
            "  legal: sum, max, min");
}

TEST(OpErrors, Composites) {
  EXPECT_EQ(composite_error("softmin", {{kF, {2}}}).substr(0, 68),
            "error TSR-2033: no composite is called softmin\n"
            "  node:  n1\n"
            "  legal: ");
  EXPECT_EQ(composite_error("softmax", {{kF, {2}}}),
            "error TSR-2002: operator softmax: attribute 'axis' is missing\n"
            "  node:  n1\n"
            "  legal: 'axis' is an integer: the dimension that sums to 1");
  EXPECT_EQ(composite_error("softmax", {{kF, {2}}}, {{"axis", int64_t{1}}}),
            "error TSR-2025: operator softmax: axis = 1\n"
            "  node:  n1\n"
            "  legal: 0");
  EXPECT_EQ(composite_error("softmax", {{kF, {2}}}, {{"axis", int64_t{0}}, {"beta", 1.0}}),
            "error TSR-2004: operator softmax: unknown attribute 'beta'\n"
            "  node:  n1\n"
            "  legal: axis");
  EXPECT_EQ(composite_error("sigmoid", {{DType::kI32, {2}}}),
            "error TSR-2020: operator sigmoid: operand 1 of type i32[2]\n"
            "  node:  n1\n"
            "  legal: f64, f32, f16, bf16\n"
            "  hint:  insert a cast to one of these types");
  EXPECT_EQ(composite_error("clip", {{kF, {2}}, {kF, {}}}),
            "error TSR-2001: operator clip: 2 operands\n"
            "  node:  n1\n"
            "  legal: 3 operands");
  EXPECT_EQ(composite_error("clip", {{kF, {2}}, {kF, {}}, {kF, {3, 2}}}),
            "error TSR-2023: operator clip: operand 3 of type f32[3,2]\n"
            "  node:  n1\n"
            "  legal: a shape that broadcasts to that of operand 1 of type f32[2]");
  EXPECT_EQ(composite_error("celu", {{kF, {2}}}, {{"alpha", 0.0}}),
            "error TSR-2025: operator celu: alpha = 0\n"
            "  node:  n1\n"
            "  legal: a number other than 0");
  EXPECT_EQ(composite_error("batch_norm", {{kF, {1, 3, 4, 4}}, {kF, {3}}, {kF, {3}}, {kF, {2}}, {kF, {3}}},
                            {{"epsilon", 1e-5}}),
            "error TSR-2024: operator batch_norm: operand 4 of type f32[2]\n"
            "  node:  n1\n"
            "  legal: one element for each of the 3 channels");
  EXPECT_EQ(composite_error("group_norm", {{kF, {1, 3, 4}}, {kF, {3}}, {kF, {3}}},
                            {{"epsilon", 1e-5}, {"groups", int64_t{2}}}),
            "error TSR-2024: operator group_norm: 2 groups of 3 channels\n"
            "  node:  n1\n"
            "  legal: groups that divide the channels");
  EXPECT_EQ(composite_error("batch_norm_training", {{kF, {2, 3}}, {kF, {3}}, {kF, {3}}, {kF, {3}}, {kF, {2}}},
                            {{"epsilon", 1e-5}, {"momentum", 0.9}}),
            "error TSR-2024: operator batch_norm_training: operand 5 of type f32[2]\n"
            "  node:  n1\n"
            "  legal: one element for each of the 3 channels");
  EXPECT_EQ(
      composite_error("layer_norm", {{kF, {2, 3}}}, {{"epsilon", 1e-5}, {"axis", int64_t{1}}, {"stash", DType::kI32}}),
      "error TSR-2020: operator layer_norm: stash = i32\n"
      "  node:  n1\n"
      "  legal: f64, f32, f16, bf16");
  const Attrs mean = {{"reduction", std::string("mean")}};
  EXPECT_EQ(composite_error("nll_loss", {{kF, {2, 3}}, {DType::kI64, {3}}}, mean),
            "error TSR-2024: operator nll_loss: operand 2 of type i64[3] for operand 1 of type f32[2,3]\n"
            "  node:  n1\n"
            "  legal: the scores' shape without dimension 1");
  EXPECT_EQ(composite_error("nll_loss", {{kF, {2, 3}}, {kF, {2}}}, mean),
            "error TSR-2020: operator nll_loss: operand 2 of type f32[2]\n"
            "  node:  n1\n"
            "  legal: i32, i64\n"
            "  hint:  insert a cast to one of these types");
  EXPECT_EQ(composite_error("nll_loss", {{kF, {2, 3}}, {DType::kI64, {2}}, {kF, {2}}}, mean),
            "error TSR-2024: operator nll_loss: operand 3 of type f32[2]\n"
            "  node:  n1\n"
            "  legal: one element for each of the 3 classes");
  EXPECT_EQ(composite_error("nll_loss", {{kF, {2, 3}}, {DType::kI64, {2}}, {DType::kF64, {3}}}, mean),
            "error TSR-2021: operator nll_loss: operand 3 of type f64[3] for operand 1 of type f32[2,3]\n"
            "  node:  n1\n"
            "  legal: equal element types");
  EXPECT_EQ(composite_error("softmax_cross_entropy", {{kF, {2, 3}}, {DType::kI64, {2}}},
                            {{"reduction", std::string("average")}}),
            "error TSR-2031: operator softmax_cross_entropy: reduction = \"average\"\n"
            "  node:  n1\n"
            "  legal: none, mean, sum");
  EXPECT_EQ(composite_error("momentum", {{kF, {2}}, {kF, {2}}, {kF, {3}}, {kF, {}}, {DType::kI64, {}}},
                            {{"l2", 0.0}, {"alpha", 0.9}, {"beta", 1.0}}),
            "error TSR-2024: operator momentum: operand 3 of type f32[3] for operand 1 of type f32[2]\n"
            "  node:  n1\n"
            "  legal: a gradient and states of the weight's type");
  EXPECT_EQ(composite_error("layer_norm", {{kF, {2, 3}}, {kF, {4, 2, 3}}}, {{"epsilon", 1e-5}, {"axis", int64_t{1}}}),
            "error TSR-2023: operator layer_norm: operand 2 of type f32[4,2,3]\n"
            "  node:  n1\n"
            "  legal: scale and bias that broadcast to operand 1 of type f32[2,3]");
  EXPECT_EQ(composite_error("gemm", {{kF, {2, 3}}, {kF, {3, 4}}, {kF, {3, 4}}}),
            "error TSR-2023: operator gemm: shapes [2,4] and [3,4]\n"
            "  node:  n1\n"
            "  legal: extents that are equal or 1, aligned at the last dimension\n"
            "  hint:  dimension 2 from the end has extents 2 and 3");
  EXPECT_EQ(composite_error("gemm", {{kF, {2, 3, 1}}, {kF, {3, 4}}}),
            "error TSR-2022: operator gemm: operand 1 of type f32[2,3,1]\n"
            "  node:  n1\n"
            "  legal: rank 2");
  EXPECT_EQ(composite_error("global_average_pool", {{kF, {2, 3}}}),
            "error TSR-2022: operator global_average_pool: operand 1 of type f32[2,3]\n"
            "  node:  n1\n"
            "  legal: rank 3 to 5");
  EXPECT_EQ(composite_error("average_pool", {{kF, {1, 1, 4}}},
                            [] {
                              Attrs a = window({1}, {0}, {0}, {1});
                              a.set("window", Dims{5});
                              return a;
                            }()),
            "error TSR-2026: operator reduce_window: spatial dimension 0: a window spanning 5 over an input of 4, "
            "padding included\n"
            "  node:  n1\n"
            "  legal: a window that fits into the padded input");
  EXPECT_EQ(composite_error("conv_transpose", {{kF, {1, 3, 4}}, {kF, {2, 3, 3}}},
                            [] {
                              Attrs a = window({1}, {0}, {0}, {1});
                              a.set("output_padding", Dims{0});
                              a.set("groups", int64_t{1});
                              return a;
                            }()),
            "error TSR-2024: operator conv_transpose: operand 1 of type f32[1,3,4] with weights [2,3,3] in 1 group\n"
            "  node:  n1\n"
            "  legal: weights whose dimension 0 is the number of input channels, which the groups divide");
}

TEST(OpErrors, SymbolicExtents) {
  const Var n = make_var("n");
  const auto infer = [&](const std::string& op, const std::vector<Shape>& shapes, const Attrs& attrs) {
    std::vector<TensorType> types;
    for (const Shape& shape : shapes) types.push_back(TensorType{kF, shape, {}});
    return infer_types(standard_ops().get(op), types, attrs, {}, "n1")[0].to_string();
  };
  // What can be decided is; what cannot, is refused.
  EXPECT_EQ(infer("add", {{n, Expr(3)}, {Expr(3)}}, {}), "f32[n,3]");
  EXPECT_EQ(infer("concat", {{n}, {n}}, {{"axis", int64_t{0}}}), "f32[(n * 2)]");
  EXPECT_EQ(error_of([&] { infer("add", {{n}, {Expr(3)}}, {}); }),
            "error TSR-2023: operator add: shapes [n] and [3]\n"
            "  node:  n1\n"
            "  legal: extents that are equal or 1, aligned at the last dimension\n"
            "  hint:  dimension 1 from the end has extents n and 3");
  EXPECT_EQ(error_of([&] { infer("reshape", {{n, Expr(4)}}, {{"shape", Dims{2, 2}}}); }),
            "error TSR-2028: operator reshape: shape = [2, 2] (4 elements) for operand 1 of type f32[n,4] ((n * 4) "
            "elements)\n"
            "  node:  n1\n"
            "  legal: a shape of as many elements as the operand's");
  Graph graph;
  GraphBuilder builder(graph);
  builder.set_loc("n1");
  const ValueId x = graph.add_input("x", TensorType{kF, {Expr(1), Expr(8), n, n}, {}});
  const Attrs windows = {{"window", Dims{2, 2}},   {"strides", Dims{4, 4}},   {"pads_begin", Dims{0, 0}},
                         {"pads_end", Dims{0, 0}}, {"dilations", Dims{1, 1}}, {"ceil_mode", true}};
  EXPECT_EQ(error_of([&] { add_composite(builder, standard_ops(), "max_pool", {x}, windows); }),
            "error TSR-2030: operator max_pool: dimension 2 (with ceil_mode) is n, which is not known while compiling\n"
            "  node:  n1\n"
            "  legal: a number\n"
            "  hint:  fix the dimension with --shape or --dim");
  // With a range, what must hold must hold for all of it.
  const KnownSymbols known({{n, 1, 9, 1}});
  EXPECT_EQ(
      error_of([&] {
        infer("reduce_window", {{Expr(1), Expr(8), n}},
              {{"kind", Words("max")},
               {"window", Dims{3}},
               {"strides", Dims{1}},
               {"dilations", Dims{1}},
               {"pads_begin", Dims{0}},
               {"pads_end", Dims{0}}});
      }),
      "error TSR-2026: operator reduce_window: spatial dimension 0: a window spanning 3 over an input of n, padding "
      "included\n"
      "  node:  n1\n"
      "  legal: a window that fits into the padded input\n"
      "  hint:  leave small sizes out of the range of the dimension");
  EXPECT_EQ(infer("slice", {{n}}, {{"starts", Dims{0}}, {"sizes", Shape{n}}, {"steps", Dims{1}}}), "f32[n]");
  EXPECT_EQ(infer("slice", {{Expr(9)}}, {{"starts", Dims{0}}, {"sizes", Shape{n}}, {"steps", Dims{1}}}), "f32[n]");
  EXPECT_EQ(
      error_of([&] { infer("slice", {{Expr(8)}}, {{"starts", Dims{0}}, {"sizes", Shape{n}}, {"steps", Dims{1}}}); }),
      "error TSR-2032: operator slice: dimension 0 of operand 1 of type f32[8]: n elements from 0 on in steps of 1\n"
      "  node:  n1\n"
      "  legal: indices within 0 to 7");
  EXPECT_EQ(infer("resize", {{n}},
                  {{"mode", Words("linear")},
                   {"coordinate", Words("half_pixel")},
                   {"scales", std::vector<double>{0}},
                   {"sizes", Shape{n * Expr(3)}}}),
            "f32[(n * 3)]");
}

}  // namespace
}  // namespace tessera
