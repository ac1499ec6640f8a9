#include "schedule/fusion/fuse_rows.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "program/memory_plan.h"
#include "schedule/dynamic/dynamic_tiles.h"
#include "schedule/fusion/chain_kernel.h"
#include "schedule/fusion/chain_rows.h"
#include "schedule/fusion/fold_copies.h"
#include "schedule/fusion/joined_calls.h"
#include "schedule/fusion/online_softmax.h"

namespace tessera::inline schedule {
namespace {

constexpr size_t kMostMembers = 12;

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
      if (!chain.columns) find_masked(program_, chain);
      join(chain, gone);
    }
    if (!gone.empty()) remove_joined(program_, gone);
  }

 private:
  void find_uses() {
    uses_ = uses_of_buffers(program_);
    for (size_t b = 0; b < program_.buffers.size(); ++b)
      if (!program_.buffers[b].type.layout.row_major()) uses_.plain[b] = false;
    taken_.assign(program_.calls.size(), false);
    for (size_t c = 0; c < program_.calls.size(); ++c) {
      const KernelCall& call = program_.calls[c];
      const Kernel& kernel = program_.kernels[static_cast<size_t>(call.kernel)];
      taken_[c] = !kernel.definition || !kernel.definition->is_single();
    }
    show_definitions();
  }

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

  // The chain that ends with this call: one with blocks of columns if there is one, else the largest.
  std::optional<Chain> chain_before(size_t last) {
    if (may_end_attention(last)) {
      auto chain = chain_before(last, true);
      if (chain && is_attention(*chain)) return chain;
      // A cache with what is new behind it is stored, and read block by block.
      const std::set<size_t> made = chain && has_open_sizes(*chain) ? shared_but_copies(*chain) : std::set<size_t>();
      if (!made.empty()) chain = chain_before(last, true, made);
      if (!made.empty() && chain && is_attention(*chain)) return chain;
    }
    return is_symbolic(definition_of(last)) ? std::nullopt : chain_before(last, false);
  }

  // Whether it is to have blocks of columns, which are found and have code.
  bool is_attention(Chain& chain) {
    if (!find_column_blocks(chain)) return false;
    if (!has_open_sizes(chain)) find_masked(program_, chain);
    return choose_column_blocks(chain, target_) &&
           make_chain_kernel(program_, chain, outside_of(chain), target_, ask_).has_value();
  }

  // Calls of kernels that all rows of a block share and that do more than copy.
  static std::set<size_t> shared_but_copies(const Chain& chain) {
    std::set<size_t> calls;
    for (size_t m = 0; m < chain.members.size(); ++m)
      if (chain.rows.back().axis[m] == kNoAxis &&
          chain.members[m].definition->output().body.value->kind != ExprKind::kLoad)
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
  std::optional<Chain> chain_before(size_t last, bool may_be_long, const std::set<size_t>& without = {}) {
    Chain chain;
    chain.may_be_long = may_be_long;
    chain.members = {{last, &definition_of(last), program_.calls[last].args}};
    for (bool grown = true; grown && chain.members.size() < kMostMembers;) {
      grown = false;
      for (size_t m = chain.members.size(); m-- > 0 && !grown;)
        for (const BufferId arg : chain.members[m].args) {
          const auto b = static_cast<size_t>(arg);
          if (!uses_.plain[b] || uses_.writer[b] == SIZE_MAX || chain.inner.contains(arg)) continue;
          if (taken_[uses_.writer[b]] || uses_.writer[b] >= last || !may_join(program_, uses_, uses_.writer[b], last))
            continue;
          if (without.contains(uses_.writer[b])) continue;
          // Of open sizes only attention is joined.
          if (!may_be_long && is_symbolic(definition_of(uses_.writer[b]))) continue;
          Chain larger = chain;
          larger.inner.insert(arg);
          larger.members.push_back(
              {uses_.writer[b], &definition_of(uses_.writer[b]), program_.calls[uses_.writer[b]].args});
          std::sort(larger.members.begin(), larger.members.end(),
                    [](const Member& x, const Member& y) { return x.call < y.call; });
          if (!is_closed(larger) || !find_rows(larger, target_) || !reads_as_stored(uses_.writer[b])) continue;
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
        if (folded.members.size() < 2 || !find_rows(folded, target_)) return false;
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
      const auto scheduled = ask_(kernel);
      it->second = scheduled && scheduled->packed.empty();
    }
    return it->second;
  }

  // Whether only members read what the chain keeps to itself.
  bool is_closed(const Chain& chain) const {
    for (const BufferId b : chain.inner)
      for (const size_t reader : uses_.readers[static_cast<size_t>(b)])
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

  // The nodes of all kernels.
  std::string location_of(const Chain& chain) const {
    std::vector<std::string> parts;
    for (const size_t call : chain.calls)
      if (const std::string& loc = program_.calls[call].loc;
          !loc.empty() && std::find(parts.begin(), parts.end(), loc) == parts.end())
        parts.push_back(loc);
    return fmt::format("{}", fmt::join(parts, "+"));
  }

  static std::vector<BufferId> outside_of(const Chain& chain) {
    std::vector<BufferId> outside;
    for (const Member& member : chain.members)
      for (const BufferId arg : member.args)
        if (!chain.inner.contains(arg) && std::find(outside.begin(), outside.end(), arg) == outside.end())
          outside.push_back(arg);
    return outside;
  }

  void join(const Chain& chain, std::set<size_t>& gone) {
    const std::vector<BufferId> outside = outside_of(chain);
    const size_t last = chain.members.back().call;
    const auto [it, is_new] = made_.emplace(signature_of(chain), -1);
    if (is_new) {
      auto kernel = make_chain_kernel(program_, chain, outside, target_, ask_);
      if (!kernel || (allow_ && !allow_("fuse_rows", *kernel))) return;
      it->second = static_cast<int32_t>(program_.kernels.size());
      kernel->device = program_.kernels[static_cast<size_t>(program_.calls[last].kernel)].device;
      program_.kernels.push_back(std::move(*kernel));
    }
    if (it->second < 0) return;
    program_.calls[last].loc = location_of(chain);
    program_.calls[last].kernel = it->second;
    program_.calls[last].args = outside;
    for (const size_t call : chain.calls)
      if (call != last) gone.insert(call);
  }

  Program& program_;
  const Target& target_;
  const AskRules& ask_;
  const AllowRule& allow_;
  BufferUses uses_;                                          // plain ones are row-major
  std::vector<bool> taken_;                                  // by call: in a chain, or in none ever
  std::vector<std::shared_ptr<const TensorProgram>> shown_;  // by kernel: its definition, as a chain may use it
  std::map<int32_t, bool> as_stored_;                        // by kernel
  std::deque<TensorProgram> folded_;                         // that members point to
  std::map<std::string, int32_t> made_;                      // signature -> kernel; -1 when the rules did not agree
};

}  // namespace

void join_fuse_rows(Program& program, const Target& target, const AskRules& ask, const AllowRule& allow) {
  ChainMaker(program, target, ask, allow).run();
}

}  // namespace tessera::inline schedule
