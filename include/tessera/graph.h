// A model built in C++, without a file: the graph that a reader would make of one, operator by operator.
//
//   namespace builder = tessera::builder;
//   builder::Graph g("classifier");
//   g.symbol("n", 1, 64);
//   const auto x = g.input("x", TESSERA_F32, {"n", 784});
//   const auto w = g.constant(weights, {784, 10});                        // std::vector<float> weights
//   const auto y = g.op("softmax", {g.op("matmul", {x, w})}, {{"axis", 1}});
//   g.output("y", y);
//   tessera::compile_file(g, "classifier.so");
//
// The operators are those of the compiler, primitives and composites alike: `operators()` lists them with their
// attributes. A graph built here and the same graph read from a file have one hash and give one module.
// docs/graph-api.md shows more; tessera.graph in Python is the same.
//
// Types: every value has an element type and a shape, which the operators infer; nothing is converted or broadcast that
// the operator does not broadcast. Dimensions are numbers, or expressions of the graph's symbols.
// Errors: CompileError, whose `node` is the name that was given to the operator. Ids TSR-20xx.
// Ownership: a Value is a small handle that keeps its graph alive. A Graph is a handle, too; `Graph b = a` is the same
// graph.
// Thread safety: one thread at a time may add to a graph; when nobody does, any number may read and compile it.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/compiler.h"
#include "tessera/tessera.h"

namespace tessera::builder {

struct GraphState;  // the implementation
struct GraphAccess;

// A dimension: a number, or an expression of symbols as graph texts write it: "n", "(n * 2)", "floordiv(n, 4)".
class Dim {
 public:
  template <std::integral Number>
    requires(!std::same_as<Number, bool>)
  Dim(Number number) : text_(std::to_string(number)) {}
  Dim(const char* expression) : text_(expression) {}
  Dim(std::string expression) : text_(std::move(expression)) {}

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};
using Dims = std::vector<Dim>;

// An attribute of an operator. Integers do where the operator wants a number; element types and layouts may be written
// as text ("f32", "{0,1/16,2,3,1%16}"), sizes that depend on symbols as Dims ({"sizes", builder::Dims{"c", 4}}).
class Attribute {
 public:
  using Content = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, Dims>;

  Attribute(bool value) : content_(value) {}
  template <std::integral Number>
    requires(!std::same_as<Number, bool>)
  Attribute(Number value) : content_(static_cast<int64_t>(value)) {}
  Attribute(double value) : content_(value) {}
  Attribute(const char* value) : content_(std::string(value)) {}
  Attribute(std::string value) : content_(std::move(value)) {}
  Attribute(tessera_dtype value) : content_(std::string(tessera_dtype_name(value))) {}
  Attribute(std::vector<int64_t> value) : content_(std::move(value)) {}
  Attribute(std::vector<double> value) : content_(std::move(value)) {}
  Attribute(Dims value) : content_(std::move(value)) {}
  template <std::integral Number>
  Attribute(std::initializer_list<Number> value) : content_(std::vector<int64_t>(value.begin(), value.end())) {}
  template <std::floating_point Number>
  Attribute(std::initializer_list<Number> value) : content_(std::vector<double>(value.begin(), value.end())) {}

  const Content& content() const { return content_; }

 private:
  Content content_;
};
using Attributes = std::map<std::string, Attribute>;

// A value of a graph: an input, a constant, or a result of an operator.
class Value {
 public:
  const std::string& name() const;  // unique in the graph
  tessera_dtype dtype() const;
  Dims dims() const;
  std::string type() const;  // "f32[n,784]"

 private:
  friend struct GraphAccess;
  Value(std::shared_ptr<GraphState> state, int32_t id) : state_(std::move(state)), id_(id) {}

  std::shared_ptr<GraphState> state_;
  int32_t id_;
};
using Values = std::vector<Value>;

namespace detail {

template <typename Number>
constexpr tessera_dtype dtype_of() {
  if constexpr (std::same_as<Number, double>) return TESSERA_F64;
  else if constexpr (std::same_as<Number, float>) return TESSERA_F32;
  else if constexpr (std::same_as<Number, int64_t>) return TESSERA_I64;
  else if constexpr (std::same_as<Number, int32_t>) return TESSERA_I32;
  else if constexpr (std::same_as<Number, int16_t>) return TESSERA_I16;
  else if constexpr (std::same_as<Number, int8_t>) return TESSERA_I8;
  else if constexpr (std::same_as<Number, uint64_t>) return TESSERA_U64;
  else if constexpr (std::same_as<Number, uint32_t>) return TESSERA_U32;
  else if constexpr (std::same_as<Number, uint16_t>) return TESSERA_U16;
  else if constexpr (std::same_as<Number, uint8_t>) return TESSERA_U8;
  else static_assert(!sizeof(Number), "give a tessera_tensor for elements of another type");
}

}  // namespace detail

class Graph {
 public:
  explicit Graph(const std::string& name = "main");
  // The text that `text` gives, and that `tessera opt` and files `*.graph` have. TSR-3xxx for text that is no graph,
  // TSR-2066 to TSR-2068 for graphs that only the compiler's passes may make.
  static Graph from_text(std::string_view text, const std::string& file = "<text>");

  // A named dimension, which takes the values lo, lo + step, ..., up to hi. TSR-2061 for a name that is taken or no
  // word, TSR-2065 for an empty range.
  void symbol(const std::string& name, int64_t lo, int64_t hi, int64_t step = 1);
  // An input. TSR-2061 for a name that is taken, TSR-3003 for a dimension with an unknown symbol,
  // TSR-2036 for one that data decide.
  Value input(const std::string& name, tessera_dtype dtype, const Dims& dims);
  // The same by the text of its type: "f32[n,784]".
  Value input(const std::string& name, const std::string& type);

  // A constant: row-major elements, elements of 4 and 2 bits packed lowest first. The data is copied, or, with an
  // owner, borrowed from memory that the owner keeps alive. TSR-2064 for a tensor that is none.
  Value constant(const tessera_tensor& tensor, const std::string& name = "");
  Value constant(const tessera_tensor& tensor, std::shared_ptr<const void> owner, const std::string& name = "");
  template <typename Number>
  Value constant(const std::vector<Number>& elements, const std::vector<int64_t>& dims, const std::string& name = "") {
    return constant(elements.data(), elements.size(), detail::dtype_of<Number>(), dims, name);
  }
  // One element without dimensions, `value` rounded to the type.
  Value scalar(double value, tessera_dtype dtype, const std::string& name = "");

  // A value that lives from call to call under this name, of a fixed shape: what it is before the call. It begins as
  // `initial`, an array of its type, or as zeros where that is null, and stays what it is unless `assign` says
  // otherwise. TSR-2061 for a name that another value has.
  Value state(const std::string& name, tessera_dtype dtype, const std::vector<int64_t>& dims,
              const void* initial = nullptr);
  // What a state is after the call. TSR-2070 where `state` belongs to another graph, or has been given a value;
  // TSR-2071 for a value of another type.
  void assign(const Value& state, const Value& value);

  // Declares a dimension that data decide, and gives it its value in a run: `count`, one i64 without dimensions, kept
  // within 0 and `bound`. What is built from here on may have the dimension by its name. Answers the value that it got.
  // Memory is for the bound. TSR-2061 as for `symbol`, TSR-2065 for a bound that is less than 0 somewhere, TSR-2020 and
  // TSR-2022 for another count.
  Value bind_size(const std::string& symbol, const Value& count, const Dim& bound, const std::string& name = "");

  // An operator with one result. `name` is what errors, `explain` and profiles call it, and its result. Errors:
  // TSR-2062 for an operator that does not exist, TSR-2060 for a value of another graph, TSR-2063 where the operator
  // has another number of results; what the operator itself refuses (TSR-20xx).
  Value op(const std::string& kind, const Values& operands, const Attributes& attributes = {},
           const std::string& name = "");
  // An operator with any number of results.
  Values ops(const std::string& kind, const Values& operands, const Attributes& attributes = {},
             const std::string& name = "");
  // An operator of one's own: `body`, whose inputs the operands are. Passes may look inside; the kind says what it is.
  // TSR-2066 for a kind that is an operator of the compiler, TSR-2005 for operands that are not the body's inputs.
  Values composite(const std::string& kind, const Graph& body, const Values& operands,
                   const Attributes& attributes = {}, const std::string& name = "");

  // One of two bodies, by one bool: `operands` are the inputs of both, whose results have the same types. Only the body
  // that is taken runs. TSR-2005 for bodies that do not fit; states and sizes of their own are refused as by composite.
  Values branch(const Value& condition, const Graph& then, const Graph& otherwise, const Values& operands,
                const std::string& name = "");
  // A body again and again: counted, as long as a condition holds, over slices of operands, or several of these.
  // Attributes num_carried, num_scanned, counted, has_condition, max_trip, scan_reversed and stack_reversed say what
  // the operands ([count], [condition], carried, scanned, the same for all iterations) and the body's results
  // ([condition], carried, stacked) are; docs/graph-api.md has the details. The body's inputs begin with the
  // iteration's number.
  Values loop(const Graph& body, const Values& operands, const Attributes& attributes, const std::string& name = "");

  // The next output. TSR-2061 for a name that another output or an input has; inner values make room.
  void output(const std::string& name, const Value& value);

  const std::string& name() const;
  Values inputs() const;
  Values outputs() const;
  // With all constants, or with large ones by their hash; docs/tour.md shows the form.
  std::string text(bool elide_constants = false) const;
  // Of what the graph computes: operators, attributes, types, constants, the order of inputs and outputs; not of names.
  // 16 hexadecimal digits, the same on every machine.
  std::string hash() const;

 private:
  friend struct GraphAccess;
  explicit Graph(std::shared_ptr<GraphState> state) : state_(std::move(state)) {}
  Values with_regions(const std::string& kind, const std::vector<const Graph*>& bodies, const Values& operands,
                      const Attributes& attributes, const std::string& name);
  Value constant(const void* elements, size_t count, tessera_dtype dtype, const std::vector<int64_t>& dims,
                 const std::string& name);

  std::shared_ptr<GraphState> state_;
};

struct OperatorAttribute {
  std::string name;
  std::string kind;  // "bool", "int", "float", "string", "ints", "floats", "dtype", "layout", "sizes" (numbers or Dims)
  bool required = true;
  std::string doc;  // may be empty
};

struct Operator {
  std::string name;
  std::string doc;  // one sentence
  int min_operands = 1;
  int max_operands = 1;  // -1: any number
  std::vector<OperatorAttribute> attributes;
  bool is_composite = false;  // made of other operators
  std::string example;        // text with values, which is run as a test
};

// What Graph::op knows, by name.
const std::vector<Operator>& operators();

}  // namespace tessera::builder
