// The flags that diff and bisect share: a model, what it is compared with, and on which inputs.
#pragma once

#include <string>

#include "compile_flags.h"
#include "diagnose/compare.h"
#include "driver/analysis/diff.h"
#include "run_flags.h"

namespace tessera {

struct DiffFlags {
  CompileFlags compile;
  RunFlags run;
  Tolerance tolerance{.rtol = 0, .atol = 0, .mtol = 1e-4};
  std::string model, against = "interp", format;
  CutFormat cut_format() const;
};

// MODEL, --against, --input and those for pictures, --rtol and its like, the flags of compiling.
void add_diff_flags(CLI::App& app, DiffFlags& flags);

// --format: what the smallest model is written as.
void add_cut_format_flag(CLI::App& app, DiffFlags& flags);
// UserError TSR-4062 when a case in the folder would be written over the model.
void refuse_to_overwrite_case(const std::string& folder, const std::string& model);

// Says on standard error which inputs are random.
DiffRequest diff_request(const DiffFlags& flags);

// "tessera verify DIR ...": what shows the same difference again.
std::string verify_command(const DiffFlags& flags, const std::string& folder);

// "MODEL-diff", in the current folder.
std::string default_case_folder(const std::string& model, const std::string& verb);

}  // namespace tessera
