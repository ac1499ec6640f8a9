#include "import/onnx/dynamic/string_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace tessera::inline onnx_import {
namespace {

constexpr unsigned kAll = ~0u;
constexpr unsigned bit(int i) { return 1u << i; }

struct Rule {
  std::string_view op;
  unsigned inputs;       // that may be strings; those of them that are there are all strings or none
  unsigned outputs;      // that are strings then
  bool by_hand = false;  // the handler looks at types itself
};

// Sorted by name.
constexpr std::array kRules = {
    Rule{"ArrayFeatureExtractor", bit(0), bit(0)},
    Rule{"Cast", bit(0), 0, true},
    Rule{"CastLike", bit(0) | bit(1), 0, true},
    Rule{"CategoryMapper", bit(0), 0, true},
    Rule{"CenterCropPad", bit(0), bit(0)},
    Rule{"Compress", bit(0), bit(0)},
    Rule{"Concat", kAll, bit(0)},
    Rule{"DepthToSpace", bit(0), bit(0)},
    Rule{"Equal", bit(0) | bit(1), 0},
    Rule{"Expand", bit(0), bit(0)},
    Rule{"Flatten", bit(0), bit(0)},
    Rule{"Gather", bit(0), bit(0)},
    Rule{"GatherElements", bit(0), bit(0)},
    Rule{"GatherND", bit(0), bit(0)},
    Rule{"Identity", bit(0), bit(0), true},
    Rule{"If", 0, 0, true},
    Rule{"LabelEncoder", bit(0), 0, true},
    Rule{"Loop", kAll, 0, true},
    Rule{"NonZero", bit(0), 0},
    Rule{"OneHot", bit(2), bit(0)},
    Rule{"OneHotEncoder", bit(0), 0, true},
    Rule{"Optional", bit(0), 0, true},
    Rule{"OptionalGetElement", bit(0), 0, true},
    Rule{"OptionalHasElement", bit(0), 0, true},
    Rule{"Pad", bit(0) | bit(2), bit(0)},
    Rule{"RegexFullMatch", bit(0), 0, true},
    Rule{"Reshape", bit(0), bit(0)},
    Rule{"ReverseSequence", bit(0), bit(0)},
    Rule{"Scan", kAll, 0, true},
    Rule{"Scatter", bit(0) | bit(2), bit(0)},
    Rule{"ScatterElements", bit(0) | bit(2), bit(0)},
    Rule{"ScatterND", bit(0) | bit(2), bit(0)},
    Rule{"SequenceConstruct", kAll, 0, true},
    Rule{"SequenceInsert", bit(1), 0, true},
    Rule{"SequenceMap", kAll, 0, true},
    Rule{"Shape", bit(0), 0},
    Rule{"Size", bit(0), 0},
    Rule{"Slice", bit(0), bit(0)},
    Rule{"SpaceToDepth", bit(0), bit(0)},
    Rule{"Split", bit(0), kAll},
    Rule{"SplitToSequence", bit(0), 0, true},
    Rule{"Squeeze", bit(0), bit(0)},
    Rule{"StringConcat", bit(0) | bit(1), 0, true},
    Rule{"StringNormalizer", bit(0), 0, true},
    Rule{"StringSplit", bit(0), 0, true},
    Rule{"TensorScatter", bit(0) | bit(1), bit(0)},
    Rule{"TfIdfVectorizer", bit(0), 0, true},
    Rule{"Tile", bit(0), bit(0)},
    Rule{"Transpose", bit(0), bit(0)},
    Rule{"Trilu", bit(0), bit(0)},
    Rule{"Unsqueeze", bit(0), bit(0)},
    Rule{"Where", bit(1) | bit(2), bit(0)},
    Rule{"ZipMap", 0, 0, true},
};

bool is_text(NodeContext& c, const Binding& binding) {
  const FlowType type = c.flow_type(binding);
  return type.is_tensor() && type.dtype == DType::kString;
}

const Rule* find_rule(const std::string& op) {
  const auto rule = std::lower_bound(kRules.begin(), kRules.end(), op,
                                     [](const Rule& r, const std::string& name) { return r.op < name; });
  return rule != kRules.end() && rule->op == op ? &*rule : nullptr;
}

}  // namespace

bool check_strings(NodeContext& c) {
  bool any = false;
  for (int i = 0; i < c.num_inputs() && !any; ++i) any = c.has(i) && is_text(c, c.binding(i));
  if (!any) return false;
  const Rule* rule = find_rule(c.op_type());
  int first_text = -1, first_other = -1;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.has(i)) continue;
    const bool may = rule && (rule->inputs == kAll || (i < 31 && (rule->inputs & bit(i)) != 0));
    const bool text = is_text(c, c.binding(i));
    if (text && !may)
      c.malformed(fmt::format("input {} is {}", i, c.flow_type(c.binding(i)).to_string()),
                  rule ? "numbers for this operand" : "numbers: the operator does not take strings");
    if (text && first_text < 0) first_text = i;
    if (!text && may && first_other < 0) first_other = i;
  }
  if (rule->by_hand) return false;
  if (c.op_type().starts_with("Scatter") && c.attrs.get_string("reduction", "none") != "none")
    c.malformed("a reduction of strings", "reduction = 'none'");
  if (first_other >= 0)
    c.malformed(fmt::format("input {} is strings and input {} is {}", first_text, first_other,
                            c.flow_type(c.binding(first_other)).to_string()),
                "operands of one type");
  return rule->outputs != 0;
}

void mark_strings(NodeContext& c) {
  const Rule* rule = find_rule(c.op_type());
  const auto results = c.results();
  for (const auto& [name, binding] : results) {
    int number = 0;
    while (number < c.num_outputs() && c.output_name(number) != name) ++number;
    if (binding.is_value() && number < 31 && (rule->outputs & bit(number)) != 0) c.mark_string(binding.value);
  }
}

}  // namespace tessera::inline onnx_import
