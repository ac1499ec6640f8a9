#include "import/caffe/layer_table.h"

#include "import/caffe/layers/handlers.h"
#include "import/common/operator_rows.h"

namespace tessera::inline caffe {

const CaffeLayer* find_caffe_layer(std::string_view type) {
  static const std::vector<CaffeLayer> table = sorted_rows({box_layers(), contraction_layers(), elementwise_layers(),
                                                            normalization_layers(), pooling_layers(), shape_layers()},
                                                           &CaffeLayer::type);
  return find_row<CaffeLayer>(table, &CaffeLayer::type, type);
}

}  // namespace tessera::inline caffe
