// The identities that simplify_algebra applies, as data: a pattern, what replaces it, and under which condition. The
// language of the texts is that of pattern.h. Beyond its condition a rule applies only where the replacement has the
// type of what it replaces. Every rule is compared with the interpreter on random shapes, types and special values
// (tests/unit/algebra_rules_test.cpp) and listed in docs/passes.md.
#pragma once

#include <span>
#include <string_view>

#include "graph_passes/support/pattern.h"
#include "types/numerics.h"

namespace tessera::inline graph_passes {

struct AlgebraRule {
  std::string_view name;
  std::string_view pattern;
  std::string_view replacement;
  Numerics numerics = Numerics::kExact;   // how the two sides may differ
  std::string_view says = "";             // the condition in words
  bool (*where)(Match& match) = nullptr;  // the condition; gives attributes to labelled nodes of the replacement
  bool once = false;                      // only where nobody else reads the nodes inside the pattern
};

std::span<const AlgebraRule> algebra_rules();

}  // namespace tessera::inline graph_passes
