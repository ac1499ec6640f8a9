#include "import/onnx/read/attributes.h"

#include <fmt/format.h>

#include "support/error.h"

namespace tessera::inline onnx_import {
namespace {

using onnx::AttributeProto;

// Very old exporters leave the type out: then the field that is filled says it.
AttributeProto::AttributeType type_of(const AttributeProto& attribute) {
  if (attribute.type() != AttributeProto::UNDEFINED) return attribute.type();
  if (attribute.has_f()) return AttributeProto::FLOAT;
  if (attribute.has_i()) return AttributeProto::INT;
  if (attribute.has_s()) return AttributeProto::STRING;
  if (attribute.has_t()) return AttributeProto::TENSOR;
  if (attribute.has_g()) return AttributeProto::GRAPH;
  if (attribute.ints_size()) return AttributeProto::INTS;
  if (attribute.floats_size()) return AttributeProto::FLOATS;
  if (attribute.strings_size()) return AttributeProto::STRINGS;
  return AttributeProto::UNDEFINED;
}

}  // namespace

bool AttributeReader::has(const std::string& name) const {
  for (const AttributeProto& attribute : node_.proto->attribute())
    if (attribute.name() == name) return true;
  return false;
}

const AttributeProto* AttributeReader::find(const std::string& name, AttributeProto::AttributeType type) {
  read_.insert(name);
  for (const AttributeProto& attribute : node_.proto->attribute()) {
    if (attribute.name() != name) continue;
    const auto found = type_of(attribute);
    // A list that is empty has no field that would tell its type.
    const bool is_list = type == AttributeProto::INTS || type == AttributeProto::FLOATS;
    if (found == type || (found == AttributeProto::UNDEFINED && is_list)) return &attribute;
    throw UserError({"TSR-1042",
                     fmt::format("attribute '{}' of {} is of type {}", name, node_.proto->op_type(),
                                 AttributeProto::AttributeType_Name(found)),
                     node_.label, fmt::format("type {}", AttributeProto::AttributeType_Name(type)), ""});
  }
  return nullptr;
}

void AttributeReader::fail_missing(const std::string& name, const std::string& type) {
  throw UserError({"TSR-1043", fmt::format("{} has no attribute '{}'", node_.proto->op_type(), name), node_.label,
                   fmt::format("the attribute '{}' of type {} is required", name, type), ""});
}

int64_t AttributeReader::get_int(const std::string& name, int64_t fallback) {
  const auto* attribute = find(name, AttributeProto::INT);
  return attribute ? attribute->i() : fallback;
}

double AttributeReader::get_float(const std::string& name, double fallback) {
  const auto* attribute = find(name, AttributeProto::FLOAT);
  return attribute ? static_cast<double>(attribute->f()) : fallback;
}

std::string AttributeReader::get_string(const std::string& name, const std::string& fallback) {
  const auto* attribute = find(name, AttributeProto::STRING);
  return attribute ? attribute->s() : fallback;
}

std::vector<int64_t> AttributeReader::get_ints(const std::string& name, std::vector<int64_t> fallback) {
  const auto* attribute = find(name, AttributeProto::INTS);
  if (!attribute) return fallback;
  return {attribute->ints().begin(), attribute->ints().end()};
}

std::vector<std::string> AttributeReader::get_strings(const std::string& name) {
  const auto* attribute = find(name, AttributeProto::STRINGS);
  if (!attribute) return {};
  return {attribute->strings().begin(), attribute->strings().end()};
}

std::vector<double> AttributeReader::get_floats(const std::string& name, std::vector<double> fallback) {
  const auto* attribute = find(name, AttributeProto::FLOATS);
  if (!attribute) return fallback;
  return {attribute->floats().begin(), attribute->floats().end()};
}

const onnx::TensorProto* AttributeReader::get_tensor(const std::string& name) {
  const auto* attribute = find(name, AttributeProto::TENSOR);
  return attribute ? &attribute->t() : nullptr;
}

const onnx::GraphProto* AttributeReader::get_graph(const std::string& name) {
  const auto* attribute = find(name, AttributeProto::GRAPH);
  return attribute ? &attribute->g() : nullptr;
}

const onnx::TypeProto* AttributeReader::get_type(const std::string& name) {
  const auto* attribute = find(name, AttributeProto::TYPE_PROTO);
  return attribute ? &attribute->tp() : nullptr;
}

const onnx::GraphProto& AttributeReader::require_graph(const std::string& name) {
  const auto* graph = get_graph(name);
  if (!graph) fail_missing(name, "GRAPH");
  return *graph;
}

int64_t AttributeReader::require_int(const std::string& name) {
  if (!has(name)) fail_missing(name, "INT");
  return get_int(name, 0);
}

std::vector<int64_t> AttributeReader::require_ints(const std::string& name) {
  if (!has(name)) fail_missing(name, "INTS");
  return get_ints(name);
}

std::vector<std::string> AttributeReader::unread() const {
  std::vector<std::string> names;
  for (const AttributeProto& attribute : node_.proto->attribute())
    if (!read_.count(attribute.name())) names.push_back(attribute.name());
  return names;
}

}  // namespace tessera::inline onnx_import
