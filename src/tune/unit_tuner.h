// The search over tilings of a network's kernels on the accelerator that is the options' target, by simulated cycles.
// Search, records and report are those of a processor's schedules (tuner.h); what is measured there is counted here, so
// that fewer cycles win at once, and no comparison is repeated.
#pragma once

#include "tune/tuner.h"

namespace tessera::inline tune {

// Times are cycles at the unit's clock. UserError TSR-4058 for options that ask for measuring, and as tune_model.
TuneResult tune_unit(const TuneOptions& options);

}  // namespace tessera::inline tune
