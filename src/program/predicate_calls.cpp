#include "program/predicate_calls.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "program/memory_plan.h"
#include "program/order_calls.h"
#include "support/error.h"

namespace tessera::inline program {
namespace {

// Which bools must be true or false: a key and the value. Empty: always.
template <typename Key>
using Conditions = std::set<std::pair<Key, bool>>;

template <typename Key>
Conditions<Key> common(const Conditions<Key>& a, const Conditions<Key>& b) {
  Conditions<Key> result;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(result, result.end()));
  return result;
}

// For each parameter of a kernel the conditions under which its contents matter, in terms of other parameters of one
// bool. A parameter that is read for an index counts as always read: what is not written must not become an address.
class ParamUses {
 public:
  explicit ParamUses(const LoopProgram& kernel) {
    for (size_t i = 0; i < kernel.params.size(); ++i) numbers_[kernel.params[i].get()] = i;
    found_.resize(kernel.params.size());
    seen_.resize(kernel.params.size());
    statement(kernel.body);
  }

  bool is_read(size_t param) const { return seen_[param]; }
  const Conditions<size_t>& of(size_t param) const { return found_[param]; }

 private:
  void statement(const Stmt& s) {
    if (!s) return;
    for (const Expr* e : {&s->begin, &s->extent, &s->condition})
      if (*e) always(*e);
    for (const Expr& index : s->indices) always(index);
    if (s->value) value(s->value);
    for (const Stmt& child : s->stmts) statement(child);
  }

  void always(const Expr& e) {
    walk(e, [this](const Expr& inner) {
      if (inner->kind == ExprKind::kLoad) note(inner, {});
    });
  }

  void note(const Expr& load, const Conditions<size_t>& under) {
    const auto number = numbers_.find(load->buffer.get());
    if (number == numbers_.end()) return;
    const size_t param = number->second;
    found_[param] = seen_[param] ? common(found_[param], under) : under;
    seen_[param] = true;
  }

  // Values share subexpressions; of each the conditions of all its readers are known before its own operands are
  // looked at, because it comes behind all of them in `order`.
  void value(const Expr& root) {
    std::vector<Expr> order;
    std::set<const ExprNode*> entered;
    depth_first(root, entered, order);
    std::unordered_map<const ExprNode*, Conditions<size_t>> under;
    const auto reach = [&under](const Expr& e, const Conditions<size_t>& conditions) {
      const auto [it, is_new] = under.try_emplace(e.get(), conditions);
      if (!is_new) it->second = common(it->second, conditions);
    };
    reach(root, {});
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      const Expr& e = *it;
      const Conditions<size_t> here = under.at(e.get());
      if (e->kind == ExprKind::kLoad) {
        note(e, here);
        for (const Expr& index : e->operands) always(index);
        continue;
      }
      const auto flag = e->kind == ExprKind::kSelect ? flag_of(e->operands[0]) : std::nullopt;
      for (size_t i = 0; i < e->operands.size(); ++i) {
        Conditions<size_t> inner = here;
        if (flag && i > 0) inner.insert({*flag, i == 1});
        reach(e->operands[i], inner);
      }
    }
  }

  void depth_first(const Expr& e, std::set<const ExprNode*>& entered, std::vector<Expr>& order) {
    if (!entered.insert(e.get()).second) return;
    if (e->kind != ExprKind::kLoad)
      for (const Expr& operand : e->operands) depth_first(operand, entered, order);
    order.push_back(e);
  }

  // The parameter when `e` is a parameter of one bool.
  std::optional<size_t> flag_of(const Expr& e) const {
    if (e->kind != ExprKind::kLoad || e->dtype != DType::kBool) return std::nullopt;
    const auto number = numbers_.find(e->buffer.get());
    const auto dims = static_dims(e->buffer->shape);
    if (number == numbers_.end() || !dims) return std::nullopt;
    if (std::any_of(dims->begin(), dims->end(), [](int64_t dim) { return dim != 1; })) return std::nullopt;
    return number->second;
  }

  std::unordered_map<const Buffer*, size_t> numbers_;
  std::vector<Conditions<size_t>> found_;
  std::vector<bool> seen_;
};

class SkipUntaken {
 public:
  explicit SkipUntaken(Program& program)
      : program_(program), needed_(program.buffers.size()), used_(program.buffers.size()) {}

  void run() {
    for (const BufferId output : program_.outputs) use(output, {});
    bool any = false;
    for (auto call = program_.calls.rbegin(); call != program_.calls.rend(); ++call) {
      const Conditions<BufferId> conditions = of_results(*call);
      for (const auto& [buffer, value] : conditions) call->only_if.push_back({buffer, value});
      any = any || !conditions.empty();
      operands(*call, conditions);
    }
    if (any) reorder();
  }

 private:
  void use(BufferId id, const Conditions<BufferId>& conditions) {
    const auto root = static_cast<size_t>(root_buffer(program_, id));
    needed_[root] = used_[root] ? common(needed_[root], conditions) : conditions;
    used_[root] = true;
  }

  size_t num_inputs(const KernelCall& call) const {
    return call.args.size() - static_cast<size_t>(kernel(call).num_outputs);
  }
  const LoopProgram& kernel(const KernelCall& call) const {
    return program_.kernels[static_cast<size_t>(call.kernel)].program;
  }

  // All results must be needless for the call to be.
  Conditions<BufferId> of_results(const KernelCall& call) const {
    std::optional<Conditions<BufferId>> result;
    for (size_t i = num_inputs(call); i < call.args.size(); ++i) {
      const auto root = static_cast<size_t>(root_buffer(program_, call.args[i]));
      if (!used_[root]) continue;
      result = result ? common(*result, needed_[root]) : needed_[root];
    }
    return result.value_or(Conditions<BufferId>{});
  }

  void operands(const KernelCall& call, const Conditions<BufferId>& of_call) {
    auto it = uses_.find(call.kernel);
    if (it == uses_.end()) it = uses_.emplace(call.kernel, ParamUses(kernel(call))).first;
    for (size_t i = 0; i < num_inputs(call); ++i) {
      Conditions<BufferId> conditions = of_call;
      if (it->second.is_read(i))
        for (const auto& [param, value] : it->second.of(i))
          conditions.insert({root_buffer(program_, call.args[param]), value});
      use(call.args[i], conditions);
    }
    // A parameter that the loops read and write, as kernels with more than one stage may do with their output.
    for (size_t i = num_inputs(call); i < call.args.size(); ++i)
      if (it->second.is_read(i)) use(call.args[i], of_call);
  }

  // Behind the calls that compute their conditions; otherwise in the order that they have.
  void reorder() {
    std::vector<KernelCall>& calls = program_.calls;
    std::vector<std::vector<int32_t>> before = [this] {
      // The dependencies of the present order, in which a condition may not be known yet.
      Program plain = program_;
      for (KernelCall& call : plain.calls) call.only_if.clear();
      return call_dependencies(plain);
    }();
    std::multimap<BufferId, int32_t> writers;
    for (size_t i = 0; i < calls.size(); ++i)
      for (size_t k = num_inputs(calls[i]); k < calls[i].args.size(); ++k)
        writers.emplace(root_buffer(program_, calls[i].args[k]), static_cast<int32_t>(i));
    std::vector<std::vector<size_t>> after(calls.size());
    std::vector<size_t> missing(calls.size(), 0);
    for (size_t i = 0; i < calls.size(); ++i) {
      for (const CallCondition& condition : calls[i].only_if) {
        const auto [first, last] = writers.equal_range(condition.buffer);
        for (auto it = first; it != last; ++it) before[i].push_back(it->second);
      }
      for (const int32_t other : before[i]) {
        after[static_cast<size_t>(other)].push_back(i);
        ++missing[i];
      }
    }
    std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
    for (size_t i = 0; i < calls.size(); ++i)
      if (missing[i] == 0) ready.push(i);
    std::vector<KernelCall> ordered;
    while (!ready.empty()) {
      const size_t i = ready.top();
      ready.pop();
      ordered.push_back(std::move(calls[i]));
      for (const size_t next : after[i])
        if (--missing[next] == 0) ready.push(next);
    }
    check(ordered.size() == calls.size(), "conditions that depend on what they decide");
    calls = std::move(ordered);
  }

  Program& program_;
  std::vector<Conditions<BufferId>> needed_;  // of roots, by all calls so far
  std::vector<bool> used_;
  std::map<int32_t, ParamUses> uses_;  // by kernel
};

}  // namespace

void predicate_calls(Program& program) {
  if (program.steps.empty()) SkipUntaken(program).run();
}

}  // namespace tessera::inline program
