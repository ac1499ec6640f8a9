// ONNX models as JSON: text -> a model in binary form, which protobuf reads, with nothing in it that the schema does not
// have.
#include <google/protobuf/io/coded_stream.h>

#include <string>

#include "fuzz_target.h"
#include "import/onnx_json/onnx_json.h"
#include "onnx-ml.pb.h"

using namespace tessera;

namespace {

void read(const std::string& text) {
  const std::string bytes = onnx_of_json(text, "text");
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  stream.SetRecursionLimit(300);
  onnx::ModelProto model;
  fuzz::require(model.ParseFromCodedStream(&stream) && stream.ConsumedEntireMessage(), "the bytes are no message");
  fuzz::require(model.unknown_fields().empty() && model.graph().unknown_fields().empty(), "a field without a name");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::text_of(data, size));
  if (looks_like_onnx_json(text)) fuzz::accepts([&] { read(text); });
  return 0;
}
