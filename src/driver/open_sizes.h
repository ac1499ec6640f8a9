// Models whose named dimensions stay open in a range (--dim NAME=LO..HI): one program for all of it.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "import/common/options.h"
#include "program/program.h"
#include "support/error.h"
#include "tessera/compiler.h"

namespace tessera::inline driver {

// The dimensions of the options that are ranges, in the order of their names.
std::vector<SymbolRange> open_ranges(const CompileOptions& options);

// UserError TSR-1025: what works on one size, with ranges.
void refuse_ranges(const CompileOptions& options, const std::string& what);
// The same of a model that declares ranges itself.
void refuse_ranges(const ImportedModel& model, const std::string& what);

// Whether a value is above its symbol's range: short ranges are looked at beyond their ends.
bool is_beyond(const std::vector<SymbolRange>& symbols, const std::vector<int64_t>& values);

// What is said of a model that cannot be read for these values: of operators whose shapes do not fit, that it has no
// meaning for them (TSR-5023).
Diagnostic refused_at(const NodesRefused& refused, const std::vector<SymbolRange>& symbols,
                      const std::vector<int64_t>& values);

// TSR-5022: a model that is a flow for some sizes, and a graph for others, has no program for all.
Diagnostic open_flow_refused(const std::vector<SymbolRange>& symbols);

// What is known of a program for a range: at how many of its sizes it was held against the model's own program for that
// size, and how.
struct SizeEvidence {
  int64_t proved = 0;  // by their canonical forms (canonical_sizes.h)
  int64_t run = 0;     // by the results of both (size_check.h), where the forms differ
  int64_t of = 0;      // sizes in the range; 0: there is no range
};

// "proved at 62, run at 2, of 64 sizes"; "" without a range.
std::string to_string(const SizeEvidence& evidence);

// The program of all sizes, which does what the model does at every size that is looked at. Where the model does
// something else for some sizes, their program and that of the others are behind a switch. `lower` makes the program of
// a graph without the passes of these names. TSR-5022 when a few programs are not enough.
using LowerGraph = std::function<Program(Graph graph, const std::set<std::string>& left_out)>;
struct SearchLimits {
  double seconds = 4;                 // of the processor, for sizes at which the program is looked at
  bool some_have_no_meaning = false;  // sizes near the ends, of several dimensions together: those are passed over
};
struct SizedProgram {
  Program program;
  SizeEvidence evidence;
};
std::variant<SizedProgram, SizesRefused> program_of_sizes(const ImportedModel& model, const LowerGraph& lower,
                                                          const SearchLimits& limits = {});

// The same of a piece of a flow. UserError TSR-5024.
Program program_of_piece(const Flow& flow, int32_t piece, const LowerGraph& lower);

}  // namespace tessera::inline driver
