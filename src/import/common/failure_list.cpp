#include "import/common/failure_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "import/common/refused_model.h"

namespace tessera::inline import_common {
void FailureList::add(const NodeLabel& node, const UnsupportedNode& unsupported) {
  const bool plain = unsupported.refusal == Refusal::kOperator;
  entries_.push_back({fmt::format("{}: {}", node.kind, unsupported.reason),
                      plain ? unsupported.reason : unsupported.cause, node.label, std::nullopt});
}

void FailureList::add(const NodeLabel& node, const Diagnostic& diagnostic, bool breaks_rule, bool unsupported) {
  std::string reason = diagnostic.message;
  if (!diagnostic.legal.empty()) reason += fmt::format("; legal: {}", diagnostic.legal);
  add(node, UnsupportedNode{std::move(reason)});
  entries_.back().diagnostic = diagnostic;
  entries_.back().breaks_rule = breaks_rule;
  entries_.back().unsupported = unsupported;
}

bool FailureList::break_rules(size_t first) const {
  const auto begin = entries_.begin() + static_cast<ptrdiff_t>(first);
  return begin != entries_.end() &&
         std::all_of(begin, entries_.end(), [](const Entry& entry) { return entry.breaks_rule; });
}

std::optional<Diagnostic> FailureList::withdraw(size_t first) {
  if (!break_rules(first)) return std::nullopt;
  const auto begin = entries_.begin() + static_cast<ptrdiff_t>(first);
  Diagnostic diagnostic = *begin->diagnostic;
  entries_.erase(begin, entries_.end());
  return diagnostic;
}

FailureList FailureList::from(size_t size) const {
  FailureList part;
  part.entries_.assign(entries_.begin() + static_cast<ptrdiff_t>(size), entries_.end());
  return part;
}

void FailureList::append(const FailureList& other) {
  entries_.insert(entries_.end(), other.entries_.begin(), other.entries_.end());
}

NodesRefused FailureList::refusal() const {
  if (entries_.size() == 1 && entries_[0].diagnostic)
    return {*entries_[0].diagnostic, entries_[0].breaks_rule, entries_[0].unsupported};
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const Entry& entry : entries_) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == entry.reason; });
    if (group == groups.end()) group = groups.insert(groups.end(), {entry.reason, {}});
    group->second.push_back(entry.label);
  }
  const size_t count = entries_.size();
  std::string message = fmt::format("{} node{} cannot be imported:", count, count == 1 ? "" : "s");
  for (const auto& [reason, labels] : groups)
    message +=
        fmt::format("\n    {}\n      {}: {}", reason,
                    labels.size() == 1 ? "node" : fmt::format("{} nodes", labels.size()), fmt::join(labels, ", "));
  return {{"TSR-1040", message, count == 1 ? entries_[0].label : "", "the operators that 'tessera operators' lists",
           "rewrite these parts of the model, or export it with other options (fixed shapes, another opset)"},
          false,
          true};
}

void throw_refusal(const NodesRefused& refused) {
  if (refused.unsupported) throw RefusedModel(RefusedModel::Reason::kUnsupported, refused.diagnostic);
  throw UserError(refused.diagnostic);
}

}  // namespace tessera::inline import_common
