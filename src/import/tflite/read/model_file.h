// A TFLite file in memory, checked: every table is verified, every number that refers to something refers to something
// that is there, and every tensor's bytes are as many as its shape and type say.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "import/tflite/read/tensor_info.h"
#include "model_generated.h"
#include "types/tensor.h"

namespace tessera::inline tflite_import {

class TfliteModel {
 public:
  // `bytes` begin at a multiple of 16 and are kept alive by `owner`. UserError TSR-1002, TSR-110x. `place`: for
  // messages.
  TfliteModel(std::string_view bytes, std::shared_ptr<const void> owner, const std::string& place);

  const tflite::Model& root() const { return *root_; }
  int32_t num_subgraphs() const { return static_cast<int32_t>(root_->subgraphs()->size()); }
  const tflite::SubGraph& subgraph(int32_t index) const;
  // The operator of a node, by its number in the schema, and its name: of a custom one the name that its writer gave.
  tflite::BuiltinOperator code(const tflite::Operator& node) const;
  std::string name_of(const tflite::Operator& node) const;

  bool has_bytes(uint32_t buffer_number) const { return !buffer(buffer_number).empty(); }

  // What the model says of a tensor. UserError TSR-1103 when it contradicts itself.
  TfliteTensor tensor(const tflite::SubGraph& graph, int32_t index) const;
  // Its bytes, which are not copied where they can be read in place; empty for one that a run computes.
  std::optional<Tensor> data(const tflite::SubGraph& graph, int32_t index, const TfliteTensor& tensor) const;

 private:
  void check_numbers(const tflite::SubGraph& graph) const;
  std::string_view buffer(uint32_t index) const;
  std::optional<Tensor> dense_of_sparse(const tflite::Tensor& proto, const TfliteTensor& tensor,
                                        std::string_view stored) const;

  std::string_view bytes_;
  std::shared_ptr<const void> owner_;
  const tflite::Model* root_ = nullptr;
};

}  // namespace tessera::inline tflite_import
