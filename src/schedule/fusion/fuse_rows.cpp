#include "schedule/fusion/fuse_rows.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "program/memory_plan.h"
#include "schedule/dynamic/dynamic_tiles.h"
#include "schedule/fusion/chain_rows.h"
#include "schedule/fusion/chain_search.h"
#include "schedule/fusion/fold_copies.h"
#include "schedule/fusion/row_cut.h"

namespace tessera::inline schedule {
namespace {

bool reduces(const TensorProgram& kernel, const Buffer* param) {
  const Stage* reduction = kernel.reduction();
  bool reads = false;
  if (reduction)
    walk(reduction->body.value,
         [&](const Expr& node) { reads |= node->kind == ExprKind::kLoad && node->buffer.get() == param; });
  return reads;
}

class RowPlanner {
 public:
  explicit RowPlanner(JoinPlanner& planner) : planner_(planner), program_(planner.program()) { show_definitions(); }

  void run() {
    std::vector<FoundChain> found;
    for (size_t c = program_.calls.size(); c-- > 0;)
      if (planner_.flow().is_free(c))
        if (auto rows = rows_before(c)) {
          for (const size_t call : rows->calls) planner_.flow().set_free(call, false);
          found.push_back(std::move(*rows));
        }
    for (const FoundChain& rows : found) planner_.join(rows);
  }

 private:
  // One search (chain_search.h): chains that end with a call.
  struct Search {
    static constexpr std::string_view kStep = kFuseRows;
    static constexpr size_t kMostMembers = 12;
    static constexpr bool kOnlyFirst = true;

    RowPlanner& planner;
    const std::set<size_t>& without;  // these calls
    Chain largest;

    static std::vector<size_t> calls_of(const Chain& chain) {
      std::vector<size_t> calls;
      for (const Member& member : chain.members) calls.push_back(member.call);
      return calls;
    }
    bool may_want(const CallLink& link) const { return planner.may_want(link); }
    void found(const Chain& chain) { largest = chain; }
    std::variant<Chain, std::string_view> larger(const Chain& chain, const CallLink& link, size_t) const {
      return planner.larger(chain, link, without);
    }
  };

  // Weights that the program computes are read as they are stored: rows that are joined may be what makes them
  // (attention), and in these nobody packs. What the caller gives, or a state, is a weight all the same.
  void show_definitions() {
    for (const Kernel& kernel : program_.kernels) shown_.push_back(kernel.definition);
    for (const KernelCall& call : program_.calls) {
      auto& shown = shown_[static_cast<size_t>(call.kernel)];
      for (size_t p = 0; shown && p < shown->params.size(); ++p) {
        const ProgramBuffer& root = program_.buffers[static_cast<size_t>(root_buffer(program_, call.args[p]))];
        if (shown->params[p].kind != OperandKind::kWeight || root.kind == BufferKind::kInput) continue;
        auto changed = std::make_shared<TensorProgram>(*shown);
        changed->params[p].kind = OperandKind::kActivation;
        shown = std::move(changed);
      }
    }
  }

  const TensorProgram& definition_of(size_t call) const {
    return *shown_[static_cast<size_t>(program_.calls[call].kernel)];
  }
  Member member_of(size_t call) const { return {call, &definition_of(call), planner_.args_of(call)}; }

  // A reduction of what another kernel makes, but for products with weights: these want them stored otherwise.
  bool may_want(const CallLink& link) const {
    const TensorProgram& reader = definition_of(link.reader);
    const std::vector<BufferId>& args = planner_.args_of(link.reader);
    bool wanted = false;
    for (size_t p = 0; p < reader.params.size(); ++p) {
      const Buffer* param = reader.params[p].buffer.get();
      if (!reduces(reader, param)) continue;
      if (reader.params[p].may_be_packed()) return false;
      wanted |= args[p] == link.value;
    }
    return wanted;
  }

  std::variant<Chain, std::string_view> larger(const Chain& chain, const CallLink& link,
                                               const std::set<size_t>& without) {
    if (!program_.buffers[static_cast<size_t>(link.value)].type.layout.row_major())
      return "what lies between them is stored in blocks of channels";
    if (without.contains(link.writer)) return "what it stores is read block by block";
    if (!chain.may_be_long && is_symbolic(definition_of(link.writer)))
      return "a run decides about sizes, and this is no attention";
    Chain larger = chain;
    larger.inner.insert(link.value);
    larger.members.push_back(member_of(link.writer));
    std::sort(larger.members.begin(), larger.members.end(),
              [](const Member& x, const Member& y) { return x.call < y.call; });
    if (const std::string_view why = find_rows(larger, planner_.target()); !why.empty()) return why;
    if (!reads_as_stored(link.writer)) return "it wants weights stored otherwise, or no rule takes it";
    return larger;
  }

  // The chain that ends with this call: one with blocks of columns if there is one, else the largest.
  std::optional<FoundChain> rows_before(size_t last) {
    if (may_end_attention(last)) {
      Chain chain;
      auto found = rows_before(last, true, {}, chain);
      if (found && is_attention(*found)) return found;
      // A cache with what is new behind it is stored, and read block by block; so are copies that cannot be made for
      // blocks, of a cache whose length is a sum of sizes.
      if (found && has_open_sizes(chain)) {
        const std::set<size_t> made = shared_by_rows(chain, false), all = shared_by_rows(chain, true);
        if (!made.empty()) found = rows_before(last, true, made, chain);
        if (!made.empty() && found && is_attention(*found)) return found;
        if (all.size() > made.size()) found = rows_before(last, true, all, chain);
        if (all.size() > made.size() && found && is_attention(*found)) return found;
      }
    }
    Chain chain;
    return is_symbolic(definition_of(last)) ? std::nullopt : rows_before(last, false, {}, chain);
  }

  // Whether it has blocks of columns, and code.
  bool is_attention(const FoundChain& found) {
    Knobs knobs;
    const auto cut = cut_into_rows(*found.program, found.context, planner_.target(), knobs);
    const Chain* chain = std::get_if<Chain>(&cut);
    return chain && chain->columns && planner_.has_code(found);
  }

  // Calls of kernels that all rows of a block share and that do more than copy, or all of them.
  static std::set<size_t> shared_by_rows(const Chain& chain, bool copies) {
    std::set<size_t> calls;
    for (size_t m = 0; m < chain.members.size(); ++m)
      if (chain.rows.back().axis[m] == kNoAxis &&
          (copies || chain.members[m].definition->output().body.value->kind != ExprKind::kLoad))
        calls.insert(chain.members[m].call);
    return calls;
  }

  // Whether the call sums what other kernels made, or is the copy of something.
  bool may_end_attention(size_t call) const {
    const TensorProgram& kernel = definition_of(call);
    const Stage* reduction = kernel.reduction();
    if (!reduction) return kernel.params.size() == 1;
    return reduction->body.combiner == Combiner::kSum &&
           std::none_of(kernel.params.begin(), kernel.params.end(), [&](const TensorParam& param) {
             bool read = false;
             walk(reduction->body.value,
                  [&](const Expr& node) { read |= node->kind == ExprKind::kLoad && node->buffer == param.buffer; });
             return read && param.may_be_packed();
           });
  }

  // Without these calls.
  std::optional<FoundChain> rows_before(size_t last, bool may_be_long, const std::set<size_t>& without, Chain& chain) {
    Search search{*this, without, {}};
    search.largest.may_be_long = may_be_long;
    search.largest.members = {member_of(last)};
    search_chains(planner_, Chain(search.largest), search);
    chain = std::move(search.largest);
    if (chain.members.size() < 2 || !reduces_own_result(chain) || !reads_as_stored(last)) return std::nullopt;
    const std::vector<size_t> calls = Search::calls_of(chain);
    while (fold_one(chain)) {
    }
    std::vector<NumberedMember> members;
    for (const Member& member : chain.members) members.push_back({member.definition, member.args});
    FoundChain found =
        planner_.define(kFuseRows, calls, std::move(members), false, planner_.kernel_of(last).program.name + "_rows");
    Knobs knobs;
    const auto cut = cut_into_rows(*found.program, found.context, planner_.target(), knobs);
    if (const Chain* own = std::get_if<Chain>(&cut); own && own->masked)
      found.of_constants = fmt::format("{}", fmt::join(own->masked->used, ","));
    return found;
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
        if (folded.members.size() < 2 || !find_rows(folded, planner_.target()).empty()) return false;
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
      auto read = read_through(*into.definition, param, *from.definition, has_open_sizes(chain));
      if (read) {
        // Rows of a block, which is gone over for each tile of columns, stay nearer where they lie side by side. Those
        // of values are not: a token by itself would copy all of a cache.
        const bool is_column = chain.rows.back().axis[w] == kNoAxis;
        if (is_column ? !has_open_sizes(chain) : has_shared(chain)) continue;
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

  // Whether the buffer holds exp(a - m) with the maximum m of a's row.
  static bool is_softmax_numerator(const Chain& chain, BufferId values) {
    const size_t writer = writer_in(chain, values);
    if (writer == chain.members.size()) return false;
    const Member* numerator = &chain.members[writer];
    for (size_t m = 0; m + 1 < numerator->args.size(); ++m)
      for (size_t a = 0; a + 1 < numerator->args.size(); ++a) {
        const size_t of = writer_in(chain, numerator->args[m]);
        if (of == chain.members.size()) continue;
        const Member* maximum = &chain.members[of];
        if (maximum->args.size() != 2 || maximum->args[0] != numerator->args[a]) continue;
        if (subtracts_maximum(*numerator->definition, a, m, *maximum->definition)) return true;
      }
    return false;
  }

  // Whether the call's kernel has a rule that wants no weights stored otherwise: those stay on their own.
  bool reads_as_stored(size_t call) {
    const auto [it, is_new] = as_stored_.try_emplace(program_.calls[call].kernel, false);
    const TensorProgram& kernel = definition_of(call);
    if (is_new && is_symbolic(kernel)) {
      it->second = !kernel.reduction() || std::none_of(kernel.params.begin(), kernel.params.end(),
                                                       [](const TensorParam& p) { return p.may_be_packed(); });
    } else if (is_new) {
      const auto answer = planner_.options().ask(kernel);
      it->second = answer && answer->scheduled.packed.empty();
    }
    return it->second;
  }

  static bool reduces_own_result(const Chain& chain) {
    return std::any_of(chain.members.begin(), chain.members.end(), [&](const Member& member) {
      const std::vector<TensorParam>& params = member.definition->params;
      for (size_t p = 0; p < params.size(); ++p)
        if (chain.inner.contains(member.args[p]) && reduces(*member.definition, params[p].buffer.get())) return true;
      return false;
    });
  }

  JoinPlanner& planner_;
  const Program& program_;
  std::vector<std::shared_ptr<const TensorProgram>> shown_;  // by kernel: its definition, as a chain may use it
  std::map<int32_t, bool> as_stored_;                        // by kernel
  std::deque<TensorProgram> folded_;                         // that members point to while chains are found
};

}  // namespace

void plan_fused_rows(JoinPlanner& planner) { RowPlanner(planner).run(); }

}  // namespace tessera::inline schedule
