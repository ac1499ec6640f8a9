// A network of Caffe -> graph: a .prototxt, which says what there is to compute, and a .caffemodel with its weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/evaluator.h"
#include "graph/op_def.h"
#include "import/common/options.h"

namespace tessera::inline caffe {

bool looks_like_prototxt(std::string_view beginning);

// Layers of the phase TEST in their order, with the weights of the layers of the same names. Immutable.
class CaffeNetwork;

// `weights`: the bytes of the .caffemodel, which are copied; empty: there is none, and layers with weights are refused.
// `place`, `weights_place`: for messages. UserError: TSR-1131 the text is no network, TSR-1132 the weights are none.
std::shared_ptr<const CaffeNetwork> read_caffe_network(std::string_view text, const std::string& place,
                                                       std::string_view weights, const std::string& weights_place);

struct CaffeInput {
  std::string name;
  std::vector<int64_t> dims;  // as the file has them; ImportOptions::shapes may say others
};
struct CaffeBorder {
  std::vector<CaffeInput> inputs;
  std::vector<std::string> outputs;  // what no layer reads, in order
};
CaffeBorder border_of(const CaffeNetwork& network);

// All values are f32. UserError TSR-102x for options that do not fit; all layers that cannot be imported are in one
// NodesRefused. The graph's weights are those of `network`. `evaluator` is used during the call only.
ReadOutcome read_caffe(const std::shared_ptr<const CaffeNetwork>& network, const ImportOptions& options,
                       const OpTable& ops, Evaluator& evaluator);

}  // namespace tessera::inline caffe
