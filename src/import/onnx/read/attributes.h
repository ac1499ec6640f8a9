// The attributes of one ONNX node, read by name and type. It remembers what was read, so that an attribute that the
// importer does not understand is reported instead of ignored.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "import/onnx/read/node_list.h"

namespace tessera::inline onnx_import {

class AttributeReader {
 public:
  explicit AttributeReader(const FlatNode& node) : node_(node) {}

  // The value, or the fallback when the node does not have the attribute. UserError TSR-1042 when it is of another
  // type.
  int64_t get_int(const std::string& name, int64_t fallback);
  double get_float(const std::string& name, double fallback);
  std::string get_string(const std::string& name, const std::string& fallback);
  std::vector<int64_t> get_ints(const std::string& name, std::vector<int64_t> fallback = {});
  std::vector<std::string> get_strings(const std::string& name);  // none when absent
  std::vector<double> get_floats(const std::string& name, std::vector<double> fallback = {});
  const onnx::TensorProto* get_tensor(const std::string& name);  // null when absent
  const onnx::GraphProto* get_graph(const std::string& name);    // ditto
  const onnx::TypeProto* get_type(const std::string& name);      // ditto
  const onnx::GraphProto& require_graph(const std::string& name);

  bool has(const std::string& name) const;  // does not count as read
  int64_t require_int(const std::string& name);
  std::vector<int64_t> require_ints(const std::string& name);

  // For attributes without a meaning for inference.
  void ignore(const std::string& name) { read_.insert(name); }
  // Names that nothing has read, in the node's order.
  std::vector<std::string> unread() const;

 private:
  // The attribute of that name and type; null when absent.
  const onnx::AttributeProto* find(const std::string& name, onnx::AttributeProto::AttributeType type);
  [[noreturn]] void fail_missing(const std::string& name, const std::string& type);

  const FlatNode& node_;
  std::set<std::string> read_;
};

}  // namespace tessera::inline onnx_import
