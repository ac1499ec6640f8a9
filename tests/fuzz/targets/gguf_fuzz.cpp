// GGUF files: bytes -> metadata and tensors that lie in the file, a tokenizer whose tokens it has, and a graph that
// verifies.
#include "arith/simplify.h"
#include "fuzz_target.h"
#include "generate/tokenizer.h"
#include "graph/verify.h"
#include "import/gguf/gguf_import.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"

using namespace tessera;

namespace {

void read(std::string_view bytes) {
  GgufModel model(bytes, "file", nullptr);
  for (const auto& [name, tensor] : model.file.tensors()) {
    const auto begin = reinterpret_cast<uintptr_t>(tensor.data), first = reinterpret_cast<uintptr_t>(bytes.data());
    const auto size =
        static_cast<uint64_t>(tensor.num_elements() / block_elements(tensor.type)) * block_bytes(tensor.type);
    fuzz::require(begin >= first && begin + size <= first + bytes.size(), "a tensor outside of the file");
  }
  fuzz::require(!metadata_json(model.file).empty(), "no metadata");
  GraphInterpreter evaluator;
  const Graph graph = gguf_graph(model, {}, standard_ops(), evaluator);
  verify_or_throw(graph, "gguf");
}

void read_tokenizer(std::string_view bytes) {
  const GgufFile file(bytes, "file");
  const Tokenizer tokenizer(file);
  const auto count = std::get<GgufArray>(*file.find("tokenizer.ggml.tokens")).count;
  for (const std::string_view text : {"", "a", " aab ba\n\xC3\xA9 <s>1\xFF"})
    for (const Token token : tokenizer.encode(text)) {
      fuzz::require(token >= 0 && static_cast<uint64_t>(token) < count, "a token that the file has not");
      CharacterStream().add(tokenizer.bytes_of(token, true));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  if (!looks_like_gguf(bytes)) return 0;
  fuzz::accepts([&] { read_tokenizer(bytes); });
  fuzz::accepts([&] { read(bytes); });
  return 0;
}
