// What the handler of one layer sees: its operands, parameters and weights, and ways to add the nodes of our graph that
// stand for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "import/caffe/read/network.h"
#include "import/common/emitter.h"

namespace tessera::inline caffe {

using Ints = std::vector<int64_t>;

class LayerContext : public Emitter {
 public:
  LayerContext(EmitState& state, std::shared_ptr<const CaffeNetwork> network, const proto::LayerParameter& layer,
               std::vector<ValueId> bottoms);

  const std::string& op_type() const override { return layer_.type(); }
  const std::string& label() const override { return layer_.name(); }
  const proto::LayerParameter& layer() const { return layer_; }

  // ---- operands, which Caffe calls bottoms ----
  size_t num_bottoms() const { return bottoms_.size(); }
  ValueId in(size_t i = 0) const { return bottoms_[i]; }  // REQUIRES: require_bottoms
  void require_bottoms(size_t least, size_t most);
  void require_rank(size_t bottom, int rank);

  // ---- weights ----
  int num_blobs() const { return blobs_.size(); }
  // Weights number i as f32[dims]; malformed when they are not there, or not as many. Borrowed from the file.
  ValueId blob(int i, const Ints& dims);
  int64_t blob_elements(int i);
  Ints blob_dims(int i);  // as the file has them

  // ---- results, which Caffe calls tops ----
  size_t num_tops() const { return static_cast<size_t>(layer_.top_size()); }
  void out(ValueId value) { out(0, value); }
  void out(size_t i, ValueId value);
  const std::vector<ValueId>& results() const { return results_; }

 protected:
  Diagnostic malformed_diagnostic(const std::string& found, const std::string& legal,
                                  const std::string& hint) const override;

 private:
  const proto::BlobProto& found_blob(int i) const;

  std::shared_ptr<const CaffeNetwork> network_;
  const proto::LayerParameter& layer_;
  const google::protobuf::RepeatedPtrField<proto::BlobProto>& blobs_;
  std::vector<ValueId> bottoms_, results_;
};

}  // namespace tessera::inline caffe
