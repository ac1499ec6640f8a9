// What an expression computes of the innermost loop's place alone is the same in every row: where that costs divisions,
// it is computed once for several rows and kept in a table.
#pragma once

#include <vector>

#include "schedule/flat_kernel.h"

namespace tessera {

struct AxisTable {
  BufferPtr buffer;  // local, one element for each place of the last loop
  Expr value;        // of that loop's variable
};

// Takes such parts out of kernel.value, which then loads them from the tables. REQUIRES: a last loop.
std::vector<AxisTable> take_axis_tables(FlatKernel& kernel);

// The tables around `body`, filled.
Stmt with_axis_tables(const std::vector<AxisTable>& tables, const OutputLoop& last, Stmt body);

}  // namespace tessera
