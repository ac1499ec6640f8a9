#include "graph/tensor_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstring>

#include "arith/data_symbols.h"
#include "arith/simplify.h"
#include "support/error.h"

namespace tessera::inline graph {
namespace {

std::string element_text(const Tensor& tensor, int64_t index) {
  const DType dtype = tensor.dtype();
  if (dtype == DType::kBool) return tensor.get_int(index) ? "true" : "false";
  if (dtype == DType::kU64) return fmt::format("{}", static_cast<uint64_t>(tensor.get_int(index)));
  if (!is_float(dtype)) return fmt::format("{}", tensor.get_int(index));
  const double value = tensor.get_double(index);
  if (std::isnan(value)) return "nan";
  return dtype == DType::kF64 ? fmt::format("{}", value) : fmt::format("{}", static_cast<float>(value));
}

void set_element(TextReader& reader, Tensor& tensor, int64_t index) {
  const DType dtype = tensor.dtype();
  if (dtype == DType::kBool) {
    const bool value = reader.peek_is("true");
    if (!value && !reader.peek_is("false")) reader.fail_expected("true or false");
    reader.accept(value ? "true" : "false");
    return tensor.set_int(index, value);
  }
  const std::string at = reader.position();
  const std::string_view text = reader.number(fmt::format("an element of type {}", dtype_name(dtype)));
  const char* end = text.data() + text.size();
  const auto bad = [&](std::string_view why) {
    throw UserError({"TSR-3006", fmt::format("element {} {} {}", text, why, dtype_name(dtype)), at, "", ""});
  };
  if (is_float(dtype)) {
    double value = 0;
    if (dtype == DType::kF64) {
      if (std::from_chars(text.data(), end, value).ec != std::errc()) bad("does not fit into");
    } else {  // through float, so that the shortest digits of a float give the same float
      float narrow = 0;
      if (std::from_chars(text.data(), end, narrow).ec != std::errc()) bad("does not fit into");
      value = narrow;
    }
    return tensor.set_double(index, value);
  }
  if (dtype == DType::kU64) {
    uint64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end) bad("is no value of");
    return tensor.set_int(index, static_cast<int64_t>(value));
  }
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) bad("is no value of");
  tensor.set_int(index, value);
  if (tensor.get_int(index) != value) bad("does not fit into");
}

// Whether `a` and `b` print alike: the same bits, or the one NaN that the word `nan` reads back as.
bool prints_exactly(const Tensor& tensor) {
  if (!is_float(tensor.dtype())) return true;
  Tensor canonical(tensor.dtype(), {1});
  canonical.set_double(0, std::nan(""));
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    if (!std::isnan(tensor.get_double(i))) continue;
    if (dtype_bits(tensor.dtype()) < 8) return false;
    const auto size = static_cast<size_t>(dtype_bits(tensor.dtype()) / 8);
    if (std::memcmp(tensor.bytes() + static_cast<size_t>(i) * size, canonical.bytes(), size) != 0) return false;
  }
  return true;
}

bool all_elements_equal(const Tensor& tensor) {
  const int64_t count = tensor.num_elements();
  const int bits = dtype_bits(tensor.dtype());
  if (bits >= 8) {
    const auto size = static_cast<size_t>(bits / 8);
    const auto bytes = static_cast<size_t>(tensor.num_bytes());
    return std::memcmp(tensor.bytes(), tensor.bytes() + size, bytes - size) == 0;
  }
  for (int64_t i = 1; i < count; ++i)
    if (element_text(tensor, i) != element_text(tensor, 0)) return false;
  return true;
}

std::string dims_text(const Tensor& tensor) {
  std::string text = fmt::format("{}[", dtype_name(tensor.dtype()));
  for (size_t i = 0; i < tensor.dims().size(); ++i) text += fmt::format("{}{}", i ? "," : "", tensor.dims()[i]);
  return text + "]";
}

// Dim expressions as arith prints them: integers, symbols, (a + b), floordiv(a, b), ...
Expr parse_dim(TextReader& reader, const SymbolScope& symbols, int depth) {
  constexpr int kMaxDepth = 32;
  if (depth > kMaxDepth)
    reader.fail("TSR-3008", "a dimension is nested too deeply", fmt::format("at most {} levels", kMaxDepth));
  if (reader.accept("(")) {
    Expr left = parse_dim(reader, symbols, depth + 1);
    const std::pair<const char*, BinaryOp> infix[] = {
        {"+", BinaryOp::kAdd}, {"-", BinaryOp::kSub}, {"*", BinaryOp::kMul}, {"/", BinaryOp::kDiv}};
    for (const auto& [sign, op] : infix) {
      if (!reader.accept(sign)) continue;
      Expr right = parse_dim(reader, symbols, depth + 1);
      reader.expect(")");
      return binary(op, left, right);
    }
    reader.fail_expected("'+', '-', '*' or '/'");
  }
  const char next = reader.peek();
  if (next == '-' || (next >= '0' && next <= '9')) return reader.integer("a dimension");
  const std::string at = reader.position();
  const std::string word = reader.symbol("a dimension (an integer or a symbol)");
  if (next == '"' || !reader.accept("(")) {
    const auto it = symbols.find(word);
    if (it != symbols.end()) return it->second;
    throw UserError({"TSR-3003", fmt::format("unknown symbol '{}' in a shape", word), at,
                     "a symbol declared by the graph: graph @name[n in 1..64](...)", ""});
  }
  if (word == "neg") {
    Expr operand = parse_dim(reader, symbols, depth + 1);
    reader.expect(")");
    return -operand;
  }
  for (const BinaryOp op : {BinaryOp::kFloorDiv, BinaryOp::kFloorMod, BinaryOp::kRem, BinaryOp::kMin, BinaryOp::kMax}) {
    if (word != binary_name(op)) continue;
    Expr left = parse_dim(reader, symbols, depth + 1);
    reader.expect(",");
    Expr right = parse_dim(reader, symbols, depth + 1);
    reader.expect(")");
    return binary(op, left, right);
  }
  throw UserError({"TSR-3001", fmt::format("unknown function '{}' in a shape", word), at,
                   "floordiv, floormod, rem, min, max, neg", ""});
}

}  // namespace

std::string double_text(double value) {
  std::string text = fmt::format("{}", value);
  if (std::isnan(value)) return "nan";
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string tensor_text(const Tensor& tensor, bool elide_big) {
  const std::string type = dims_text(tensor);
  const auto elided = [&] { return fmt::format("elided<{} 0x{:016x}>", type, tensor.content_hash()); };
  if (!tensor.has_data()) return elided();
  const int64_t count = tensor.num_elements();
  const bool exact = prints_exactly(tensor);
  if (count > 1 && exact && all_elements_equal(tensor))
    return fmt::format("splat<{} {}>", type, element_text(tensor, 0));
  if (count > kMaxDense && elide_big) return elided();
  if (count > kMaxDense || !exact) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text = fmt::format("hex<{} 0x", type);
    const auto size = static_cast<size_t>(tensor.num_bytes());
    text.reserve(text.size() + 2 * size + 1);
    for (size_t i = 0; i < size; ++i) {
      const auto byte = std::to_integer<unsigned>(tensor.bytes()[i]);
      text += kDigits[byte >> 4];
      text += kDigits[byte & 15];
    }
    return text + ">";
  }
  std::string text = "dense<" + type;
  for (int64_t i = 0; i < count; ++i) text += " " + element_text(tensor, i);
  return text + ">";
}

std::optional<int64_t> checked_bytes(DType dtype, const std::vector<int64_t>& dims) {
  // Empty tensors too must have dims whose product, without the zero, fits: strides are computed from them.
  int64_t count = 1;
  bool empty = false;
  for (const int64_t dim : dims) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) empty = true;
    if (dim != 0 && __builtin_mul_overflow(count, dim, &count)) return std::nullopt;
  }
  int64_t bits = 0;
  if (__builtin_mul_overflow(count, static_cast<int64_t>(dtype_bits(dtype)), &bits)) return std::nullopt;
  return empty ? 0 : dtype_bytes(dtype, count);
}

std::string layout_problem(const Layout& layout, int rank) {
  if (layout.row_major()) return "";
  std::vector<int> whole(static_cast<size_t>(rank)), split(static_cast<size_t>(rank)), rest(static_cast<size_t>(rank));
  std::vector<int64_t> block(static_cast<size_t>(rank));
  for (const LayoutDim& dim : layout.dims) {
    if (dim.axis < 0 || dim.axis >= rank) return fmt::format("axis {} of a tensor of rank {}", dim.axis, rank);
    const auto axis = static_cast<size_t>(dim.axis);
    if (dim.part == LayoutDim::Part::kWhole) {
      ++whole[axis];
      continue;
    }
    if (dim.block < 1 || dim.block > kMaxLayoutBlock)
      return fmt::format("block {} (1 to {})", dim.block, kMaxLayoutBlock);
    if (block[axis] != 0 && block[axis] != dim.block) return fmt::format("two blocks for axis {}", axis);
    block[axis] = dim.block;
    ++(dim.part == LayoutDim::Part::kQuotient ? split : rest)[axis];
  }
  for (size_t axis = 0; axis < whole.size(); ++axis) {
    const bool as_whole = whole[axis] == 1 && split[axis] == 0 && rest[axis] == 0;
    const bool as_blocks = whole[axis] == 0 && split[axis] == 1 && rest[axis] == 1;
    if (!as_whole && !as_blocks)
      return fmt::format("axis {} must appear once whole, or once as quotient and once as remainder", axis);
  }
  return "";
}

Layout parse_layout(TextReader& reader) {
  Layout layout;
  reader.expect("{");
  while (!reader.peek_is("}")) {
    if (!layout.dims.empty()) reader.expect(",");
    LayoutDim dim;
    const int64_t axis = reader.integer("an axis of a layout");
    // Out-of-range axes are reported by layout_problem, which knows the rank.
    dim.axis = axis < 0 || axis > 255 ? 255 : static_cast<int>(axis);
    if (reader.accept("/")) {
      dim.part = LayoutDim::Part::kQuotient;
    } else if (reader.accept("%")) {
      dim.part = LayoutDim::Part::kRemainder;
    }
    if (dim.part != LayoutDim::Part::kWhole) dim.block = reader.integer("a block of a layout");
    layout.dims.push_back(dim);
  }
  reader.expect("}");
  return layout;
}

TensorType parse_type(TextReader& reader, const SymbolScope& symbols) {
  const std::string at = reader.position();
  TensorType type;
  const std::string word = reader.word("a type (such as f32[1,3,8,8])");
  const auto dtype = parse_dtype(word);
  if (!dtype) throw UserError({"TSR-3005", fmt::format("unknown dtype '{}'", word), at, "f32, i64, bool, ...", ""});
  type.dtype = *dtype;
  reader.expect("[");
  while (!reader.peek_is("]")) {
    if (!type.shape.empty()) reader.expect(",");
    type.shape.push_back(parse_dim(reader, symbols, 0));
    if (type.shape.size() > 64) reader.fail("TSR-3005", "a shape has too many dimensions", "at most 64");
  }
  reader.expect("]");
  std::vector<int64_t> known;
  for (const Expr& dim : type.shape)
    if (const auto value = as_int(dim)) known.push_back(*value);
  if (!checked_bytes(type.dtype, known))
    throw UserError({"TSR-3005", fmt::format("the type {} has a negative dimension or is too large", type.to_string()),
                     at, "dimensions from 0, less than 2^63 bits in all", ""});
  if (reader.peek_is("{")) {
    type.layout = parse_layout(reader);
    if (const std::string problem = layout_problem(type.layout, type.rank()); !problem.empty())
      throw UserError({"TSR-3005", fmt::format("the layout {} does not fit: {}", type.layout.to_string(), problem), at,
                       "every axis whole, or as quotient and remainder of one block", ""});
  }
  return type;
}

Expr parse_size(TextReader& reader, const SymbolScope& symbols) { return parse_dim(reader, symbols, 0); }

std::vector<SymbolRange> parse_symbols(TextReader& reader, SymbolScope& scope) {
  std::vector<SymbolRange> symbols;
  do {
    const std::string at = reader.position();
    const auto refuse = [&](const std::string& id, const std::string& message, const std::string& legal) {
      throw UserError({id, message, at, legal, ""});
    };
    const std::string name = reader.symbol("a symbol");
    if (scope.count(name)) refuse("TSR-3004", fmt::format("symbol {} is declared twice", name), "");
    SymbolRange symbol{make_var(name), 1, INT64_MAX, 1};
    if (reader.accept("in")) {
      symbol.lo = reader.integer("the smallest value of a symbol");
      reader.expect("..");
      if (!reader.peek_is(",") && !reader.peek_is("]")) symbol.hi = reader.integer("the largest value of a symbol");
      if (reader.accept(":")) symbol.step = reader.integer("the step of a symbol");
      if (symbol.lo < 0 || symbol.hi < symbol.lo)
        refuse("TSR-3005", fmt::format("symbol {} ranges over {}..{}", name, symbol.lo, symbol.hi),
               "0 <= smallest <= largest");
      if (symbol.step < 1) refuse("TSR-3005", fmt::format("symbol {} has the step {}", name, symbol.step), "1 <= step");
    } else if (reader.peek_is("upto") || reader.peek_is("from")) {
      int64_t least = 0;
      if (reader.accept("from")) least = reader.integer("the smallest value of a symbol");
      reader.expect("upto");
      const KnownSymbols known(symbols);
      symbol = data_symbol(name, normalize_size(parse_dim(reader, scope, 0)));
      symbol.lo = least;
      if (least < 0 || !size_at_most(least, symbol.bound))
        refuse("TSR-3005", fmt::format("symbol {} is at least {} and at most {}", name, least, to_string(symbol.bound)),
               "0 <= smallest <= the bound");
    }
    scope[name] = symbol.var;
    symbols.push_back(std::move(symbol));
  } while (reader.accept(","));
  reader.expect("]");
  return symbols;
}

TensorPtr parse_tensor(TextReader& reader, std::string_view keyword) {
  reader.expect("<");
  const std::string at = reader.position();
  const TensorType type = parse_type(reader, {});
  const auto dims = type.dims();
  const int64_t bytes = *checked_bytes(type.dtype, dims);
  const auto bad = [&](const std::string& message, const std::string& legal) {
    throw UserError({"TSR-3006", message, at, legal, ""});
  };
  if (type.dtype == DType::kString) bad("a constant of strings has no text form", "numbers and bool");
  if (!type.layout.row_major()) bad("a constant has a layout", "constants are row-major");
  if (keyword == "elided") {
    uint64_t hash = 0;
    const std::string_view digits = reader.hex_digits("the hash of an elided constant");
    if (std::from_chars(digits.data(), digits.data() + digits.size(), hash, 16).ec != std::errc())
      bad("the hash of an elided constant is not a 64-bit number", "0x and up to 16 hexadecimal digits");
    reader.expect(">");
    return std::make_shared<const Tensor>(Tensor::without_data(type.dtype, dims, hash));
  }
  if (keyword == "hex") {
    const std::string_view digits = reader.hex_digits("the bytes of a constant");
    if (bytes > kMaxSplatBytes * 64 || digits.size() != static_cast<size_t>(bytes) * 2)
      bad(fmt::format("{} hexadecimal digits for the {} bytes of {}", digits.size(), bytes, type.to_string()),
          "two digits for each byte");
    Tensor tensor(type.dtype, dims);
    for (int64_t i = 0; i < bytes; ++i) {
      unsigned byte = 0;
      std::from_chars(digits.data() + 2 * i, digits.data() + 2 * i + 2, byte, 16);
      tensor.mutable_bytes()[i] = static_cast<std::byte>(byte);
    }
    reader.expect(">");
    return std::make_shared<const Tensor>(std::move(tensor));
  }
  if (bytes > kMaxSplatBytes)
    bad(fmt::format("a constant of {} bytes", bytes), fmt::format("at most {} bytes", kMaxSplatBytes));
  const bool splat = keyword == "splat";
  // Elements are collected before memory is reserved: a text cannot ask for more than it writes down.
  if (!splat) {
    if (type.num_elements() > 1 << 20) bad("too many elements to be written one by one", "hex<...> or splat<...>");
  }
  Tensor tensor(type.dtype, dims);
  const int64_t count = tensor.num_elements();
  if (splat && count == 0) bad("a splat of no elements", "dense<...>");
  const int64_t written = splat ? 1 : count;
  for (int64_t i = 0; i < written; ++i) {
    if (reader.peek_is(">"))
      bad(fmt::format("{} elements for {}", i, type.to_string()), fmt::format("{} elements", written));
    set_element(reader, tensor, i);
  }
  if (!reader.peek_is(">"))
    bad(fmt::format("more than {} elements for {}", written, type.to_string()), "as many as the shape has");
  reader.expect(">");
  if (splat && count > 1) {
    const int bits = dtype_bits(type.dtype);
    if (bits >= 8) {
      const auto size = static_cast<size_t>(bits / 8);
      auto* data = tensor.mutable_bytes();
      for (size_t done = size; done < static_cast<size_t>(bytes);) {
        const size_t step = std::min(done, static_cast<size_t>(bytes) - done);
        std::memcpy(data + done, data, step);
        done += step;
      }
    } else {
      for (int64_t i = 1; i < count; ++i) tensor.set_int(i, 0);
      for (int64_t i = 1; i < count; ++i)
        is_float(type.dtype) ? tensor.set_double(i, tensor.get_double(0)) : tensor.set_int(i, tensor.get_int(0));
    }
  }
  return std::make_shared<const Tensor>(std::move(tensor));
}

}  // namespace tessera::inline graph
