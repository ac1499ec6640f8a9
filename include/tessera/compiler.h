// Tessera's compile-time C++ API: a model in, a module out, which is run with tessera.h; and the reference interpreter,
// which runs a model without compiling it.
//
// Thread safety: every function may be called from several threads at once; nothing that one call does shows in
// another. Errors: CompileError. Nothing is printed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tessera.h"

namespace tessera::builder {
class Graph;  // graph.h
}

namespace tessera {

// The values that a dimension may take: lo, lo + step, ..., up to hi.
struct DimBounds {
  int64_t lo = 1, hi = 1;
  int64_t step = 1;
};

struct CompileOptions {
  int opt_level = 3;  // 0..3
  // "native", "x86-64-v2", "x86-64-v3", "x86-64-v4", or "TRIPLE[,cpu=NAME][,+feature][,-feature]..."
  std::string target = "native";
  int num_threads = 0;  // that loops are cut for; 0: as many as a session here would use
  // What convolutions and products with weights read is rounded to this: "f32" (nothing is), "bf16", "f16". Sums and
  // all else stay in f32.
  std::string precision = "f32";
  // Layers that have another precision: a pattern of names (`*`, `?`) and f32, bf16, f16 or i8 each, "Conv_0 f32"; the
  // last one that matches decides. CompileError TSR-4088 for others, and for names that no layer has.
  std::vector<std::string> layer_precisions = {};
  // How products of f32 with weights are computed: "fma", by multiply-adds; "pieces", as six products of three pieces
  // of bf16 (needs AVX512-BF16 or AMX); "auto", as pieces where the target has AMX, and else as "fma".
  std::string fp32 = "fma";
  // What may happen to the bits of results: "default", whatever is faster; "strict", steps of the compiler that keep
  // them alone; "deterministic", the same bits on every machine and for every number of threads (docs/numerics.md).
  std::string numerics = "default";
  // Further targets of the same architecture that the module gets code for, "x86-64-v2"; a runtime takes the best one
  // that its machine can run. Layouts, tiles and weights are those that suit `target` (docs/cli.md).
  std::vector<std::string> variants = {};
  // Values for dimensions that the model leaves open: by the dimension's name, or by the input's name.
  std::map<std::string, DimBounds> dims = {};
  std::map<std::string, std::vector<int64_t>> shapes = {};
  // Files that declare kernels of one's own, or of a library's (docs/kernels.md): C functions that kernels of the model
  // call instead of our code where they match and are faster.
  std::vector<std::string> kernels = {};
  // Which kernels run on a device beside the host, "PATTERN=DEVICE" each, the first that fits: of the nodes whose names
  // match the pattern (`*`, `?`, `[...]`). Models of fixed sizes alone (docs/devices.md).
  std::vector<std::string> places = {};
  // Bytes that a session may take for what it computes and for states; values that do not fit are computed again when
  // they are needed, with the same bits. Held to 5 percent, or CompileError TSR-4081. 0: any.
  int64_t max_memory = 0;
  // Passes and schedule rules to leave out, by name; for looking for faults. `tessera opt --list-passes` lists passes.
  std::set<std::string> disabled_passes = {};
  // Asked before every step, from the thread that compiles; true ends the compile with CompileError TSR-5111. May be
  // null.
  std::function<bool()> is_cancelled = {};
};

// What went wrong. what() is the whole text.
class CompileError : public std::runtime_error {
 public:
  // What a program may decide on.
  enum class Reason : uint8_t {
    kOther,
    kOpenSizes,    // the model leaves sizes open: it can be compiled with values for them
    kUnsupported,  // it is a model, and uses what is not supported: operators, types, opsets
  };
  struct Details {
    std::string id;       // stable, "TSR-1040"; docs/errors.md lists them. Empty for a bug of ours.
    std::string message;  // what was found
    std::string node;     // the model's own name of the node, may be empty
    std::string legal;    // what would be legal, may be empty
    std::string hint;     // what to do, may be empty
    Reason reason = Reason::kOther;
  };
  CompileError(const std::string& text, Details details) : std::runtime_error(text), details_(std::move(details)) {}
  const Details& details() const { return details_; }
  // False when the model, the options or the machine are at fault.
  bool is_bug() const { return details_.id.empty(); }

 private:
  Details details_;
};

// Compiles the model at `model_path` (ONNX, or a graph as text) to a module file at `module_path`, which appears whole
// or not at all and is not one of the model's own files (TSR-4062).
void compile_file(const std::string& model_path, const std::string& module_path, const CompileOptions& options = {});

// The same with the module in memory, ready for tessera_module_load_memory or to be written to a file.
std::vector<std::byte> compile_to_memory(const std::string& model_path, const CompileOptions& options = {});

// A model in memory.
struct ModelBytes {
  std::string_view bytes;      // a serialised ModelProto, or the text of a graph; not kept
  std::string folder;          // external data is read from here, and only from here; empty: there may be none
  std::string name = "model";  // that the module gets, and that messages use
};
void compile_file(const ModelBytes& model, const std::string& module_path, const CompileOptions& options = {});
std::vector<std::byte> compile_to_memory(const ModelBytes& model, const CompileOptions& options = {});

// The same of a graph that the program built (tessera/graph.h). Its symbols without a value in `options.dims` stay open
// in their range; the interpreter needs a value for each. TSR-2069 for a graph without outputs.
void compile_file(const builder::Graph& graph, const std::string& module_path, const CompileOptions& options = {});
std::vector<std::byte> compile_to_memory(const builder::Graph& graph, const CompileOptions& options = {});

// A model as a graph, whatever it was written as, so that tessera/derivatives.h works on it. Of the options only `dims`
// and `shapes` matter. CompileError TSR-1025 for a range of sizes at which the model is read one by one, TSR-1046 for a
// model that is no graph.
builder::Graph graph_of_model(const std::string& model_path, const CompileOptions& options = {});
builder::Graph graph_of_model(const ModelBytes& model, const CompileOptions& options = {});

// What an ONNX model declares at its border, before anything is compiled: for choosing the sizes that it leaves open.
struct ModelTensor {
  std::string name;
  int32_t dtype = -1;  // tessera_dtype; < 0: no tensor, or of a type that is not supported
  bool has_rank = false;
  std::vector<int64_t> dims;           // < 0: open
  std::vector<std::string> dim_names;  // of each dimension, as CompileOptions::dims calls it; "" where it is fixed
};
struct ModelBorder {
  std::vector<ModelTensor> inputs;  // those that a caller provides
  std::vector<ModelTensor> outputs;
};
// Reads no weights. CompileError TSR-1002 when the file is not an ONNX model.
ModelBorder read_border(const std::string& model_path);
ModelBorder read_border(const ModelBytes& model);

// A model run by the reference interpreter: slow and obvious, to compare compiled code with. Of the options only `dims`
// and `shapes` matter. One thread at a time.
class Interpreter {
 public:
  explicit Interpreter(const std::string& model_path, const CompileOptions& options = {});
  explicit Interpreter(const ModelBytes& model, const CompileOptions& options = {});
  explicit Interpreter(const builder::Graph& graph, const CompileOptions& options = {});
  ~Interpreter();
  Interpreter(Interpreter&& other) noexcept;
  Interpreter& operator=(Interpreter&& other) noexcept;

  // Whether the model has strings, sequences, optionals or maps, or shapes that only a run knows: run_values runs it.
  bool has_values() const;
  // In the model's order. Names live as long as the interpreter. None for a model that has values.
  const std::vector<tessera_tensor_info>& inputs() const;
  const std::vector<tessera_tensor_info>& outputs() const;
  // The same as values, for every model.
  const std::vector<tessera_value_info>& input_values() const;
  const std::vector<tessera_value_info>& output_values() const;
  // Inputs and outputs in the model's order; dtype and dims of each are checked, the data of every output is written.
  // CompileError TSR-7043 for a model that has values.
  void run(const std::vector<tessera_tensor>& inputs, const std::vector<tessera_tensor>& outputs);
  // Every model: inputs in the model's order, which are checked and copied; the outputs, which share memory with
  // nothing.
  std::vector<std::shared_ptr<const tessera_value>> run_values(const std::vector<const tessera_value*>& inputs);
  // Values that live from run to run: what they are, the value of one, which is copied to or from `value`, and their
  // initial values again. CompileError TSR-6302, TSR-6303 where `value` is of another type.
  const std::vector<tessera_tensor_info>& states() const;
  void read_state(size_t index, const tessera_tensor& value) const;
  void write_state(size_t index, const tessera_tensor& value);
  void reset_states();
  // Ends a run in progress after its current node, with CompileError TSR-5111 there. Any thread may call it.
  void cancel();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// "0.1.0"
std::string_view compiler_version();

}  // namespace tessera
