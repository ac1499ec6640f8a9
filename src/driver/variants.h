// Code for several kinds of processors in one module (`--variants`): one program, scheduled and laid out for the target
// of the compile, whose code is generated for each of them. The runtime takes the best one that its machine can run.
#pragma once

#include <string>
#include <vector>

#include "codegen/common/object_code.h"
#include "package/module_writer.h"
#include "program/program.h"
#include "target/target.h"
#include "tessera/compiler.h"

namespace tessera::inline driver {

// One of the targets that a compile is asked for besides its own.
struct VariantTarget {
  std::string name;  // as it was named
  Target target;     // with the number of threads of the compile's own
};

// UserErrors of parse_target, TSR-4076 for another architecture than the target's or a name that stands there twice,
// TSR-4077 with options that know one kind of code only.
std::vector<VariantTarget> variant_targets(const CompileOptions& options, const Target& own);

// The variants and the compile's own code: what the module says of them, the best one first; that is the one with
// the widest vectors, then the most features. Empty without variants.
std::vector<CodeVariant> variant_table(const CompileOptions& options, const Target& own,
                                       const std::vector<VariantTarget>& variants);

// The code of each: of a program whose loops were scheduled for `scheduled_for`. Otherwise as `codegen` says for `own`.
std::vector<ObjectCode> variant_code(const Program& program, const Target& scheduled_for, const CodegenOptions& codegen,
                                     const std::vector<VariantTarget>& variants);

}  // namespace tessera::inline driver
