// What makes strings or looks into them: steps of a flow. Everything else that is done with strings is done with their
// numbers (graph/flow.h).
#include <fmt/format.h>

#include <algorithm>

#include "import/onnx/operators/handlers.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

FlowType text_type(NodeContext& c, int i) {
  FlowType type = c.flow_type(c.binding(i));
  if (!type.is_tensor() || type.dtype != DType::kString)
    c.malformed(fmt::format("input {} is {}", i, type.to_string()), "a tensor of strings");
  return type;
}

void import_string_concat(NodeContext& c) {
  c.require_inputs(2, 2);
  FlowType a = text_type(c, 0);
  const FlowType b = text_type(c, 1);
  const bool fixed = c.binding(0).is_value() && c.binding(1).is_value();
  if (fixed) {
    Ints dims(std::max(a.dims->size(), b.dims->size()), 1);
    for (size_t k = 1; k <= dims.size(); ++k) {
      const int64_t x = k <= a.dims->size() ? a.dims->rbegin()[static_cast<ptrdiff_t>(k) - 1] : 1;
      const int64_t y = k <= b.dims->size() ? b.dims->rbegin()[static_cast<ptrdiff_t>(k) - 1] : 1;
      if (x != y && x != 1 && y != 1)
        c.malformed(fmt::format("operands {} and {}", a.to_string(), b.to_string()), "shapes that broadcast");
      dims.rbegin()[static_cast<ptrdiff_t>(k) - 1] = x == 1 ? y : x;
    }
    a.dims = dims;
  } else {
    a.dims.reset();
  }
  c.out(0, c.step(FlowOp::kStringConcat, {c.slot(0), c.slot(1)}, a, fixed));
}

void import_string_split(NodeContext& c) {
  c.require_inputs(1, 1);
  const FlowType type = text_type(c, 0);
  // Without a delimiter, and with an empty one, words are what stands between runs of white space.
  const std::string delimiter = c.attrs.get_string("delimiter", "");
  const int64_t splits = c.attrs.has("maxsplit") ? c.attrs.get_int("maxsplit", -1) : -1;
  if (c.attrs.has("maxsplit") && splits < 0) c.malformed(fmt::format("maxsplit = {}", splits), "0 or more");
  FlowType parts = type, counts = type;
  if (parts.dims) parts.dims->push_back(-1);
  counts.dtype = DType::kI64;
  const SlotId texts = c.new_slot(parts), lengths = c.new_slot(counts);
  c.add_step({FlowOp::kStringSplit,
              {c.slot(0)},
              {texts, lengths},
              {delimiter.empty() ? -1 : c.string_number(delimiter), splits},
              -1,
              {},
              c.step_loc()});
  c.out(0, c.from_slot(texts, parts, false));
  c.out(1, c.from_slot(lengths, counts, c.binding(0).is_value()));
}

void import_string_normalizer(NodeContext& c) {
  c.require_inputs(1, 1);
  const FlowType type = text_type(c, 0);
  const std::string action = c.attrs.get_string("case_change_action", "NONE");
  if (action != "NONE" && action != "LOWER" && action != "UPPER")
    c.malformed(fmt::format("case_change_action = '{}'", action), "NONE, LOWER, UPPER");
  // Letters change their case as Unicode says, which no locale changes but for a few languages.
  c.attrs.ignore("locale");
  if (type.dims && type.dims->size() != 1 && !(type.dims->size() == 2 && (*type.dims)[0] == 1))
    c.malformed(fmt::format("an operand {}", type.to_string()), "string[C] or string[1,C]");
  Ints ints = {action == "LOWER" ? 1 : action == "UPPER" ? 2 : 0, c.attrs.get_int("is_case_sensitive", 0) != 0};
  const auto stopwords = c.attrs.get_strings("stopwords");
  for (const std::string& word : stopwords) ints.push_back(c.string_number(word));
  FlowType result = type;
  if (!stopwords.empty() && result.dims) result.dims->back() = -1;
  c.out(0, c.step(FlowOp::kStringNormalize, {c.slot(0)}, result,
                  stopwords.empty() && c.binding(0).is_value() && type.dims->back() > 0, std::move(ints)));
}

}  // namespace

ValueId cast_strings(NodeContext& c, ValueId x, DType to) {
  if (c.is_string(x) && to == DType::kString) return x;
  if (c.is_string(x)) {
    if (to == DType::kBool) c.unsupported("a cast from strings to bool");
    // Numbers are read as the widest of their kind.
    FlowType type = c.flow_type(x);
    type.dtype = is_float(to) ? DType::kF64 : is_unsigned_int(to) ? DType::kU64 : DType::kI64;
    const Binding numbers =
        c.step(FlowOp::kFromString, {c.slot(Binding(x))}, type, true, {static_cast<int64_t>(type.dtype)});
    return c.cast(numbers.value, to);
  }
  // What is written has the fewest digits that read back as the same number: of f32 for narrower floats.
  const DType from = c.dtype(x);
  if (is_float(from) && dtype_bits(from) < 32) x = c.cast(x, DType::kF32);
  if (is_signed_int(from)) x = c.cast(x, DType::kI64);
  if (is_unsigned_int(from)) x = c.cast(x, DType::kU64);
  FlowType type = c.flow_type(x);
  type.dtype = DType::kString;
  return c.step(FlowOp::kToString, {c.slot(Binding(x))}, type, true).value;
}

OperatorFamily strings_operators() {
  static constexpr OperatorImporter standard[] = {
      OperatorImporter{"StringConcat", 20, import_string_concat},
      OperatorImporter{"StringNormalizer", 10, import_string_normalizer},
      OperatorImporter{"StringSplit", 20, import_string_split},
  };
  return {{"", standard}};
}

}  // namespace tessera::inline onnx_import
