#include "schedule/gpu/attention_members.h"

#include <algorithm>
#include <map>
#include <utility>

#include "schedule/fusion/chain_kernel.h"
#include "schedule/fusion/chain_rows.h"
#include "schedule/fusion/online_softmax.h"
#include "schedule/gpu/product_tile.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kLeastQueries = 2;  // that share keys and values

}  // namespace

AttentionMembers::AttentionMembers(const JoinedProgram& joined, const JoinedContext& context)
    : joined_(joined), chain_(chain_of(joined)), constants_(context.constants) {
  chain_.may_be_long = true;
  for (size_t v = 0; v < joined.num_args; ++v) params_.push_back(flat_memory(*joined.values[v].buffer));
}

std::string AttentionMembers::find_members() {
  for (const TensorParam& value : joined_.values)
    if (!value.layout.row_major()) return "an operand is stored in blocks of channels";
  if (const std::string_view why = find_rows(chain_, Target()); !why.empty()) return std::string(why);
  if (has_shared(chain_)) return "some members have no rows";
  if (!find_column_blocks(chain_)) return "it is no softmax of scores between two products";
  if (!has_open_sizes(chain_)) find_masked(constants_, chain_);
  const ColumnBlocks& columns = *chain_.columns;
  const size_t scores = writer_in(chain_, chain_.members[columns.maximum].args[0]);
  const size_t product = chain_.members.size() - 1;
  if (chain_.members.size() != 5) return "it has further members";
  queries_.add(make_var("query"), chain_.rows.back().size);
  keys_.add(make_var("key"), columns.total);
  for (size_t r = 0; r + 1 < chain_.rows.size(); ++r) planes_.add(make_var("p"), chain_.rows[r].size);
  if (!planes_.is_at_most(kMostBlocksBeside) || !queries_.is_at_most(INT32_MAX))
    return "too many heads for a grid of blocks";

  if (std::string why = make_part(scores, scores_); !why.empty()) return why;
  if (std::string why = make_part(product, product_); !why.empty()) return why;
  if (scores_.rest.size() != 1 || static_cast<size_t>(scores_.rest[0].axis) != columns.axis[scores])
    return "scores have other axes than rows and keys";
  if (std::string why = find_scores(); !why.empty()) return why;
  return find_product(product);
}

// Sums of f32, whose loops are the chain's rows and others.
std::string AttentionMembers::make_part(size_t m, AttentionPart& part) const {
  std::string why;
  auto kernel = make_linear_kernel(*chain_.members[m].definition, why, Results::kOne, Sizes::kOpen);
  if (!kernel) return why;
  if (kernel->combiner != Combiner::kSum || kernel->reduce_dtype != DType::kF32 || kernel->padded)
    return "what is multiplied is not f32";
  part.kernel = *std::move(kernel);
  part.rows.resize(chain_.rows.size());
  for (const OutputLoop& loop : part.kernel.loops) {
    size_t row = 0;
    while (row < chain_.rows.size() && chain_.rows[row].axis[m] != static_cast<size_t>(loop.axis)) ++row;
    if (row < chain_.rows.size()) part.rows[row] = loop.var;
    else if (loop.extent != 1 || chain_.columns->axis[m] == static_cast<size_t>(loop.axis)) part.rest.push_back(loop);
    else part.fixed[loop.var.get()] = Expr(0);
  }
  // Parameters are the joined kernel's.
  std::map<const Buffer*, BufferPtr> moved;
  for (size_t a = 0; a < part.kernel.params.size(); ++a)
    if (const auto value = static_cast<size_t>(chain_.members[m].args[a]); value < joined_.num_args)
      moved[part.kernel.params[a].get()] = params_[value];
  for_each_value(part.kernel, [&](Expr& e) {
    e = transform(e, [&](const Expr& node) -> Expr {
      if (node->kind != ExprKind::kLoad) return {};
      const auto it = moved.find(node->buffer.get());
      return it == moved.end() ? Expr() : load(it->second, node->operands);
    });
  });
  return {};
}

std::string AttentionMembers::find_scores() {
  auto factors = factors_of(scores_.kernel.reduce_value);
  if (!factors) return "scores are no sums of products";
  const Var &query = scores_.rows.back(), &key = scores_.rest[0].var;
  if (uses_var(factors->a, key)) std::swap(factors->a, factors->b);
  if (uses_var(factors->a, key)) return "both factors of scores depend on the key";
  if (uses_var(factors->b, query)) return "keys differ from query to query";
  if (queries_.extent < kLeastQueries) return "keys and values are used once";
  query_ = factors->a, key_ = factors->b;
  for (const Axis& axis : scores_.kernel.reduce) steps_.add(axis.var, axis.extent);
  if (!as_int(steps_.size)) return "a run decides how long queries are";
  return {};
}

std::string AttentionMembers::find_product(size_t product) {
  const LinearKernel& kernel = product_.kernel;
  const BufferPtr& numerators = kernel.params[param_from(chain_, product, chain_.columns->exponential)];
  const auto factors = factors_of(kernel.reduce_value);
  if (!factors || kernel.reduce.size() != 1) return "the softmax is not multiplied with values";
  const bool first = is_load_of(factors->a, numerators);
  value_ = first ? factors->b : factors->a;
  if (!first && !is_load_of(factors->b, numerators)) return "the softmax is not multiplied with values";
  if (uses_var(value_, product_.rows.back())) return "values differ from query to query";
  for (const OutputLoop& loop : product_.rest) columns_.add(loop.var, loop.size);
  if (!as_int(columns_.size)) return "a run decides how long values are";
  // The sum, or its inverse, as a variable.
  const BufferPtr& sums = kernel.params[param_from(chain_, product, chain_.columns->sum)];
  product_.kernel.value =
      transform(kernel.value, [&](const Expr& node) -> Expr { return is_load_of(node, sums) ? Expr(total_) : Expr(); });
  std::string why;
  const auto sum =
      make_linear_kernel(*chain_.members[chain_.columns->sum].definition, why, Results::kOne, Sizes::kOpen);
  if (!sum) return why;
  sum_ = sum->value, sum_result_ = sum->result_var;
  return {};
}

Expr AttentionMembers::visible(const Expr& tile, int64_t rows, int64_t columns) const {
  const Expr all = keys_.tiles(columns);
  if (!chain_.masked) return all;
  const std::vector<int64_t>& used = chain_.masked->used;
  // Mostly it is one key more for each row, up to the last one that there is.
  int64_t ahead = 1;
  for (size_t r = used.size(); r-- > 0;)
    if (used[r] < keys_.extent || r == 0) {
      ahead = used[r] - static_cast<int64_t>(r);
      break;
    }
  bool is_diagonal = true;
  for (size_t r = 0; r < used.size(); ++r)
    is_diagonal = is_diagonal && used[r] == std::clamp<int64_t>(static_cast<int64_t>(r) + ahead, 1, keys_.extent);
  if (!is_diagonal) return Expr((*std::max_element(used.begin(), used.end()) + columns - 1) / columns);
  const Expr last = tile * Expr(rows) + Expr(rows - 1 + ahead);
  return simplify(min(max(floordiv(last + Expr(columns - 1), Expr(columns)), Expr(1)), all), bounds_);
}

VarMap AttentionMembers::rows_at(const AttentionPart& part, const Expr& query) const {
  VarMap at = part.fixed;
  for (size_t r = 0; r < part.rows.size(); ++r)
    at[part.rows[r].get()] = r + 1 == part.rows.size() ? query : plane_.at(planes_.axes[r].var.get());
  return at;
}

LoopProgram AttentionMembers::program_of(Stmt body) const {
  LoopProgram program;
  program.name = joined_.name;
  program.params = params_;
  program.body = std::move(body);
  return program;
}

Expr AttentionMembers::score(const Expr& query, const Expr& key, const Expr& sum) const {
  VarMap at = rows_at(scores_, query);
  at[scores_.rest[0].var.get()] = key;
  at[scores_.kernel.result_var.get()] = sum;
  return substitute(scores_.kernel.value, at);
}

Stmt AttentionMembers::store_result(const Expr& query, const Expr& column, const Expr& mixed, const Expr& sum) const {
  VarMap at = rows_at(product_, query);
  columns_.values_at(column, bounds_, at);
  VarMap finished = at;
  finished[product_.kernel.result_var.get()] = mixed;
  finished[total_.get()] = substitute(sum_, {{sum_result_.get(), sum}});
  return store(params_.back(), {substitute(product_.kernel.out_index, at)},
               substitute(product_.kernel.value, finished));
}

}  // namespace tessera::inline schedule
