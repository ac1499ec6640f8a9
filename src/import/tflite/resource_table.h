// The resources of a model: variables by name, which its graphs share, and which live from one run to the next.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "import/tflite/read/model_file.h"

namespace tessera::inline tflite_import {

class ResourceTable {
 public:
  // Looks through all graphs: for the names of resources, and for what their values are.
  explicit ResourceTable(const TfliteModel& model);

  int number(const std::string& name);
  const std::string& name(int resource) const { return resources_[static_cast<size_t>(resource)].name; }
  const TensorType* type(int resource) const;  // null: nothing says it
  TensorPtr initial(int resource) const { return resources_[static_cast<size_t>(resource)].initial; }
  void set_initial(int resource, TensorPtr value) {
    resources_[static_cast<size_t>(resource)].initial = std::move(value);
  }
  // Those that a graph, or one that it runs, names.
  const std::set<int>& of_graph(int32_t index);

  static std::string name_of(const tflite::Operator& handle);
  // The graphs that an operator runs each time that it runs.
  static std::vector<int32_t> run_by(const TfliteModel& model, const tflite::Operator& node);

 private:
  struct Resource {
    std::string name;
    std::optional<TensorType> type;
    bool is_certain = false;  // the type is that of a constant that it is given
    TensorPtr initial;
  };
  void look_through(const tflite::SubGraph& graph, std::set<int>& named);
  void add_reached(int32_t index, std::set<int32_t>& seen, std::set<int>& all) const;

  const TfliteModel& model_;
  std::vector<Resource> resources_;
  std::map<std::string, int> numbers_;
  std::vector<std::set<int>> named_;      // by graph
  std::map<int32_t, std::set<int>> all_;  // with the graphs that they run
};

}  // namespace tessera::inline tflite_import
