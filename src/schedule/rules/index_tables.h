// What an expression computes of the innermost loop's place alone is the same in every row: where that costs divisions,
// it is computed once for several rows and kept in a table.
#pragma once

#include <vector>

#include "schedule/kernel/linear_kernel.h"

namespace tessera::inline schedule {

struct IndexTable {
  BufferPtr buffer;  // local, one element for each place of the last loop
  Expr value;        // of that loop's variable
};

// Takes such parts out of kernel.value, which then loads them from the tables. REQUIRES: a last loop.
std::vector<IndexTable> take_index_tables(LinearKernel& kernel);

// The tables around `body`, filled.
Stmt with_index_tables(const std::vector<IndexTable>& tables, const OutputLoop& last, Stmt body);

}  // namespace tessera::inline schedule
