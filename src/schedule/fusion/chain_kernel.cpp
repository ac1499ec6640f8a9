#include "schedule/fusion/chain_kernel.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "schedule/fusion/chain_block.h"
#include "schedule/fusion/join_sweeps.h"
#include "schedule/fusion/online_softmax_emit.h"
#include "schedule/fusion/open_attention.h"
#include "schedule/kernel/loop_builder.h"

namespace tessera::inline schedule {
namespace {

constexpr int64_t kMostParts = 8;  // of rows that see different numbers of columns: each has code of its own
constexpr int64_t kColumnStep = 64;

// Columns that rows [first, end) see, in steps.
int64_t columns_of(const Chain& chain, int64_t first, int64_t end) {
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

std::vector<Section> sections_of(const Chain& chain, const std::vector<Var>& bases) {
  const int64_t extent = chain.rows.back().extent;
  const int64_t whole = extent / chain.block, rest = extent % chain.block;
  const bool differ = chain.masked && !chain.columns;
  const int64_t parts = differ ? std::min(whole, kMostParts) : std::min<int64_t>(whole, 1);
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
    sections.push_back({whole, {bases, rest, extent - rest, extent - rest, columns_of(chain, extent - rest, extent)}});
  return sections;
}

class ChainEmitter {
 public:
  ChainEmitter(const JoinedProgram& joined, const JoinedContext& context, const Chain& chain, const Target& target,
               const AskRules& ask)
      : joined_(joined), context_(context), chain_(chain), target_(target), ask_(ask) {}

  std::optional<LoopProgram> make() const {
    LoopProgram program;
    program.name = joined_.name;
    std::map<BufferId, Place> places;
    for (size_t v = 0; v < joined_.num_args; ++v) {
      const TensorParam& value = joined_.values[v];
      Expr count = 1;
      for (const Expr& dim : physical_shape(value.buffer->shape, value.layout)) count = count * dim;
      const BufferPtr flat = make_buffer(value.buffer->name, value.buffer->dtype, {count});
      places[static_cast<BufferId>(v)].buffer = flat;
      program.params.push_back(flat);
    }
    if (has_open_sizes(chain_)) {
      if (!chain_.columns) return std::nullopt;
      const auto body = emit_open_attention(chain_, places, context_.symbols, target_, ask_);
      if (!body) return std::nullopt;
      program.body = *body;
      for (const SymbolRange& symbol : context_.symbols) program.symbols.push_back(symbol.var);
      return program;
    }

    std::vector<Var> bases;
    for (size_t r = 0; r < chain_.rows.size(); ++r) bases.push_back(make_var(fmt::format("row{}", r)));
    const std::vector<Section> sections = sections_of(chain_, bases);
    const auto code = chain_.columns ? blocks_of_columns(sections, places) : whole_rows(sections, places);
    if (!code) return std::nullopt;

    const int64_t blocks = (chain_.rows.back().extent + chain_.block - 1) / chain_.block;
    std::vector<OutputLoop> loops;
    for (size_t r = 0; r < chain_.rows.size(); ++r) loops.push_back({bases[r], chain_.rows[r].extent});
    const Var number = make_var("block");
    loops.back() = {number, blocks};
    const auto block_number = [&](const Expr& n, VarMap map) {
      Stmt body;
      for (size_t i = sections.size(); i-- > 0;) {
        const Block& block = sections[i].block;
        map[bases.back().get()] = block.lo == block.hi ? Expr(block.lo) : n * Expr(chain_.block);
        const Stmt own = substitute(code->blocks[i], map);
        body = body ? if_then(n < Expr(sections[i + 1].first), own, body) : own;
      }
      return body;
    };
    const int64_t piece = (blocks + chain_.pieces - 1) / chain_.pieces;  // blocks
    if (code->shared) loops.back().extent = (blocks + piece - 1) / piece;
    program.body = outer_nest(loops, kJoinAll, [&](const VarMap& at) {
      const Expr n = at.at(number.get());
      Stmt body;
      if (code->shared) {
        const Var within = make_var("block");
        const Expr first = n * Expr(piece);
        const Expr count = blocks % piece == 0 ? Expr(piece) : min(Expr(piece), Expr(blocks) - first);
        body = seq({substitute(*code->shared, at),
                    for_loop(within, 0, count, ForKind::kSerial, block_number(first + within, at))});
      } else {
        body = block_number(n, at);
      }
      for (const BufferPtr& buffer : code->local) body = alloc(buffer, std::move(body));
      return body;
    });
    return program;
  }

 private:
  std::optional<ChainCode> blocks_of_columns(const std::vector<Section>& sections,
                                             const std::map<BufferId, Place>& outside) const {
    std::vector<Block> blocks;
    for (const Section& section : sections) blocks.push_back(section.block);
    return emit_column_blocks(chain_, blocks, outside, target_, ask_);
  }

  std::optional<ChainCode> whole_rows(const std::vector<Section>& sections, std::map<BufferId, Place> places) const {
    // A block's results lie one behind the other from its first row on; one that is read for the last time where it is
    // replaced element by element gives its place away.
    const std::vector<Var>& bases = sections[0].block.bases;
    ChainCode code;
    const std::set<BufferId> in_output = results_in_output();
    for (size_t m = 0; m + 1 < chain_.members.size(); ++m) {
      const Member& member = chain_.members[m];
      const Stage& output = member.definition->output();
      const std::vector<BufferId>& args = member.args;
      const BufferId result = args.back();
      if (in_output.contains(result)) {
        places[result] = places.at(chain_.members.back().args.back());
        continue;
      }
      Expr begin = 0;
      int64_t stride = 1;
      int64_t block_elements = 1;
      for (size_t axis = output.out->shape.size(); axis-- > 0;) {
        const int64_t extent = *as_int(output.out->shape[axis]);
        int64_t covered = extent;
        for (size_t r = 0; r < chain_.rows.size(); ++r) {
          if (chain_.rows[r].axis[m] != axis) continue;
          begin = begin + bases[r] * Expr(stride);
          covered = r + 1 == chain_.rows.size() ? chain_.block : 1;
        }
        stride *= extent;
        block_elements *= covered;
      }
      Place place{nullptr, begin, {}};
      if (const auto over = replaced_by(m)) place.buffer = places.at(*over).buffer;
      if (!place.buffer) {
        place.buffer =
            make_buffer(fmt::format("part{}", m), output.out->dtype, {Expr(block_elements)}, MemoryScope::kLocal);
        code.local.push_back(place.buffer);
      }
      places[result] = std::move(place);
    }
    for (const Section& section : sections) {
      const auto body = block_of(section.block, places, false);
      if (!body) return std::nullopt;
      code.blocks.push_back(*body);
    }
    if (has_shared(chain_)) {
      code.shared = block_of({bases}, places, true);
      if (!code.shared) return std::nullopt;
    }
    return code;
  }

  // The inner result that is read for the last time where member `m` replaces it element by element.
  std::optional<BufferId> replaced_by(size_t m) const {
    const Member& member = chain_.members[m];
    const Buffer& out = *member.definition->output().out;
    const std::vector<BufferId>& args = member.args;
    for (size_t p = 0; p + 1 < args.size(); ++p) {
      // Members say who reads: folding has moved reads from call to call.
      const auto reads = [&](const Member& later) {
        return std::find(later.args.begin(), later.args.end(), args[p]) != later.args.end();
      };
      const auto behind = chain_.members.begin() + static_cast<std::ptrdiff_t>(m) + 1;
      if (!chain_.inner.contains(args[p]) || std::any_of(behind, chain_.members.end(), reads)) continue;
      const Buffer& param = *member.definition->params[p].buffer;
      if (param.dtype == out.dtype && reads_in_place(*member.definition, &param, out.shape.size()) &&
          elements_of(param) == elements_of(out))
        return args[p];
    }
    return std::nullopt;
  }

  // The shared kernels alone, or the others.
  std::optional<Stmt> block_of(const Block& block, const std::map<BufferId, Place>& places, bool of_shared) const {
    std::vector<Stmt> parts;
    std::optional<size_t> before;  // the kernel of the last part
    for (size_t m = 0; m < chain_.members.size(); ++m) {
      if ((chain_.rows.back().axis[m] == kNoAxis) != of_shared) continue;
      const Member& member = chain_.members[m];
      const std::vector<BufferId>& args = member.args;
      TensorProgram window = *member.definition;
      std::vector<size_t> axes;
      for (const RowAxis& row : chain_.rows) axes.push_back(row.axis[m]);
      cut_rows(window, chain_, block, axes);
      const Var first_column = make_var("column");
      if (chain_.masked && !of_shared) {
        if (const auto axis = chain_.masked->output_axis[m])
          window.windows.push_back({*axis, first_column, block.columns, 0, 0});
        if (const auto axis = chain_.masked->reduced_axis[m])
          for (Stage& stage : window.stages)
            if (stage.body.is_reduction()) stage.body.reduce_axes[*axis].extent = block.columns;
      }
      std::vector<Place> own;
      for (const BufferId arg : args) own.push_back(places.at(arg));
      const auto placed = place_kernel(window, own, block, ask_);
      if (!placed) return std::nullopt;
      const Stmt part = substitute(*placed, {{first_column.get(), Expr(0)}});
      // A reduction of what the kernel before has just stored, and what would leave the nearest cache in between.
      const std::optional<size_t> last = std::exchange(before, m);
      if (last && is_far(*last)) {
        const BufferId stored = chain_.members[*last].args.back();
        if (std::find(args.begin(), args.end(), stored) != args.end())
          if (const Stmt joined = join_sweeps(parts.back(), part, places.at(stored).buffer.get())) {
            parts.back() = joined;
            continue;
          }
      }
      parts.push_back(part);
    }
    return seq(std::move(parts));
  }

  // Whether a block of the member's results is larger than the first level of cache.
  bool is_far(size_t m) const {
    int64_t rows = 1;
    for (const RowAxis& row : chain_.rows) rows *= row.extent;
    return bytes_of(*chain_.members[m].definition->output().out) / rows * chain_.block > target_.l1_bytes;
  }

  // Inner results that are larger than the first level of cache and that the output replaces element by element,
  // perhaps by way of another one: they lie where the output will.
  std::set<BufferId> results_in_output() const {
    std::set<BufferId> results;
    if (chain_.masked || !joined_.result().layout.row_major()) return results;
    for (size_t m = chain_.members.size() - 1;;) {
      const auto result = replaced_by(m);
      if (!result) return results;
      m = writer_in(chain_, *result);
      if (!is_far(m)) return results;
      results.insert(*result);
    }
  }

  const JoinedProgram& joined_;
  const JoinedContext& context_;
  const Chain& chain_;
  const Target& target_;
  const AskRules& ask_;
};

}  // namespace

void find_masked(const std::vector<TensorPtr>& constants, Chain& chain) {
  std::vector<ColumnKernel> kernels;
  for (size_t m = 0; m < chain.members.size(); ++m) {
    const Member& member = chain.members[m];
    ColumnKernel& kernel = kernels.emplace_back();
    kernel.definition = member.definition;
    kernel.row_axis = chain.rows.back().axis[m];
    for (size_t p = 0; p < member.definition->params.size(); ++p) {
      const BufferId arg = member.args[p];
      int writer = -1;
      if (chain.inner.contains(arg)) writer = static_cast<int>(writer_in(chain, arg));
      kernel.writers.push_back(writer);
      const auto value = static_cast<size_t>(arg);
      kernel.values.push_back(value < constants.size() ? constants[value].get() : nullptr);
    }
  }
  chain.masked = find_masked_columns(kernels);
  if (chain.masked && chain.columns && chain.masked->extent != chain.columns->extent) chain.masked.reset();
  if (!chain.masked || chain.columns) return;
  const auto sections = sections_of(chain, {});
  if (std::all_of(sections.begin(), sections.end(),
                  [&](const Section& section) { return section.block.columns == chain.masked->extent; }))
    chain.masked.reset();
}

std::optional<LoopProgram> make_chain_kernel(const JoinedProgram& joined, const JoinedContext& context,
                                             const Chain& chain, const Target& target, const AskRules& ask) {
  return ChainEmitter(joined, context, chain, target, ask).make();
}

}  // namespace tessera::inline schedule
