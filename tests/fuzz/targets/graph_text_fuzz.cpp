// The text form of graphs: parse, verify, print, and read that again.
#include "fuzz_target.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "ops/op_table.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] {
    const Graph graph = parse_graph(fuzz::text_of(data, size), standard_ops());
    if (!verify(graph).empty()) return;
    const std::string printed = print(graph);
    fuzz::require(print(parse_graph(printed, standard_ops())) == printed, "print, parse, print gives another text");
  });
  return 0;
}
