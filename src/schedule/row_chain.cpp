#include "schedule/row_chain.h"

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "arith/simplify.h"
#include "program/memory_plan.h"
#include "schedule/fold_copies.h"
#include "schedule/join_sweeps.h"
#include "schedule/masked_columns.h"
#include "schedule/rules/loop_builder.h"
#include "schedule/symbolic_kernel.h"

namespace tessera {
namespace {

constexpr size_t kNoAxis = SIZE_MAX;
constexpr size_t kMostMembers = 12;
constexpr int64_t kMostParts = 8;  // of rows that see different numbers of columns: each has code of its own
constexpr int64_t kColumnStep = 64;
constexpr int64_t kTileRows = 24;    // register tiles have 4, 6, 8 or 12 rows: blocks of a multiple leave no rest
constexpr int64_t kPieceRows = 128;  // for which it does not count what shared kernels take

// An axis of rows: its number among the output axes of each of the chain's kernels, and its extent. Kernels that do not
// have the last axis (kNoAxis) are shared by its blocks.
struct RowAxis {
  std::vector<size_t> axis;  // by member
  int64_t extent = 1;
};

struct Member {
  size_t call = 0;  // that wrote what it writes
  const TensorProgram* definition = nullptr;
  std::vector<BufferId> args;
};

struct Chain {
  std::vector<Member> members;  // in the order of their calls; the last one's output leaves the chain
  std::set<BufferId> inner;     // what the others write
  std::vector<RowAxis> rows;    // outermost first, in the order of the inner results' axes; blocks are of the last
  int64_t block = 1;            // rows
  int64_t pieces = 1;           // of the last axis' blocks, each with the shared kernels before it
  std::vector<size_t> calls;    // of all kernels; some are no members because others do their work
  std::optional<MaskedColumns> masked;
};

int64_t elements_of(const Buffer& buffer) { return TensorType{buffer.dtype, buffer.shape, {}}.num_elements(); }
int64_t bytes_of(const Buffer& buffer) { return dtype_bytes(buffer.dtype, elements_of(buffer)); }

// Of which output axis of `kernel` every load of `param` takes its index along `dim`; kNoAxis when there is none.
size_t read_along(const TensorProgram& kernel, const Buffer* param, size_t dim) {
  std::optional<size_t> found;
  for (const Stage& stage : kernel.stages)
    walk(stage.body.value, [&](const Expr& node) {
      if (node->kind != ExprKind::kLoad || node->buffer.get() != param) return;
      size_t axis = kNoAxis;
      for (size_t i = 0; i < stage.body.axes.size(); ++i)
        if (node->operands[dim].same_node(stage.body.axes[i].var)) axis = i;
      found = found && *found != axis ? kNoAxis : axis;
    });
  return found.value_or(kNoAxis);
}

// Whether a load of `param` has an index that `axis` of the output takes part in.
bool depends_on(const TensorProgram& kernel, const Buffer* param, size_t axis) {
  bool depends = false;
  for (const Stage& stage : kernel.stages)
    walk(stage.body.value, [&](const Expr& node) {
      if (node->kind != ExprKind::kLoad || node->buffer.get() != param) return;
      for (const Expr& index : node->operands) depends |= uses_var(index, stage.body.axes[axis].var);
    });
  return depends;
}

// Whether the kernel reads `param` at the index of its own output and nowhere else.
bool reads_in_place(const TensorProgram& kernel, const Buffer* param, size_t rank) {
  if (kernel.reduction() || kernel.output().out->shape.size() != rank) return false;
  for (size_t dim = 0; dim < rank; ++dim) {
    const size_t axis = read_along(kernel, param, dim);
    if (axis != dim && !(axis == kNoAxis && as_int(kernel.output().out->shape[dim]) == 1)) return false;
  }
  return true;
}

class ChainMaker {
 public:
  ChainMaker(Program& program, const Target& target, const AskRules& ask, const AllowRule& allow)
      : program_(program), target_(target), ask_(ask), allow_(allow) {}

  void run() {
    find_uses();
    std::vector<Chain> chains;
    for (size_t c = program_.calls.size(); c-- > 0;)
      if (!taken_[c])
        if (auto chain = chain_before(c)) {
          for (const size_t call : chain->calls) taken_[call] = true;
          chains.push_back(std::move(*chain));
        }
    std::set<size_t> gone;
    for (Chain& chain : chains) {
      find_masked(chain);
      join(chain, gone);
    }
    if (!gone.empty()) remove_calls(gone);
  }

 private:
  void find_uses() {
    writer_.assign(program_.buffers.size(), SIZE_MAX);
    readers_.resize(program_.buffers.size());
    plain_.assign(program_.buffers.size(), true);
    taken_.assign(program_.calls.size(), false);
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      const ProgramBuffer& buffer = program_.buffers[b];
      plain_[b] = plain_[b] && buffer.kind == BufferKind::kArena && buffer.alias_of < 0 && buffer.over < 0 &&
                  buffer.type.layout.row_major();
      if (buffer.alias_of >= 0) plain_[static_cast<size_t>(root_buffer(program_, buffer.alias_of))] = false;
    }
    for (size_t c = 0; c < program_.calls.size(); ++c) {
      const KernelCall& call = program_.calls[c];
      for (const CallCondition& condition : call.only_if) plain_[static_cast<size_t>(condition.buffer)] = false;
      const Kernel& kernel = program_.kernels[static_cast<size_t>(call.kernel)];
      if (!kernel.definition || !call.only_if.empty() || is_symbolic(*kernel.definition)) taken_[c] = true;
      const size_t inputs = call.args.size() - static_cast<size_t>(kernel.program.num_outputs);
      for (size_t i = 0; i < call.args.size(); ++i) {
        const auto b = static_cast<size_t>(call.args[i]);
        if (i < inputs) {
          readers_[b].push_back(c);
        } else {
          plain_[b] = plain_[b] && writer_[b] == SIZE_MAX;
          writer_[b] = c;
        }
      }
    }
  }

  const TensorProgram& definition_of(size_t call) const {
    return *program_.kernels[static_cast<size_t>(program_.calls[call].kernel)].definition;
  }

  size_t piece_of(size_t call) const {
    for (size_t p = 0; p < program_.pieces.size(); ++p)
      if (call < program_.pieces[p].first_call + program_.pieces[p].num_calls) return p;
    return 0;
  }

  // The largest chain that ends with this call.
  std::optional<Chain> chain_before(size_t last) {
    Chain chain;
    chain.members = {{last, &definition_of(last), program_.calls[last].args}};
    for (bool grown = true; grown && chain.members.size() < kMostMembers;) {
      grown = false;
      for (size_t m = chain.members.size(); m-- > 0 && !grown;)
        for (const BufferId arg : chain.members[m].args) {
          const auto b = static_cast<size_t>(arg);
          if (!plain_[b] || writer_[b] == SIZE_MAX || chain.inner.contains(arg)) continue;
          if (taken_[writer_[b]] || writer_[b] >= last || piece_of(writer_[b]) != piece_of(last)) continue;
          Chain larger = chain;
          larger.inner.insert(arg);
          larger.members.push_back({writer_[b], &definition_of(writer_[b]), program_.calls[writer_[b]].args});
          std::sort(larger.members.begin(), larger.members.end(),
                    [](const Member& x, const Member& y) { return x.call < y.call; });
          if (!is_closed(larger) || !find_rows(larger) || !reads_as_stored(writer_[b])) continue;
          chain = std::move(larger);
          grown = true;
          break;
        }
    }
    if (chain.members.size() < 2 || !reduces_own_result(chain) || !reads_as_stored(last)) return std::nullopt;
    for (const Member& member : chain.members) chain.calls.push_back(member.call);
    while (fold_one(chain)) {
    }
    return chain;
  }

  // Lets one kernel do another one's work (fold_copies.h). False when there is nothing more of the kind.
  bool fold_one(Chain& chain) {
    for (size_t w = 0; w + 1 < chain.members.size(); ++w) {
      const BufferId result = chain.members[w].args.back();
      size_t reads = 0, reader = 0, param = 0;
      for (size_t m = w + 1; m < chain.members.size(); ++m)
        for (size_t p = 0; p < chain.members[m].definition->params.size(); ++p) {
          if (chain.members[m].args[p] != result) continue;
          ++reads;
          reader = m;
          param = p;
        }
      if (reads != 1) continue;
      Chain folded = chain;
      folded.inner.erase(result);
      Member& into = folded.members[reader];
      const Member& from = chain.members[w];
      const auto take = [&](TensorProgram program) {
        folded_.push_back(std::move(program));
        into.definition = &folded_.back();
        folded.members.erase(folded.members.begin() + static_cast<std::ptrdiff_t>(w));
        if (folded.members.size() < 2 || !find_rows(folded)) return false;
        chain = std::move(folded);
        return true;
      };
      if (reader + 1 == chain.members.size())
        if (auto stored = store_through(*from.definition, *into.definition)) {
          const BufferId output = into.args.back();
          into.args = from.args;
          into.args.back() = output;
          if (take(std::move(*stored))) return true;
          continue;
        }
      auto read = read_through(*into.definition, param, *from.definition);
      if (read) {
        // Rows of a block, which is gone over for each tile of columns, stay nearer where they lie side by side.
        if (has_shared(chain)) continue;
        into.args[param] = from.args[0];
        if (take(std::move(*read))) return true;
      } else if (auto scaled = scale_afterwards(*into.definition, param, *from.definition);
                 scaled && is_softmax_numerator(chain, from.args[scaled->values])) {
        into.args[param] = from.args[scaled->values];
        into.args.insert(into.args.end() - 1, from.args[scaled->factors]);
        if (take(std::move(scaled->product))) return true;
      }
    }
    return false;
  }

  static const Member* writer_in(const Chain& chain, BufferId buffer) {
    for (const Member& member : chain.members)
      if (member.args.back() == buffer) return &member;
    return nullptr;
  }

  // Whether the buffer holds exp(a - m) with the maximum m of a's row.
  static bool is_softmax_numerator(const Chain& chain, BufferId values) {
    const Member* numerator = writer_in(chain, values);
    if (!numerator) return false;
    for (size_t m = 0; m + 1 < numerator->args.size(); ++m)
      for (size_t a = 0; a + 1 < numerator->args.size(); ++a) {
        const Member* maximum = writer_in(chain, numerator->args[m]);
        if (!maximum || maximum->args.size() != 2 || maximum->args[0] != numerator->args[a]) continue;
        if (subtracts_maximum(*numerator->definition, a, m, *maximum->definition)) return true;
      }
    return false;
  }

  // Whether the call's kernel has a rule that wants no weights stored otherwise: those stay on their own.
  bool reads_as_stored(size_t call) {
    const auto [it, is_new] = as_stored_.try_emplace(program_.calls[call].kernel, false);
    if (is_new) {
      const auto scheduled = ask_(definition_of(call));
      it->second = scheduled && scheduled->packed.empty();
    }
    return it->second;
  }

  // Whether only members read what the chain keeps to itself.
  bool is_closed(const Chain& chain) const {
    for (const BufferId b : chain.inner)
      for (const size_t reader : readers_[static_cast<size_t>(b)])
        if (std::none_of(chain.members.begin(), chain.members.end(),
                         [&](const Member& member) { return member.call == reader; }))
          return false;
    return true;
  }

  bool reduces_own_result(const Chain& chain) const {
    for (const Member& member : chain.members)
      if (const Stage* reduction = member.definition->reduction())
        for (size_t p = 0; p < member.definition->params.size(); ++p) {
          if (!chain.inner.contains(member.args[p])) continue;
          bool reads = false;
          walk(reduction->body.value, [&](const Expr& node) {
            reads |= node->kind == ExprKind::kLoad && node->buffer == member.definition->params[p].buffer;
          });
          if (reads) return true;
        }
    return false;
  }

  // Sets `rows` and `block`. False when there are no rows, or what a block needs does not fit.
  bool find_rows(Chain& chain) const {
    chain.rows.clear();
    const size_t count = chain.members.size();
    const Shape& last_shape = chain.members.back().definition->output().out->shape;
    std::vector<RowAxis> partial;  // that not all kernels have
    for (size_t axis = 0; axis < last_shape.size(); ++axis) {
      RowAxis row{std::vector<size_t>(count, kNoAxis), as_int(last_shape[axis]).value_or(0)};
      if (row.extent < 2) continue;
      row.axis[count - 1] = axis;
      if (!follow(chain, row)) continue;
      const bool is_whole = std::find(row.axis.begin(), row.axis.end(), kNoAxis) == row.axis.end();
      (is_whole ? chain.rows : partial).push_back(std::move(row));
    }
    // One thread may take a row that is alone, but products are better off with the rows that they have.
    if (chain.rows.empty() && target_.num_threads == 1 && !has_products(chain))
      for (size_t axis = 0; axis < last_shape.size() && chain.rows.empty(); ++axis) {
        RowAxis row{std::vector<size_t>(count, kNoAxis), 1};
        row.axis[count - 1] = axis;
        if (as_int(last_shape[axis]) == 1 && follow(chain, row) &&
            std::find(row.axis.begin(), row.axis.end(), kNoAxis) == row.axis.end())
          chain.rows.push_back(std::move(row));
      }
    if (chain.rows.empty()) return false;
    // In the order of the first member's axes.
    std::sort(chain.rows.begin(), chain.rows.end(),
              [](const RowAxis& a, const RowAxis& b) { return a.axis[0] < b.axis[0]; });
    for (const RowAxis& last : partial) {
      Chain cut = chain;
      cut.rows.push_back(last);
      if (keep_leading(cut) == cut.rows.size() && choose_pieces(cut)) {
        chain = std::move(cut);
        return true;
      }
    }
    chain.rows.resize(keep_leading(chain));
    return !chain.rows.empty() && choose_block(chain);
  }

  // How many of the rows come before any other axis of all inner results that have them.
  size_t keep_leading(const Chain& chain) const {
    size_t rows = chain.rows.size();
    for (size_t m = 0; m + 1 < chain.members.size(); ++m) {
      const Shape& shape = chain.members[m].definition->output().out->shape;
      const bool is_shared = chain.rows.back().axis[m] == kNoAxis;
      const size_t own = is_shared ? std::min(rows, chain.rows.size() - 1) : rows;
      size_t kept = 0;
      for (size_t axis = 0; axis < shape.size() && kept < own; ++axis) {
        if (chain.rows[kept].axis[m] == axis) {
          ++kept;
        } else if (as_int(shape[axis]) != 1) {
          break;
        }
      }
      if (kept < own) rows = kept;
    }
    return rows;
  }

  static bool has_shared(const Chain& chain) {
    const std::vector<size_t>& axis = chain.rows.back().axis;
    return std::find(axis.begin(), axis.end(), kNoAxis) != axis.end();
  }

  static bool has_products(const Chain& chain) {
    return std::any_of(chain.members.begin(), chain.members.end(), [](const Member& member) {
      const Stage* reduction = member.definition->reduction();
      std::set<const Buffer*> read;
      if (reduction)
        walk(reduction->body.value, [&](const Expr& node) {
          if (node->kind == ExprKind::kLoad) read.insert(node->buffer.get());
        });
      return read.size() > 1;
    });
  }

  // The axis in the members that have it, from the last one upwards. False when some member reads another's result
  // along it in another way. Those without it do not reduce: they are done again for each piece of the rows.
  bool follow(const Chain& chain, RowAxis& row) const {
    std::vector<bool> is_shared(chain.members.size(), false);
    for (size_t m = chain.members.size(); m-- > 0;) {
      const TensorProgram& kernel = *chain.members[m].definition;
      if (is_shared[m] ? row.axis[m] != kNoAxis || kernel.reduction() : row.axis[m] == kNoAxis) return false;
      const std::vector<BufferId>& args = chain.members[m].args;
      for (size_t p = 0; p < kernel.params.size(); ++p) {
        if (!chain.inner.contains(args[p])) continue;
        const size_t writer = writer_[static_cast<size_t>(args[p])];
        size_t from = 0;
        while (chain.members[from].call != writer) ++from;
        if (from >= m) return false;
        const Buffer* param = kernel.params[p].buffer.get();
        if (is_shared[m] || !depends_on(kernel, param, row.axis[m])) {
          is_shared[from] = true;
          continue;
        }
        size_t dim = 0;
        while (dim < param->shape.size() &&
               (as_int(param->shape[dim]) != row.extent || read_along(kernel, param, dim) != row.axis[m]))
          ++dim;
        if (dim == param->shape.size() || (row.axis[from] != kNoAxis && row.axis[from] != dim)) return false;
        row.axis[from] = dim;
      }
    }
    return true;
  }

  // The inner result that is read for the last time where member `m` replaces it element by element.
  std::optional<BufferId> replaced_by(const Chain& chain, size_t m) const {
    const Member& member = chain.members[m];
    const Buffer& out = *member.definition->output().out;
    const std::vector<BufferId>& args = member.args;
    for (size_t p = 0; p + 1 < args.size(); ++p) {
      // Members say who reads: folding has moved reads from call to call.
      const auto reads = [&](const Member& later) {
        return std::find(later.args.begin(), later.args.end(), args[p]) != later.args.end();
      };
      const auto behind = chain.members.begin() + static_cast<std::ptrdiff_t>(m) + 1;
      if (!chain.inner.contains(args[p]) || std::any_of(behind, chain.members.end(), reads)) continue;
      const Buffer& param = *member.definition->params[p].buffer;
      if (param.dtype == out.dtype && reads_in_place(*member.definition, &param, out.shape.size()) &&
          elements_of(param) == elements_of(out))
        return args[p];
    }
    return std::nullopt;
  }

  // What blocks of the last row axis need, in bytes.
  struct Needs {
    int64_t row = 0;           // of inner results, for a row
    int64_t shared = 0;        // of what every block reads
    bool has_product = false;  // a reduction that reads an operand along other axes than its own
  };
  Needs needs_of(const Chain& chain) const {
    Needs needs;
    int64_t rows = 1;
    for (const RowAxis& row : chain.rows) rows *= row.extent;
    for (size_t m = 0; m < chain.members.size(); ++m) {
      const TensorProgram& kernel = *chain.members[m].definition;
      const size_t axis = chain.rows.back().axis[m];
      if (axis == kNoAxis) continue;
      if (m + 1 < chain.members.size()) needs.row += bytes_of(*kernel.output().out) / rows;
      for (size_t p = 0; p < kernel.params.size(); ++p) {
        const Buffer& operand = *kernel.params[p].buffer;
        if (depends_on(kernel, &operand, axis)) continue;
        int64_t bytes = bytes_of(operand);
        for (size_t r = 0; r + 1 < chain.rows.size(); ++r)
          if (depends_on(kernel, &operand, chain.rows[r].axis[m])) bytes /= chain.rows[r].extent;
        if (bytes > 4096 && kernel.reduction()) needs.has_product = true;
        needs.shared += bytes;
      }
    }
    return needs;
  }

  bool choose_block(Chain& chain) const {
    const Needs needs = needs_of(chain);
    if (needs.shared > target_.l2_bytes / 2) return false;
    int64_t rows = 1;
    for (const RowAxis& row : chain.rows) rows *= row.extent;
    const int64_t budget = needs.has_product ? target_.l2_bytes / 4 : target_.l1_bytes / 2;
    const int64_t extent = chain.rows.back().extent;
    int64_t block = std::clamp<int64_t>(budget / std::max<int64_t>(needs.row, 1), 1, extent);
    // Every thread gets some blocks; rows that are too few for that are better cut inside.
    const int64_t outer = rows / extent;
    const int64_t wanted = 4 * static_cast<int64_t>(target_.num_threads);
    if (rows < wanted && (target_.num_threads > 1 || has_products(chain))) return false;
    block = std::min(block, std::max<int64_t>(1, outer * extent / wanted));
    if (block > kTileRows && needs.has_product) block = block / kTileRows * kTileRows;
    chain.block = std::min(block, extent);
    return true;
  }

  // The same where some kernels (the copies of keys and values) are shared by the blocks of a row of the other axes.
  // False where all rows fit the second level of cache: then nothing is won by cutting them.
  bool choose_pieces(Chain& chain) const {
    const Needs needs = needs_of(chain);
    const int64_t extent = chain.rows.back().extent;
    const int64_t budget = target_.l2_bytes / 4;
    if (!needs.has_product || needs.row * extent <= budget) return false;
    // A block goes over what is shared once, so it need not stay near, but then a block must have some rows.
    constexpr int64_t kFarBlocks = 8;
    if (needs.shared > kFarBlocks * target_.l2_bytes) return false;
    const int64_t most = std::max(kTileRows, budget / needs.row);
    const int64_t blocks = (extent + most - 1) / most;
    const int64_t even = (extent + blocks - 1) / blocks;
    chain.block = std::min((even + kTileRows - 1) / kTileRows * kTileRows, extent);
    int64_t outer = 1;
    for (size_t r = 0; r + 1 < chain.rows.size(); ++r) outer *= chain.rows[r].extent;
    const int64_t wanted = target_.num_threads == 1 ? 1 : 4 * static_cast<int64_t>(target_.num_threads);
    chain.pieces = (wanted + outer - 1) / outer;
    return chain.pieces == 1 || extent / chain.pieces >= kPieceRows;
  }

  // The program of one block: `count` rows of the last row axis from `base` on (null: all), at `outer` along the
  // others.
  struct Block {
    std::vector<Var> bases;  // by row axis
    int64_t count = 1;
    int64_t lo = 0, hi = 0;  // of the last base
    int64_t columns = 0;     // computed of Chain::masked
  };

  struct Place {
    BufferPtr buffer;
    Expr begin;  // what indices are counted from; null: 0
  };

  // The shared kernels alone, or the others.
  std::optional<Stmt> block_of(const Chain& chain, const Block& block, const std::map<BufferId, Place>& places,
                               bool of_shared) const {
    std::vector<Stmt> parts;
    std::optional<size_t> before;  // the kernel of the last part
    for (size_t m = 0; m < chain.members.size(); ++m) {
      if ((chain.rows.back().axis[m] == kNoAxis) != of_shared) continue;
      const Member& member = chain.members[m];
      TensorProgram window = *member.definition;
      Bounds bounds;
      for (size_t r = 0; r < chain.rows.size(); ++r) {
        const bool last = r + 1 == chain.rows.size();
        if (last && of_shared) break;
        const Window w{chain.rows[r].axis[m], block.bases[r], last ? block.count : 1, last ? block.lo : 0,
                       last ? block.hi : chain.rows[r].extent - 1};
        window.windows.push_back(w);
        bounds.set(w.base, w.lo, w.hi);
      }
      const Var first_column = make_var("column");
      if (chain.masked && !of_shared) {
        bounds.set(first_column, 0, 0);
        if (const auto axis = chain.masked->output_axis[m])
          window.windows.push_back({*axis, first_column, block.columns, 0, 0});
        if (const auto axis = chain.masked->reduced_axis[m])
          for (Stage& stage : window.stages)
            if (stage.body.is_reduction()) stage.body.reduce_axes[*axis].extent = block.columns;
      }
      auto scheduled = ask_(window);
      if (!scheduled || !scheduled->packed.empty()) return std::nullopt;
      std::unordered_map<const Buffer*, const Place*> moved;
      const std::vector<BufferId>& args = member.args;
      for (size_t p = 0; p < args.size(); ++p) {
        if (scheduled->program.params[p]->shape.size() != 1) return std::nullopt;
        moved[scheduled->program.params[p].get()] = &places.at(args[p]);
      }
      bool fits = true;
      const auto at = [&](const Place& place, const Expr& index) {
        if (!place.begin) return index;
        const Expr local = simplify(index - place.begin, bounds);
        for (const Var& base : block.bases) fits &= !uses_var(local, base);
        return local;
      };
      Stmt part = transform(
          substitute(without_threads(scheduled->program.body), {{first_column.get(), Expr(0)}}),
          [&](const Expr& node) -> Expr {
            if (node->kind != ExprKind::kLoad) return {};
            const auto it = moved.find(node->buffer.get());
            return it == moved.end() ? Expr() : load(it->second->buffer, {at(*it->second, node->operands[0])});
          },
          [&](const Stmt& node) -> Stmt {
            if (node->kind != StmtKind::kStore) return {};
            const auto it = moved.find(node->buffer.get());
            if (it == moved.end()) return {};
            return store(it->second->buffer, {at(*it->second, node->indices[0])}, node->value);
          });
      if (!fits) return std::nullopt;
      // A reduction of what the kernel before has just stored, and what would leave the nearest cache in between.
      const std::optional<size_t> last = std::exchange(before, m);
      if (last && is_far(chain, *last)) {
        const BufferId stored = chain.members[*last].args.back();
        if (std::find(args.begin(), args.end(), stored) != args.end())
          if (const Stmt joined = join_sweeps(parts.back(), part, places.at(stored).buffer.get())) {
            parts.back() = joined;
            continue;
          }
      }
      parts.push_back(std::move(part));
    }
    return seq(std::move(parts));
  }

  // Columns that rows [first, end) see, in steps.
  static int64_t columns_of(const Chain& chain, int64_t first, int64_t end) {
    if (!chain.masked) return 0;
    const auto& used = chain.masked->used;
    const int64_t most = *std::max_element(used.begin() + first, used.begin() + end);
    return std::min(chain.masked->extent, (most + kColumnStep - 1) / kColumnStep * kColumnStep);
  }

  // Blocks from `first` on, up to the next section's; all see the same columns.
  struct Section {
    int64_t first = 0;
    Block block;
  };
  static std::vector<Section> sections_of(const Chain& chain, const std::vector<Var>& bases) {
    const int64_t extent = chain.rows.back().extent;
    const int64_t whole = extent / chain.block, rest = extent % chain.block;
    const int64_t parts = chain.masked ? std::min(whole, kMostParts) : std::min<int64_t>(whole, 1);
    std::vector<Section> sections;
    for (int64_t p = 0; p < parts; ++p) {
      const int64_t first = whole * p / parts, end = whole * (p + 1) / parts;
      const int64_t columns = columns_of(chain, first * chain.block, end * chain.block);
      if (!sections.empty() && sections.back().block.columns == columns) {
        sections.back().block.hi = (end - 1) * chain.block;
        continue;
      }
      sections.push_back({first, {bases, chain.block, first * chain.block, (end - 1) * chain.block, columns}});
    }
    if (rest > 0)
      sections.push_back(
          {whole, {bases, rest, extent - rest, extent - rest, columns_of(chain, extent - rest, extent)}});
    return sections;
  }

  // Sets `masked` where some rows see fewer columns.
  void find_masked(Chain& chain) const {
    std::vector<ColumnKernel> kernels;
    for (size_t m = 0; m < chain.members.size(); ++m) {
      const Member& member = chain.members[m];
      ColumnKernel& kernel = kernels.emplace_back();
      kernel.definition = member.definition;
      kernel.row_axis = chain.rows.back().axis[m];
      for (size_t p = 0; p < member.definition->params.size(); ++p) {
        const BufferId arg = member.args[p];
        const ProgramBuffer& buffer = program_.buffers[static_cast<size_t>(arg)];
        int writer = -1;
        if (chain.inner.contains(arg))
          for (size_t i = 0; i < m; ++i)
            if (chain.members[i].call == writer_[static_cast<size_t>(arg)]) writer = static_cast<int>(i);
        kernel.writers.push_back(writer);
        const bool is_plain = buffer.kind == BufferKind::kWeight && buffer.alias_of < 0 && buffer.data &&
                              buffer.data->has_data() && buffer.type.layout.row_major();
        kernel.values.push_back(is_plain ? buffer.data.get() : nullptr);
      }
    }
    chain.masked = find_masked_columns(kernels);
    if (!chain.masked) return;
    const auto sections = sections_of(chain, {});
    if (std::all_of(sections.begin(), sections.end(),
                    [&](const Section& section) { return section.block.columns == chain.masked->extent; }))
      chain.masked.reset();
  }

  // The same kernels in the same order on arguments that are the same in the same places make the same chain.
  std::string signature_of(const Chain& chain) const {
    std::string text;
    std::map<BufferId, size_t> numbers;
    for (const size_t call : chain.calls) {
      text += fmt::format("{}(", program_.calls[call].kernel);
      for (const BufferId arg : program_.calls[call].args)
        text += fmt::format("{},", numbers.emplace(arg, numbers.size()).first->second);
      text += ")";
    }
    if (chain.masked) text += fmt::format("{}", fmt::join(chain.masked->used, ","));
    return text;
  }

  // Whether a block of the member's results is larger than the first level of cache.
  bool is_far(const Chain& chain, size_t m) const {
    int64_t rows = 1;
    for (const RowAxis& row : chain.rows) rows *= row.extent;
    return bytes_of(*chain.members[m].definition->output().out) / rows * chain.block > target_.l1_bytes;
  }

  // Inner results that are larger than the first level of cache and that the output replaces element by element,
  // perhaps by way of another one: they lie where the output will.
  std::set<BufferId> results_in_output(const Chain& chain) const {
    std::set<BufferId> results;
    const ProgramBuffer& output =
        program_.buffers[static_cast<size_t>(program_.calls[chain.members.back().call].args.back())];
    if (chain.masked || !output.type.layout.row_major()) return results;
    for (size_t m = chain.members.size() - 1;;) {
      const auto result = replaced_by(chain, m);
      if (!result) return results;
      m = 0;
      while (chain.members[m].call != writer_[static_cast<size_t>(*result)]) ++m;
      if (!is_far(chain, m)) return results;
      results.insert(*result);
    }
  }

  std::optional<Kernel> make_kernel(const Chain& chain, const std::vector<BufferId>& outside) const {
    Kernel kernel;
    const size_t last_call = chain.members.back().call;
    const Kernel& last = program_.kernels[static_cast<size_t>(program_.calls[last_call].kernel)];
    kernel.program.name = last.program.name + "_rows";
    kernel.rule = "row_chain";
    kernel.loc = last.loc;
    kernel.flops = kernel.bytes = 0;
    for (const size_t call : chain.calls) {
      const Kernel& part = program_.kernels[static_cast<size_t>(program_.calls[call].kernel)];
      kernel.flops += std::max<int64_t>(part.flops, 0);
    }
    std::map<BufferId, Place> places;
    for (const BufferId b : outside) {
      const ProgramBuffer& buffer = program_.buffers[static_cast<size_t>(b)];
      const TensorType stored{buffer.type.dtype, physical_shape(buffer.type.shape, buffer.type.layout), {}};
      places[b].buffer = make_buffer(buffer.name, stored.dtype, {Expr(stored.num_elements())});
      kernel.program.params.push_back(places[b].buffer);
      kernel.bytes += bytes_of(*places[b].buffer);
    }

    // A block's results lie one behind the other from its first row on; one that is read for the last time where it is
    // replaced element by element gives its place away.
    std::vector<Var> bases;
    for (size_t r = 0; r < chain.rows.size(); ++r) bases.push_back(make_var(fmt::format("row{}", r)));
    std::vector<BufferPtr> local;
    const std::set<BufferId> in_output = results_in_output(chain);
    for (size_t m = 0; m + 1 < chain.members.size(); ++m) {
      const Member& member = chain.members[m];
      const Stage& output = member.definition->output();
      const std::vector<BufferId>& args = member.args;
      const BufferId result = args.back();
      if (in_output.contains(result)) {
        places[result] = places.at(program_.calls[last_call].args.back());
        continue;
      }
      Expr begin = 0;
      int64_t stride = 1;
      int64_t block_elements = 1;
      for (size_t axis = output.out->shape.size(); axis-- > 0;) {
        const int64_t extent = *as_int(output.out->shape[axis]);
        int64_t covered = extent;
        for (size_t r = 0; r < chain.rows.size(); ++r) {
          if (chain.rows[r].axis[m] != axis) continue;
          begin = begin + bases[r] * Expr(stride);
          covered = r + 1 == chain.rows.size() ? chain.block : 1;
        }
        stride *= extent;
        block_elements *= covered;
      }
      Place place{nullptr, begin};
      if (const auto over = replaced_by(chain, m)) place.buffer = places.at(*over).buffer;
      if (!place.buffer) {
        place.buffer =
            make_buffer(fmt::format("part{}", m), output.out->dtype, {Expr(block_elements)}, MemoryScope::kLocal);
        local.push_back(place.buffer);
      }
      places[result] = std::move(place);
    }

    const int64_t blocks = (chain.rows.back().extent + chain.block - 1) / chain.block;
    std::vector<OutputLoop> loops;
    for (size_t r = 0; r < chain.rows.size(); ++r) loops.push_back({bases[r], chain.rows[r].extent});
    const Var number = make_var("block");
    loops.back() = {number, blocks};
    const std::vector<Section> sections = sections_of(chain, bases);
    std::vector<Stmt> bodies;
    for (const Section& section : sections) {
      const auto body = block_of(chain, section.block, places, false);
      if (!body) return std::nullopt;
      bodies.push_back(*body);
    }
    const auto block_number = [&](const Expr& n, VarMap map) {
      Stmt body;
      for (size_t i = sections.size(); i-- > 0;) {
        const Block& block = sections[i].block;
        map[bases.back().get()] = block.lo == block.hi ? Expr(block.lo) : n * Expr(chain.block);
        const Stmt own = substitute(bodies[i], map);
        body = body ? if_then(n < Expr(sections[i + 1].first), own, body) : own;
      }
      return body;
    };
    std::optional<Stmt> shared;
    const int64_t piece = (blocks + chain.pieces - 1) / chain.pieces;  // blocks
    if (has_shared(chain)) {
      shared = block_of(chain, {bases}, places, true);
      if (!shared) return std::nullopt;
      loops.back().extent = (blocks + piece - 1) / piece;
    }
    kernel.program.body = outer_nest(loops, kJoinAll, [&](const VarMap& at) {
      const Expr n = at.at(number.get());
      Stmt body;
      if (shared) {
        const Var within = make_var("block");
        const Expr first = n * Expr(piece);
        const Expr count = blocks % piece == 0 ? Expr(piece) : min(Expr(piece), Expr(blocks) - first);
        body = seq(
            {substitute(*shared, at), for_loop(within, 0, count, ForKind::kSerial, block_number(first + within, at))});
      } else {
        body = block_number(n, at);
      }
      for (const BufferPtr& buffer : local) body = alloc(buffer, std::move(body));
      return body;
    });
    return kernel;
  }

  void join(const Chain& chain, std::set<size_t>& gone) {
    std::vector<BufferId> outside;
    for (const Member& member : chain.members)
      for (const BufferId arg : member.args)
        if (!chain.inner.contains(arg) && std::find(outside.begin(), outside.end(), arg) == outside.end())
          outside.push_back(arg);
    const size_t last = chain.members.back().call;
    const auto [it, is_new] = made_.emplace(signature_of(chain), -1);
    if (is_new) {
      auto kernel = make_kernel(chain, outside);
      if (!kernel || (allow_ && !allow_("row_chain", *kernel))) return;
      it->second = static_cast<int32_t>(program_.kernels.size());
      program_.kernels.push_back(std::move(*kernel));
    }
    if (it->second < 0) return;
    program_.calls[last].kernel = it->second;
    program_.calls[last].args = outside;
    for (const size_t call : chain.calls)
      if (call != last) gone.insert(call);
  }

  void remove_calls(const std::set<size_t>& gone) {
    std::vector<KernelCall> kept;
    for (size_t c = 0; c < program_.calls.size(); ++c)
      if (!gone.contains(c)) kept.push_back(std::move(program_.calls[c]));
    program_.calls = std::move(kept);
    for (ProgramPiece& piece : program_.pieces) {
      const auto first = gone.lower_bound(piece.first_call);
      const auto end = gone.lower_bound(piece.first_call + piece.num_calls);
      piece.num_calls -= static_cast<size_t>(std::distance(first, end));
      piece.first_call -= static_cast<size_t>(std::distance(gone.begin(), first));
    }
    drop_unused_kernels();
  }

  void drop_unused_kernels() {
    std::vector<int32_t> renumber(program_.kernels.size(), -1);
    for (const KernelCall& call : program_.calls) renumber[static_cast<size_t>(call.kernel)] = 0;
    std::vector<Kernel> kept;
    for (size_t k = 0; k < renumber.size(); ++k) {
      if (renumber[k] < 0) continue;
      renumber[k] = static_cast<int32_t>(kept.size());
      kept.push_back(std::move(program_.kernels[k]));
    }
    program_.kernels = std::move(kept);
    for (KernelCall& call : program_.calls) call.kernel = renumber[static_cast<size_t>(call.kernel)];
  }

  Program& program_;
  const Target& target_;
  const AskRules& ask_;
  const AllowRule& allow_;
  std::vector<size_t> writer_;  // by buffer: the call
  std::vector<std::vector<size_t>> readers_;
  std::vector<bool> plain_;              // by buffer: arena, row-major, no view, written once
  std::vector<bool> taken_;              // by call: in a chain, or in none ever
  std::map<int32_t, bool> as_stored_;    // by kernel
  std::deque<TensorProgram> folded_;     // that members point to
  std::map<std::string, int32_t> made_;  // signature -> kernel; -1 when the rules did not agree
};

}  // namespace

void join_row_chains(Program& program, const Target& target, const AskRules& ask, const AllowRule& allow) {
  ChainMaker(program, target, ask, allow).run();
}

}  // namespace tessera
