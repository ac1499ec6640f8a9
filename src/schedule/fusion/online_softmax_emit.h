// The code of a chain with blocks of columns (online_softmax.h says what it computes).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "schedule/fusion/chain.h"
#include "schedule/fusion/chain_block.h"
#include "target/target.h"

namespace tessera::inline schedule {

// `outside` are the places of what the chain reads and writes. Empty when the rules have no programs that go together.
std::optional<ChainCode> emit_column_blocks(const Chain& chain, const std::vector<Block>& blocks,
                                            const std::map<BufferId, Place>& outside, const Target& target,
                                            const AskRules& ask);

// The same piece by piece, for whoever writes the loops around them (open_attention.h). Each piece is empty when the
// rules have no programs that go together.
class ColumnEmitter {
 public:
  ColumnEmitter(const Chain& chain, const std::map<BufferId, Place>& outside, const Target& target,
                const AskRules& ask);

  // What a block of rows keeps between blocks of columns, and what lies between kernels.
  struct Buffers {
    std::vector<BufferPtr> by_member;  // its result, of a block of rows and of columns; of the last one there is none
    // The largest scores so far, what sums before the last block of columns are multiplied by, the sums of
    // exponentials, and those of their products with values.
    BufferPtr largest, correction, sum, mixed;
    std::vector<BufferPtr> all;
  };
  // For blocks of up to the chain's rows and columns, and what rows share for `shared_columns` of these.
  void make_buffers(int64_t shared_columns);
  void use_buffers(const Buffers& buffers) { buffers_ = buffers; }
  const Buffers& buffers() const { return buffers_; }

  // Statements around those of a member, null for none.
  using Around = std::function<Stmt(size_t m)>;
  void set_around(Around before, Around after) {
    before_ = std::move(before);
    after_ = std::move(after);
  }
  // Places of what lies outside are those of the block of columns, wherever that is.
  void set_outside_at_block() { outside_at_block_ = true; }

  // Members that have columns and no rows, for the columns from `first` on.
  std::optional<Stmt> shared_block(const Block& block, const Expr& first, int64_t size) const;
  // Members that have rows and no columns, and sums of nothing.
  std::optional<Stmt> begin_rows(const Block& block) const;
  // One block of rows with one of columns.
  std::optional<Stmt> columns_block(const Block& block, const Expr& first, int64_t size) const;
  // What is made of the complete sums.
  std::optional<Stmt> finish_rows(const Block& block) const;

  std::optional<ChainCode> emit(const std::vector<Block>& blocks);

 private:
  struct Cut {
    TensorProgram kernel;
    std::vector<Place> places;  // of its parameters
  };

  const TensorProgram& definition(size_t m) const { return *chain_.members[m].definition; }
  size_t product() const { return chain_.members.size() - 1; }
  int64_t whole_blocks() const { return columns_.extent / columns_.size; }
  int64_t rest() const { return columns_.extent % columns_.size; }
  bool is_shared(size_t m) const { return chain_.rows.back().axis[m] == kNoAxis; }

  BufferPtr local(const std::string& name, DType dtype, int64_t elements);
  // Of a shape whose axes `rows` are rows: the elements of a block, of `count` of the last ones.
  static int64_t elements_in(const Shape& shape, const std::vector<size_t>& rows, int64_t count);
  // Where the block of columns from `first` on of what member `m` writes lies; `shape` has that block alone.
  Place place_of(size_t m, const Shape& shape, const Block& block, const Expr& first) const;
  // Member `m` for `size` columns from `first` on, which it has. The place of its output is not there yet.
  Cut cut_columns(size_t m, const Block& block, const Expr& first, int64_t size) const;
  std::optional<Stmt> place(Cut& cut, const Block& block, const std::vector<size_t>& rows) const;
  // The member's kernel with what stands around it. False when there is none.
  bool add_member(size_t m, std::optional<Stmt> kernel, std::vector<Stmt>& parts) const;
  // `body` for `whole` blocks of columns, and for the rest if there is one and `with_rest` is true or null.
  std::optional<Stmt> over_columns(const Expr& whole, const Expr& with_rest,
                                   const std::function<std::optional<Stmt>(const Expr&, int64_t)>& body) const;
  // The program of a kernel over what `m`'s reduction gives, in the order of axes that it has.
  std::optional<Stmt> place_elementwise(size_t m, const Block& block, TensorProgram kernel,
                                        const std::vector<BufferPtr>& buffers) const;
  // By axis of what is kept of the product: the axis of its output. Rows come first.
  std::vector<size_t> mixed_order() const;
  std::vector<size_t> mixed_rows() const;
  std::vector<size_t> identity(size_t m) const;
  // Where, in terms of the axes of member `m`, a row's maximum is. The member reads the exponentials.
  std::vector<Expr> maximum_at(size_t m) const;
  // The sum so far, corrected, and what member `m` sums over this block of columns. It replaces `state`.
  std::optional<Stmt> add_columns(size_t m, const Block& block, const Expr& first, int64_t size, const BufferPtr& state,
                                  const std::vector<size_t>& order, const std::vector<size_t>& rows) const;
  // What member `m` makes of its complete sum; null when that is all.
  std::optional<Stmt> finish(size_t m, const Block& block, const BufferPtr& state, const std::vector<size_t>& order,
                             const std::vector<size_t>& rows) const;
  // The number of blocks of columns that the block of rows at this base sees, the rest counted as one.
  Expr visible(const Block& block) const;
  std::optional<Stmt> rows_block(const Block& block) const;

  const Chain& chain_;
  const ColumnBlocks& columns_;
  const std::map<BufferId, Place>& outside_;
  const Target& target_;
  const AskRules& ask_;
  Around before_, after_;
  bool outside_at_block_ = false;
  std::vector<std::vector<size_t>> rows_;  // by member: the axes that are rows
  Buffers buffers_;
};

}  // namespace tessera::inline schedule
