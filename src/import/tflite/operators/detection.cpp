// The custom operator behind TFLite's detectors: boxes out of distances to anchors, the best of those that overlap.
#include <fmt/format.h>

#include <flatbuffers/flexbuffers.h>

#include <algorithm>
#include <cmath>

#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

using Ints = std::vector<int64_t>;

// The options of a custom operator are a map by name.
class CustomOptions {
 public:
  explicit CustomOptions(OperatorContext& c) : c_(c) {
    const auto* bytes = c.node().custom_options();
    std::vector<uint8_t> seen;
    if (!bytes || bytes->size() < 3 || !flexbuffers::VerifyBuffer(bytes->data(), bytes->size(), &seen))
      c.malformed("its options are damaged", "a FlexBuffer");
    const flexbuffers::Reference root = flexbuffers::GetRoot(bytes->data(), bytes->size());
    if (!root.IsMap()) c.malformed("its options are no map", "options by name");
    map_ = root.AsMap();
  }
  double number(const char* name, std::optional<double> fallback = {}) {
    const flexbuffers::Reference value = map_[name];
    if (value.IsNumeric() || value.IsBool()) return value.IsBool() ? value.AsBool() : value.AsDouble();
    if (!fallback) c_.malformed(fmt::format("it has no option '{}'", name), "a number");
    return *fallback;
  }

 private:
  OperatorContext& c_;
  flexbuffers::Map map_ = flexbuffers::Map::EmptyMap();
};

ValueId as_floats(OperatorContext& c, int i) { return is_float(c.dtype(c.in(i))) ? c.in(i) : real(c, i); }

// Boxes [1,N,4], scores [1,N,classes], and the numbers of boxes that were chosen for each class.
struct ByClass {
  ValueId boxes, scores, chosen;
};

// Of all that were chosen those with the best scores, of equal ones those of the first class.
void best_of_all_classes(OperatorContext& c, const ByClass& found, int64_t most) {
  const Ints dims = c.dims(found.chosen);
  const int64_t classes = dims[1], each = dims[2], all = classes * each, count = std::min(most, all);
  const ValueId list = c.reshape(found.chosen, {classes, each}), there = c.op("ge", {list, c.integer(0)});
  const ValueId index = c.op("max", {list, c.integer(0)});
  const ValueId by_class = c.reshape(c.transpose(found.scores, {0, 2, 1}), {classes, c.dims(found.scores)[1]});
  const ValueId own = c.op("gather_elements", {by_class, index}, {{"axis", int64_t{1}}});
  const ValueId scores = c.op("select", {there, own, c.scalar(DType::kF32, -HUGE_VAL)});
  const ValueId order =
      c.reshape(c.op("order", {c.reshape(scores, {1, all, 1})}, {{"count", count}, {"descending", true}}), {count});
  const auto taken = [&](ValueId from) {
    return c.op("gather", {c.reshape(from, {all}), order}, {{"axis", int64_t{0}}});
  };
  const ValueId is_there = taken(there), zero = c.scalar(DType::kF32, 0);
  const ValueId numbers = c.broadcast(c.iota(Ints{classes, 1}, 0), Ints{classes, each});
  const auto filled = [&](ValueId v) {
    Ints low(static_cast<size_t>(c.rank(v)), 0), high = low;
    high[1] = most - count;
    return c.op("pad", {v, zero}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}});
  };
  const ValueId boxes = c.op("gather", {found.boxes, taken(index)}, {{"axis", int64_t{1}}});
  c.out(0, filled(c.op("select", {c.reshape(is_there, {1, count, 1}), boxes, zero})));
  const auto row = [&](ValueId v) { return filled(c.reshape(c.op("select", {is_there, v, zero}), {1, count})); };
  c.out(1, row(c.cast(taken(numbers), DType::kF32)));
  c.out(2, row(taken(scores)));
  c.out(3, c.reduce("sum", c.reshape(c.cast(is_there, DType::kF32), {1, count}), {1}, false));
}

// Operands: boxes [1,N,4] as y, x of the centre, height and width beside an anchor's; scores [1,N,classes], maybe with
// one more in front for the background; anchors [N,4]. Results: boxes as low and high corner, classes, scores, how
// many.
void import_detection(OperatorContext& c) {
  c.require_inputs(3, 3);
  CustomOptions options(c);
  const bool by_class = options.number("use_regular_nms", 0) != 0;
  const auto whole = [&](const char* name, int64_t most, std::optional<double> fallback = {}) {
    const double value = options.number(name, fallback);
    if (!(value >= 1 && value <= static_cast<double>(most)))
      c.malformed(fmt::format("{} = {}", name, value), fmt::format("1 to {}", most));
    return static_cast<int64_t>(value);
  };
  const int64_t most = whole("max_detections", 1 << 20), classes = whole("num_classes", 1 << 20);
  if (!by_class && whole("max_classes_per_detection", 1 << 20, 1) != 1) c.unsupported("several classes for a box");
  const ValueId scores = as_floats(c, 1), anchors = as_floats(c, 2), encoded = as_floats(c, 0);
  const Ints box_dims = c.dims(encoded), score_dims = c.dims(scores), anchor_dims = c.dims(anchors);
  const bool fits = box_dims.size() == 3 && box_dims[0] == 1 && box_dims[2] >= 4 && score_dims.size() == 3 &&
                    score_dims[0] == 1 && score_dims[1] == box_dims[1] && anchor_dims == Ints{box_dims[1], 4} &&
                    (score_dims[2] == classes || score_dims[2] == classes + 1) && box_dims[1] >= 1;
  if (!fits)
    c.malformed(fmt::format("operands of types {}, {} and {} for {} classes", c.type(encoded).to_string(),
                            c.type(scores).to_string(), c.type(anchors).to_string(), classes),
                "boxes [1,N,4], scores [1,N,classes] and anchors [N,4]");
  const int64_t n = box_dims[1];
  const auto number = [&](double value) { return c.scalar(DType::kF32, value); };
  const auto column = [&](ValueId x, int64_t i) {
    return c.reshape(c.slice(c.reshape(x, {n, c.dims(x).back()}), Ints{0, i}, Ints{n, 1}, {1, 1}), {n});
  };
  const auto scaled = [&](int64_t i, const char* name) {
    return c.div(column(encoded, i), number(static_cast<double>(static_cast<float>(options.number(name)))));
  };
  std::vector<ValueId> low, high;
  for (const int64_t d : {0, 1}) {
    const ValueId size = column(anchors, d + 2);
    const ValueId centre = c.add(c.mul(scaled(d, d == 0 ? "y_scale" : "x_scale"), size), column(anchors, d));
    const ValueId half = c.mul(c.mul(number(0.5), c.op("exp", {scaled(d + 2, d == 0 ? "h_scale" : "w_scale")})), size);
    low.push_back(c.reshape(c.sub(centre, half), {1, n, 1}));
    high.push_back(c.reshape(c.add(centre, half), {1, n, 1}));
  }
  const ValueId boxes = c.op("concat", {low[0], low[1], high[0], high[1]}, {{"axis", int64_t{2}}});

  const ValueId own = c.slice(scores, Ints{0, 0, score_dims[2] - classes}, Ints{1, n, classes}, {1, 1, 1});
  const auto least = static_cast<float>(options.number("nms_score_threshold"));
  // A score may be equal to the threshold.
  const double below = static_cast<double>(std::nextafter(least, -HUGE_VALF));
  const double overlap = static_cast<double>(static_cast<float>(options.number("nms_iou_threshold")));
  const auto suppressed = [&](ValueId of_scores, int64_t count) {
    return c.op("suppress", {boxes, of_scores, c.integer(count), number(overlap), number(below)}, {{"most", count}});
  };
  if (by_class) {
    const int64_t each = std::min(most, whole("detections_per_class", 1 << 20, 100));
    return best_of_all_classes(c, {boxes, own, suppressed(c.transpose(own, {0, 2, 1}), each)}, most);
  }

  // The best class of each anchor, the first of equal ones.
  const ValueId best = c.reduce("max", own, {2}, true);
  const ValueId places = c.iota(Ints{1, n, classes}, 2);
  const ValueId which =
      c.reduce("min", c.op("select", {c.op("eq", {own, best}), places, c.integer(classes)}), {2}, false);
  const ValueId chosen = suppressed(c.reshape(best, {1, 1, n}), most);
  const ValueId list = c.reshape(chosen, {most});
  const ValueId there = c.op("ge", {list, c.integer(0)});
  const ValueId index = c.op("max", {list, c.integer(0)});
  const auto taken = [&](ValueId from, Ints dims) {
    Ints along(dims.size(), 1);
    along[1] = most;
    const ValueId found = c.op("gather", {from, index}, {{"axis", int64_t{1}}});
    return c.op("select", {c.reshape(there, along), found, number(0)});
  };
  c.out(0, taken(boxes, {1, most, 4}));
  c.out(1, taken(c.cast(which, DType::kF32), {1, most}));
  c.out(2, taken(c.reshape(best, {1, n}), {1, most}));
  c.out(3, c.reduce("sum", c.reshape(c.cast(there, DType::kF32), {1, most}), {1}, false));
}

}  // namespace

CustomHandler detection_operator() { return import_detection; }

}  // namespace tessera::inline tflite_import
