#include "import/caffe/layer_context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "import/common/limits.h"

namespace tessera::inline caffe {
namespace {

int64_t elements_of(const proto::BlobProto& blob) {
  return blob.data_size() > 0 ? blob.data_size() : blob.double_data_size();
}

}  // namespace

LayerContext::LayerContext(EmitState& state, std::shared_ptr<const CaffeNetwork> network,
                           const proto::LayerParameter& layer, std::vector<ValueId> bottoms)
    : Emitter(state),
      network_(std::move(network)),
      layer_(layer),
      blobs_(network_->blobs_of(layer)),
      bottoms_(std::move(bottoms)),
      results_(num_tops(), -1) {}

void LayerContext::require_bottoms(size_t least, size_t most) {
  if (num_bottoms() < least || num_bottoms() > most)
    malformed(fmt::format("{} bottoms", num_bottoms()),
              least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most));
}

void LayerContext::require_rank(size_t bottom, int wanted) {
  if (rank(in(bottom)) != wanted)
    malformed(fmt::format("a bottom of type {}", type(in(bottom)).to_string()), fmt::format("{} dimensions", wanted));
}

const proto::BlobProto& LayerContext::found_blob(int i) const {
  if (i < blobs_.size()) return blobs_.Get(i);
  malformed(network_->weights ? fmt::format("weights {} are not in the .caffemodel", i)
                              : "the layer has weights, and there is no .caffemodel",
            "weights of the layer's name",
            "the weights of NAME.prototxt are NAME.caffemodel in the same folder, or the only .caffemodel there");
}

int64_t LayerContext::blob_elements(int i) { return elements_of(found_blob(i)); }

Ints LayerContext::blob_dims(int i) {
  const proto::BlobProto& blob = found_blob(i);
  if (blob.has_shape()) return {blob.shape().dim().begin(), blob.shape().dim().end()};
  if (blob.has_num() || blob.has_channels()) return {blob.num(), blob.channels(), blob.height(), blob.width()};
  return {elements_of(blob)};
}

ValueId LayerContext::blob(int i, const Ints& dims) {
  const proto::BlobProto& blob = found_blob(i);
  const auto wanted = checked_num_elements(dims);
  if (!wanted || *wanted != elements_of(blob))
    malformed(fmt::format("weights {} of {} elements", i, elements_of(blob)),
              fmt::format("[{}]", fmt::join(dims, ", ")));
  if (blob.data_size() > 0) return constant_value(Tensor(DType::kF32, dims, network_, blob.data().data()));
  Tensor narrow(DType::kF32, dims);
  for (int64_t e = 0; e < *wanted; ++e) narrow.set_double(e, blob.double_data(static_cast<int>(e)));
  return constant_value(std::move(narrow));
}

void LayerContext::out(size_t i, ValueId value) {
  if (i >= results_.size()) malformed(fmt::format("{} tops", results_.size()), fmt::format("{} or more", i + 1));
  results_[i] = value;
}

Diagnostic LayerContext::malformed_diagnostic(const std::string& found, const std::string& legal,
                                              const std::string& hint) const {
  return {"TSR-1133", fmt::format("{}: {}", layer_.type(), found), layer_.name(), legal, hint};
}

}  // namespace tessera::inline caffe
