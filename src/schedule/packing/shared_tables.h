// A constant that one kernel reads packed and another, which looks rows up in it, as it is: a language model's table of
// embeddings, which is its output's matrix as well. The second then reads the packed one, too, so that the constant is
// stored once.
#pragma once

#include "arith/expr.h"
#include "loop/stmt.h"
#include "schedule/kernel/pack.h"

namespace tessera::inline schedule {

// Where the element of the source at `place` is in the packed constant. REQUIRES: it is there, and the constant is no
// transformed one.
Expr place_in_packed(const PackedParam& packed, const Expr& place);

// Whether `program` takes few elements of the parameter, at places that data decide.
bool looks_up(const LoopProgram& program, size_t param);

// The program with the packed parameter.
LoopProgram with_packed(const LoopProgram& program, size_t param, const PackedParam& packed);

}  // namespace tessera::inline schedule
