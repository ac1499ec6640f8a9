"""
The compiler and the runtime behind the package tessera; not for direct use.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Annotated

import numpy
import numpy.typing
from numpy.typing import NDArray


class CancelFlag:
    """Ends a compile before its next step."""

    def __init__(self) -> None: ...

    def set(self) -> None:
        """From another thread than that which compiles."""

class Value:
    """
    A tensor, or a sequence, optional or map of tensors, for a run of values.
    """

    @staticmethod
    def of_array(array: numpy.typing.NDArray, dtype: int) -> Value:
        """A tensor of numbers: a C-contiguous array and the number of its dtype."""

    @staticmethod
    def of_texts(texts: list[str | bytes], shape: Sequence[int]) -> Value:
        """
        A tensor of strings. TypeError for elements that are not text, ValueError for text without UTF-8.
        """

    @staticmethod
    def of_items(kind: int, items: Sequence[Value]) -> Value:
        """
        A sequence (1), an optional (2), or a map (3) of its keys and its values.
        """

    @property
    def kind(self) -> int:
        """0: a tensor, and as for of_items."""

    @property
    def dtype(self) -> int:
        """The dtype number of a tensor."""

    @property
    def shape(self) -> list[int]:
        """Of a tensor."""

    @property
    def items(self) -> list[Value]:
        """Of a value that is not a tensor."""

    @property
    def texts(self) -> list[str]:
        """Of a tensor of strings."""

    def array(self) -> numpy.typing.NDArray:
        """A result's tensor of numbers, in its own memory."""

class Engine:
    """What runs a model: compiled code or the interpreter."""

    @property
    def inputs(self) -> list[tuple[str, int, tuple[int | str, ...] | None, tuple[int, ...], int]]:
        """
        Name, dtype number, dims, wrappers and dtype number of keys of each input; a named dim is its name.
        """

    @property
    def outputs(self) -> list[tuple[str, int, tuple[int | str, ...] | None, tuple[int, ...], int]]:
        """The same of each output."""

    @property
    def has_values(self) -> bool:
        """Whether run_values runs the model, and it alone."""

    @property
    def symbols(self) -> dict[str, tuple[int, int]]:
        """The least and the greatest value of each named dim."""

    @property
    def num_threads(self) -> int:
        """Threads that a run may use."""

    @property
    def metadata(self) -> str:
        """What the module says about itself, JSON; empty for the interpreter."""

    def contents(self) -> bytes:
        """The module file; empty for the interpreter."""

    def output_shapes(self, inputs: list[numpy.typing.NDArray], input_dtypes: list[int]) -> list[list[int]]:
        """The shapes of the outputs for inputs of these shapes."""

    def run(self, inputs: list[numpy.typing.NDArray], input_dtypes: list[int], outputs: list[numpy.typing.NDArray], output_dtypes: list[int]) -> None:
        """
        Runs once. Arrays are C-contiguous and stand with the numbers of their dtypes.
        """

    @property
    def states(self) -> list[tuple[str, int, tuple[int | str, ...] | None, tuple[int, ...], int]]:
        """The same of each value that lives from run to run."""

    def read_state(self, index: int, array: numpy.typing.NDArray, dtype: int) -> None:
        """Copies a state to a C-contiguous array of its type."""

    def write_state(self, index: int, array: numpy.typing.NDArray, dtype: int) -> None:
        """Copies a C-contiguous array of its type to a state."""

    def set_traced(self, on: bool) -> None:
        """Whether later runs note their kernels."""

    def take_events(self) -> list[tuple[int, int, int, int]]:
        """
        What they have noted: number of the kernel, begin and end in nanoseconds, thread.
        """

    def reset_states(self) -> None:
        """Initial values again."""

    def share_states(self, owner: Engine) -> None:
        """States become those of another engine that have their names."""

    @property
    def entries(self) -> list[str]:
        """The modules in the file that this one was loaded from."""

    def cancel(self) -> None:
        """Ends the runs in progress, if it is the interpreter that runs."""

    def run_values(self, inputs: Sequence[Value]) -> list[Value]:
        """Runs once, and gives what a model with values makes."""

def compile(model: object, folder: str, name: str, target: str, precision: str, fp32: str, numerics: str, opt_level: int, threads: int, dims: Mapping[str, Sequence[int]], shapes: Mapping[str, Sequence[int]], disabled_passes: Set[str], kernels: Sequence[str], places: Sequence[str], max_memory: int, layer_precisions: Sequence[str], cancel: CancelFlag) -> Engine:
    """Compiles a path or the bytes of a model, and loads the module."""

def compile_to_cache(path: str, precision: str, threads: int, dims: Mapping[str, Sequence[int]], cancel: CancelFlag) -> str:
    """
    The module in the cache that the model compiled so is; '' without a cache.
    """

def compile_to_file(model: object, folder: str, name: str, path: str, target: str, precision: str, fp32: str, numerics: str, opt_level: int, threads: int, dims: Mapping[str, Sequence[int]], shapes: Mapping[str, Sequence[int]], disabled_passes: Set[str], kernels: Sequence[str], places: Sequence[str], max_memory: int, layer_precisions: Sequence[str], cancel: CancelFlag) -> None:
    """Compiles to a module file."""

def refused_aten_nodes(program: bytes, dims: Mapping[str, Sequence[int]]) -> list[tuple[str, str, str]]:
    """
    Name, operator and reason of each node of a .pt2 program that would not be imported.
    """

def aten_operators() -> list[str]:
    """The operators of .pt2 programs that are read in some form: 'aten.add'."""

def border(model: object, folder: str, name: str) -> tuple[list[tuple[str, int, list[int] | None, list[str]]], list[tuple[str, int, list[int] | None, list[str]]]]:
    """
    What a model declares: name, dtype number (-1: no tensor), dims (-1: open) and names of open dims of each input, and of each output.
    """

def interpret(model: object, folder: str, name: str, dims: Mapping[str, Sequence[int]], shapes: Mapping[str, Sequence[int]]) -> Engine:
    """The interpreter for a path or the bytes of a model."""

def graph_of_model(model: object, folder: str, name: str, dims: Mapping[str, Sequence[int]], shapes: Mapping[str, Sequence[int]]) -> Graph:
    """A model as a graph."""

def language_model_metadata(path: str) -> str:
    """The metadata of a GGUF file as JSON."""

def load(path: str, threads: int, entry: str) -> Engine:
    """Loads a module file, or a module of a bundle."""

class GraphValue:
    """A value of a graph."""

    @property
    def name(self) -> str:
        """Unique in the graph."""

    @property
    def dtype(self) -> int:
        """Its number."""

    @property
    def dims(self) -> list[str]:
        """Numbers and expressions of symbols as text."""

    @property
    def type(self) -> str:
        """The type as graph texts write it."""

class Graph:
    """A graph that is built operator by operator."""

    def __init__(self, name: str) -> None: ...

    @staticmethod
    def from_text(text: str, file: str) -> Graph:
        """The graph of a text."""

    def symbol(self, name: str, lo: int, hi: int, step: int) -> None:
        """Declares a named dimension."""

    def input(self, name: str, type: str) -> GraphValue:
        """An input of a type in text form."""

    def constant(self, array: numpy.typing.NDArray, dtype: int, name: str) -> GraphValue:
        """A copy of a C-contiguous array with the number of its dtype."""

    def scalar(self, value: float, dtype: int, name: str) -> GraphValue:
        """One element without dimensions."""

    def ops(self, kind: str, operands: Sequence[GraphValue], attributes: dict[str, object], name: str) -> list[GraphValue]:
        """An operator's results."""

    def composite(self, kind: str, body: Graph, operands: Sequence[GraphValue], attributes: dict[str, object], name: str) -> list[GraphValue]:
        """An operator of one's own."""

    def branch(self, condition: GraphValue, then: Graph, otherwise: Graph, operands: Sequence[GraphValue], name: str) -> list[GraphValue]:
        """One of two bodies."""

    def loop(self, body: Graph, operands: Sequence[GraphValue], attributes: dict[str, object], name: str) -> list[GraphValue]:
        """A body again and again."""

    def state(self, name: str, dtype: int, dims: Sequence[int]) -> GraphValue:
        """A value that lives from call to call, zeros at first."""

    def initialised_state(self, name: str, initial: numpy.typing.NDArray, dtype: int) -> GraphValue:
        """
        One that begins as a copy of a C-contiguous array with the number of its dtype.
        """

    def bind_size(self, symbol: str, count: GraphValue, bound: str, name: str) -> GraphValue:
        """Declares a dimension that data decide, and gives it its value."""

    def assign(self, state: GraphValue, value: GraphValue) -> None:
        """What a state is after the call."""

    def output(self, name: str, value: GraphValue) -> None:
        """The next output."""

    @property
    def name(self) -> str:
        """The name that modules get."""

    @property
    def inputs(self) -> list[GraphValue]:
        """In order."""

    @property
    def outputs(self) -> list[GraphValue]:
        """In order."""

    def text(self, elide_constants: bool) -> str:
        """The graph as text."""

    def hash(self) -> str:
        """Of what the graph computes."""

def operators() -> list[tuple[str, str, int, int, list[tuple[str, str, bool, str]], bool, str]]:
    """
    Name, sentence, least and most operands, attributes, whether it is made of others, and an example of each.
    """

def grad(graph: Graph, output: str, wrt: Sequence[str]) -> Graph:
    """The gradients alone."""

def value_and_grad(graph: Graph, output: str, wrt: Sequence[str]) -> Graph:
    """The graph's own outputs, then the gradients."""

def vjp(graph: Graph, wrt: Sequence[str]) -> Graph:
    """Cotangents to gradients."""

def jvp(graph: Graph, wrt: Sequence[str]) -> Graph:
    """Tangents of inputs to tangents of outputs."""

def jacobian(graph: Graph, output: str, wrt: Sequence[str], mode: str) -> Graph:
    """Derivatives of an output, as tensors."""

def hessian(graph: Graph, output: str, wrt: Sequence[str]) -> Graph:
    """Second derivatives, as tensors."""

def hvp(graph: Graph, output: str, wrt: Sequence[str]) -> Graph:
    """Gradients, and second derivatives along a direction."""

def add_graph(graph: Graph, part: Graph, operands: Sequence[GraphValue]) -> list[GraphValue]:
    """Adds what another graph computes of these values; its outputs."""

def pieces(graph: Graph) -> tuple[list[tuple[Graph, list[int], list[int]]], list[int], list[int]]:
    """
    Each node as a graph with the numbers of its operands and results; the numbers of inputs and outputs.
    """

class LoopSchedule:
    """A loop program and its schedule."""

    def __init__(self, loops: str, target: str, threads: int, kernel: str, intrinsics: str, intrinsics_file: str) -> None:
        """The text of loop programs, and where one of them is to run."""

    def apply(self, steps: str) -> tuple[list[str], list[int]]:
        """Lines of a schedule; names and numbers that the last of them makes."""

    def emit(self, level: str) -> str:
        """The program at a level."""

    @property
    def loops(self) -> list[str]:
        """Names of the loops, in the order of the text."""

    @property
    def buffers(self) -> list[str]:
        """Names of parameters and allocations."""

    def check(self) -> list[tuple[str, str, str, bool]]:
        """
        Output, what was compared, its result in words, and whether they agree.
        """

    def time(self, seconds: float, with_original: bool) -> tuple[float, float, float, float]:
        """
        Milliseconds of the original and of the scheduled program, GFLOP/s, and the machine's.
        """

    @property
    def inputs(self) -> list[tuple[str, int, tuple[int, ...]]]:
        """Name, dtype number and shape of each."""

    @property
    def outputs(self) -> list[tuple[str, int, tuple[int, ...]]]:
        """The same of each output."""

    def run(self, inputs: list[numpy.typing.NDArray], input_dtypes: list[int], outputs: list[numpy.typing.NDArray], output_dtypes: list[int]) -> None:
        """
        Runs once. Arrays are C-contiguous and stand with the numbers of their dtypes.
        """

class KeyValueCache:
    """Keys and values of the tokens that were read of a sequence."""

    @property
    def tokens(self) -> list[int]:
        """These tokens."""

    @property
    def bytes_per_token(self) -> int:
        """The memory that each of them takes."""

    def shared_prefix(self, tokens: Sequence[int]) -> int:
        """With how many of its tokens others begin."""

    def truncate(self, count: int) -> None:
        """Forgets all tokens but the first `count`."""

class LanguageModel:
    """A compiled language model."""

    @property
    def context(self) -> int: ...

    @property
    def sequences(self) -> int: ...

    @property
    def vocabulary(self) -> int: ...

    @property
    def num_threads(self) -> int: ...

    @property
    def chunk(self) -> int: ...

    @chunk.setter
    def chunk(self, arg: int, /) -> None: ...

    def new_cache(self) -> KeyValueCache: ...

    def together(self, pieces: Sequence[tuple[Sequence[int], KeyValueCache, int]]) -> list[NDArray[numpy.float32]]:
        """One run for several sequences."""

    def all_tokens(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int | None], max_tokens: int, temperature: float, top_k: int, top_p: float, ends: Set[int], lookup: int) -> list[list[int]]:
        """The tokens that follow each of several prompts."""

class Generation:
    """An answer on its way."""

    def __init__(self, model: LanguageModel, cache: KeyValueCache, prompt: Sequence[int], max_tokens: int, temperature: float, top_k: int, top_p: float, seed: int | None, ends: Set[int], lookup: int) -> None: ...

    @property
    def done(self) -> bool:
        """Whether nothing follows any more."""

def step(model: LanguageModel, generations: Sequence[Generation], most: int = 0) -> list[list[int]]:
    """
    One run, which reads a piece of each, at most `most` tokens of a prompt. The tokens that are decided of each.
    """

def load_language_model(path: str, threads: int, context: int) -> LanguageModel:
    """Loads a module file."""

def load_language_model_bytes(module: bytes, threads: int, context: int) -> LanguageModel:
    """Loads a module."""

class Tokenizer:
    """Text as the tokens of a language model."""

    def encode(self, text: str, *, begin: bool = True) -> list[int]:
        """
        The tokens of a text; `begin` puts the token in front that the model may want there.
        """

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without those that stand for no text."""

class Detokenizer:
    """The text of tokens that come one after another."""

    def __init__(self, tokenizer: Tokenizer) -> None: ...

    def add(self, token: int) -> str:
        """What there is to say now; nothing while a character is not complete."""

    def rest(self) -> str:
        """What an end in the middle of a character leaves."""

class LanguageModelFile:
    """What a model's file says beside its weights."""

    def __init__(self, path: str) -> None: ...

    @property
    def context(self) -> int:
        """The most tokens that the model was trained for."""

    @property
    def ends(self) -> set[int]:
        """Tokens that end an answer."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def chat_template(self) -> str | None:
        """A Jinja template, or None."""

    @property
    def begin_text(self) -> str:
        """The text of the token that begins a text."""

    @property
    def end_text(self) -> str:
        """The text of the token that ends one."""

class QuantizeSettings:
    """
    How a model is quantised; include/tessera/quantize.h says what each is.
    """

    def __init__(self) -> None: ...

    @property
    def scheme(self) -> str: ...

    @scheme.setter
    def scheme(self, arg: str, /) -> None: ...

    @property
    def method(self) -> str: ...

    @method.setter
    def method(self, arg: str, /) -> None: ...

    @property
    def activations(self) -> str: ...

    @activations.setter
    def activations(self, arg: str, /) -> None: ...

    @property
    def granularity(self) -> str: ...

    @granularity.setter
    def granularity(self, arg: str, /) -> None: ...

    @property
    def bits(self) -> int: ...

    @bits.setter
    def bits(self, arg: int, /) -> None: ...

    @property
    def group(self) -> int: ...

    @group.setter
    def group(self, arg: int, /) -> None: ...

    @property
    def zero_points(self) -> bool: ...

    @zero_points.setter
    def zero_points(self, arg: bool, /) -> None: ...

    @property
    def percentile(self) -> float: ...

    @percentile.setter
    def percentile(self, arg: float, /) -> None: ...

    @property
    def keep(self) -> list[str]: ...

    @keep.setter
    def keep(self, arg: Sequence[str], /) -> None: ...

    @property
    def per_layer(self) -> str: ...

    @per_layer.setter
    def per_layer(self, arg: str, /) -> None: ...

    @property
    def per_layer_source(self) -> str: ...

    @per_layer_source.setter
    def per_layer_source(self, arg: str, /) -> None: ...

    @property
    def all(self) -> bool: ...

    @all.setter
    def all(self, arg: bool, /) -> None: ...

    @property
    def equalize(self) -> bool: ...

    @equalize.setter
    def equalize(self, arg: bool, /) -> None: ...

    @property
    def ada_round(self) -> bool: ...

    @ada_round.setter
    def ada_round(self, arg: bool, /) -> None: ...

    @property
    def correct_bias(self) -> bool: ...

    @correct_bias.setter
    def correct_bias(self, arg: bool, /) -> None: ...

    @property
    def sensitivity(self) -> bool: ...

    @sensitivity.setter
    def sensitivity(self, arg: bool, /) -> None: ...

    @property
    def max_drop(self) -> float: ...

    @max_drop.setter
    def max_drop(self, arg: float, /) -> None: ...

    @property
    def min_sqnr(self) -> float: ...

    @min_sqnr.setter
    def min_sqnr(self, arg: float, /) -> None: ...

    @property
    def min_speedup(self) -> float: ...

    @min_speedup.setter
    def min_speedup(self, arg: float, /) -> None: ...

def quantize(model: str, output: str, settings: QuantizeSettings, sample: Callable, count: int, target: str, threads: int, dims: Mapping[str, Sequence[int]], shapes: Mapping[str, Sequence[int]], labels: Sequence[int]) -> str:
    """Quantises a model file, and returns the report as JSON."""

class TrainSettings:
    """How a model is trained; include/tessera/train.h says what each is."""

    def __init__(self) -> None: ...

    @property
    def loss(self) -> str: ...

    @loss.setter
    def loss(self, arg: str, /) -> None: ...

    @property
    def label_smoothing(self) -> float: ...

    @label_smoothing.setter
    def label_smoothing(self, arg: float, /) -> None: ...

    @property
    def ignored(self) -> int | None: ...

    @ignored.setter
    def ignored(self, arg: int | None, /) -> None: ...

    @property
    def classes_last(self) -> bool: ...

    @classes_last.setter
    def classes_last(self, arg: bool, /) -> None: ...

    @property
    def optimizer(self) -> str: ...

    @optimizer.setter
    def optimizer(self, arg: str, /) -> None: ...

    @property
    def rate(self) -> float: ...

    @rate.setter
    def rate(self, arg: float, /) -> None: ...

    @property
    def schedule(self) -> str: ...

    @schedule.setter
    def schedule(self, arg: str, /) -> None: ...

    @property
    def warmup(self) -> int: ...

    @warmup.setter
    def warmup(self, arg: int, /) -> None: ...

    @property
    def momentum(self) -> float: ...

    @momentum.setter
    def momentum(self, arg: float, /) -> None: ...

    @property
    def nesterov(self) -> bool: ...

    @nesterov.setter
    def nesterov(self, arg: bool, /) -> None: ...

    @property
    def weight_decay(self) -> float: ...

    @weight_decay.setter
    def weight_decay(self, arg: float, /) -> None: ...

    @property
    def clip_norm(self) -> float: ...

    @clip_norm.setter
    def clip_norm(self, arg: float, /) -> None: ...

    @property
    def frozen(self) -> list[str]: ...

    @frozen.setter
    def frozen(self, arg: Sequence[str], /) -> None: ...

    @property
    def epochs(self) -> int: ...

    @epochs.setter
    def epochs(self, arg: int, /) -> None: ...

    @property
    def batch(self) -> int: ...

    @batch.setter
    def batch(self, arg: int, /) -> None: ...

    @property
    def seed(self) -> int: ...

    @seed.setter
    def seed(self, arg: int, /) -> None: ...

    @property
    def in_order(self) -> bool: ...

    @in_order.setter
    def in_order(self, arg: bool, /) -> None: ...

    @property
    def leaves(self) -> int: ...

    @leaves.setter
    def leaves(self, arg: int, /) -> None: ...

    @property
    def zero(self) -> int: ...

    @zero.setter
    def zero(self, arg: int, /) -> None: ...

    @property
    def products(self) -> str: ...

    @products.setter
    def products(self, arg: str, /) -> None: ...

    @property
    def loss_scale(self) -> float: ...

    @loss_scale.setter
    def loss_scale(self, arg: float, /) -> None: ...

    @property
    def teacher(self) -> str: ...

    @teacher.setter
    def teacher(self, arg: str, /) -> None: ...

    @property
    def distill_weight(self) -> float: ...

    @distill_weight.setter
    def distill_weight(self, arg: float, /) -> None: ...

    @property
    def temperature(self) -> float: ...

    @temperature.setter
    def temperature(self, arg: float, /) -> None: ...

    @property
    def features(self) -> list[tuple[str, str]]: ...

    @features.setter
    def features(self, arg: Sequence[tuple[str, str]], /) -> None: ...

    @property
    def feature_weight(self) -> float: ...

    @feature_weight.setter
    def feature_weight(self, arg: float, /) -> None: ...

    @property
    def prune(self) -> str: ...

    @prune.setter
    def prune(self, arg: str, /) -> None: ...

    @property
    def importance(self) -> str: ...

    @importance.setter
    def importance(self, arg: str, /) -> None: ...

    @property
    def qat(self) -> bool: ...

    @qat.setter
    def qat(self, arg: bool, /) -> None: ...

    @property
    def qat_bits(self) -> int: ...

    @qat_bits.setter
    def qat_bits(self, arg: int, /) -> None: ...

    @property
    def with_step(self) -> bool: ...

    @with_step.setter
    def with_step(self, arg: bool, /) -> None: ...

    @property
    def checkpoint(self) -> str: ...

    @checkpoint.setter
    def checkpoint(self, arg: str, /) -> None: ...

    @property
    def checkpoint_steps(self) -> int: ...

    @checkpoint_steps.setter
    def checkpoint_steps(self, arg: int, /) -> None: ...

    @property
    def resume(self) -> str: ...

    @resume.setter
    def resume(self, arg: str, /) -> None: ...

    @property
    def step(self) -> str: ...

    @step.setter
    def step(self, arg: str, /) -> None: ...

class PipelineSettings:
    """The stages that processes are; include/tessera/train.h."""

    def __init__(self) -> None: ...

    @property
    def stages(self) -> int: ...

    @stages.setter
    def stages(self, arg: int, /) -> None: ...

    @property
    def micro_batches(self) -> int: ...

    @micro_batches.setter
    def micro_batches(self, arg: int, /) -> None: ...

    @property
    def kind(self) -> str: ...

    @kind.setter
    def kind(self, arg: str, /) -> None: ...

    @property
    def chunks(self) -> int: ...

    @chunks.setter
    def chunks(self, arg: int, /) -> None: ...

    @property
    def tensor(self) -> int: ...

    @tensor.setter
    def tensor(self, arg: int, /) -> None: ...

def train(model: str, output: str, settings: TrainSettings, data: Sequence[tuple[Annotated[NDArray, dict(order='C', device='cpu', writable=False)], int]], on_epoch: object | None, target: str, threads: int, dims: Mapping[str, Sequence[int]], shapes: Mapping[str, Sequence[int]], max_memory: int, processes: PipelineSettings | None) -> str:
    """Trains a model file, and returns the report as JSON."""

def this_process() -> tuple[int, int, str]:
    """
    Its rank, how many there are, and the device that their collectives run on.
    """

def checked_mesh(text: str) -> str:
    """The text of a mesh, once it is one."""

class ShardedModel:
    """
    A plan for several processes; include/tessera/parallel.h says what it does.
    """

    def __init__(self, model: Graph, mesh: str, places: Sequence[tuple[str, Sequence[int]]], bytes_per_second: float, latency_seconds: float) -> None: ...

    def text(self, values: bool) -> str:
        """As `tessera parallelize` prints it."""

    def json(self) -> str:
        """As --json prints it."""

    @property
    def ranks(self) -> int:
        """How many processes it is for."""

    def sharding(self, value: str) -> str:
        """How a value lies; empty: there is none of this name."""

    def graph(self, rank: int) -> Graph:
        """What a rank runs."""

    def save(self, folder: str) -> None:
        """Writes it to a folder."""

def version() -> str:
    """The compiler's version."""

def dtype_name(dtype: int) -> str:
    """The short name of a dtype number."""
