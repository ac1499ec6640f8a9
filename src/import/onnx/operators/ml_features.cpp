// Preparation of features: Binarizer, Scaler, Normalizer, Imputer, encoders, and how features are put together.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "import/onnx/operators/handlers.h"
#include "import/onnx/operators/ml_scores.h"

namespace tessera::inline onnx_import {
namespace {

using Ints = std::vector<int64_t>;

// Numbers of one type: keys or values of an encoder.
struct Numbers {
  DType dtype = DType::kI64;
  std::vector<double> floats;
  Ints ints;
  bool strings = false;  // the integers are numbers of strings
  size_t size() const { return is_float(dtype) ? floats.size() : ints.size(); }
};

Ints string_numbers(NodeContext& c, const std::vector<std::string>& texts) {
  Ints numbers;
  for (const std::string& text : texts) numbers.push_back(c.string_number(text));
  return numbers;
}

// The attribute <prefix>_int64s, <prefix>_floats, <prefix>_strings or <prefix>_tensor.
Numbers read_numbers(NodeContext& c, const std::string& prefix) {
  Numbers numbers;
  if (c.attrs.has(prefix + "_strings")) {
    numbers.strings = true;
    numbers.ints = string_numbers(c, c.attrs.get_strings(prefix + "_strings"));
    return numbers;
  }
  if (const auto* proto = c.attrs.get_tensor(prefix + "_tensor")) {
    const Tensor tensor = c.tensor(*proto);
    if (tensor.dtype() == DType::kString) {
      numbers.strings = true;
      numbers.ints = string_numbers(c, tensor.strings());
      return numbers;
    }
    numbers.dtype = tensor.dtype();
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      if (is_float(numbers.dtype)) numbers.floats.push_back(tensor.get_double(i));
      else numbers.ints.push_back(tensor.get_int(i));
    }
    return numbers;
  }
  if (c.attrs.has(prefix + "_floats")) {
    numbers.dtype = DType::kF32;
    numbers.floats = c.attrs.get_floats(prefix + "_floats");
  } else {
    numbers.ints = c.attrs.get_ints(prefix + "_int64s");
  }
  return numbers;
}

Tensor tensor_of(const Numbers& numbers) {
  Tensor tensor(numbers.dtype, {static_cast<int64_t>(numbers.size())});
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (is_float(numbers.dtype)) tensor.set_double(static_cast<int64_t>(i), numbers.floats[i]);
    else tensor.set_int(static_cast<int64_t>(i), numbers.ints[i]);
  }
  return tensor;
}

// The place of each element of x among `keys`, the first of equals, and their number where it is not among them: i64
// like x. Keys that lie close together make a table; others are looked for by halving.
ValueId place_among(NodeContext& c, ValueId x, const Numbers& keys) {
  const auto count = static_cast<int64_t>(keys.size());
  if (count == 0) return c.broadcast(c.integer(0), c.dims(x));
  const auto look_up = [&](ValueId table, ValueId place) {
    return c.op("gather", {table, place}, {{"axis", int64_t{0}}});
  };
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!is_float(keys.dtype)) {
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return keys.ints[a] < keys.ints[b]; });
    const int64_t low = keys.ints[order.front()], high = keys.ints[order.back()];
    if (low >= -(int64_t{1} << 40) && high <= (int64_t{1} << 40) && high - low < std::max<int64_t>(1024, 16 * count)) {
      Ints table(static_cast<size_t>(high - low + 1), count);
      for (size_t i = keys.size(); i-- > 0;) table[static_cast<size_t>(keys.ints[i] - low)] = static_cast<int64_t>(i);
      const ValueId wide = c.cast(x, DType::kI64);
      const ValueId at = c.op("min", {c.op("max", {wide, c.integer(low)}), c.integer(high)});
      return c.op("select",
                  {c.op("eq", {at, wide}), look_up(c.ints(table), c.sub(at, c.integer(low))), c.integer(count)});
    }
  } else {
    // NaN last: comparisons do not see it, and it is found apart.
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::isnan(keys.floats[b]) ? !std::isnan(keys.floats[a]) : keys.floats[a] < keys.floats[b];
    });
  }
  Numbers sorted{keys.dtype, {}, {}};
  Ints places;
  std::optional<int64_t> of_nan;
  for (const size_t i : order) {
    if (is_float(keys.dtype) && std::isnan(keys.floats[i])) {
      if (!of_nan) of_nan = static_cast<int64_t>(i);
      continue;
    }
    if (is_float(keys.dtype)) sorted.floats.push_back(keys.floats[i]);
    else sorted.ints.push_back(keys.ints[i]);
    places.push_back(static_cast<int64_t>(i));
  }
  ValueId result = c.broadcast(c.integer(count), c.dims(x));
  if (!places.empty()) {
    const ValueId table = c.constant_value(tensor_of(sorted)), wanted = c.cast(x, keys.dtype);
    // How many keys are smaller.
    const auto size = static_cast<int64_t>(places.size());
    int64_t stride = 1;
    while (stride * 2 <= size) stride *= 2;
    ValueId below = c.broadcast(c.integer(0), c.dims(x));
    for (; stride > 0; stride /= 2) {
      const ValueId next = c.add(below, c.integer(stride));
      const ValueId key = look_up(table, c.op("min", {c.sub(next, c.integer(1)), c.integer(size - 1)}));
      const ValueId fits = c.op("logical_and", {c.op("le", {next, c.integer(size)}), c.op("lt", {key, wanted})});
      below = c.op("select", {fits, next, below});
    }
    const ValueId at = c.op("min", {below, c.integer(size - 1)});
    result = c.op("select", {c.op("eq", {look_up(table, at), wanted}), look_up(c.ints(places), at), result});
  }
  if (of_nan) result = c.op("select", {c.op("ne", {x, x}), c.integer(*of_nan), result});
  return result;
}

// A list of one number, or of one for each feature, as a row.
ValueId feature_row(NodeContext& c, const std::vector<double>& values, int64_t features, const std::string& name) {
  const auto count = std::ssize(values);
  if (count != 1 && count != features)
    c.malformed(fmt::format("{} has {} entries for {} features", name, count, features), "one, or one for each");
  return float_table(c, DType::kF32, values, {count});
}

void import_binarizer(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  c.out(0, c.cast(c.op("gt", {x, c.scalar_like(x, c.attrs.get_float("threshold", 0))}), c.dtype(x)));
}

// Columns by their indices; a vector is one row.
void import_array_feature_extractor(NodeContext& c) {
  c.require_inputs(2, 2);
  ValueId x = c.in(0);
  if (c.rank(x) == 1) x = c.reshape(x, {1, c.dims(x)[0]});
  const int64_t count = c.num_elements(c.in(1));
  if (c.rank(x) == 0 || count < 1)
    c.malformed(fmt::format("operands of types {} and {}", c.type(x).to_string(), c.type(c.in(1)).to_string()),
                "a dimension to choose from, and an index or more");
  c.out(0, c.op("gather", {x, c.reshape(c.in(1), {count})}, {{"axis", int64_t{c.rank(x) - 1}}}));
}

void import_scaler(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.cast(c.in(0), DType::kF32);
  const int64_t features = c.rank(x) == 0 ? 1 : c.dims(x).back();
  const ValueId offset = feature_row(c, c.attrs.get_floats("offset", {0}), features, "offset");
  const ValueId scale = feature_row(c, c.attrs.get_floats("scale", {1}), features, "scale");
  c.out(0, c.mul(c.sub(x, offset), scale));
}

void import_normalizer(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = feature_rows(c, c.in(0));
  const std::string norm = c.attrs.get_string("norm", "MAX");
  ValueId size;
  if (norm == "MAX") size = c.reduce("max", x, {1}, true);
  else if (norm == "L1") size = c.reduce("sum", c.op("abs", {x}), {1}, true);
  else if (norm == "L2") size = c.reduce("sum", c.mul(x, x), {1}, true);
  else c.malformed(fmt::format("norm = {}", norm), "MAX, L1, L2");
  if (norm == "L2") size = c.op("sqrt", {size});
  // A row of zeros stays.
  const ValueId zero = c.scalar_like(x, 0);
  const ValueId divisor = c.op("select", {c.op("eq", {size, zero}), c.scalar_like(x, 1), size});
  c.out(0, c.reshape(c.div(x, divisor), c.dims(c.in(0))));
}

void import_imputer(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const int64_t features = c.rank(x) == 0 ? 1 : c.dims(x).back();
  const bool floats = is_float(c.dtype(x));
  std::vector<double> values = c.attrs.get_floats("imputed_value_floats");
  const Ints ints = c.attrs.get_ints("imputed_value_int64s");
  const double replaced_float = c.attrs.get_float("replaced_value_float", 0);
  const int64_t replaced_int = c.attrs.get_int("replaced_value_int64", 0);
  Numbers filled{c.dtype(x), values, ints};
  const auto count = static_cast<int64_t>(filled.size());
  if (count != 1 && count != features)
    c.malformed(fmt::format("{} imputed values for {} features of type {}", count, features, dtype_name(c.dtype(x))),
                "one, or one for each, of the operand's kind");
  const ValueId row = c.constant_value(tensor_of(filled));
  ValueId missing;
  if (floats && std::isnan(replaced_float)) {
    missing = c.op("ne", {x, x});
  } else {
    Tensor value(c.dtype(x), {});
    if (floats) value.set_double(0, replaced_float);
    else value.set_int(0, replaced_int);
    missing = c.op("eq", {x, c.constant_value(std::move(value))});
  }
  c.out(0, c.op("select", {missing, row, x}));
}

// Operands side by side, each cut or filled up with zeros to its number of features.
void import_feature_vectorizer(NodeContext& c) {
  c.require_inputs(1, -1);
  const Ints widths = c.attrs.get_ints("inputdimensions");
  std::vector<ValueId> parts;
  for (int i = 0; i < c.num_inputs(); ++i) {
    ValueId x = c.cast(c.in(i), DType::kF32);
    if (c.rank(x) == 1) x = c.reshape(x, {c.dims(x)[0], 1});
    const Ints dims = c.dims(x);
    if (dims.size() != 2 || (i > 0 && dims[0] != c.dims(parts[0])[0]))
      c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "rank 1 or 2, the same number of rows");
    const int64_t width = static_cast<size_t>(i) < widths.size() ? widths[static_cast<size_t>(i)] : dims[1];
    if (width < 0 || width > (1 << 24)) c.malformed(fmt::format("inputdimensions has {}", width), "0 to 2^24");
    if (width > dims[1])
      x = c.op("pad", {x, c.scalar_like(x, 0)},
               {{"low", Ints{0, 0}}, {"high", Ints{0, width - dims[1]}}, {"mode", std::string("constant")}});
    else x = c.slice(x, {0, 0}, {dims[0], width}, {1, 1});
    parts.push_back(x);
  }
  c.out(0, parts.size() == 1 ? parts[0] : c.op("concat", parts, {{"axis", int64_t{1}}}));
}

// A dimension more, 1 at the place of the category.
void import_one_hot_encoder(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  if (c.is_string(x) != c.attrs.has("cats_strings"))
    c.malformed(fmt::format("an operand {} without categories of its type", c.flow_type(x).to_string()),
                "cats_strings for strings, cats_int64s for numbers");
  const Ints categories =
      c.is_string(x) ? string_numbers(c, c.attrs.get_strings("cats_strings")) : c.attrs.require_ints("cats_int64s");
  // Whether an unknown category is an error is asked here; the run has none, and gives zeros.
  c.attrs.ignore("zeros");
  Ints dims = c.dims(x);
  dims.push_back(1);
  const ValueId wide = c.reshape(c.cast(x, DType::kI64), dims);
  c.out(0, c.cast(c.op("eq", {wide, c.ints(categories)}), DType::kF32));
}

// Each element of x, one of the keys, as the value of that key, or the default.
void map_labels(NodeContext& c, ValueId x, const Numbers& keys, Numbers values) {
  if (keys.size() == 0 || keys.size() != values.size() || c.dtype(x) != keys.dtype || c.is_string(x) != keys.strings)
    c.malformed(fmt::format("{} keys and {} values for {}", keys.size(), values.size(), c.flow_type(x).to_string()),
                "a value for each key, and keys of the operand's type");
  const double default_float = c.attrs.get_float("default_float", -0.0);
  const int64_t default_int = c.attrs.get_int("default_int64", -1);
  const std::string default_string = c.attrs.get_string("default_string", "_Unused");
  // The default stands behind the values.
  const auto* given = c.attrs.get_tensor("default_tensor");
  const Tensor tensor = given ? c.tensor(*given) : Tensor();
  const bool usable = given && tensor.num_elements() == 1 && (tensor.dtype() == DType::kString) == values.strings;
  if (values.strings) {
    values.ints.push_back(c.string_number(usable ? tensor.strings()[0] : default_string));
  } else if (is_float(values.dtype)) {
    values.floats.push_back(usable ? tensor.get_double(0) : default_float);
  } else {
    values.ints.push_back(usable ? tensor.get_int(0) : default_int);
  }
  const ValueId y =
      c.op("gather", {c.constant_value(tensor_of(values)), place_among(c, x, keys)}, {{"axis", int64_t{0}}});
  c.out(0, values.strings ? c.mark_string(y) : y);
}

void import_label_encoder(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  if (c.version() < 2) {
    // Strings and their places.
    Numbers strings;
    strings.strings = true;
    strings.ints = string_numbers(c, c.attrs.get_strings("classes_strings"));
    Numbers places;
    places.ints.resize(strings.ints.size());
    std::iota(places.ints.begin(), places.ints.end(), 0);
    return c.is_string(x) ? map_labels(c, x, strings, places) : map_labels(c, x, places, strings);
  }
  map_labels(c, x, read_numbers(c, "keys"), read_numbers(c, "values"));
}

void import_category_mapper(NodeContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  Numbers strings, ints;
  strings.strings = true;
  strings.ints = string_numbers(c, c.attrs.get_strings("cats_strings"));
  ints.ints = c.attrs.get_ints("cats_int64s");
  c.is_string(x) ? map_labels(c, x, strings, ints) : map_labels(c, x, ints, strings);
}

void import_zip_map(NodeContext& c) {
  c.require_inputs(1, 1);
  const FlowType scores = c.flow_type(c.binding(0));
  const auto texts = c.attrs.get_strings("classlabels_strings");
  const Ints ints = c.attrs.get_ints("classlabels_int64s");
  if (!scores.is_tensor() || scores.dtype == DType::kString || texts.empty() == ints.empty())
    c.malformed(fmt::format("scores {} with {} strings and {} integers as labels", scores.to_string(), texts.size(),
                            ints.size()),
                "a tensor of numbers, and labels of one kind");
  const ValueId keys = texts.empty() ? c.ints(ints) : c.strings(texts, {std::ssize(texts)});
  const FlowType type{{ValueKind::kSequence, ValueKind::kMap},
                      scores.dtype,
                      texts.empty() ? DType::kI64 : DType::kString,
                      std::nullopt};
  c.out(0, c.step(FlowOp::kZipMap, {c.slot(0), c.slot(Binding(keys))}, type, false));
}

FlowType map_type(NodeContext& c) {
  FlowType type = c.flow_type(c.binding(0));
  if (type.wrappers != std::vector<ValueKind>{ValueKind::kMap})
    c.malformed(fmt::format("an operand that is {}", type.to_string()), "a map");
  return type;
}

void import_dict_vectorizer(NodeContext& c) {
  c.require_inputs(1, 1);
  const FlowType map = map_type(c);
  const auto texts = c.attrs.get_strings("string_vocabulary");
  const Ints ints = c.attrs.get_ints("int64_vocabulary");
  if ((map.key == DType::kString ? texts.empty() : ints.empty()) || map.dtype == DType::kString)
    c.malformed(
        fmt::format("a vocabulary of {} strings and {} integers for {}", texts.size(), ints.size(), map.to_string()),
        "a vocabulary of the keys' type, and numbers as values");
  const ValueId keys = map.key == DType::kString ? c.strings(texts, {std::ssize(texts)}) : c.ints(ints);
  c.out(0, c.step(FlowOp::kDictVectorize, {c.slot(0), c.slot(Binding(keys))},
                  {{}, map.dtype, DType::kI64, Ints{1, c.dims(keys)[0]}}, true));
}

void import_cast_map(NodeContext& c) {
  c.require_inputs(1, 1);
  const FlowType map = map_type(c);
  const std::string to = c.attrs.get_string("cast_to", "TO_FLOAT"), form = c.attrs.get_string("map_form", "DENSE");
  const int64_t columns = c.attrs.get_int("max_map", 1);
  if (form != "DENSE" && form != "SPARSE") c.malformed(fmt::format("map_form = '{}'", form), "DENSE, SPARSE");
  if (to != "TO_FLOAT" && to != "TO_INT64") c.unsupported(fmt::format("cast_to = '{}'", to));
  if (map.key != DType::kI64 || map.dtype == DType::kString) c.unsupported(fmt::format("a map {}", map.to_string()));
  if (columns < 1 || columns > (1 << 24)) c.malformed(fmt::format("max_map = {}", columns), "1 to 2^24");
  const bool sparse = form == "SPARSE";
  const DType dtype = to == "TO_FLOAT" ? DType::kF32 : DType::kI64;
  const FlowType type{{}, map.dtype, DType::kI64, sparse ? Ints{1, columns} : Ints{1, -1}};
  const Binding cast =
      c.step(FlowOp::kCastMap, {c.slot(0)}, type, sparse, {static_cast<int64_t>(map.dtype), sparse, columns});
  if (!cast.is_value() && map.dtype != dtype) c.unsupported("a dense map of another type than the result's");
  if (cast.is_value()) c.out(0, c.cast(cast.value, dtype));
  else c.out(0, cast);
}

}  // namespace

OperatorFamily ml_features_operators() {
  static constexpr OperatorImporter ml[] = {
      OperatorImporter{"ArrayFeatureExtractor", 1, import_array_feature_extractor},
      OperatorImporter{"Binarizer", 1, import_binarizer},
      OperatorImporter{"CastMap", 1, import_cast_map},
      OperatorImporter{"CategoryMapper", 1, import_category_mapper},
      OperatorImporter{"DictVectorizer", 1, import_dict_vectorizer},
      OperatorImporter{"FeatureVectorizer", 1, import_feature_vectorizer},
      OperatorImporter{"Imputer", 1, import_imputer},
      OperatorImporter{"LabelEncoder", 1, import_label_encoder},
      OperatorImporter{"Normalizer", 1, import_normalizer},
      OperatorImporter{"OneHotEncoder", 1, import_one_hot_encoder},
      OperatorImporter{"Scaler", 1, import_scaler},
      OperatorImporter{"ZipMap", 1, import_zip_map},
  };
  return {{kMlDomain, ml}};
}

}  // namespace tessera::inline onnx_import
