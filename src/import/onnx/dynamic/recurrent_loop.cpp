#include "import/onnx/dynamic/recurrent_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <climits>

#include "import/onnx/read/dtypes.h"
#include "import/onnx/read/model_file.h"

namespace tessera::inline onnx_import {
namespace {

using Names = std::vector<std::string>;

// Makes nodes whose results have names that begin with `prefix`.
class NodeMaker {
 public:
  explicit NodeMaker(std::string prefix) : prefix_(std::move(prefix)) {}

  std::string fresh(const std::string& what) { return fmt::format("{}/{}{}", prefix_, what, count_++); }

  onnx::NodeProto& add(const std::string& op, const Names& inputs, const Names& outputs) {
    onnx::NodeProto& node = nodes_.emplace_back();
    node.set_op_type(op);
    for (const std::string& name : inputs) node.add_input(name);
    for (const std::string& name : outputs) node.add_output(name);
    return node;
  }
  std::string value(const std::string& op, const Names& inputs) {
    const std::string result = fresh(op);
    add(op, inputs, {result});
    return result;
  }
  std::string along(const std::string& op, int64_t axis, const Names& inputs) {
    const std::string result = value(op, inputs);
    set_int(nodes_.back(), "axis", axis);
    return result;
  }
  std::string ints(const std::vector<int64_t>& values, bool scalar = false) {
    onnx::TensorProto tensor;
    tensor.set_data_type(onnx::TensorProto::INT64);
    if (!scalar) tensor.add_dims(static_cast<int64_t>(values.size()));
    for (const int64_t v : values) tensor.add_int64_data(v);
    return constant("Constant", "value", {}, std::move(tensor));
  }
  std::string yes() {
    onnx::TensorProto tensor;
    tensor.set_data_type(onnx::TensorProto::BOOL);
    tensor.add_int32_data(1);
    return constant("Constant", "value", {}, std::move(tensor));
  }
  // Elements [begin, end) of dimension 0, or all of them from the last on.
  std::string part(const std::string& x, int64_t begin, int64_t end) {
    return value("Slice", {x, ints({begin}), ints({end}), ints({0})});
  }
  std::string turned(const std::string& x) {
    return value("Slice", {x, ints({-1}), ints({INT64_MIN}), ints({0}), ints({-1})});
  }
  // Dimension `axis` of x, as a number.
  std::string length(const std::string& x, int64_t axis) {
    return along("Gather", 0, {value("Shape", {x}), ints({axis}, true)});
  }
  std::string zeros(const std::string& shape, int data_type) {
    onnx::TensorProto one = zero_of(data_type);
    one.add_dims(1);
    return constant("ConstantOfShape", "value", {shape}, std::move(one));
  }
  std::string zero(int data_type) { return constant("Constant", "value", {}, zero_of(data_type)); }
  std::string transposed(const std::string& x, const std::vector<int64_t>& perm) {
    const std::string result = fresh("Transpose");
    transpose_to(x, perm, result);
    return result;
  }
  void transpose_to(const std::string& x, const std::vector<int64_t>& perm, const std::string& result) {
    set_ints(add("Transpose", {x}, {result}), "perm", perm);
  }

  static void set_ints(onnx::NodeProto& node, const std::string& name, const std::vector<int64_t>& values) {
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::INTS);
    for (const int64_t value : values) attribute.add_ints(value);
  }
  void set_int_of_last(const std::string& name, int64_t value) { set_int(nodes_.back(), name, value); }
  static void set_int(onnx::NodeProto& node, const std::string& name, int64_t value) {
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(value);
  }

  std::vector<onnx::NodeProto> take() { return std::move(nodes_); }

 private:
  static onnx::TensorProto zero_of(int data_type) {
    onnx::TensorProto zero;
    zero.set_data_type(data_type);
    zero.set_raw_data(std::string(static_cast<size_t>(dtype_bits(dtype_of_onnx(data_type).value())) / 8, '\0'));
    return zero;
  }
  std::string constant(const std::string& op, const std::string& attribute_name, const Names& inputs,
                       onnx::TensorProto tensor) {
    const std::string result = value(op, inputs);
    onnx::AttributeProto& attribute = *nodes_.back().add_attribute();
    attribute.set_name(attribute_name);
    attribute.set_type(onnx::AttributeProto::TENSOR);
    *attribute.mutable_t() = std::move(tensor);
    return result;
  }

  std::string prefix_;
  std::vector<onnx::NodeProto> nodes_;
  int count_ = 0;
};

void declare(onnx::ValueInfoProto& value, const std::string& name, int data_type) {
  value.set_name(name);
  value.mutable_type()->mutable_tensor_type()->set_elem_type(data_type);
}

// A Loop of `body`, whose states and results are those of `inputs` and `outputs`.
void add_loop(NodeMaker& make, onnx::GraphProto body, const std::string& count, const Names& states,
              const Names& outputs) {
  Names inputs = {count, make.yes()};
  inputs.insert(inputs.end(), states.begin(), states.end());
  onnx::NodeProto& loop = make.add("Loop", inputs, outputs);
  onnx::AttributeProto& attribute = *loop.add_attribute();
  attribute.set_name("body");
  attribute.set_type(onnx::AttributeProto::GRAPH);
  *attribute.mutable_g() = std::move(body);
}

// The two first inputs of a Loop's body, and its first output.
struct Step {
  std::string number, goes_on;
};

Step begin_body(NodeMaker& make, onnx::GraphProto& body) {
  const Step step{make.fresh("step"), make.fresh("goes_on")};
  declare(*body.add_input(), step.number, onnx::TensorProto::INT64);
  declare(*body.add_input(), step.goes_on, onnx::TensorProto::BOOL);
  return step;
}

void move_nodes(NodeMaker& from, onnx::GraphProto& body) {
  for (onnx::NodeProto& node : from.take()) *body.add_node() = std::move(node);
}

const onnx::AttributeProto* find_attribute(const onnx::NodeProto& node, const std::string& name) {
  for (const auto& attribute : node.attribute())
    if (attribute.name() == name) return &attribute;
  return nullptr;
}

int64_t int_attribute(const onnx::NodeProto& node, const std::string& name, int64_t otherwise) {
  const onnx::AttributeProto* found = find_attribute(node, name);
  return found ? found->i() : otherwise;
}

std::string input_of(const onnx::NodeProto& node, int i) { return i < node.input_size() ? node.input(i) : ""; }
std::string output_of(const onnx::NodeProto& node, int i) { return i < node.output_size() ? node.output(i) : ""; }

std::string prefix_of(const onnx::NodeProto& node) {
  for (const std::string& name : node.output())
    if (!name.empty()) return name + "/loop";
  return "loop";
}

// The activations of a recurrent operator that take the constant alpha, or beta.
bool takes_constant(std::string function, bool alpha) {
  std::transform(function.begin(), function.end(), function.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  static constexpr std::array kBoth = {"affine", "scaledtanh", "hardsigmoid"};
  static constexpr std::array kAlpha = {"leakyrelu", "thresholdedrelu", "elu"};
  return std::find(kBoth.begin(), kBoth.end(), function) != kBoth.end() ||
         (alpha && std::find(kAlpha.begin(), kAlpha.end(), function) != kAlpha.end());
}

// LSTM: X, W, R, B, sequence_lens, initial_h, initial_c, P; the others are without the last two. With layout = 1 the
// batch comes first in X, the states and the results: they are turned on the way in and out.
class CellLoop {
 public:
  CellLoop(const onnx::NodeProto& node, int state_type)
      : node_(node),
        state_type_(state_type),
        num_states_(node.op_type() == "LSTM" ? 2 : 1),
        batch_first_(length_axis(node) == 1),
        make_(prefix_of(node)) {}

  std::vector<onnx::NodeProto> run() {
    const onnx::AttributeProto* direction = find_attribute(node_, "direction");
    const std::string which = direction ? direction->s() : "forward";
    const int directions = which == "bidirectional" ? 2 : 1;
    x_ = batch_first_ ? make_.transposed(node_.input(0), {1, 0, 2}) : node_.input(0);
    count_ = make_.length(x_, 0);
    if (const std::string lengths = input_of(node_, 4); !lengths.empty()) {
      const std::string wide = make_.value("Cast", {lengths});
      make_.set_int_of_last("to", onnx::TensorProto::INT64);
      lengths_ = make_.value("Reshape", {wide, make_.ints({-1, 1})});
    }
    std::vector<Names> results;  // of each direction: the states, then those of all steps
    for (int d = 0; d < directions; ++d) results.push_back(one_direction(d, directions, which == "reverse" || d == 1));
    // Y [length, directions, batch, hidden]; the states [directions, batch, hidden].
    give(0, results, static_cast<size_t>(num_states_), 1);
    for (int state = 0; state < num_states_; ++state) give(1 + state, results, static_cast<size_t>(state), 0);
    return make_.take();
  }

 private:
  Names one_direction(int d, int directions, bool backwards) {
    const auto own = [&](const std::string& name) {
      return name.empty() || directions == 1 ? name : make_.part(name, d, d + 1);
    };
    Names weights;  // W, R, B, P
    for (const int i : {1, 2, 3, 7}) weights.push_back(own(i == 7 && num_states_ == 1 ? "" : input_of(node_, i)));
    Names states;
    for (int state = 0; state < num_states_; ++state) {
      const std::string given = input_of(node_, 5 + state);
      if (given.empty()) states.push_back(zero_state());
      else states.push_back(own(batch_first_ ? make_.transposed(given, {1, 0, 2}) : given));
    }
    const std::string last = backwards ? make_.value("Sub", {count_, make_.ints({1}, true)}) : "";

    onnx::GraphProto body;
    body.set_name("step");
    NodeMaker inside(make_.fresh("body"));
    const Step step = begin_body(inside, body);
    Names before, after;
    for (int state = 0; state < num_states_; ++state) {
      before.push_back(inside.fresh("before"));
      after.push_back(inside.fresh("after"));
      declare(*body.add_input(), before.back(), state_type_);
    }
    const std::string place = backwards ? inside.value("Sub", {last, step.number}) : step.number;
    const std::string x = inside.along("Gather", 0, {x_, inside.value("Reshape", {place, inside.ints({1})})});
    Names operands = {x, weights[0], weights[1], weights[2], "", before[0]};
    if (num_states_ == 2) operands.insert(operands.end(), {before[1], weights[3]});
    Names outputs = {""};
    outputs.insert(outputs.end(), after.begin(), after.end());
    onnx::NodeProto& cell = inside.add(node_.op_type(), operands, outputs);
    for (const auto& attribute : node_.attribute()) add_own(cell, attribute, d, directions);
    std::string shown = after[0];
    if (!lengths_.empty()) {  // a sequence that has ended keeps its states and gives zeros
      const std::string goes_on = inside.value("Less", {place, lengths_});  // [batch, 1]
      shown = inside.value("Where", {goes_on, after[0], inside.zero(state_type_)});
      for (size_t i = 0; i < after.size(); ++i) after[i] = inside.value("Where", {goes_on, after[i], before[i]});
    }
    shown = inside.value("Identity", {shown});
    const std::string goes_on = inside.value("Identity", {step.goes_on});
    move_nodes(inside, body);
    declare(*body.add_output(), goes_on, onnx::TensorProto::BOOL);
    for (const std::string& name : after) declare(*body.add_output(), name, state_type_);
    declare(*body.add_output(), shown, state_type_);

    Names results;
    for (int i = 0; i <= num_states_; ++i) results.push_back(make_.fresh("result"));
    add_loop(make_, std::move(body), count_, states, results);
    if (backwards) results.back() = make_.turned(results.back());
    return results;
  }

  // What an attribute of the whole says of direction `d`: its activations, and as many constants as they take.
  void add_own(onnx::NodeProto& cell, const onnx::AttributeProto& attribute, int d, int directions) const {
    const std::string& name = attribute.name();
    if (name == "direction" || name == "layout") return;
    onnx::AttributeProto& copy = *cell.add_attribute();
    copy = attribute;
    const onnx::AttributeProto* functions = find_attribute(node_, "activations");
    if (directions == 1 || !functions) return;
    const int count = functions->strings_size(), half = count / 2;
    if (name == "activations") {
      copy.clear_strings();
      for (int i = d == 0 ? 0 : half; i < (d == 0 ? half : count); ++i) copy.add_strings(functions->strings(i));
    } else if (name == "activation_alpha" || name == "activation_beta") {
      int first = 0;  // of the second direction
      for (int i = 0; i < half; ++i) first += takes_constant(functions->strings(i), name == "activation_alpha") ? 1 : 0;
      first = std::min(first, attribute.floats_size());
      copy.clear_floats();
      for (int i = d == 0 ? 0 : first; i < (d == 0 ? first : attribute.floats_size()); ++i)
        copy.add_floats(attribute.floats(i));
    }
  }

  // [1, batch, hidden]; the recurrent weights are [directions, gates * hidden, hidden].
  std::string zero_state() {
    const std::string batch = make_.part(make_.value("Shape", {x_}), 1, 2);
    const std::string hidden = make_.part(make_.value("Shape", {node_.input(2)}), 2, 3);
    return make_.zeros(make_.along("Concat", 0, {make_.ints({1}), batch, hidden}), state_type_);
  }

  void give(int output, const std::vector<Names>& results, size_t which, int64_t axis) {
    const std::string name = output_of(node_, output);
    if (name.empty()) return;
    std::string all = results[0][which];
    if (results.size() == 2) all = make_.along("Concat", axis, {all, results[1][which]});
    if (!batch_first_) make_.add("Identity", {all}, {name});
    else make_.transpose_to(all, output == 0 ? std::vector<int64_t>{2, 0, 1, 3} : std::vector<int64_t>{1, 0, 2}, name);
  }

  const onnx::NodeProto& node_;
  const int state_type_, num_states_;
  const bool batch_first_;
  NodeMaker make_;
  std::string x_, count_;  // [length, batch, size]; the length
  std::string lengths_;    // [batch, 1], if they differ
};

}  // namespace

int64_t length_axis(const onnx::NodeProto& node) { return int_attribute(node, "layout", 0) != 0 ? 1 : 0; }

bool is_recurrent(const onnx::NodeProto& node) {
  const std::string& op = node.op_type();
  return standard_domain(node.domain()).empty() && (op == "LSTM" || op == "GRU" || op == "RNN");
}

std::vector<onnx::NodeProto> loop_of_recurrent(const onnx::NodeProto& node, int state_type) {
  return CellLoop(node, state_type).run();
}

}  // namespace tessera::inline onnx_import
