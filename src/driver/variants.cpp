#include "driver/variants.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "codegen/llvm/llvm_codegen.h"
#include "codegen/llvm/target.h"
#include "driver/devices.h"
#include "support/error.h"

namespace tessera::inline driver {

std::vector<VariantTarget> variant_targets(const CompileOptions& options, const Target& own) {
  std::vector<VariantTarget> result;
  std::set<std::string> names = {options.target};
  for (const std::string& name : options.variants) {
    if (!names.insert(name).second)
      throw UserError({.id = "TSR-4076",
                       .message = fmt::format("--variants: '{}' is named twice, or is the target", name),
                       .node = {},
                       .legal = "each target once, that of --target left out",
                       .hint = {}});
    VariantTarget variant{name, parse_target(name)};
    if (variant.target.isa() != own.isa())
      throw UserError({.id = "TSR-4076",
                       .message = fmt::format("--variants: '{}' is of another architecture than the target '{}'", name,
                                              options.target),
                       .node = {},
                       .legal = "targets of one architecture: --target x86-64-v3 --variants x86-64-v2,x86-64-v4",
                       .hint = "compile a module of its own for each architecture"});
    variant.target.num_threads = own.num_threads;
    result.push_back(std::move(variant));
  }
  if (!result.empty() && !places_of(options).empty())
    throw UserError(
        {.id = "TSR-4077",
         .message = "--variants: the code of a device is of one kind, so it cannot stand beside --place or a device's "
                    "--target",
         .node = {},
         .legal = {},
         .hint = "leave one of the two options out"});
  return result;
}

namespace {

std::string variant_suffix(size_t place) { return fmt::format("_v{}", place); }

}  // namespace

std::vector<CodeVariant> variant_table(const CompileOptions& options, const Target& own,
                                       const std::vector<VariantTarget>& variants) {
  if (variants.empty()) return {};
  struct Row {
    CodeVariant variant;
    int vector_bits;
  };
  std::vector<Row> rows;
  for (size_t i = 0; i < variants.size(); ++i)
    rows.push_back({{variants[i].name, required_features(variants[i].target), variant_suffix(i)},
                    variants[i].target.vector_bits()});
  rows.push_back({{options.target, required_features(own), ""}, own.vector_bits()});
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::pair(a.vector_bits, a.variant.features.size()) > std::pair(b.vector_bits, b.variant.features.size());
  });
  std::vector<CodeVariant> table;
  for (Row& row : rows) table.push_back(std::move(row.variant));
  return table;
}

std::vector<ObjectCode> variant_code(const Program& program, const Target& scheduled_for, const CodegenOptions& codegen,
                                     const std::vector<VariantTarget>& variants) {
  std::vector<ObjectCode> result;
  for (size_t i = 0; i < variants.size(); ++i) {
    CodegenOptions own = codegen;
    own.lanes_of = &scheduled_for;
    own.suffix = variant_suffix(i);
    own.want_ir = own.want_asm = false;
    result.push_back(generate_llvm(program, variants[i].target, own));
  }
  return result;
}

}  // namespace tessera::inline driver
