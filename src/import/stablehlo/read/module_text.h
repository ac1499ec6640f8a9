// The text of an MLIR module of StableHLO operators, as plain structures: the generic form, in which every operation
// looks alike, and the form that jax prints by default. What an operation means is not looked at here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "types/tensor.h"

namespace tessera::inline stablehlo {

// A type. Only tensors of dtypes that we know have values here; of any other, `text` is what it is called.
struct HloType {
  std::string text;              // as it was written
  std::optional<DType> dtype;    // empty: no tensor, or of elements that we do not have
  std::optional<DType> part;     // of complex numbers, which have no dtype: that of their real and imaginary parts
  std::vector<int64_t> dims;     // kOpen for '?'
  std::vector<HloType> results;  // of a function's type
  static constexpr int64_t kOpen = -1;
  bool is_static() const;
};

struct HloAttr {
  enum class Kind : uint8_t {
    kWord,        // true, a keyword, a symbol's name, the inside of an attribute of a dialect: `text`
    kText,        // in quotes: `text`
    kInteger,     // `integer`
    kReal,        // `real`
    kList,        // `items`
    kDictionary,  // `items`, called `names`
    kTensor,      // `tensor`, of type `type`; one element (or complex number) stands for all of a splat
    kType,        // `type`
  };
  Kind kind = Kind::kWord;
  std::string text = {};
  int64_t integer = 0;
  double real = 0;
  std::vector<HloAttr> items = {};
  std::vector<std::string> names = {};
  TensorPtr tensor = nullptr;  // null for elements that we do not have; of complex numbers the last dimension is 2
  HloType type = {};

  const HloAttr* find(const std::string& name) const;  // of a dictionary; null: it has none
};

struct HloOperation;

struct HloArgument {
  std::string name;
  HloType type;
  HloAttr attributes = {HloAttr::Kind::kDictionary};
  std::string loc = {};
};

struct HloRegion {
  std::vector<HloArgument> arguments;
  std::vector<HloOperation> operations;
};

struct HloOperation {
  std::string name;                   // "stablehlo.add"
  std::vector<std::string> operands;  // "0", "17#2"
  std::vector<std::string> results;   // likewise
  HloAttr attributes = {HloAttr::Kind::kDictionary};
  std::vector<HloRegion> regions;
  std::vector<HloType> result_types;
  std::string loc;    // the name that the location has, else empty
  std::string place;  // in the text: "f.mlir:12:5"
};

struct HloFunction {
  std::string name;
  HloRegion body;  // of one block; its last operation returns the results
  std::vector<HloType> result_types;
  std::vector<HloAttr> result_attributes;  // dictionaries; none, or one for each result
};

struct HloModule {
  std::string name;
  std::map<std::string, HloFunction> functions;
  const HloFunction* main = nullptr;
};

// Whether a text that begins so is MLIR's: a module, a function or an alias of it.
bool looks_like_mlir(std::string_view beginning);

// UserError TSR-3001 with the place for what is no such text, TSR-1121 for a module that has no function to read,
// TSR-1122 for constants whose elements are missing or do not fit their type.
HloModule read_module_text(std::string_view text, const std::string& file);

}  // namespace tessera::inline stablehlo
