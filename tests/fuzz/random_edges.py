"""Random ONNX graphs at the edges of what operators are defined for: every dtype, rank 0, dimensions of 0, NaN and
infinities, the ends of integers, division by zero, negative axes, indices out of range, control flow and sequences.

A graph grows node by node, as in random_onnx.py, but each new node is evaluated by our interpreter, which defines what
these things mean. Half of the graphs have tame numbers only; of these ONNX Runtime is asked as well, node by node.
"""
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import case_folder
import random_onnx

FLOATS = (np.float32, np.float32, np.float64, np.float16)
INTS = (np.int64, np.int64, np.int32, np.int32, np.int16, np.int8, np.uint8, np.uint16, np.uint32, np.uint64)
MAX_ELEMENTS = 3000
# What a single operator may be asked in ONNX Runtime without ending this process or meaning something else there.
NOT_FOR_ONNXRUNTIME = {"Div", "Mod", "BitShift", "Pow", "Cast", "Gather", "GatherElements", "GatherND", "ScatterElements",
                       "ScatterND", "OneHot", "Resize", "QuantizeLinear"}


class InterpreterBug(Exception):
    """The compiler ended with something that is no user's error."""


class Interpreter:
    """Values of small models, by `tessera run --engine interp`."""

    def __init__(self, binary):
        self.binary = binary

    def evaluate(self, nodes, feeds, constants, outputs):
        """The values of `outputs`; None when the model is refused."""
        model = random_onnx.make_model(nodes, feeds, constants, {name: None for name in outputs})
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            (work / "m.onnx").write_bytes(model.SerializeToString())
            command = [self.binary, "run", work / "m.onnx", "--engine", "interp"]
            for i, (name, value) in enumerate(feeds.items()):
                (work / f"{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(value, order="C"), name).SerializeToString())
                command += ["-i", f"{name}=@{work}/{i}.pb"]
            for i, name in enumerate(outputs):
                command += ["-o", f"{name}=@{work}/out{i}.pb"]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120)
            if done.returncode == 0:
                return [case_folder.read_tensor(work / f"out{i}.pb") for i in range(len(outputs))]
            if done.returncode != 1:
                raise InterpreterBug(f"exit code {done.returncode}: {done.stderr.strip()[:2000]}\n"
                                     f"{onnx.printer.to_text(model)[:3000]}")
            return None


class EdgeGraph(random_onnx.RandomGraph):
    """The interface is RandomGraph's. `differences`: where ONNX Runtime gave something else for one node."""

    def __init__(self, seed, size, interpreter):
        self.random = np.random.default_rng([seed, 7])
        self.interpreter = interpreter
        self.nodes, self.feeds, self.constants, self.values = [], {}, {}, {}
        self.alive, self.differences, self.refused = [], [], 0
        self.tame = self.chance(0.5)
        self.narrow = self.chance(0.3)  # has floats of 16 bits
        for _ in range(self.integer(2, 4)):
            self.add_input(self.start_shape())
        attempts = 0
        while len(self.nodes) < size and attempts < 4 * size:
            attempts += 1
            self.grow()
        self.choose_outputs()

    # --- values -----------------------------------------------------------------------------------------------------
    def start_shape(self):
        return tuple(self.pick((1, 1, 2, 3, 4, 5, 7, 0 if self.chance(0.3) else 3))
                     for _ in range(self.pick((0, 0, 1, 1, 2, 2, 3, 4))))

    def dtype(self):
        kind = self.integer(0, 9)
        if kind < 5:
            return self.pick(FLOATS if self.narrow else FLOATS[:3])
        return self.pick(INTS) if kind < 9 else np.bool_

    def array(self, dtype, shape):
        kind = np.dtype(dtype).kind
        if kind == "b":
            return np.asarray(self.random.random(shape) < 0.5)
        if kind == "f":
            values = np.asarray(np.round(self.random.standard_normal(shape) * 8) / 4)
            if not self.tame:
                special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 3e4, -2.5])
                values = np.where(self.random.random(shape) < 0.2, self.random.choice(special, shape), values)
            return np.asarray(values, dtype)
        info = np.iinfo(dtype)
        values = np.asarray(self.random.integers(max(info.min, -5), 8, shape), dtype)
        if not self.tame:
            ends = np.array([info.min, info.max, 0, 0, 1, info.max - 1], dtype)
            values = np.where(self.random.random(shape) < 0.25, self.random.choice(ends, shape), values)
        return np.asarray(values, dtype)

    def add_input(self, shape):
        name = f"x{len(self.feeds)}"
        self.feeds[name] = self.values[name] = self.array(self.dtype(), shape)
        self.alive.append(name)

    def of(self, *kinds, rank=None):
        """A value whose dtype is of these kinds ("f", "i", "u", "b"); None when there is none."""
        fit = [n for n in self.alive if self.values[n].dtype.kind in kinds and
               (rank is None or self.values[n].ndim == rank)]
        return self.pick(fit) if fit else None

    def partner(self, x):
        """What broadcasts with x and has its dtype."""
        value = self.values[x]
        fit = [n for n in self.alive if self.values[n].dtype == value.dtype and self.broadcasts(n, x)]
        if fit and self.chance(0.6):
            return self.pick(fit)
        shape = tuple(self.pick((d, d, 1)) for d in value.shape)[self.integer(0, value.ndim):]
        return self.constant(self.array(value.dtype, shape))

    def broadcasts(self, a, b):
        try:
            np.broadcast_shapes(self.shape(a), self.shape(b))
            return True
        except ValueError:
            return False

    # --- nodes ------------------------------------------------------------------------------------------------------
    def node(self, op, inputs, outputs=1, domain="", **attributes):
        names = [f"v{len(self.nodes)}" if outputs == 1 else f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(op, inputs, names, name=f"{op}_{len(self.nodes)}", domain=domain, **attributes)
        return self.append([node], names, outputs)

    def append(self, nodes, names, outputs=1):
        """Nodes that belong together, of which `names` are what others may read."""
        read = {n for node in nodes for n in random_onnx.reads(node)}
        feeds = {n: self.values[n] for n in read if n in self.values}
        constants = {n: self.constants[n] for n in read if n in self.constants}
        if not feeds:  # an operator on constants alone is folded away
            return None
        results = self.interpreter.evaluate(nodes, feeds, constants, names)
        if results is None:
            self.refused += 1
            return None
        if any(result.size > MAX_ELEMENTS or result.ndim > 6 for result in results):
            return None
        self.ask_onnxruntime(nodes, feeds, constants, names, results)
        self.nodes += nodes
        for name, result in zip(names, results):
            self.values[name] = result
            self.alive.append(name)
        return names[0] if outputs == 1 else names

    def ask_onnxruntime(self, nodes, feeds, constants, names, results):
        if not self.tame or NOT_FOR_ONNXRUNTIME & {node.op_type for node in random_onnx.all_nodes(nodes)}:
            return
        numbers = [*feeds.values(), *constants.values()]
        # Other than ONNX says: shapes of reductions of nothing, and an end of 2^63 - 1 with a negative step.
        empty_reduction = any(node.op_type.startswith(("Reduce", "Arg")) for node in nodes) and any(v.size == 0 for v in numbers)
        far_slice = nodes[0].op_type == "Slice" and any(
            np.any(np.abs(v.astype(float)) > 1e6) for v in constants.values())
        # Not said by ONNX: whether padding by repetition comes before or behind cropping.
        cropped = nodes[0].op_type == "Pad" and len(nodes[0].input) == 2 and any(
            np.any(v < 0) for v in constants.values())
        # Sums of nothing are 0; ONNX Runtime's product with a vector leaves its result as the memory was.
        empty_product = nodes[0].op_type in ("MatMul", "Gemm") and any(v.size == 0 for v in numbers)
        if empty_reduction or far_slice or cropped or empty_product:
            return
        if any(v.dtype.kind == "f" and (v.dtype == np.float16 or not np.all(np.isfinite(v))) for v in numbers):
            return
        wanted = random_onnx.evaluate(nodes, feeds, constants, names)
        if wanted is None:
            return
        for name, found, other in zip(names, results, wanted):
            other = np.asarray(other)
            same = found.shape == other.shape and found.dtype == other.dtype
            if same and found.size and found.dtype.kind == "f":
                scale = max(1.0, float(np.max(np.abs(other), initial=0, where=np.isfinite(other))))
                same = np.allclose(found, other, rtol=0, atol=1e-4 * scale, equal_nan=True)
            elif same:
                same = np.array_equal(found, other)
            if not same:
                self.differences.append((nodes, feeds, constants, name, found, other))

    def grow(self):
        self.pick([self.arithmetic] * 5 + [self.one_operand] * 3 + [self.cast] * 2 + [self.comparison, self.logic,
                  self.where, self.bits] + [self.layout] * 5 + [self.slicing] * 2 + [self.picking] * 3 +
                  [self.scattering] * 2 + [self.reduction] * 3 + [self.ordering] * 2 + [self.contraction] * 2 +
                  [self.quantization, self.softmax_of, self.branch, self.branch, self.loop, self.loop, self.scan,
                   self.sequence, self.sequence, self.input_again])()

    def input_again(self):
        if len(self.feeds) < 6:
            self.add_input(self.start_shape())

    def arithmetic(self):
        x = self.of("f", "i", "u")
        if not x:
            return None
        kind = self.values[x].dtype.kind
        op = self.pick(("Add", "Sub", "Mul", "Div", "Div", "Mod", "Max", "Min", "Pow"))
        y = self.partner(x)
        pair = [x, y] if self.chance(0.6) else [y, x]
        return self.node(op, pair, fmod=1 if kind == "f" or self.chance(0.3) else 0) if op == "Mod" else self.node(op, pair)

    def one_operand(self):
        x = self.of("f", "i", "u")
        if not x:
            return None
        value = self.values[x]
        if value.dtype.kind == "f" and self.chance(0.8):
            op = self.pick(("Neg", "Abs", "Sign", "Floor", "Ceil", "Round", "Sqrt", "Exp", "Log", "Reciprocal", "Relu", "Tanh",
                            "Sigmoid", "Erf", "IsNaN", "IsInf", "Softplus", "Atan", "Elu", "HardSigmoid"))
            if op == "IsInf":
                return self.node(op, [x], detect_negative=self.integer(0, 1), detect_positive=self.integer(0, 1))
            return self.node(op, [x])
        if self.chance(0.4):
            ends = [self.constant(self.array(value.dtype, ())) for _ in range(2)]
            return self.node("Clip", [x, ends[0], ends[1]][:self.integer(2, 3)] if self.chance(0.7) else [x, "", ends[1]])
        return self.node(self.pick(("Neg", "Abs", "Sign", "Relu", "Identity")), [x])

    def cast(self):
        x = self.pick(self.alive)
        return self.node("Cast", [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype())))

    def comparison(self):
        x = self.of("f", "i", "u")
        return x and self.node(self.pick(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")), [x, self.partner(x)])

    def logic(self):
        x = self.of("b")
        if not x:
            return None
        return self.node("Not", [x]) if self.chance(0.3) else self.node(self.pick(("And", "Or", "Xor")), [x, self.partner(x)])

    def bits(self):
        x = self.of("i", "u")
        if not x:
            return None
        if self.values[x].dtype.kind == "u" and self.chance(0.5):
            return self.node("BitShift", [x, self.partner(x)], direction=self.pick(("LEFT", "RIGHT")))
        op = self.pick(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"))
        return self.node(op, [x] if op == "BitwiseNot" else [x, self.partner(x)])

    def where(self):
        c, x = self.of("b"), self.pick(self.alive)
        if not c or not self.broadcasts(c, x):
            c = self.constant(self.random.random(self.shape(x)) < 0.5)
        return self.node("Where", [c, x, self.partner(x)])

    # --- shapes -----------------------------------------------------------------------------------------------------
    def layout(self):
        x = self.pick(self.alive)
        shape, rank = self.shape(x), len(self.shape(x))
        axis = self.integer(-rank, rank - 1) if rank else 0
        kind = self.integer(0, 11)
        if kind == 0:
            order = {"perm": [int(v) for v in self.random.permutation(rank)]} if rank and self.chance(0.8) else {}
            return self.node("Transpose", [x], **order)
        if kind == 1:
            target = list(shape)
            if rank >= 2 and self.chance(0.6):
                target[0:2] = [shape[0] * shape[1]]
            if target and self.chance(0.5):
                target[self.integer(0, len(target) - 1)] = self.pick((-1, 0))
            if self.chance(0.3):
                target.insert(self.integer(0, len(target)), 1)
            return self.node("Reshape", [x, self.indices(*target)], allowzero=self.integer(0, 1))
        if kind == 2:
            return self.node("Unsqueeze", [x, self.indices(self.integer(-rank - 1, rank))]) if rank < 5 else None
        if kind == 3:
            ones = [i - self.pick((0, rank)) for i, d in enumerate(shape) if d == 1]
            return self.node("Squeeze", [x, self.indices(*ones[:1])] if ones and self.chance(0.6) else [x])
        if kind == 4 and rank:
            parts = [x] + [n for n in self.alive if self.values[n].dtype == self.values[x].dtype and
                           len(self.shape(n)) == rank and
                           all(a == b or i == axis % rank for i, (a, b) in enumerate(zip(self.shape(n), shape)))][:3]
            return self.node("Concat", parts, axis=axis)
        if kind == 5 and rank:
            cut = self.integer(0, shape[axis])
            return self.node("Split", [x, self.indices(cut, shape[axis] - cut)], outputs=2, axis=axis)
        if kind == 6:
            return self.node("Tile", [x, self.indices(*(self.pick((0, 1, 1, 2, 3)) for _ in range(rank)))])
        if kind == 7:
            return self.node("Expand", [x, self.indices(*(self.pick((1, d, d)) for d in shape))] if self.chance(0.5) else
                             [x, self.indices(self.integer(0, 2), *(1,) * rank)])
        if kind == 8:
            return self.node("Flatten", [x], axis=self.integer(-rank, rank))
        if kind == 9 and rank:
            pads = [self.pick((0, 0, 1, 2, -1)) for _ in range(2 * rank)]
            mode = self.pick(("constant", "constant", "edge", "reflect", "wrap"))
            value = [self.constant(self.array(self.values[x].dtype, ()))] if mode == "constant" else []
            return self.node("Pad", [x, self.indices(*pads), *value], mode=mode)
        if kind == 10:
            return self.node(self.pick(("Shape", "Size")), [x])
        return self.node("Trilu", [x, self.constant(np.int64(self.integer(-9, 9)))], upper=self.integer(0, 1))

    def slicing(self):
        x = self.pick(self.alive)
        rank = len(self.shape(x))
        if rank == 0:
            return None
        far = (2**31, -2**31, 2**63 - 1, -2**63)
        axes = [int(a) for a in self.random.permutation(rank)[:self.integer(1, rank)]]
        bound = lambda: self.integer(-9, 9) if self.chance(0.8) else self.pick(far)
        starts, ends = [bound() for _ in axes], [bound() for _ in axes]
        steps = [self.pick((1, 1, 2, 3, -1, -2, 2**31, -2**31)) for _ in axes]
        return self.node("Slice", [x, self.indices(*starts), self.indices(*ends),
                                   self.indices(*(a - self.pick((0, rank)) for a in axes)), self.indices(*steps)])

    def places(self, extent, shape):
        """Indices: right ones, and in graphs that are not tame sometimes others."""
        low, high = (-extent, extent - 1) if self.chance(0.5) else (0, extent - 1)
        if not self.tame and self.chance(0.3):
            low, high = low - 2, high + 2
        if high < low:
            return None
        values = self.random.integers(low, high + 1, shape).astype(self.pick((np.int64, np.int64, np.int32)))
        if self.chance(0.5):
            return self.constant(values)
        name = f"x{len(self.feeds)}"  # known to the run alone
        self.feeds[name] = self.values[name] = np.asarray(values)
        return name

    def picking(self):
        x = self.pick(self.alive)
        shape, rank = self.shape(x), len(self.shape(x))
        if rank == 0:
            return None
        axis = self.integer(-rank, rank - 1)
        kind = self.integer(0, 3)
        if kind < 2:
            index = self.places(shape[axis], self.pick(((), (2,), (3,), (2, 2), (0,))))
            return index and self.node("Gather", [x, index], axis=axis)
        if kind == 2:
            index = self.places(shape[axis], tuple(self.integer(0, d) for d in shape))
            return index and self.node("GatherElements", [x, index], axis=axis)
        index = self.places(min(shape), (self.integer(0, 3), self.integer(1, rank)))
        return index and self.values.get(index, self.constants.get(index)).dtype == np.int64 and \
            self.node("GatherND", [x, index])

    def scattering(self):
        x = self.pick(self.alive)
        value = self.values[x]
        if value.ndim == 0 or value.size == 0:
            return None
        reduction = self.pick(("none", "add", "mul", "max", "min")) if value.dtype.kind != "b" else "none"
        if self.chance(0.5):
            axis = self.integer(-value.ndim, value.ndim - 1)
            shape = tuple(self.integer(0, d) for d in value.shape)
            if reduction == "none":  # each place once: what is written twice is not defined
                shape = tuple(min(d, 1) if i == axis % value.ndim else d for i, d in enumerate(shape))
            index = self.places(value.shape[axis], shape)
            updates = self.constant(self.array(value.dtype, shape))
            return index and self.node("ScatterElements", [x, index, updates], axis=axis, reduction=reduction)
        rows, depth = self.integer(0, 1 if reduction == "none" else 3), self.integer(1, value.ndim)
        index = self.places(min(value.shape), (rows, depth))
        if not index or self.values.get(index, self.constants.get(index)).dtype != np.int64:
            return None
        updates = self.constant(self.array(value.dtype, (rows, *value.shape[depth:])))
        return self.node("ScatterND", [x, index, updates], reduction=reduction)

    # --- the rest ---------------------------------------------------------------------------------------------------
    def reduction(self):
        x = self.of("f", "i", "u")
        if not x:
            return None
        rank = len(self.shape(x))
        op = self.pick(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean", "ReduceL1", "ReduceSumSquare"))
        axes = [int(a) - self.pick((0, rank)) for a in np.nonzero(self.random.random(rank) < 0.5)[0]]
        return self.node(op, [x, self.indices(*axes)] if axes or self.chance(0.3) else [x], keepdims=self.integer(0, 1),
                         **({"noop_with_empty_axes": 1} if self.chance(0.2) else {}))

    def ordering(self):
        x = self.of("f", "i", "u")
        if not x or not self.shape(x):
            return None
        rank = len(self.shape(x))
        axis = self.integer(-rank, rank - 1)
        kind = self.integer(0, 3)
        if kind == 0:
            return self.node(self.pick(("ArgMax", "ArgMin")), [x], axis=axis, keepdims=self.integer(0, 1),
                             select_last_index=self.integer(0, 1))
        if kind == 1:
            k = self.integer(0, self.shape(x)[axis])
            return self.node("TopK", [x, self.indices(k)], outputs=2, axis=axis, largest=self.integer(0, 1))
        if kind == 2:
            return self.node("CumSum", [x, self.constant(np.int64(axis))], exclusive=self.integer(0, 1),
                             reverse=self.integer(0, 1))
        index = self.of("i")
        return index and self.values[index].ndim < 4 and self.node(
            "OneHot", [index, self.constant(np.int64(self.integer(1, 5))), self.constant(self.array(np.float32, (2,)))],
            axis=self.integer(-1, self.values[index].ndim))

    def contraction(self):
        x = self.of("f", "i", "u")
        if not x or not self.shape(x):
            return None
        value = self.values[x]
        depth, width = value.shape[-1], self.pick((0, 1, 2, 5))
        if value.ndim == 2 and self.chance(0.4):
            y = self.constant(self.array(value.dtype, (depth, width)))
            c = self.constant(self.array(value.dtype, self.pick(((), (width,), (1, width), (value.shape[0], 1)))))
            return self.node("Gemm", [x, y, c])
        return self.node("MatMul", [x, self.constant(self.array(value.dtype, self.pick(((depth, width), (depth,)))))])

    def quantization(self):
        x = self.of("f")
        if not x or self.values[x].dtype != np.float32:
            return None
        dtype = self.pick((np.int8, np.uint8))
        scale = self.constant(np.float32(self.pick((0.25, 0.5, 2))))
        zero = self.constant(np.asarray(self.integer(0, 5), dtype))
        q = self.node("QuantizeLinear", [x, scale, zero])
        return q and self.chance(0.7) and self.node("DequantizeLinear", [q, scale, zero])

    def softmax_of(self):
        x = self.of("f")
        rank = x and len(self.shape(x))
        return rank and self.node(self.pick(("Softmax", "LogSoftmax", "Hardmax")), [x], axis=self.integer(-rank, rank - 1))

    # --- control flow -----------------------------------------------------------------------------------------------
    def body_nodes(self, names, prefix):
        """A few elementwise nodes on values of one dtype and shape; (nodes, name of the last value)."""
        nodes = []
        for i in range(self.integer(1, 3)):
            op = self.pick(("Add", "Sub", "Mul", "Max", "Min"))
            nodes.append(helper.make_node(op, [self.pick(names), self.pick(names)], [f"{prefix}{i}"]))
            names = [*names, f"{prefix}{i}"]
        return nodes, names[-1]

    def same_type(self, x):
        value = self.values[x]
        return [n for n in self.alive if self.values[n].dtype == value.dtype and self.shape(n) == value.shape]

    def typed(self, name, like):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(like.dtype), like.shape)

    def branch(self):
        """If: both branches read values from outside."""
        x = self.of("f", "i", "u")
        if not x:
            return None
        number = len(self.nodes)
        graphs = []
        for which in ("t", "e"):
            nodes, last = self.body_nodes(self.same_type(x), f"{which}{number}_")
            graphs.append(helper.make_graph(nodes, which, [], [self.typed(last, self.values[x])]))
        condition = self.of("b", rank=0)
        if not condition:
            condition = f"x{len(self.feeds)}"
            self.feeds[condition] = self.values[condition] = np.asarray(self.chance(0.5))
            self.alive.append(condition)
        return self.node("If", [condition], then_branch=graphs[0], else_branch=graphs[1])

    def loop(self):
        """A state and what it was after each step; as many steps as a constant or an input says."""
        x = self.of("f", "i", "u")
        if not x:
            return None
        number, value = len(self.nodes), self.values[x]
        state = f"s{number}"
        nodes, last = self.body_nodes([state, *self.same_type(x)], f"b{number}_")
        nodes += [helper.make_node("Identity", [f"go{number}"], [f"go{number}_out"]),
                  helper.make_node("Identity", [last], [f"collected{number}"])]
        scalar = lambda name, dtype: helper.make_tensor_value_info(name, dtype, [])
        body = helper.make_graph(
            nodes, "body", [scalar(f"i{number}", TensorProto.INT64), scalar(f"go{number}", TensorProto.BOOL),
                            self.typed(state, value)],
            [scalar(f"go{number}_out", TensorProto.BOOL), self.typed(last, value), self.typed(f"collected{number}", value)])
        steps = np.int64(self.pick((0, 1, 2, 3, 5)))
        if self.chance(0.6):
            count = self.constant(steps)
        else:
            count = f"x{len(self.feeds)}"
            self.feeds[count] = self.values[count] = np.asarray(steps)
        return self.node("Loop", [count, "", x], outputs=2, body=body)

    def scan(self):
        """Sums along an axis, from either end."""
        x = self.of("f", "i", "u")
        value = x and self.values[x]
        if not x or value.ndim == 0 or value.shape[0] == 0:
            return None
        number, row = len(self.nodes), value[0]
        op = self.pick(("Add", "Max", "Sub"))
        body = helper.make_graph([helper.make_node(op, [f"s{number}", f"r{number}"], [f"t{number}"]),
                                  helper.make_node("Identity", [f"t{number}"], [f"u{number}"])], "body",
                                 [self.typed(f"s{number}", row), self.typed(f"r{number}", row)],
                                 [self.typed(f"t{number}", row), self.typed(f"u{number}", row)])
        start = self.constant(self.array(value.dtype, row.shape))
        return self.node("Scan", [start, x], outputs=2, body=body, num_scan_inputs=1,
                         scan_input_directions=[self.integer(0, 1)], scan_output_directions=[self.integer(0, 1)])

    def sequence(self):
        """Tensors into a sequence and out of it again."""
        x = self.pick(self.alive)
        members = [n for n in self.alive if self.values[n].dtype == self.values[x].dtype and
                   len(self.shape(n)) == len(self.shape(x))]
        number = len(self.nodes)
        chosen = [x] + [self.pick(members) for _ in range(self.integer(0, 3))]
        make = helper.make_node("SequenceConstruct", chosen, [f"q{number}"], name=f"SequenceConstruct_{number}")
        name = f"v{number}"
        kind = self.integer(0, 2)
        if kind == 0:
            place = self.integer(-len(chosen), len(chosen) - 1)
            index = self.constant(np.int64(place))
            if self.chance(0.4):
                index = f"x{len(self.feeds)}"
                self.feeds[index] = self.values[index] = np.asarray(np.int64(place))
            use = helper.make_node("SequenceAt", [f"q{number}", index], [name], name=f"SequenceAt_{number}")
        elif kind == 1 and self.shape(x):
            use = helper.make_node("ConcatFromSequence", [f"q{number}"], [name], axis=self.integer(-len(self.shape(x)), -1),
                                   new_axis=0, name=f"ConcatFromSequence_{number}")
        else:
            use = helper.make_node("SequenceLength", [f"q{number}"], [name], name=f"SequenceLength_{number}")
        return self.append([make, use], [name])

    def choose_outputs(self):
        read = {name for node in self.nodes for name in random_onnx.reads(node)}
        made = [name for node in self.nodes for name in node.output if name in self.values]
        self.outputs = [n for n in made if n not in read]
        inner = [n for n in made if n in read]
        if inner and self.chance(0.5):
            self.outputs.append(self.pick(inner))
