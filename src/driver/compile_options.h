// What the options of a compile mean, and which of them go together.
#pragma once

#include "driver/options.h"
#include "import/common/options.h"
#include "target/target.h"
#include "types/dtype.h"
#include "types/numerics.h"
#include "types/precision_plan.h"

namespace tessera::inline driver {

// The target that the options name, with the number of threads that they ask for.
Target resolve_target(const CompileOptions& options);

// The machine that passes and rules decide for: the target, or the one that stands for all where results may not depend
// on it.
Target deciding_target(const CompileOptions& options);

// How products of f32 are computed: what `options.fp32` names, on the target. UserError TSR-4028, TSR-4029.
Fp32Products fp32_of(const CompileOptions& options);

// What `options.numerics` names. UserError TSR-4074.
NumericsMode numerics_of(const CompileOptions& options);

// What schedule rules may do to numbers, by the two.
RuleNumerics rule_numerics(const CompileOptions& options);

// What lower_precision rounds to. UserError TSR-4027.
DType precision_of(const CompileOptions& options);
// And for which layers to something else. UserError TSR-4088.
PrecisionPlan plan_of(const CompileOptions& options);
// UserError TSR-4088 for a name that no convolution or product of the model has.
void check_layer_names(const PrecisionPlan& plan, const ImportedModel& model);

// UserError TSR-4027 for a precision that does not exist, TSR-4074 for numerics that do not, TSR-4075 for those that
// another option is at odds with, TSR-4020 when a step or pass is named that does not exist,
// TSR-4021 for a level that does not, TSR-4023 for a disabled pass that is no optimisation.
void check_options(const DriverOptions& options);

}  // namespace tessera::inline driver
