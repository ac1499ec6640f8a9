// Which outputs of a program may be bound to the memory of which inputs: state that a model carries from call to call
// (of a recurrent network, a cache of keys and values) stays in one place then.
#pragma once

#include <utility>
#include <vector>

#include "program/program.h"

namespace tessera::inline program {

// Pairs of the numbers of an output and an input of equal type, in order, such that a run computes the same when both
// are one piece of memory: no call reads the input after the output was first written, and a call that reads one and
// writes the other may do so in place (program/in_place.h). Each pair holds by itself, and so do several together that
// have no input and no output in common. REQUIRES: a verified program with the loops that are generated.
//
// An output that begins with an input (a cache with more behind it), which a call copies there, is paired with it as
// well, for both to begin at one place; the copy then finds everything where it belongs.
//
// An own output is paired with own inputs. The output of a state is paired with its input alone, and only where the run
// checks nothing: a check that does not hold leaves all states as they were.
std::vector<std::pair<int, int>> output_aliases(const Program& program);

// Whether the kernel does nothing but store elements of its one input at the same places of its output.
bool is_copy(const LoopProgram& kernel);

}  // namespace tessera::inline program
