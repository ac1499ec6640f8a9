// tessera._native: the compiler and the runtime for Python. Arrays arrive here as what DLPack and the buffer protocol
// can say; tessera/_model.py turns other element types into unsigned integers of their size, and says what they are by
// number.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>

#include "arrays.h"
#include "derivatives.h"
#include "engine.h"
#include "generate.h"
#include "graph.h"
#include "packed.h"
#include "parallel.h"
#include "quantize.h"
#include "schedule.h"
#include "support/error.h"
#include "tessera/aten.h"
#include "tessera/graph.h"
#include "tessera/language_model.h"
#include "train.h"
#include "value.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tessera::python {

namespace {

using Dims = std::map<std::string, std::pair<int64_t, int64_t>>;
using Bounds = std::map<std::string, std::vector<int64_t>>;  // the least, the greatest, and the step
using Shapes = std::map<std::string, std::vector<int64_t>>;

// ---- errors
// ----------------------------------------------------------------------------------------------------------

const char* reason_name(CompileError::Reason reason) {
  switch (reason) {
    case CompileError::Reason::kOther: return "";
    case CompileError::Reason::kOpenSizes: return "open_sizes";
    case CompileError::Reason::kUnsupported: return "unsupported";
  }
  return "";
}

void raise_python(const char* type, const CompileError::Details& details) {
  const nb::object cls = nb::module_::import_("tessera._errors").attr(type);
  const nb::object instance =
      cls(details.message.c_str(), "id"_a = details.id.c_str(), "node"_a = details.node.c_str(),
          "legal"_a = details.legal.c_str(), "hint"_a = details.hint.c_str(), "reason"_a = reason_name(details.reason));
  PyErr_SetObject(cls.ptr(), instance.ptr());
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const CompileError& error) {
    raise_python(error.is_bug() ? "InternalError" : "Error", error.details());
  } catch (const UserError& error) {
    const Diagnostic& d = error.diagnostic();
    raise_python("Error", {.id = d.id, .message = d.message, .node = d.node, .legal = d.legal, .hint = d.hint});
  } catch (const RunError& error) {
    const tessera_error& e = error.error();
    raise_python(e.status == TESSERA_INTERNAL ? "InternalError" : "Error",
                 {.id = e.id, .message = e.message, .node = {}, .legal = {}, .hint = {}});
  }
}

// ---- models
// ----------------------------------------------------------------------------------------------------------

CompileOptions make_options(const std::string& target, const std::string& precision, const std::string& fp32,
                            const std::string& numerics, int opt_level, int threads, const Bounds& dims,
                            const Shapes& shapes, const std::set<std::string>& disabled_passes,
                            const std::vector<std::string>& kernels, const std::vector<std::string>& places,
                            int64_t max_memory, const std::vector<std::string>& layer_precisions = {}) {
  CompileOptions options;
  options.target = target;
  options.precision = precision;
  options.fp32 = fp32;
  options.numerics = numerics;
  options.opt_level = opt_level;
  options.num_threads = threads;
  for (const auto& [name, bounds] : dims) options.dims[name] = {bounds.at(0), bounds.at(1), bounds.at(2)};
  options.shapes = shapes;
  options.disabled_passes = disabled_passes;
  options.kernels = kernels;
  options.places = places;
  options.max_memory = max_memory;
  options.layer_precisions = layer_precisions;
  return options;
}

// Ends a compile before its next step. Set by one thread while another compiles.
struct CancelFlag {
  std::atomic<bool> set = false;
};

// A path, a graph, or the bytes of a model with its folder and name.
class Source {
 public:
  Source(const nb::object& model, std::string folder, std::string name) {
    if (nb::isinstance<nb::str>(model)) {
      is_path_ = true;
      path_ = nb::cast<std::string>(model);
      return;
    }
    if (nb::isinstance<builder::Graph>(model)) {
      graph_ = nb::cast<builder::Graph*>(model);
      object_ = model;
      return;
    }
    bytes_ = nb::cast<nb::bytes>(model);
    model_ = {{bytes_.c_str(), bytes_.size()}, std::move(folder), std::move(name)};
  }

  // The answer of `work`, which gets a path, a graph or a ModelBytes; Python may go on meanwhile.
  template <typename Work>
  auto use(const Work& work) const {
    const nb::gil_scoped_release release;
    if (graph_) return work(*graph_);
    return is_path_ ? work(path_) : work(model_);
  }

 private:
  bool is_path_ = false;
  std::string path_;
  const builder::Graph* graph_ = nullptr;
  nb::object object_;  // keeps the graph
  nb::bytes bytes_;    // keeps what model_ borrows
  ModelBytes model_;
};

std::unique_ptr<Engine> compile(const nb::object& model, const std::string& folder, const std::string& name,
                                const std::string& target, const std::string& precision, const std::string& fp32,
                                const std::string& numerics, int opt_level, int threads, const Bounds& dims,
                                const Shapes& shapes, const std::set<std::string>& disabled_passes,
                                const std::vector<std::string>& kernels, const std::vector<std::string>& places,
                                int64_t max_memory, const std::vector<std::string>& layer_precisions,
                                const std::shared_ptr<CancelFlag>& cancel) {
  CompileOptions options = make_options(target, precision, fp32, numerics, opt_level, threads, dims, shapes,
                                        disabled_passes, kernels, places, max_memory, layer_precisions);
  options.is_cancelled = [cancel] { return cancel->set.load(); };
  return Source(model, folder, name).use([&](const auto& source) {
    return load_module_bytes(compile_to_memory(source, options), threads);
  });
}

void compile_to_file(const nb::object& model, const std::string& folder, const std::string& name,
                     const std::string& path, const std::string& target, const std::string& precision,
                     const std::string& fp32, const std::string& numerics, int opt_level, int threads,
                     const Bounds& dims, const Shapes& shapes, const std::set<std::string>& disabled_passes,
                     const std::vector<std::string>& kernels, const std::vector<std::string>& places,
                     int64_t max_memory, const std::vector<std::string>& layer_precisions,
                     const std::shared_ptr<CancelFlag>& cancel) {
  CompileOptions options = make_options(target, precision, fp32, numerics, opt_level, threads, dims, shapes,
                                        disabled_passes, kernels, places, max_memory, layer_precisions);
  options.is_cancelled = [cancel] { return cancel->set.load(); };
  Source(model, folder, name).use([&](const auto& source) { compile_file(source, path, options); });
}

std::string compile_to_cache(const std::string& path, const std::string& precision, int threads, const Bounds& dims,
                             const std::shared_ptr<CancelFlag>& cancel) {
  CompileOptions options = make_options("native", precision, "fma", "default", 3, threads, dims, {}, {}, {}, {}, 0);
  options.is_cancelled = [cancel] { return cancel->set.load(); };
  const nb::gil_scoped_release release;
  return tessera::compile_to_cache(path, options);
}

std::unique_ptr<Engine> interpret(const nb::object& model, const std::string& folder, const std::string& name,
                                  const Bounds& dims, const Shapes& shapes) {
  const CompileOptions options = make_options("native", "f32", "fma", "default", 0, 1, dims, shapes, {}, {}, {}, 0);
  return Source(model, folder, name).use([&](const auto& source) {
    return make_interpreter(Interpreter(source, options));
  });
}

builder::Graph graph_of(const nb::object& model, const std::string& folder, const std::string& name, const Bounds& dims,
                        const Shapes& shapes) {
  const CompileOptions options = make_options("native", "f32", "fma", "default", 0, 1, dims, shapes, {}, {}, {}, 0);
  return Source(model, folder, name).use([&](const auto& source) {
    if constexpr (std::is_same_v<std::decay_t<decltype(source)>, builder::Graph>) return source;
    else return graph_of_model(source, options);
  });
}

// (name, operator, reason) of each node of a .pt2 program that would not be imported.
std::vector<std::tuple<std::string, std::string, std::string>> refused_aten_nodes(const nb::bytes& program,
                                                                                  const Bounds& dims) {
  const CompileOptions options = make_options("native", "f32", "fma", "default", 0, 1, dims, {}, {}, {}, {}, 0);
  const ModelBytes model{{program.c_str(), program.size()}, "", "the program"};
  const nb::gil_scoped_release release;
  std::vector<std::tuple<std::string, std::string, std::string>> result;
  for (const RefusedNode& node : refused_nodes(model, options))
    result.emplace_back(node.name, node.target, node.reason);
  return result;
}

// (name, dtype number or -1, dims or None, names of the open ones) of each input, and of each output.
nb::tuple border(const nb::object& model, const std::string& folder, const std::string& name) {
  // A graph says the ranges of its own sizes: it never waits for those of inputs.
  const ModelBorder found = Source(model, folder, name).use([](const auto& source) {
    if constexpr (std::is_same_v<std::decay_t<decltype(source)>, builder::Graph>) return ModelBorder{};
    else return read_border(source);
  });
  const auto list = [](const std::vector<ModelTensor>& tensors) {
    nb::list result;
    for (const ModelTensor& tensor : tensors) {
      const nb::object dims = tensor.has_rank ? nb::cast(tensor.dims) : nb::object(nb::none());
      result.append(nb::make_tuple(tensor.name, tensor.dtype, dims, tensor.dim_names));
    }
    return result;
  };
  return nb::make_tuple(list(found.inputs), list(found.outputs));
}

std::unique_ptr<Engine> load(const std::string& path, int threads, const std::string& entry) {
  const nb::gil_scoped_release release;
  return load_module_file(path, entry, threads);
}

// (name, dtype number, dims, wrappers, key): a dim is a number, a symbol's name, or "?" when it is derived from symbols
// or any; dims are None for any rank; wrappers are the kinds of values around the tensors, outermost first.
nb::list describe(const Engine& engine, const std::vector<tessera_value_info>& infos) {
  nb::list result;
  for (const tessera_value_info& info : infos) {
    nb::list dims, wrappers;
    for (int32_t axis = 0; axis < info.rank; ++axis) {
      const int64_t dim = info.dims[axis];
      if (dim >= 0) {
        dims.append(dim);
      } else {
        const auto number = static_cast<size_t>(-(dim + 1));
        dims.append(number < engine.symbols().size() ? engine.symbols()[number].name : "?");
      }
    }
    for (int32_t i = 0; i < info.num_wrappers; ++i) wrappers.append(static_cast<int>(info.wrappers[i]));
    const nb::object shape = info.rank < 0 ? nb::object(nb::none()) : nb::object(nb::tuple(dims));
    result.append(nb::make_tuple(info.name, static_cast<int>(info.dtype), shape, nb::tuple(wrappers),
                                 static_cast<int>(info.key)));
  }
  return result;
}

// ---- running
// ---------------------------------------------------------------------------------------------------------

void run(Engine& engine, const std::vector<InputArray>& inputs, const std::vector<int>& input_dtypes,
         const std::vector<OutputArray>& outputs, const std::vector<int>& output_dtypes) {
  auto in = describe_arrays(inputs, input_dtypes), out = describe_arrays(outputs, output_dtypes);
  const nb::gil_scoped_release release;
  // Packed copies of what Python keeps in whole bytes.
  std::vector<std::unique_ptr<uint8_t[]>> packed;
  const auto replace = [&](tessera_tensor& tensor, size_t count) {
    packed.push_back(std::make_unique<uint8_t[]>(packed_bytes(count, tessera_dtype_bits(tensor.dtype)) + 1));
    tensor.data = packed.back().get();
    return packed.back().get();
  };
  for (size_t i = 0; i < in.size(); ++i) {
    if (!is_packed(in[i].dtype)) continue;
    const auto* elements = static_cast<const uint8_t*>(in[i].data);
    pack(elements, inputs[i].size(), tessera_dtype_bits(in[i].dtype), replace(in[i], inputs[i].size()));
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (is_packed(out[i].dtype)) replace(out[i], outputs[i].size());
  }
  engine.run(in, out);
  for (size_t i = 0; i < out.size(); ++i) {
    if (!is_packed(out[i].dtype)) continue;
    unpack(static_cast<const uint8_t*>(out[i].data), outputs[i].size(), tessera_dtype_bits(out[i].dtype),
           is_packed_signed(out[i].dtype), static_cast<uint8_t*>(outputs[i].data()));
  }
}

// Packed types go through whole bytes, as in `run`.
void read_state(Engine& engine, size_t index, const OutputArray& array, int dtype) {
  tessera_tensor value = describe_arrays(std::vector<OutputArray>{array}, {dtype})[0];
  const nb::gil_scoped_release release;
  if (!is_packed(value.dtype)) return engine.read_state(index, value);
  const int bits = tessera_dtype_bits(value.dtype);
  const auto bytes = std::make_unique<uint8_t[]>(packed_bytes(array.size(), bits) + 1);
  value.data = bytes.get();
  engine.read_state(index, value);
  unpack(bytes.get(), array.size(), bits, is_packed_signed(value.dtype), static_cast<uint8_t*>(array.data()));
}

void write_state(Engine& engine, size_t index, const InputArray& array, int dtype) {
  tessera_tensor value = describe_arrays(std::vector<InputArray>{array}, {dtype})[0];
  const nb::gil_scoped_release release;
  if (!is_packed(value.dtype)) return engine.write_state(index, value);
  const int bits = tessera_dtype_bits(value.dtype);
  const auto bytes = std::make_unique<uint8_t[]>(packed_bytes(array.size(), bits) + 1);
  pack(static_cast<const uint8_t*>(value.data), array.size(), bits, bytes.get());
  value.data = bytes.get();
  engine.write_state(index, value);
}

std::vector<ValuePtr> run_values(Engine& engine, const std::vector<ValuePtr>& inputs) {
  std::vector<const tessera_value*> in;
  for (const ValuePtr& input : inputs) in.push_back(input ? input->view() : nullptr);  // which the run refuses
  std::vector<ResultPtr> results;
  {
    const nb::gil_scoped_release release;
    results = engine.run_values(in);
  }
  std::vector<ValuePtr> values;
  for (ResultPtr& result : results) values.push_back(Value::of_result(std::move(result)));
  return values;
}

std::vector<std::vector<int64_t>> output_shapes(Engine& engine, const std::vector<InputArray>& inputs,
                                                const std::vector<int>& input_dtypes) {
  std::vector<std::vector<int64_t>> shapes;
  for (const tessera_tensor_info& info : engine.outputs_for(describe_arrays(inputs, input_dtypes)))
    shapes.emplace_back(info.dims, info.dims + info.rank);
  return shapes;
}

}  // namespace

}  // namespace tessera::python

NB_MODULE(_native, m) {
  using namespace tessera::python;
  m.doc() = "The compiler and the runtime behind the package tessera; not for direct use.";
  nb::register_exception_translator(translate, nullptr);

  nb::class_<CancelFlag>(m, "CancelFlag", "Ends a compile before its next step.")
      .def(nb::init<>())
      .def("set", [](CancelFlag& flag) { flag.set = true; }, "From another thread than that which compiles.");

  nb::class_<Value>(m, "Value", "A tensor, or a sequence, optional or map of tensors, for a run of values.")
      .def_static("of_array", &Value::of_array, "array"_a, "dtype"_a,
                  nb::sig("def of_array(array: numpy.typing.NDArray, dtype: int) -> Value"),
                  "A tensor of numbers: a C-contiguous array and the number of its dtype.")
      .def_static("of_texts", &Value::of_texts, "texts"_a, "shape"_a,
                  nb::sig("def of_texts(texts: list[str | bytes], shape: Sequence[int]) -> Value"),
                  "A tensor of strings. TypeError for elements that are not text, ValueError for text without UTF-8.")
      .def_static("of_items", &Value::of_items, "kind"_a, "items"_a,
                  "A sequence (1), an optional (2), or a map (3) of its keys and its values.")
      .def_prop_ro("kind", &Value::kind, "0: a tensor, and as for of_items.")
      .def_prop_ro("dtype", &Value::dtype, "The dtype number of a tensor.")
      .def_prop_ro("shape", &Value::shape, "Of a tensor.")
      .def_prop_ro("items", &Value::items, "Of a value that is not a tensor.")
      .def_prop_ro("texts", &Value::texts, nb::sig("def texts(self) -> list[str]"), "Of a tensor of strings.")
      .def("array", &Value::array, nb::sig("def array(self) -> numpy.typing.NDArray"),
           "A result's tensor of numbers, in its own memory.");

  nb::class_<Engine>(m, "Engine", "What runs a model: compiled code or the interpreter.")
      .def_prop_ro(
          "inputs", [](const Engine& engine) { return describe(engine, engine.inputs()); },
          nb::sig("def inputs(self) -> list[tuple[str, int, tuple[int | str, ...] | None, tuple[int, ...], int]]"),
          "Name, dtype number, dims, wrappers and dtype number of keys of each input; a named dim is its name.")
      .def_prop_ro(
          "outputs", [](const Engine& engine) { return describe(engine, engine.outputs()); },
          nb::sig("def outputs(self) -> list[tuple[str, int, tuple[int | str, ...] | None, tuple[int, ...], int]]"),
          "The same of each output.")
      .def_prop_ro("has_values", &Engine::has_values, "Whether run_values runs the model, and it alone.")
      .def_prop_ro(
          "symbols",
          [](const Engine& engine) {
            Dims symbols;
            for (const Symbol& symbol : engine.symbols()) symbols[symbol.name] = {symbol.lo, symbol.hi};
            return symbols;
          },
          "The least and the greatest value of each named dim.")
      .def_prop_ro("num_threads", &Engine::num_threads, "Threads that a run may use.")
      .def_prop_ro("metadata", &Engine::metadata, "What the module says about itself, JSON; empty for the interpreter.")
      .def(
          "contents",
          [](const Engine& engine) {
            const auto bytes = engine.contents();
            return nb::bytes(bytes.data(), bytes.size());
          },
          "The module file; empty for the interpreter.")
      .def("output_shapes", &output_shapes, "inputs"_a, "input_dtypes"_a,
           nb::sig("def output_shapes(self, inputs: list[numpy.typing.NDArray], input_dtypes: list[int]) "
                   "-> list[list[int]]"),
           "The shapes of the outputs for inputs of these shapes.")
      .def("run", &run, "inputs"_a, "input_dtypes"_a, "outputs"_a.noconvert(), "output_dtypes"_a,
           nb::sig("def run(self, inputs: list[numpy.typing.NDArray], input_dtypes: list[int], "
                   "outputs: list[numpy.typing.NDArray], output_dtypes: list[int]) -> None"),
           "Runs once. Arrays are C-contiguous and stand with the numbers of their dtypes.")
      .def_prop_ro(
          "states", [](const Engine& engine) { return describe(engine, engine.states()); },
          nb::sig("def states(self) -> list[tuple[str, int, tuple[int | str, ...] | None, tuple[int, ...], int]]"),
          "The same of each value that lives from run to run.")
      .def("read_state", &read_state, "index"_a, "array"_a.noconvert(), "dtype"_a,
           nb::sig("def read_state(self, index: int, array: numpy.typing.NDArray, dtype: int) -> None"),
           "Copies a state to a C-contiguous array of its type.")
      .def("write_state", &write_state, "index"_a, "array"_a, "dtype"_a,
           nb::sig("def write_state(self, index: int, array: numpy.typing.NDArray, dtype: int) -> None"),
           "Copies a C-contiguous array of its type to a state.")
      .def("set_traced", &Engine::set_traced, "on"_a, "Whether later runs note their kernels.")
      .def(
          "take_events",
          [](Engine& engine) {
            std::vector<std::tuple<int, int64_t, int64_t, int64_t>> events;
            for (const KernelEvent& event : engine.take_events())
              events.emplace_back(event.kernel, event.begin, event.end, event.thread);
            return events;
          },
          nb::sig("def take_events(self) -> list[tuple[int, int, int, int]]"),
          "What they have noted: number of the kernel, begin and end in nanoseconds, thread.")
      .def("reset_states", &Engine::reset_states, "Initial values again.")
      .def("share_states", &Engine::share_states, "owner"_a, nb::keep_alive<1, 2>(),
           nb::call_guard<nb::gil_scoped_release>(), "States become those of another engine that have their names.")
      .def_prop_ro("entries", &Engine::entries, "The modules in the file that this one was loaded from.")
      .def("cancel", &Engine::cancel, "Ends the runs in progress, if it is the interpreter that runs.")
      .def("run_values", &run_values, "inputs"_a, "Runs once, and gives what a model with values makes.");

  m.def("compile", &compile, "model"_a, "folder"_a, "name"_a, "target"_a, "precision"_a, "fp32"_a, "numerics"_a,
        "opt_level"_a, "threads"_a, "dims"_a, "shapes"_a, "disabled_passes"_a, "kernels"_a, "places"_a, "max_memory"_a,
        "layer_precisions"_a, "cancel"_a, "Compiles a path or the bytes of a model, and loads the module.");
  m.def("compile_to_cache", &compile_to_cache, "path"_a, "precision"_a, "threads"_a, "dims"_a, "cancel"_a,
        "The module in the cache that the model compiled so is; '' without a cache.");
  m.def("compile_to_file", &compile_to_file, "model"_a, "folder"_a, "name"_a, "path"_a, "target"_a, "precision"_a,
        "fp32"_a, "numerics"_a, "opt_level"_a, "threads"_a, "dims"_a, "shapes"_a, "disabled_passes"_a, "kernels"_a,
        "places"_a, "max_memory"_a, "layer_precisions"_a, "cancel"_a, "Compiles to a module file.");
  m.def("refused_aten_nodes", &refused_aten_nodes, "program"_a, "dims"_a,
        "Name, operator and reason of each node of a .pt2 program that would not be imported.");
  m.def("aten_operators", &tessera::aten_operators,
        "The operators of .pt2 programs that are read in some form: 'aten.add'.");
  m.def("border", &border, "model"_a, "folder"_a, "name"_a,
        nb::sig("def border(model: object, folder: str, name: str) -> tuple[list[tuple[str, int, list[int] | None, "
                "list[str]]], list[tuple[str, int, list[int] | None, list[str]]]]"),
        "What a model declares: name, dtype number (-1: no tensor), dims (-1: open) and names of open dims of each "
        "input, and of each output.");
  m.def("interpret", &interpret, "model"_a, "folder"_a, "name"_a, "dims"_a, "shapes"_a,
        "The interpreter for a path or the bytes of a model.");
  m.def("graph_of_model", &graph_of, "model"_a, "folder"_a, "name"_a, "dims"_a, "shapes"_a,
        nb::sig("def graph_of_model(model: object, folder: str, name: str, dims: Mapping[str, Sequence[int]], "
                "shapes: Mapping[str, Sequence[int]]) -> Graph"),
        "A model as a graph.");
  m.def(
      "language_model_metadata",
      [](const std::string& path) {
        const nb::gil_scoped_release release;
        return tessera::language_model_metadata(path);
      },
      "path"_a, "The metadata of a GGUF file as JSON.");
  m.def("load", &load, "path"_a, "threads"_a, "entry"_a, "Loads a module file, or a module of a bundle.");
  add_graph(m);
  add_derivatives(m);
  add_schedule(m);
  add_generate(m);
  add_quantize(m);
  add_train(m);
  add_parallel(m);
  m.def("version", [] { return std::string(tessera::compiler_version()); }, "The compiler's version.");
  m.def(
      "dtype_name", [](int dtype) { return std::string(tessera_dtype_name(static_cast<tessera_dtype>(dtype))); },
      "dtype"_a, "The short name of a dtype number.");
}
