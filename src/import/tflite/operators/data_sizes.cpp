// Operators whose number of results depends on values: WHERE and UNIQUE. The number becomes a symbol of the graph,
// which a run binds (graph/data_sizes.h).
#include <fmt/format.h>

#include <algorithm>

#include "arith/data_symbols.h"
#include "arith/simplify.h"
#include "import/tflite/operators/handlers.h"

namespace tessera::inline tflite_import {
namespace {

// A symbol for the number that `count` has in a run, at most `most`.
Expr bind_size(OperatorContext& c, ValueId count, int64_t most) {
  GraphLevel& level = c.state().level;
  if (!level.symbols) c.unsupported("a number of results that values decide, in a loop, a branch or at fixed shapes");
  constexpr int64_t kMost = int64_t{1} << 36;  // memory is laid out for as many
  if (most > kMost) c.unsupported(fmt::format("a number of results that values decide, of up to {}", most));
  const SymbolRange symbol = data_symbol(fmt::format("c{}", level.graph.symbols.size()), most);
  level.graph.symbols.push_back(symbol);
  level.symbols->add(symbol);
  c.op("bind_size", {count}, {{"size", Shape{symbol.var}}});
  return symbol.var;
}

ValueId running_sum(OperatorContext& c, ValueId x) {
  return c.op("cumulate", {x},
              {{"axis", int64_t{0}}, {"kind", std::string("sum")}, {"exclusive", false}, {"reverse", false}});
}

// Elements [n] at the places [n] of a list of `length` zeros; those at -1 are left out.
ValueId scattered(OperatorContext& c, ValueId elements, ValueId places, int64_t length) {
  const int64_t n = c.dims(elements)[0];
  const ValueId empty = c.zeros(DType::kI64, std::vector<int64_t>{1, length, 1});
  return c.reshape(c.op("scatter", {empty, c.reshape(places, {1, n}), c.reshape(elements, {1, n, 1})},
                        {{"join", std::string("none")}}),
                   {length});
}

// The places at which `mask` [n] is true, in order: i64 of as many elements as there are.
ValueId places_of(OperatorContext& c, ValueId mask) {
  const int64_t n = c.dims(mask)[0];
  if (n == 0) return c.zeros(DType::kI64, std::vector<int64_t>{0});
  if (const auto known = c.constant(mask)) {
    std::vector<int64_t> places;
    for (int64_t i = 0; i < n; ++i)
      if (known->get_int(i) != 0) places.push_back(i);
    return c.ints(std::move(places));
  }
  const ValueId numbers = c.cast(mask, DType::kI64);
  const Expr count = bind_size(c, c.reduce("sum", numbers, {0}, false), n);
  // Number i that is true goes to the place that as many true ones precede.
  const ValueId before = c.sub(running_sum(c, numbers), c.integer(1));
  const ValueId all = scattered(c, c.iota({n}, 0), c.op("select", {mask, before, c.integer(-1)}), n);
  return c.slice(all, {0}, {count}, {1});
}

void import_where(OperatorContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  const std::vector<int64_t> dims = c.dims(x);
  if (dims.empty()) c.unsupported("the places of a scalar");
  const ValueId flat = c.reshape(x, {c.num_elements(x)});
  const ValueId places = places_of(c, c.dtype(x) == DType::kBool ? flat : c.op("ne", {flat, c.scalar_like(flat, 0)}));
  const Expr count = c.shape(places)[0];
  std::vector<ValueId> columns;
  int64_t stride = c.num_elements(x);
  for (const int64_t extent : dims) {
    stride = extent > 0 ? stride / extent : 1;
    const ValueId index =
        c.op("rem", {c.div(places, c.integer(std::max<int64_t>(stride, 1))), c.integer(std::max<int64_t>(extent, 1))});
    columns.push_back(c.reshape(index, {count, 1}));
  }
  c.out(0, columns.size() == 1 ? columns[0] : c.op("concat", columns, {{"axis", int64_t{1}}}));
}

// The elements that equal none before them, in order, and for each element which of those it is.
void import_unique(OperatorContext& c) {
  c.require_inputs(1, 1);
  const ValueId x = c.in(0);
  if (c.rank(x) != 1) c.malformed(fmt::format("an operand of type {}", c.type(x).to_string()), "a list");
  const int64_t n = c.dims(x)[0];
  const DType places =
      c.options<tflite::UniqueOptions>().idx_out_type() == static_cast<int8_t>(tflite::TensorType::INT64) ? DType::kI64
                                                                                                          : DType::kI32;
  if (n == 0) {
    c.out(0, c.zeros(c.dtype(x), std::vector<int64_t>{0}));
    return c.out(1, c.zeros(places, std::vector<int64_t>{0}));
  }
  const auto at = [&](ValueId list, ValueId which) { return c.op("gather", {list, which}, {{"axis", int64_t{0}}}); };
  // In ascending order, which is stable: where groups of equal ones begin, there their first elements stand.
  const ValueId order = c.reshape(c.op("order", {c.reshape(x, {1, n, 1})}, {{"count", n}}), {n});
  const ValueId ascending = at(x, order);
  Tensor yes(DType::kBool, {1});
  yes.set_int(0, 1);
  ValueId begins = c.constant_value(std::move(yes));
  if (n > 1) {
    const ValueId differ = c.op("ne", {c.slice(ascending, {0}, {n - 1}, {1}), c.slice(ascending, {1}, {n - 1}, {1})});
    begins = c.op("concat", {begins, differ}, {{"axis", int64_t{0}}});
  }
  const ValueId group = c.sub(running_sum(c, c.cast(begins, DType::kI64)), c.integer(1));
  const ValueId firsts = scattered(c, order, c.op("select", {begins, group, c.integer(-1)}), n);  // by group
  const ValueId group_of = scattered(c, group, order, n);                                         // by element
  const ValueId first_of = at(firsts, group_of);
  const ValueId leads = c.op("eq", {first_of, c.iota({n}, 0)});
  const ValueId number = c.sub(running_sum(c, c.cast(leads, DType::kI64)), c.integer(1));
  c.out(0, at(x, places_of(c, leads)));
  c.out(1, c.cast(at(number, first_of), places));
}

// Why what a model may have here cannot be.
void refuse_table(OperatorContext& c) {
  c.unsupported("a hash table: its keys or values are strings, which tensors here do not have");
}

void refuse_random(OperatorContext& c) {
  c.unsupported(
      "random numbers: without seeds no run gives the same, and with seeds each run goes on where the last one ended");
}

}  // namespace

std::span<const TfliteOperator> data_size_operators() {
  using enum tflite::BuiltinOperator;
  static constexpr TfliteOperator operators[] = {
      {HASHTABLE, refuse_table},       {HASHTABLE_FIND, refuse_table}, {HASHTABLE_IMPORT, refuse_table},
      {HASHTABLE_SIZE, refuse_table},  {MULTINOMIAL, refuse_random},   {RANDOM_STANDARD_NORMAL, refuse_random},
      {RANDOM_UNIFORM, refuse_random}, {UNIQUE, import_unique},        {WHERE, import_where},
  };
  return operators;
}

}  // namespace tessera::inline tflite_import
