// ONNX test-case folders: model.onnx (or model.graph, a graph as text) with test_data_set_*/input_*.pb and output_*.pb.
#pragma once

#include <string>
#include <vector>

#include "diagnose/compare.h"
#include "driver/engine/open_model.h"

namespace tessera {

struct CaseOptions {
  OpenOptions open;
  Tolerance tolerance;
};

enum class CaseVerdict : char { kPass = 'P', kFail = 'F', kUnsupported = 'U', kNoData = 'N' };

struct CaseResult {
  CaseVerdict verdict = CaseVerdict::kFail;
  std::string reason;  // one line; for kPass what was not compared, mostly empty
};

// The folders below `dirs` (or themselves) that hold such a model, in order of their names within each. UserError
// TSR-6220 for one that is no folder or has none.
std::vector<std::string> find_cases(const std::vector<std::string>& dirs);

// Compiles the model, then opens the data sets, runs and compares each; a model that leaves sizes open is compiled for
// the shapes of each data set's inputs. Never throws for what the case does.
CaseResult run_case(const std::string& folder, const CaseOptions& options);

// The number, dtypes and shapes of tensors must be equal, booleans and integers too; floats within the tolerance. bf16
// has 8 bits of mantissa: its rtol is at least 2^-6, as in ONNX's own runner.
Comparison compare_case_output(const RunValue& got, const RunValue& want, Tolerance tolerance);
Comparison compare_case_output(const Tensor& got, const Tensor& want, Tolerance tolerance);

}  // namespace tessera
