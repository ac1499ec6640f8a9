#include "import/onnx_json/schema.h"

namespace tessera::inline onnx_json {
namespace {

using enum FieldKind;
constexpr bool kList = true;

constexpr JsonWord kAttributeTypes[] = {{"UNDEFINED", 0},       {"FLOAT", 1},       {"INT", 2},
                                        {"STRING", 3},          {"TENSOR", 4},      {"GRAPH", 5},
                                        {"FLOATS", 6},          {"INTS", 7},        {"STRINGS", 8},
                                        {"TENSORS", 9},         {"GRAPHS", 10},     {"SPARSE_TENSOR", 11},
                                        {"SPARSE_TENSORS", 12}, {"TYPE_PROTO", 13}, {"TYPE_PROTOS", 14}};
constexpr JsonWord kLocations[] = {{"DEFAULT", 0}, {"EXTERNAL", 1}};

// Messages that hold one another are declared first.
extern const JsonMessage kGraph, kType;

constexpr JsonField kEntryFields[] = {{"key", 1, kText}, {"value", 2, kText}};
constexpr JsonMessage kEntry{"StringStringEntryProto", kEntryFields};
constexpr JsonField kOpsetFields[] = {{"domain", 1, kText}, {"version", 2, kInt}};
constexpr JsonMessage kOpset{"OperatorSetIdProto", kOpsetFields};

constexpr JsonField kSegmentFields[] = {{"begin", 1, kInt}, {"end", 2, kInt}};
constexpr JsonMessage kSegment{"TensorProto.Segment", kSegmentFields};
constexpr JsonField kTensorFields[] = {{"dims", 1, kInt, kList},
                                       {"data_type", 2, kInt},
                                       {"segment", 3, kMessage, false, &kSegment},
                                       {"float_data", 4, kFloat, kList},
                                       {"int32_data", 5, kInt, kList},
                                       {"string_data", 6, kBytes, kList},
                                       {"int64_data", 7, kInt, kList},
                                       {"name", 8, kText},
                                       {"doc_string", 12, kText},
                                       {"raw_data", 9, kBytes},
                                       {"external_data", 13, kMessage, kList, &kEntry},
                                       {"data_location", 14, kEnum, false, nullptr, kLocations},
                                       {"double_data", 10, kDouble, kList},
                                       {"uint64_data", 11, kInt, kList},
                                       {"metadata_props", 16, kMessage, kList, &kEntry}};
constexpr JsonMessage kTensor{"TensorProto", kTensorFields};
constexpr JsonField kSparseFields[] = {
    {"values", 1, kMessage, false, &kTensor}, {"indices", 2, kMessage, false, &kTensor}, {"dims", 3, kInt, kList}};
constexpr JsonMessage kSparse{"SparseTensorProto", kSparseFields};

constexpr JsonField kDimensionFields[] = {{"dim_value", 1, kInt}, {"dim_param", 2, kText}, {"denotation", 3, kText}};
constexpr JsonMessage kDimension{"TensorShapeProto.Dimension", kDimensionFields};
constexpr JsonField kShapeFields[] = {{"dim", 1, kMessage, kList, &kDimension}};
constexpr JsonMessage kShape{"TensorShapeProto", kShapeFields};
constexpr JsonField kTensorTypeFields[] = {{"elem_type", 1, kInt}, {"shape", 2, kMessage, false, &kShape}};
constexpr JsonMessage kTensorType{"TypeProto.Tensor", kTensorTypeFields};
constexpr JsonField kElementTypeFields[] = {{"elem_type", 1, kMessage, false, &kType}};
constexpr JsonMessage kElementType{"TypeProto.Sequence", kElementTypeFields};
constexpr JsonField kMapTypeFields[] = {{"key_type", 1, kInt}, {"value_type", 2, kMessage, false, &kType}};
constexpr JsonMessage kMapType{"TypeProto.Map", kMapTypeFields};
constexpr JsonField kTypeFields[] = {{"tensor_type", 1, kMessage, false, &kTensorType},
                                     {"sequence_type", 4, kMessage, false, &kElementType},
                                     {"map_type", 5, kMessage, false, &kMapType},
                                     {"denotation", 6, kText},
                                     {"sparse_tensor_type", 8, kMessage, false, &kTensorType},
                                     {"optional_type", 9, kMessage, false, &kElementType}};
const JsonMessage kType{"TypeProto", kTypeFields};

constexpr JsonField kValueInfoFields[] = {{"name", 1, kText},
                                          {"type", 2, kMessage, false, &kType},
                                          {"doc_string", 3, kText},
                                          {"metadata_props", 4, kMessage, kList, &kEntry}};
constexpr JsonMessage kValueInfo{"ValueInfoProto", kValueInfoFields};

constexpr JsonField kAttributeFields[] = {{"name", 1, kText},
                                          {"ref_attr_name", 21, kText},
                                          {"doc_string", 13, kText},
                                          {"type", 20, kEnum, false, nullptr, kAttributeTypes},
                                          {"f", 2, kFloat},
                                          {"i", 3, kInt},
                                          {"s", 4, kBytes},
                                          {"t", 5, kMessage, false, &kTensor},
                                          {"g", 6, kMessage, false, &kGraph},
                                          {"sparse_tensor", 22, kMessage, false, &kSparse},
                                          {"tp", 14, kMessage, false, &kType},
                                          {"floats", 7, kFloat, kList},
                                          {"ints", 8, kInt, kList},
                                          {"strings", 9, kBytes, kList},
                                          {"tensors", 10, kMessage, kList, &kTensor},
                                          {"graphs", 11, kMessage, kList, &kGraph},
                                          {"sparse_tensors", 23, kMessage, kList, &kSparse},
                                          {"type_protos", 15, kMessage, kList, &kType}};
constexpr JsonMessage kAttribute{"AttributeProto", kAttributeFields};

constexpr JsonField kNodeFields[] = {{"input", 1, kText, kList},
                                     {"output", 2, kText, kList},
                                     {"name", 3, kText},
                                     {"op_type", 4, kText},
                                     {"domain", 7, kText},
                                     {"overload", 8, kText},
                                     {"attribute", 5, kMessage, kList, &kAttribute},
                                     {"doc_string", 6, kText},
                                     {"metadata_props", 9, kMessage, kList, &kEntry}};
constexpr JsonMessage kNode{"NodeProto", kNodeFields};

constexpr JsonField kAnnotationFields[] = {{"tensor_name", 1, kText},
                                           {"quant_parameter_tensor_names", 2, kMessage, kList, &kEntry}};
constexpr JsonMessage kAnnotation{"TensorAnnotation", kAnnotationFields};
constexpr JsonField kGraphFields[] = {{"node", 1, kMessage, kList, &kNode},
                                      {"name", 2, kText},
                                      {"initializer", 5, kMessage, kList, &kTensor},
                                      {"sparse_initializer", 15, kMessage, kList, &kSparse},
                                      {"doc_string", 10, kText},
                                      {"input", 11, kMessage, kList, &kValueInfo},
                                      {"output", 12, kMessage, kList, &kValueInfo},
                                      {"value_info", 13, kMessage, kList, &kValueInfo},
                                      {"quantization_annotation", 14, kMessage, kList, &kAnnotation},
                                      {"metadata_props", 16, kMessage, kList, &kEntry}};
const JsonMessage kGraph{"GraphProto", kGraphFields};

constexpr JsonField kFunctionFields[] = {{"name", 1, kText},
                                         {"input", 4, kText, kList},
                                         {"output", 5, kText, kList},
                                         {"attribute", 6, kText, kList},
                                         {"attribute_proto", 11, kMessage, kList, &kAttribute},
                                         {"node", 7, kMessage, kList, &kNode},
                                         {"doc_string", 8, kText},
                                         {"opset_import", 9, kMessage, kList, &kOpset},
                                         {"domain", 10, kText},
                                         {"overload", 13, kText},
                                         {"value_info", 12, kMessage, kList, &kValueInfo},
                                         {"metadata_props", 14, kMessage, kList, &kEntry}};
constexpr JsonMessage kFunction{"FunctionProto", kFunctionFields};

constexpr JsonField kModelFields[] = {{"ir_version", 1, kInt},
                                      {"opset_import", 8, kMessage, kList, &kOpset},
                                      {"producer_name", 2, kText},
                                      {"producer_version", 3, kText},
                                      {"domain", 4, kText},
                                      {"model_version", 5, kInt},
                                      {"doc_string", 6, kText},
                                      {"graph", 7, kMessage, false, &kGraph},
                                      {"metadata_props", 14, kMessage, kList, &kEntry},
                                      {"functions", 25, kMessage, kList, &kFunction}};

}  // namespace

const JsonMessage kModelMessage{"ModelProto", kModelFields};

}  // namespace tessera::inline onnx_json
