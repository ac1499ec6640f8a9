// A chain of kernels that hand rows to one another (fuse_rows.h), and what is asked of it in more than one place.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "program/program.h"
#include "schedule/choose.h"
#include "schedule/fusion/masked_columns.h"
#include "te/joined_program.h"

namespace tessera::inline schedule {

constexpr size_t kNoAxis = SIZE_MAX;

// An axis of rows: its number among the output axes of each of the chain's kernels, and its extent. Kernels that do not
// have the last axis (kNoAxis) are shared by its blocks.
struct RowAxis {
  std::vector<size_t> axis;  // by member
  int64_t extent = 1;        // 0: a run decides about it
  Expr size = 1;             // the extent in any case
};

// While a chain is looked for, values are the program's buffers; afterwards those of a joined program.
struct Member {
  size_t call = 0;  // that wrote what it writes
  const TensorProgram* definition = nullptr;
  std::vector<BufferId> args;  // the last one is what it writes
};

// An attention's columns of scores, of which there are blocks (online_softmax.h).
struct ColumnBlocks {
  int64_t extent = 0;                            // columns; 0: a run decides about them
  Expr total;                                    // the extent in any case
  int64_t size = 1;                              // of a block
  size_t maximum = 0, exponential = 0, sum = 0;  // members; the product with values is the last one
  std::vector<size_t> axis;                      // by member: the columns' number among its output axes, or kNoAxis
};

struct Chain {
  std::vector<Member> members;  // in the order of their calls; the last one's output leaves the chain
  std::set<BufferId> inner;     // what the others write
  std::vector<RowAxis> rows;    // outermost first, in the order of the inner results' axes; blocks are of the last
  int64_t block = 1;            // rows
  int64_t pieces = 1;           // of the last axis' blocks, each with the shared kernels before it
  std::optional<MaskedColumns> masked;
  bool may_be_long = false;  // rows need not fit a cache, because their columns are to have blocks
  std::optional<ColumnBlocks> columns;
};

int64_t elements_of(const Buffer& buffer);
int64_t bytes_of(const Buffer& buffer);
// As many, whatever open sizes are.
bool same_elements(const Buffer& a, const Buffer& b);

// Of which output axis of `kernel` every load of `param` takes its index along `dim`; kNoAxis when there is none.
size_t read_along(const TensorProgram& kernel, const Buffer* param, size_t dim);
// Whether a load of `param` has an index that `axis` of the output takes part in.
bool depends_on(const TensorProgram& kernel, const Buffer* param, size_t axis);
// Whether the kernel reads `param` at the index of its own output and nowhere else.
bool reads_in_place(const TensorProgram& kernel, const Buffer* param, size_t rank);

// The members of a joined program, which outlives the chain. Rows and columns are not found yet.
Chain chain_of(const JoinedProgram& joined);

// The number of the member that writes the buffer; the number of members when none does.
size_t writer_in(const Chain& chain, BufferId buffer);
// Whether some members lack the last axis of rows.
bool has_shared(const Chain& chain);
// Whether a run decides about some member's sizes.
bool has_open_sizes(const Chain& chain);
// Whether some member sums products of several operands.
bool has_products(const Chain& chain);

}  // namespace tessera::inline schedule
