// tessera/aten.h.
#include "tessera/aten.h"

#include "driver/api/api_support.h"
#include "import/aten/aten_import.h"
#include "interp/graph_interp.h"
#include "ops/op_table.h"

namespace tessera {

std::vector<RefusedNode> refused_nodes(const ModelBytes& program, const CompileOptions& options) {
  return translate_errors([&] {
    ImportOptions import;
    for (const auto& [name, bounds] : options.dims) import.dims[name] = {bounds.lo, bounds.hi};
    import.shapes = options.shapes;
    GraphInterpreter evaluator;
    std::vector<RefusedNode> result;
    for (const auto& node :
         find_refused_nodes(open_pt2(program.bytes, nullptr, program.name), import, standard_ops(), evaluator))
      result.push_back({node.name, node.target, node.reason});
    return result;
  });
}

std::vector<std::string> aten_operators() { return read_aten_operators(); }

}  // namespace tessera
