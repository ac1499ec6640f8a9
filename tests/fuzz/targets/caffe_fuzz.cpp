// The reader of Caffe's networks: text, and behind a zero byte the weights -> graph, verified.
#include <algorithm>

#include "import/caffe/caffe_import.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"
#include "reader_target.h"

using namespace tessera;

namespace {

void import_and_verify(std::string_view input) {
  const size_t end = std::min(input.find('\0'), input.size());
  const std::string_view weights = end < input.size() ? input.substr(end + 1) : std::string_view();
  const auto network = read_caffe_network(input.substr(0, end), "n.prototxt", weights, "n.caffemodel");
  border_of(*network);
  GraphInterpreter evaluator;
  fuzz::require_graph(read_caffe(network, {}, standard_ops(), evaluator));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] { import_and_verify(fuzz::text_of(data, size)); });
  return 0;
}
