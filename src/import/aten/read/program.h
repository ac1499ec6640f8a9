// A program of ATen operators as plain structures. The form is that of PyTorch's exported programs, schema 8
// (torch/_export/serde/schema.py), of which the fields that are read are here; what else a file has is passed over.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "import/aten/read/archive.h"
#include "types/tensor.h"

namespace tessera::inline aten {

// A number, or an expression of symbols as sympy's srepr writes it: "Symbol('s0', integer=True)".
struct AtenSize {
  int64_t value = 0;
  std::string expr = {};  // empty: the number
};

struct AtenType {
  DType dtype = DType::kF32;
  std::string no_dtype = {};  // of an element type that we do not have: its name
  std::vector<AtenSize> sizes;
};

enum class ArgumentKind : uint8_t {
  kNone,
  kTensor,   // items: its name
  kTensors,  // items: names, empty for a tensor that is left out
  kInt,      // items: one
  kInts,     // items
  kFloat,    // items: one
  kFloats,   // items
  kBool,     // items: one
  kBools,    // items
  kString,   // items: name
  kStrings,  // items: names
  kDType,    // items: integer
  kIgnored,  // memory formats, layouts, devices: there is one of each here
  kForeign,  // graphs, objects, complex numbers: items has the name of its kind
};

struct ArgumentItem {
  std::string name = {};  // of a tensor, or of a symbol where a number could be; a text
  int64_t integer = 0;
  double real = 0;
};

struct AtenArgument {
  ArgumentKind kind = ArgumentKind::kNone;
  std::vector<ArgumentItem> items = {};
};

struct AtenNode {
  std::string target;  // "aten.add.Tensor"; functions of Python as they are: "_operator.mul"
  std::string name;
  std::vector<std::pair<std::string, AtenArgument>> arguments;  // with the names of the operator's schema
  std::vector<AtenArgument> outputs;
};

struct AtenInput {
  enum class Kind : uint8_t { kUser, kWeight, kConstant };
  Kind kind = Kind::kUser;
  AtenArgument argument;
  std::string weight = {};  // kWeight: which of the program's
  bool is_buffer = false;   // kWeight: one that a run may change
};

struct AtenOutput {
  AtenArgument argument;
  std::string buffer = {};  // its new value; empty: the caller gets it
};

struct AtenWeight {
  AtenType type;
  std::vector<int64_t> strides;
  int64_t offset = 0;  // in elements
  ArchiveEntry bytes;
};

// What a symbol may be; hi is empty where nothing bounds it.
struct AtenRange {
  int64_t lo = 0;
  std::optional<int64_t> hi = {};
};

struct AtenProgram {
  std::string place;  // for messages
  std::vector<AtenInput> inputs;
  std::vector<AtenOutput> outputs;
  std::vector<AtenNode> nodes;
  std::map<std::string, AtenType> types;        // of tensors
  std::map<std::string, AtenSize> size_values;  // of symbolic integers
  std::map<std::string, AtenWeight> weights;
  std::map<std::string, AtenRange> ranges;  // of symbols
};

// UserError TSR-1113 when a part is missing, TSR-1114 when it is not of the schema, TSR-1115 for versions of the format
// that are not read and for weights that are pickled Python objects: those are never opened.
AtenProgram read_program(const Pt2Archive& archive);

// The program without its weights, out of the JSON alone; `name` is the text's in the archive.
AtenProgram program_of_json(std::string_view text, const std::string& name, const std::string& place);

// The elements row by row, whatever order the file has them in; borrowed where it is that. UserError TSR-1116 when they
// go beyond their bytes.
Tensor weight_tensor(const AtenProgram& program, const std::string& name);

}  // namespace tessera::inline aten
