#include "import/stablehlo/operator_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "import/stablehlo/operator_table.h"
#include "support/error.h"

namespace tessera::inline stablehlo {
namespace {

Ints elements_of(const HloAttr& attribute) {
  Ints result;
  if (attribute.kind == HloAttr::Kind::kTensor && attribute.tensor && attribute.type.is_static()) {
    int64_t count = 1;
    for (const int64_t extent : attribute.type.dims) count *= extent;
    constexpr int64_t kMost = 4096;
    const bool splat = attribute.tensor->num_elements() == 1;
    for (int64_t i = 0; i < std::min(count, kMost); ++i) result.push_back(attribute.tensor->get_int(splat ? 0 : i));
    return result;
  }
  for (const HloAttr& item : attribute.items) {
    if (item.kind == HloAttr::Kind::kList)
      for (const int64_t inner : elements_of(item)) result.push_back(inner);
    else result.push_back(item.kind == HloAttr::Kind::kWord ? item.text == "true" : item.integer);
  }
  return result;
}

}  // namespace

std::string label_of(const HloOperation& op) {
  const std::string& kind = op.loc.empty() ? op.name : op.loc;
  if (op.results.empty()) return kind;
  // Locations of jax say which primitive it was, not which of several.
  const std::string value = "%" + op.results[0].substr(0, op.results[0].find('#'));
  return op.loc.empty() ? value : fmt::format("{} {}", op.loc, value);
}

HloContext::HloContext(EmitState& state, HloWalk& walk, const HloOperation& op, std::vector<ValueId> operands)
    : Emitter(state),
      state_(state),
      walk_(walk),
      op_(op),
      label_(label_of(op)),
      operands_(std::move(operands)),
      results_(op.results.size(), -1) {}

ValueId HloContext::in(size_t i) const {
  if (i >= operands_.size()) malformed(fmt::format("{} operands", operands_.size()), fmt::format("{} or more", i + 1));
  return operands_[i];
}

ComplexParts HloContext::parts(size_t i) const {
  const ValueId value = in(i);
  if (!is_complex(value)) malformed(fmt::format("operand {} is real", i), "complex numbers");
  return walk_.parts_of(value);
}

std::vector<ValueId> HloContext::as_real(std::vector<ValueId> operands) {
  HloOperation real = op_;
  for (HloType& type : real.result_types)
    if (type.part) type.dtype = std::exchange(type.part, std::nullopt);
  HloContext context(state_, walk_, real, std::move(operands));
  const HloOperator* ordinary = find_hlo_operator(op_.name);
  tessera::check(ordinary != nullptr, "an operator of parts that is not read");
  ordinary->handler(context);
  for (size_t i = 0; i < context.results().size(); ++i)
    if (context.results()[i] == kFailedValue) unsupported(fmt::format("its result {}", i));
  return context.results();
}

bool HloContext::counts_along(ValueId v, int64_t axis) const {
  const Node* producer = state_.graph.producer(v);
  return producer && producer->op->name == "iota" && producer->attrs.get_int("axis") == axis;
}

int64_t HloContext::whole(const std::string& name, std::optional<int64_t> otherwise) const {
  const HloAttr* found = attribute(name);
  if (!found && otherwise) return *otherwise;
  if (!found || found->kind != HloAttr::Kind::kInteger) malformed(fmt::format("no integer '{}'", name), "one");
  return found->integer;
}

Ints HloContext::integers(const std::string& name, std::optional<Ints> otherwise) const {
  const HloAttr* found = attribute(name);
  if (!found && otherwise) return *otherwise;
  if (!found || (found->kind != HloAttr::Kind::kList && found->kind != HloAttr::Kind::kTensor))
    malformed(fmt::format("no list of integers '{}'", name), "one");
  return elements_of(*found);
}

Ints HloContext::per_dimension(const std::string& name, size_t count, int64_t otherwise) const {
  Ints result = integers(name, Ints(count, otherwise));
  if (result.size() != count)
    malformed(fmt::format("'{}' has {} elements for {} dimensions", name, result.size(), count), "one for each");
  return result;
}

std::vector<std::array<int64_t, 2>> HloContext::pairs(const std::string& name, size_t count) const {
  const Ints flat = integers(name, Ints(count * 2, 0));
  if (flat.size() != count * 2)
    malformed(fmt::format("'{}' has {} elements for {} dimensions", name, flat.size(), count), "two for each");
  std::vector<std::array<int64_t, 2>> result;
  for (size_t i = 0; i < count; ++i) result.push_back({flat[2 * i], flat[2 * i + 1]});
  return result;
}

bool HloContext::truth(const std::string& name, bool otherwise) const {
  const HloAttr* found = attribute(name);
  if (!found) return otherwise;
  return found->kind == HloAttr::Kind::kInteger ? found->integer != 0 : found->text == "true";
}

std::string HloContext::word(const std::string& name, const std::string& otherwise) const {
  const HloAttr* found = attribute(name);
  return found ? found->text : otherwise;
}

Ints HloContext::numbers_of(const std::string& dictionary, const std::string& name) const {
  const HloAttr* found = attribute(dictionary);
  const HloAttr* list = found ? found->find(name) : nullptr;
  return list ? elements_of(*list) : Ints();
}

int64_t HloContext::number_of(const std::string& dictionary, const std::string& name, int64_t otherwise) const {
  const HloAttr* found = attribute(dictionary);
  const HloAttr* number = found ? found->find(name) : nullptr;
  return number ? number->integer : otherwise;
}

const HloType& HloContext::result_type(size_t i) const {
  if (i >= op_.result_types.size()) malformed(fmt::format("no type for result {}", i), "one");
  return op_.result_types[i];
}

DType HloContext::result_dtype(size_t i) const {
  const HloType& type = result_type(i);
  if (!type.dtype) unsupported(fmt::format("values of type {}", type.text));
  return *type.dtype;
}

Ints HloContext::result_dims(size_t i) const {
  const HloType& type = result_type(i);
  result_dtype(i);
  if (!type.is_static()) unsupported(fmt::format("the shape of its result, {}, is open", type.text));
  return type.dims;
}

void HloContext::out(size_t i, ValueId value) {
  if (i >= results_.size()) return;  // a result that nothing can read
  results_[i] = value;
}

const HloRegion& HloContext::region(size_t i) const {
  if (i >= op_.regions.size())
    malformed(fmt::format("{} regions", op_.regions.size()), fmt::format("{} or more", i + 1));
  return op_.regions[i];
}

std::string HloContext::combiner_of(const HloRegion& region) {
  if (region.arguments.size() != 2 || region.operations.empty()) return {};
  const HloOperation& end = region.operations.back();
  if (end.operands.size() != 1) return {};
  const std::string &a = region.arguments[0].name, &b = region.arguments[1].name;
  if (region.operations.size() == 1) return end.operands[0] == a ? "first" : end.operands[0] == b ? "second" : "";
  if (region.operations.size() != 2) return {};
  const HloOperation& op = region.operations[0];
  if (op.operands.size() != 2 || op.results.size() != 1 || end.operands[0] != op.results[0]) return {};
  if (!(op.operands[0] == a && op.operands[1] == b) && !(op.operands[0] == b && op.operands[1] == a)) return {};
  for (const auto& [name, kind] : {std::pair{"stablehlo.add", "add"},
                                   {"stablehlo.multiply", "mul"},
                                   {"stablehlo.minimum", "min"},
                                   {"stablehlo.maximum", "max"},
                                   {"stablehlo.and", "and"},
                                   {"stablehlo.or", "or"}})
    if (op.name == name) return kind;
  return {};
}

Diagnostic HloContext::malformed_diagnostic(const std::string& found, const std::string& legal,
                                            const std::string& hint) const {
  return {"TSR-1123", fmt::format("{}: {}", op_.name, found), fmt::format("{} ({})", label_, op_.place), legal,
          hint.empty() ? "export the module again" : hint};
}

}  // namespace tessera::inline stablehlo
