#include "graph.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "arrays.h"
#include "packed.h"
#include "tessera/graph.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tessera::python {

namespace {

using builder::Attribute;
using builder::Attributes;
using builder::Graph;
using GraphValue = builder::Value;

// Python's own bools, numbers, strings, lists of numbers, and lists of sizes as text; tessera/_graph.py makes others
// these.
Attribute attribute_of(const std::string& name, const nb::handle& value) {
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value);
  if (nb::isinstance<nb::int_>(value)) return nb::cast<int64_t>(value);
  if (nb::isinstance<nb::float_>(value)) return nb::cast<double>(value);
  if (nb::isinstance<nb::str>(value)) return nb::cast<std::string>(value);
  if (nb::isinstance<nb::list>(value)) {
    bool are_integers = true, are_texts = nb::len(value) > 0;
    for (const nb::handle item : nb::borrow<nb::list>(value)) {
      are_integers &= nb::isinstance<nb::int_>(item);
      are_texts &= nb::isinstance<nb::str>(item);
    }
    if (are_texts) {
      const auto texts = nb::cast<std::vector<std::string>>(value);
      return builder::Dims(texts.begin(), texts.end());
    }
    if (are_integers) return nb::cast<std::vector<int64_t>>(value);
    return nb::cast<std::vector<double>>(value);
  }
  throw nb::type_error(("attribute '" + name + "' is no bool, number, string, or list of numbers or sizes").c_str());
}

Attributes attributes_of(const nb::dict& values) {
  Attributes attributes;
  for (const auto& [key, value] : values) {
    const auto name = nb::cast<std::string>(key);
    attributes.emplace(name, attribute_of(name, value));
  }
  return attributes;
}

// Calls `take` with the array as the graph stores it: types of less than a byte are packed.
template <typename Take>
GraphValue with_packed(const InputArray& array, int dtype, const Take& take) {
  tessera_tensor tensor = describe_array(array, dtype);
  if (!is_packed(tensor.dtype)) return take(tensor);
  const int32_t bits = tessera_dtype_bits(tensor.dtype);
  const auto packed = std::make_unique<uint8_t[]>(packed_bytes(array.size(), bits) + 1);
  pack(static_cast<const uint8_t*>(array.data()), array.size(), bits, packed.get());
  tensor.data = packed.get();
  return take(tensor);
}

GraphValue constant(Graph& graph, const InputArray& array, int dtype, const std::string& name) {
  return with_packed(array, dtype, [&](const tessera_tensor& tensor) { return graph.constant(tensor, name); });
}

GraphValue state_of(Graph& graph, const std::string& name, const InputArray& array, int dtype) {
  return with_packed(array, dtype, [&](const tessera_tensor& tensor) {
    return graph.state(name, tensor.dtype, {tensor.dims, tensor.dims + tensor.rank}, tensor.data);
  });
}

// (name, sentence, least and most operands, [(attribute, kind, required, sentence)], is made of others, example)
nb::list listed_operators() {
  nb::list result;
  for (const builder::Operator& op : builder::operators()) {
    nb::list attributes;
    for (const builder::OperatorAttribute& attr : op.attributes)
      attributes.append(nb::make_tuple(attr.name, attr.kind, attr.required, attr.doc));
    result.append(
        nb::make_tuple(op.name, op.doc, op.min_operands, op.max_operands, attributes, op.is_composite, op.example));
  }
  return result;
}

std::vector<std::string> dim_texts(const GraphValue& value) {
  std::vector<std::string> texts;
  for (const builder::Dim& dim : value.dims()) texts.push_back(dim.text());
  return texts;
}

}  // namespace

void add_graph(nb::module_& m) {
  nb::class_<GraphValue>(m, "GraphValue", "A value of a graph.")
      .def_prop_ro("name", &GraphValue::name, "Unique in the graph.")
      .def_prop_ro(
          "dtype", [](const GraphValue& value) { return static_cast<int>(value.dtype()); }, "Its number.")
      .def_prop_ro("dims", &dim_texts, "Numbers and expressions of symbols as text.")
      .def_prop_ro("type", &GraphValue::type, "The type as graph texts write it.");

  nb::class_<Graph>(m, "Graph", "A graph that is built operator by operator.")
      .def(nb::init<const std::string&>(), "name"_a)
      .def_static("from_text", &Graph::from_text, "text"_a, "file"_a, "The graph of a text.")
      .def("symbol", &Graph::symbol, "name"_a, "lo"_a, "hi"_a, "step"_a, "Declares a named dimension.")
      .def(
          "input",
          [](Graph& graph, const std::string& name, const std::string& type) { return graph.input(name, type); },
          "name"_a, "type"_a, "An input of a type in text form.")
      .def("constant", &constant, "array"_a, "dtype"_a, "name"_a,
           nb::sig("def constant(self, array: numpy.typing.NDArray, dtype: int, name: str) -> GraphValue"),
           "A copy of a C-contiguous array with the number of its dtype.")
      .def(
          "scalar",
          [](Graph& graph, double value, int dtype, const std::string& name) {
            return graph.scalar(value, static_cast<tessera_dtype>(dtype), name);
          },
          "value"_a, "dtype"_a, "name"_a, "One element without dimensions.")
      .def(
          "ops",
          [](Graph& graph, const std::string& kind, const builder::Values& operands, const nb::dict& attributes,
             const std::string& name) { return graph.ops(kind, operands, attributes_of(attributes), name); },
          "kind"_a, "operands"_a, "attributes"_a, "name"_a,
          nb::sig("def ops(self, kind: str, operands: Sequence[GraphValue], attributes: dict[str, object], name: str) "
                  "-> list[GraphValue]"),
          "An operator's results.")
      .def(
          "composite",
          [](Graph& graph, const std::string& kind, const Graph& body, const builder::Values& operands,
             const nb::dict& attributes, const std::string& name) {
            return graph.composite(kind, body, operands, attributes_of(attributes), name);
          },
          "kind"_a, "body"_a, "operands"_a, "attributes"_a, "name"_a,
          nb::sig("def composite(self, kind: str, body: Graph, operands: Sequence[GraphValue], "
                  "attributes: dict[str, object], name: str) -> list[GraphValue]"),
          "An operator of one's own.")
      .def("branch", &Graph::branch, "condition"_a, "then"_a, "otherwise"_a, "operands"_a, "name"_a,
           "One of two bodies.")
      .def(
          "loop",
          [](Graph& graph, const Graph& body, const builder::Values& operands, const nb::dict& attributes,
             const std::string& name) { return graph.loop(body, operands, attributes_of(attributes), name); },
          "body"_a, "operands"_a, "attributes"_a, "name"_a,
          nb::sig("def loop(self, body: Graph, operands: Sequence[GraphValue], attributes: dict[str, object], "
                  "name: str) -> list[GraphValue]"),
          "A body again and again.")
      .def(
          "state",
          [](Graph& graph, const std::string& name, int dtype, const std::vector<int64_t>& dims) {
            return graph.state(name, static_cast<tessera_dtype>(dtype), dims);
          },
          "name"_a, "dtype"_a, "dims"_a, "A value that lives from call to call, zeros at first.")
      .def("initialised_state", &state_of, "name"_a, "initial"_a, "dtype"_a,
           nb::sig("def initialised_state(self, name: str, initial: numpy.typing.NDArray, dtype: int) -> GraphValue"),
           "One that begins as a copy of a C-contiguous array with the number of its dtype.")
      .def(
          "bind_size",
          [](Graph& graph, const std::string& symbol, const GraphValue& count, const std::string& bound,
             const std::string& name) { return graph.bind_size(symbol, count, bound, name); },
          "symbol"_a, "count"_a, "bound"_a, "name"_a, "Declares a dimension that data decide, and gives it its value.")
      .def("assign", &Graph::assign, "state"_a, "value"_a, "What a state is after the call.")
      .def("output", &Graph::output, "name"_a, "value"_a, "The next output.")
      .def_prop_ro("name", &Graph::name, "The name that modules get.")
      .def_prop_ro("inputs", &Graph::inputs, "In order.")
      .def_prop_ro("outputs", &Graph::outputs, "In order.")
      .def("text", &Graph::text, "elide_constants"_a, "The graph as text.")
      .def("hash", &Graph::hash, "Of what the graph computes.");

  m.def("operators", &listed_operators,
        nb::sig("def operators() -> list[tuple[str, str, int, int, list[tuple[str, str, bool, str]], bool, str]]"),
        "Name, sentence, least and most operands, attributes, whether it is made of others, and an example of each.");
}

}  // namespace tessera::python
