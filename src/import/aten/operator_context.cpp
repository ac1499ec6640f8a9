#include "import/aten/operator_context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "arith/simplify.h"
#include "import/aten/program_inputs.h"

namespace tessera::inline aten {

OperatorName operator_name(const std::string& target) {
  const size_t first = target.find('.');
  if (first == std::string::npos) return {{}, target, {}};
  const size_t second = target.find('.', first + 1);
  if (second == std::string::npos) return {target.substr(0, first), target.substr(first + 1), {}};
  return {target.substr(0, first), target.substr(first + 1, second - first - 1), target.substr(second + 1)};
}

AtenContext::AtenContext(AtenImport& state, const AtenNode& node)
    : Emitter(state), state_(state), node_(node), overload_(operator_name(node.target).overload) {
  for (const AtenArgument& output : node.outputs) {
    for (const ArgumentItem& item : output.items) results_.push_back(item.name);
    if (output.kind == ArgumentKind::kNone) results_.emplace_back();
  }
}

const AtenArgument* AtenContext::argument(const std::string& name) const {
  for (const auto& [key, argument] : node_.arguments)
    if (key == name) return &argument;
  return nullptr;
}

const AtenArgument& AtenContext::argument(size_t position) const {
  if (position >= node_.arguments.size())
    malformed(fmt::format("{} arguments", node_.arguments.size()), fmt::format("{} or more", position + 1));
  return node_.arguments[position].second;
}

bool AtenContext::has(const std::string& name) const {
  const AtenArgument* found = argument(name);
  return found && found->kind != ArgumentKind::kNone;
}

const AtenArgument& AtenContext::required(const std::string& name) const {
  const AtenArgument* found = argument(name);
  if (!found || found->kind == ArgumentKind::kNone) malformed(fmt::format("no argument '{}'", name), "one");
  return *found;
}

void AtenContext::wrong_kind(const std::string& name, const std::string& legal) const {
  const AtenArgument* found = argument(name);
  if (found && found->kind == ArgumentKind::kForeign)
    unsupported(fmt::format("the argument '{}' is of the kind {}", name, found->items[0].name));
  malformed(fmt::format("the argument '{}' is of another kind", name), legal);
}

ValueId AtenContext::look_up(const std::string& name) {
  const auto value = state_.lookup(name);
  if (!value) malformed(fmt::format("it reads '{}', which nothing before it makes", name), "values that are there");
  return *value;
}

ValueId AtenContext::tensor(const std::string& name) {
  const AtenArgument& found = required(name);
  if (found.kind != ArgumentKind::kTensor) wrong_kind(name, "a tensor");
  return look_up(found.items[0].name);
}

std::optional<ValueId> AtenContext::maybe_tensor(const std::string& name) {
  return has(name) ? std::make_optional(tensor(name)) : std::nullopt;
}

std::vector<std::optional<ValueId>> AtenContext::tensors(const std::string& name) {
  const AtenArgument& found = required(name);
  std::vector<std::optional<ValueId>> result;
  // A list without elements has no kind of its own.
  if (found.items.empty()) return result;
  if (found.kind != ArgumentKind::kTensors) wrong_kind(name, "a list of tensors");
  for (const ArgumentItem& item : found.items)
    result.push_back(item.name.empty() ? std::nullopt : std::make_optional(look_up(item.name)));
  return result;
}

std::vector<ValueId> AtenContext::all_tensors(const std::string& name) {
  std::vector<ValueId> result;
  for (const auto& value : tensors(name)) {
    if (!value) unsupported(fmt::format("the argument '{}' leaves tensors out", name));
    result.push_back(*value);
  }
  return result;
}

Expr AtenContext::size_of(const ArgumentItem& item) {
  if (item.name.empty()) return Expr(item.integer);
  const auto found = state_.sizes.find(item.name);
  if (found == state_.sizes.end()) unsupported(fmt::format("the size '{}' depends on data", item.name));
  return found->second;
}

Shape AtenContext::sizes(const std::string& name) {
  const AtenArgument& found = required(name);
  const bool is_list = found.kind == ArgumentKind::kInts || found.kind == ArgumentKind::kInt || found.items.empty();
  if (!is_list) wrong_kind(name, "integers");
  Shape result;
  for (const ArgumentItem& item : found.items) result.push_back(size_of(item));
  return result;
}

Expr AtenContext::size(const std::string& name) {
  const Shape result = sizes(name);
  if (result.size() != 1) wrong_kind(name, "an integer");
  return result[0];
}

std::vector<int64_t> AtenContext::integers(const std::string& name, std::optional<std::vector<int64_t>> otherwise) {
  if (otherwise && !has(name)) return *otherwise;
  std::vector<int64_t> result;
  for (const Expr& size : sizes(name)) {
    const auto value = as_int(size);
    if (!value) unsupported(fmt::format("'{}' as the expression {}", name, to_string(size)));
    result.push_back(*value);
  }
  return result;
}

int64_t AtenContext::whole(const std::string& name, std::optional<int64_t> otherwise) {
  if (otherwise && !has(name)) return *otherwise;
  const AtenArgument& found = required(name);
  if (found.kind == ArgumentKind::kBool && found.items[0].name.empty()) return found.items[0].integer;
  const std::vector<int64_t> result = integers(name);
  if (result.size() != 1) wrong_kind(name, "an integer");
  return result[0];
}

std::vector<int64_t> AtenContext::per_dimension(const std::string& name, size_t count, int64_t otherwise) {
  std::vector<int64_t> result = integers(name, std::vector<int64_t>{});
  if (result.empty()) result.assign(count, otherwise);
  if (result.size() == 1) result.assign(count, result[0]);
  if (result.size() != count)
    malformed(fmt::format("{} = [{}] for {} dimensions", name, fmt::join(result, ","), count), "one for each");
  return result;
}

double AtenContext::number(const std::string& name, std::optional<double> otherwise) {
  if (otherwise && !has(name)) return *otherwise;
  const AtenArgument& found = required(name);
  const bool is_number =
      found.kind == ArgumentKind::kInt || found.kind == ArgumentKind::kFloat || found.kind == ArgumentKind::kBool;
  if (!is_number) wrong_kind(name, "a number");
  const ArgumentItem& item = found.items[0];
  if (item.name.empty()) return item.real;
  const auto value = as_int(size_of(item));
  if (!value) unsupported(fmt::format("'{}' as the expression {}", name, to_string(size_of(item))));
  return static_cast<double>(*value);
}

bool AtenContext::truth(const std::string& name, std::optional<bool> otherwise) {
  if (otherwise && !has(name)) return *otherwise;
  const AtenArgument& found = required(name);
  if ((found.kind != ArgumentKind::kBool && found.kind != ArgumentKind::kInt) || !found.items[0].name.empty())
    wrong_kind(name, "true or false");
  return found.items[0].integer != 0;
}

std::string AtenContext::text(const std::string& name, const std::string& otherwise) {
  if (!has(name)) return otherwise;
  const AtenArgument& found = required(name);
  if (found.kind != ArgumentKind::kString) wrong_kind(name, "a text");
  return found.items[0].name;
}

Operand AtenContext::operand(const std::string& name) {
  const AtenArgument& found = required(name);
  switch (found.kind) {
    case ArgumentKind::kTensor: {
      const ValueId value = tensor(name);
      return {dtype(value), rank(value) == 0 ? Operand::Weight::kScalar : Operand::Weight::kTensor};
    }
    case ArgumentKind::kInt: return {DType::kI64, Operand::Weight::kNumber};
    case ArgumentKind::kFloat: return {DType::kF32, Operand::Weight::kNumber};
    case ArgumentKind::kBool: return {DType::kBool, Operand::Weight::kNumber};
    default: wrong_kind(name, "a tensor or a number");
  }
}

ValueId AtenContext::as(const std::string& name, DType dtype) {
  const AtenArgument& found = required(name);
  if (found.kind == ArgumentKind::kTensor) return cast(tensor(name), dtype);
  if (found.kind == ArgumentKind::kInt && !found.items[0].name.empty()) {
    const Expr value = size_of(found.items[0]);
    return cast(integer(value), dtype);
  }
  if (found.kind == ArgumentKind::kInt && is_int(dtype)) {
    Tensor value(dtype, {});
    value.set_int(0, found.items[0].integer);
    return constant_value(std::move(value));
  }
  return scalar(dtype, number(name));
}

DType AtenContext::promoted(const std::vector<Operand>& operands) {
  const auto kind = [](DType dtype) { return is_float(dtype) ? 2 : is_int(dtype) ? 1 : 0; };
  int widest = 0;
  for (const Operand& operand : operands) widest = std::max(widest, kind(operand.dtype));
  // The heaviest operands whose kind is the widest.
  std::optional<DType> result;
  for (const auto weight : {Operand::Weight::kTensor, Operand::Weight::kScalar, Operand::Weight::kNumber}) {
    for (const Operand& operand : operands) {
      if (operand.weight != weight || kind(operand.dtype) != widest) continue;
      if (!result) {
        result = operand.dtype;
      } else if (operand.dtype != *result) {
        const int a = dtype_bits(*result), b = dtype_bits(operand.dtype);
        // f16 with bf16, i8 with u8: neither holds the other.
        if (widest == 2) result = a == b ? DType::kF32 : a > b ? *result : operand.dtype;
        else if (is_unsigned_int(*result) == is_unsigned_int(operand.dtype)) result = a > b ? *result : operand.dtype;
        else {
          const DType is_unsigned = is_unsigned_int(*result) ? *result : operand.dtype;
          const DType is_signed = is_unsigned_int(*result) ? operand.dtype : *result;
          const int bits = std::max(dtype_bits(is_signed), 2 * dtype_bits(is_unsigned));
          result = bits <= 16 ? DType::kI16 : bits <= 32 ? DType::kI32 : DType::kI64;
        }
      }
    }
    if (result) return *result;
  }
  return DType::kF32;
}

DType AtenContext::result_dtype(DType otherwise, size_t i) const {
  if (i >= results_.size()) return otherwise;
  const auto type = state_.program.types.find(results_[i]);
  return type == state_.program.types.end() || !type->second.no_dtype.empty() ? otherwise : type->second.dtype;
}

std::optional<Shape> AtenContext::result_shape(size_t i) const {
  if (i >= results_.size()) return std::nullopt;
  const auto type = state_.program.types.find(results_[i]);
  if (type == state_.program.types.end()) return std::nullopt;
  const auto known = type_of(type->second, state_.symbols);
  return known ? std::make_optional(known->shape) : std::nullopt;
}

bool AtenContext::wants(size_t i) const { return i < results_.size() && state_.read.contains(results_[i]); }

int64_t AtenContext::dimension(const std::string& name, int rank, std::optional<int64_t> otherwise) {
  // A tensor without dimensions counts as one with a dimension here.
  return axis(whole(name, otherwise), std::max(rank, 1), name);
}

std::vector<int64_t> AtenContext::dimensions(const std::string& name, int rank) {
  std::vector<int64_t> result = integers(name, std::vector<int64_t>{});
  if (result.empty()) {
    result.resize(static_cast<size_t>(rank));
    std::iota(result.begin(), result.end(), 0);
    return result;
  }
  if (rank == 0) return {};
  return axes(std::move(result), rank);
}

Diagnostic AtenContext::malformed_diagnostic(const std::string& found, const std::string& legal,
                                             const std::string& hint) const {
  return {"TSR-1117", fmt::format("{}: {}", node_.target, found), node_.name, legal,
          hint.empty() ? "export the program again; PyTorch refuses it as well" : hint};
}

}  // namespace tessera::inline aten
