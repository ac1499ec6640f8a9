// Which layers are read, and by what.
#pragma once

#include <string_view>

#include "import/caffe/layer_context.h"

namespace tessera::inline caffe {

struct CaffeLayer {
  std::string_view type;  // "InnerProduct"
  void (*handler)(LayerContext& c);
};

// Null: the type is not read.
const CaffeLayer* find_caffe_layer(std::string_view type);

}  // namespace tessera::inline caffe
