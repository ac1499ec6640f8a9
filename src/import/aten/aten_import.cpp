#include "import/aten/aten_import.h"

#include <utility>

#include "import/aten/graph_importer.h"
#include "import/aten/read/size_expr.h"

namespace tessera::inline aten {

bool looks_like_pt2(std::string_view beginning) { return beginning.starts_with("PK\3\4"); }

AtenProgram open_pt2(std::string_view bytes, std::shared_ptr<const void> owner, const std::string& place) {
  return read_program(Pt2Archive(bytes, std::move(owner), place));
}

AtenBorder border_of(const AtenProgram& program) {
  AtenBorder border;
  const auto add = [&](const AtenArgument& argument, std::vector<AtenBorderTensor>& to) {
    if (argument.kind != ArgumentKind::kTensor) return;
    const std::string& name = argument.items[0].name;
    const auto type = program.types.find(name);
    if (type == program.types.end()) return;
    AtenBorderTensor tensor{name, type->second, {}};
    for (const AtenSize& size : tensor.type.sizes) tensor.size_names.push_back(lone_symbol(size.expr));
    to.push_back(std::move(tensor));
  };
  for (const AtenInput& input : program.inputs)
    if (input.kind == AtenInput::Kind::kUser) add(input.argument, border.inputs);
  for (const AtenOutput& output : program.outputs)
    if (output.buffer.empty()) add(output.argument, border.outputs);
  return border;
}

ReadOutcome read_aten_program(const AtenProgram& program, const ImportOptions& options, const OpTable& ops,
                              Evaluator& evaluator) {
  return build_graph(program, options, ops, evaluator);
}

std::vector<RefusedAtenNode> find_refused_nodes(const AtenProgram& program, const ImportOptions& options,
                                                const OpTable& ops, Evaluator& evaluator) {
  return find_refused(program, options, ops, evaluator);
}

}  // namespace tessera::inline aten
