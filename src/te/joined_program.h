// What a kernel computes that does the work of several: their definitions, and what they hand to one another. The
// meaning is the members one after the other; how far they run together, block by block, is the schedule's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "te/tensor_program.h"

namespace tessera::inline tensor_programs {

struct JoinedMember {
  TensorProgram program;
  std::vector<size_t> args;  // by parameter, then by result: a number of JoinedProgram::values
};

// Invariants (problem_of): each value is of the types and layouts of those that read and write it; those between
// members are written once, before they are read; the last argument is the result, which the last member writes.
struct JoinedProgram {
  std::string name;
  std::vector<TensorParam> values;  // the arguments of a call in their order, then what lies between members
  size_t num_args = 0;
  std::vector<JoinedMember> members;

  const TensorParam& result() const { return values[num_args - 1]; }
};

// Members on arguments that have numbers of the caller's own; `outside` are those of a call, the result last. Values
// are as the first member that has them says.
struct NumberedMember {
  const TensorProgram* program = nullptr;
  std::vector<int32_t> args;
};
JoinedProgram join_programs(std::string name, const std::vector<NumberedMember>& members,
                            const std::vector<int32_t>& outside);

// What breaks an invariant; empty when nothing does.
std::string problem_of(const JoinedProgram& program);

std::string to_string(const JoinedProgram& program);

// The same for programs that compute the same in the same order, as te/canonical.h says of each member.
std::string canonical_text(const JoinedProgram& program);

}  // namespace tessera::inline tensor_programs
