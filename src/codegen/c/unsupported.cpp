#include "codegen/c/unsupported.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "codegen/source/c_text.h"
#include "graph/flow.h"
#include "program/steps.h"
#include "support/error.h"

namespace tessera::inline c_codegen {

void refuse_unsupported(const Program& program) {
  std::vector<std::string> found;
  const auto add = [&](std::string what) {
    if (std::find(found.begin(), found.end(), what) == found.end()) found.push_back(std::move(what));
  };
  if (program.flow)
    add(fmt::format("values without a fixed size ({}{})",
                    program.flow->why.node.empty() ? "" : fmt::format("node '{}': ", program.flow->why.node),
                    program.flow->why.reason));
  for (const SymbolRange& symbol : program.symbols)
    add(fmt::format("the open size '{}' ({} to {})", symbol.var->name, symbol.lo, symbol.hi));
  for (const ProgramDevice& device : program.devices) add(fmt::format("the device '{}'", device.name));
  for_each_step(program.steps, [&](const ProgramStep& step) {
    if (step.kind == StepKind::kBind) add(fmt::format("a size that data decide (node '{}')", step.loc));
  });
  const auto see = [&](DType dtype, const std::string& where) {
    if (!has_c_type(dtype)) add(fmt::format("elements of type {} ({})", dtype_name(dtype), where));
  };
  for (const ProgramBuffer& buffer : program.buffers) see(buffer.type.dtype, fmt::format("value '{}'", buffer.name));
  for (const Kernel& kernel : program.kernels)
    walk(
        kernel.program.body,
        [&](const Stmt& s) {
          if (s->buffer) see(s->buffer->dtype, fmt::format("node '{}'", kernel.loc));
        },
        [&](const Expr& e) { see(e->dtype, fmt::format("node '{}'", kernel.loc)); });
  if (found.empty()) return;
  constexpr size_t kShown = 8;
  const size_t more = found.size() > kShown ? found.size() - kShown : 0;
  found.resize(found.size() - more);
  throw UserError({.id = "TSR-5130",
                   .message = fmt::format("the model cannot be written as C: it has {}{}", fmt::join(found, "; "),
                                          more ? fmt::format("; and {} more", more) : ""),
                   .node = {},
                   .legal = "models of fixed sizes, of f64, f32, f16, bf16, bool, and integers of 8 to 64 bits",
                   .hint = "give sizes with --shape or --dim; or compile a module, which the runtime runs"});
}

}  // namespace tessera::inline c_codegen
