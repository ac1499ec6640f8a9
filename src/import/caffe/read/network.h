// A network as messages, checked and in one form.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "caffe/net.pb.h"
#include "import/caffe/caffe_import.h"

namespace tessera::inline caffe {

namespace proto = ::tessera::caffe_net;

class CaffeNetwork {
 public:
  proto::NetParameter net;                             // its layers are those of the phase TEST, in today's form
  std::shared_ptr<const proto::NetParameter> weights;  // null: there are none
  std::map<std::string, const proto::LayerParameter*> weights_of = {};  // by the layer's name

  // The blobs of a layer: the network's own, or those of the weights. Their owner is the network.
  const google::protobuf::RepeatedPtrField<proto::BlobProto>& blobs_of(const proto::LayerParameter& layer) const;
};

}  // namespace tessera::inline caffe
