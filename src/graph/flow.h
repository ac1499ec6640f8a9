// What one call of a model does whose values have no size that is known while compiling: strings, sequences, optionals,
// maps, and tensors of shapes that only a run knows. Such values lie in slots, and steps work on them one after
// another. Whatever has fixed shapes is computed by pieces: graphs, each compiled like a whole model.
//
// Semantics
// - A slot holds one value, immutable; steps give a slot another value. Values may share their parts. A step runs when
//   those before it have; -1 for an input is an operand that is left out.
// - A tensor of strings is in a slot, and in a piece, a tensor of i64: numbers in a table of the run's strings, which
//   holds each string once. Number 0 is the empty string, those below strings.size() are the model's own. So equal
//   strings have equal numbers, and whatever moves or compares strings moves or compares integers.
// - The types of slots say what a value is and of which elements; dimensions there are what the model declares and
//   may be open. A piece refuses a tensor of another shape than its input's.
// - A step that cannot do what it should (a position out of range, an empty optional) ends the run with an error that
//   names the model's node.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "graph/evaluator.h"
#include "graph/graph.h"
#include "support/error.h"
#include "types/run_value.h"

namespace tessera::inline graph {

struct FlowType {
  std::vector<ValueKind> wrappers;                // outermost first: {kOptional, kSequence} of tensors
  DType dtype = DType::kF32;                      // of the tensors inside
  DType key = DType::kI64;                        // of maps
  std::optional<std::vector<int64_t>> dims = {};  // of the tensors; -1: open; empty: of any rank
  std::vector<int64_t> most = {};                 // what no dimension exceeds; empty: nothing is known
  // Of a list or scalar of integers: each element, and what it does not exceed; -1 where a run knows it. Empty: nothing
  // is known of any.
  std::vector<int64_t> numbers = {}, most_numbers = {};

  bool is_tensor() const { return wrappers.empty(); }
  bool is_fixed() const;                 // a tensor without open dimensions
  FlowType element() const;              // REQUIRES: !is_tensor()
  FlowType in(ValueKind wrapper) const;  // a sequence or optional of these
  FlowType of_any_shape() const;
  int64_t most_of(size_t dim) const;  // what dimension `dim` does not exceed; kFlowMost where nothing is known
  std::string to_string() const;      // "f32[?,3]", "seq(f32[*])", "opt(seq(i32[4]))", "seq(map(string,f32))"
};

using SlotId = int32_t;

// Of a dimension that nothing bounds: as many as pieces are compiled for.
inline constexpr int64_t kFlowMost = 65536;

// Behind each: inputs; integers; outputs. The numbers are those of tsr_flow_op in abi/module_abi.h.
enum class FlowOp : uint16_t {
  kPiece = 1,        // tensors; 1 for each output that is strings; tensors: runs `piece`
  kElementwise = 2,  // tensors; the same; tensors: `piece`, whose values all have kFlowBlock elements, on every
                     // element of operands that are broadcast to one shape
  kMove = 3,         // values; -; the same values
  kNumber = 4,       // -; n; an i64 scalar
  kTruth = 5,        // -; 0 or 1; a bool scalar
  kCount = 6,        // i64 scalar; -; one more
  kIf = 7,           // bool tensor of one element: runs blocks[0] when true, else blocks[1]
  kWhile = 8,        // limit or -1, condition or -1, count: runs blocks[0] as long as count < limit and the condition
  kSequence = 10,    // tensors of a dtype; its number; a sequence of them
  kInsert = 11,      // sequence, tensor, position or -1: ONNX SequenceInsert, and so on
  kErase = 12,       // sequence, position or -1
  kAt = 13,          // sequence, position
  kLength = 14,      // sequences, which must be of one length; -; an i64 scalar
  kSplit = 15,       // tensor, split or -1; axis, keepdims; a sequence
  kJoin = 16,        // sequence; axis, new_axis, dtype and shape of an element if an empty sequence is legal; a tensor
  kOptional = 17,    // value or -1; -; an optional
  kHasElement = 18,  // value or -1; -; a bool scalar; true for any value that is not an optional
  kGetElement = 19,  // value; -; what is in it; a value that is not an optional itself
  kShape = 20,       // tensor; start, end; i64 list
  kSize = 21,        // tensor; -; i64 scalar
  kSlice = 22,       // tensor, starts, ends, axes or -1, steps or -1; 1: ends beyond the tensor are errors
  kReshape = 23,     // tensor, shape; allowzero
  kSqueeze = 24,     // tensor, axes or -1
  kUnsqueeze = 25,   // tensor, axes
  kTranspose = 26,   // tensor; perm (none: reversed)
  kGather = 27,      // tensor, indices; axis
  kExpand = 28,      // tensor, shape
  kConcat = 29,      // tensors; axis
  kFlatten = 30,     // tensor; axis
  kRange = 31,       // start, limit, delta: scalars of a dtype; -; a list: start, start + delta, ... before limit
  kPad = 32,         // tensor, pads, value or -1, axes or -1; 0 constant, 1 edge, 2 reflect, 3 wrap
  kStringConcat = 40,     // strings, strings; -; strings, broadcast
  kStringSplit = 41,      // strings; delimiter's number, most splits (-1: any); strings, i64 counts
  kStringNormalize = 42,  // strings; 0 as is, 1 lower, 2 upper; case matters; numbers of stop words; strings
  kToString = 43,         // tensor; -; strings
  kFromString = 44,       // strings; dtype; tensor
  kStringRank = 45,       // strings; -; i64 of the same shape: how many different strings of the tensor come before it
  kZipMap = 50,           // f32 [N,C] or [C], keys [C]; -; sequence of maps
  kDictVectorize = 51,    // map, keys; -; [1,C]: the values of the keys, 0 for those it lacks
  kCastMap = 52,          // i64 map; dtype, 1 to fill up, columns; [1,C]: the values by key, or in order of the keys
};

inline constexpr int64_t kFlowBlock = 1024;  // elements that a kElementwise piece computes at once

const char* flow_op_name(FlowOp op);

struct FlowStep;
struct FlowBlock {
  std::vector<FlowStep> steps;
};

struct FlowStep {
  FlowOp op = FlowOp::kMove;
  std::vector<SlotId> inputs, outputs;
  std::vector<int64_t> ints;
  int32_t piece = -1;
  std::vector<FlowBlock> blocks;
  std::string loc;  // "SequenceAt 'node'", for messages
};

struct FlowPort {
  std::string name;
  FlowType type;
  SlotId slot = -1;
};

// Why there is no graph, or no program, of a model for some sizes.
struct SizesRefused {
  Diagnostic diagnostic;
  bool flow_may_do = false;  // the model has a meaning for them
};
using GraphOrRefusal = std::variant<Graph, SizesRefused>;

// Of a piece with dimensions that only a run knows: they are symbols, to which the piece's inputs give values. The
// graph among the flow's pieces is that of one choice of values.
struct OpenPiece {
  std::vector<SymbolRange> symbols = {};
  std::vector<std::vector<int32_t>> inputs;  // of each input's dimensions: the number of a symbol, or -1
  // The piece for other values.
  std::function<GraphOrRefusal(const std::vector<int64_t>& values, Evaluator& evaluator)> at;
};

// Why a reader makes no graph of a model.
struct NoGraph {
  std::string node = {};  // the model's name of the node; empty for the whole model
  std::string reason;     // "Gather needs the extents of %x, f32[n,4], as numbers"

  std::string to_string() const { return node.empty() ? reason : node + ": " + reason; }
};

struct Flow {
  std::string name = "main";
  std::vector<FlowPort> inputs, outputs;
  std::vector<FlowType> slots;
  FlowBlock body;
  std::vector<Graph> pieces;
  std::map<int32_t, OpenPiece> open;  // by the number of the piece
  std::vector<std::string> strings;   // the first is empty
  NoGraph why;                        // of the whole model; the reason is empty in one that no reader made
};

// What a reader makes of a model: a graph, or a flow where a graph cannot say it.
struct ImportedModel {
  Graph graph;                       // without a flow
  std::shared_ptr<const Flow> flow;  // null: the graph is everything
  // Of a model whose named dimensions are to stay open in a range: those; `graph` is that of one choice of values, and
  // `at` reads it again for another (one value for each, in their order).
  std::vector<SymbolRange> symbols = {};
  std::function<GraphOrRefusal(const std::vector<int64_t>& values)> at = nullptr;
  // The same model as a flow whose inputs have these dimensions open, for when no program serves all of the range; why
  // not, when it has no such form.
  std::function<std::variant<ImportedModel, Diagnostic>()> as_flow = nullptr;
  // Of a graph with symbols that a reader made of a model with ranges: the same model in the form above, for when a
  // later step needs fixed sizes.
  std::function<ImportedModel()> at_samples = nullptr;
};

// The model; of one that is a flow, with this reason.
ImportedModel as_flow_because(ImportedModel model, const NoGraph& why);

// In the order in which a module numbers them: each before the steps of its blocks.
std::vector<const FlowStep*> steps_in_order(const FlowBlock& block);

// What breaks the rules above, for messages; empty when nothing does.
std::vector<std::string> verify(const Flow& flow);

// Slots and steps as text, then the pieces.
std::string print(const Flow& flow, bool elide_constants = false);

}  // namespace tessera::inline graph
