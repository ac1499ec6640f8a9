"""Random ONNX graphs: what real networks are made of, in combinations and sizes that no network has.

A graph grows node by node. Each new node is evaluated at once by ONNX Runtime, alone; what that refuses, what would be
empty, huge or not finite, and what would make rounding errors large is thrown away. So the generator needs no shape
rules, and every value has a reference that no fusion of ONNX Runtime has touched.
"""
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

OPSET = 18
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 32, 33, 48)
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 13, 14, 16, 17, 28, 31)
MAX_ELEMENTS = 60_000
MAX_PRODUCTS = 30_000_000  # of one node, about
LARGEST = 200.0            # of a value; what is larger is thrown away

UNARY = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Erf", "HardSwish", "HardSigmoid", "LeakyRelu", "Elu", "Selu",
         "Softplus", "Softsign", "Sin", "Cos", "Celu", "Identity", "Mish", "Exp", "Atan", "Sinh")
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSumExp",
              "ReduceSumSquare")


def all_nodes(nodes):
    """These and those in their bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_nodes(attribute.g.node)


def reads(node):
    """The names that a node reads, those that its bodies read from outside among them."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.HasField("g"):
            own = {info.name for info in attribute.g.input} | {n for inner in attribute.g.node for n in inner.output}
            names += [name for inner in attribute.g.node for name in reads(inner) if name not in own]
            names += [info.name for info in attribute.g.output if info.name not in own]
    return names


def evaluate(nodes, feeds, constants, outputs):
    """The values `outputs` of a small model, or None where ONNX Runtime refuses it."""
    model = make_model(nodes, feeds, constants, {name: None for name in outputs})
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(list(outputs), feeds)
    except Exception:  # the bindings raise many types; all of them mean that there is no reference
        return None


def info(name, array):
    if array is None:
        return helper.make_empty_tensor_value_info(name)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def make_model(nodes, feeds, constants, outputs, name="random"):
    """`feeds`, `constants`: arrays by name; `outputs`: arrays by name, None where the type is not known."""
    graph = helper.make_graph(nodes, name, [info(n, a) for n, a in feeds.items()],
                              [info(n, a) for n, a in outputs.items()],
                              [numpy_helper.from_array(np.asarray(a, order="C"), n) for n, a in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="tessera-tests")
    model.ir_version = 8
    return model


class RandomGraph:
    def __init__(self, seed, size):
        self.random = np.random.default_rng(seed)
        self.nodes, self.feeds, self.constants, self.values = [], {}, {}, {}
        self.alive = []  # names of float values that new nodes may read
        for _ in range(self.pick((1, 1, 2))):
            self.add_input(self.start_shape())
        attempts = 0
        while len(self.nodes) < size and attempts < 6 * size:
            attempts += 1
            self.grow()
        self.choose_outputs()

    # --- choosing ---------------------------------------------------------------------------------------------------
    def pick(self, options):
        return options[int(self.random.integers(len(options)))]

    def chance(self, p):
        return self.random.random() < p

    def integer(self, low, high):
        """low..high, both included."""
        return int(self.random.integers(low, high + 1))

    def start_shape(self):
        rank = self.pick((1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4, 5))
        if rank == 1:
            return (self.pick((1, 7, 33, 100)),)
        batch = self.pick((1, 1, 1, 2, 3))
        if rank == 2:
            return (self.pick((1, 2, 5, 17)), self.pick((1, 8, 17, 33, 64, 100)))
        if self.chance(0.1):
            return (batch, self.pick((32, 64, 96)), *[self.pick((14, 28))] * (rank - 2)) if rank == 4 else (batch, 64, 20)
        return (batch, self.pick(CHANNELS), *(self.pick(SIZES if rank < 5 else SIZES[:7]) for _ in range(rank - 2)))

    def add_input(self, shape):
        name = f"x{len(self.feeds)}"
        self.feeds[name] = self.values[name] = self.random.standard_normal(shape).astype(np.float32)
        self.alive.append(name)

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def weights(self, *shape, scale=None):
        fan = max(1, int(np.prod(shape[1:])))
        array = self.random.standard_normal(shape) * (scale if scale is not None else (1.0 / fan) ** 0.5)
        return self.constant(array.astype(np.float32))

    def indices(self, *values):
        return self.constant(np.array(values, np.int64))

    # --- growing ----------------------------------------------------------------------------------------------------
    def shape(self, name):
        return self.values[name].shape

    def node(self, op, inputs, outputs=1, limit=LARGEST, **attributes):
        """Appends a node when it has a fit value. Its output's name, a list of them where there are several; None when
        the node was thrown away."""
        names = [f"v{len(self.nodes)}" if outputs == 1 else f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(op, inputs, names, name=f"{op}_{len(self.nodes)}", **attributes)
        feeds = {n: self.values[n] for n in inputs if n in self.values}
        results = evaluate([node], feeds, {n: self.constants[n] for n in inputs if n in self.constants}, names)
        if results is None:
            return None
        for result in results:
            if result.size == 0 or result.size > MAX_ELEMENTS or not np.all(np.isfinite(result)):
                return None
            largest = float(np.max(np.abs(result)))
            if result.dtype == np.float32 and not 1e-3 < largest < limit:
                return None
        self.nodes.append(node)
        for name, result in zip(names, results):
            self.values[name] = result
            if result.dtype == np.float32 and result.ndim > 0:
                self.alive.append(name)
        return names[0] if outputs == 1 else names

    def chain(self, x, *steps):
        """Each step maps a value's name to the next; stops at a node that was thrown away."""
        for step in steps:
            x = x and step(x)
        return x

    def grow(self):
        # New values are preferred: the graph becomes deep, with branches.
        x = self.alive[-1 - min(int(self.random.exponential(2.0)), len(self.alive) - 1)]
        rank = len(self.shape(x))
        kinds = [self.unary] * 4 + [self.binary] * 5 + [self.movement] * 5 + [self.reduction, self.softmax, self.product,
                 self.product, self.normalisation]
        if rank in (3, 4, 5):
            kinds += [self.convolution] * 8 + [self.pooling] * 3 + [self.resize, self.conv_transpose]
        if rank == 4:
            kinds += [self.squeeze_excite, self.residual, self.residual, self.convolution, self.convolution]
        if rank == 3:
            kinds += [self.attention] * 2 + [self.spelt_norm, self.product]
        if rank == 2:
            kinds += [self.product] * 3 + [self.spelt_norm]
        self.pick(kinds)(x)

    def unary(self, x):
        kind = self.integer(0, 29)
        if kind < len(UNARY):
            return self.node(UNARY[kind], [x])
        f32 = lambda v: self.constant(np.float32(v))
        if kind == 21:
            return self.node("Clip", [x, f32(-0.5), f32(self.pick((0.75, 6)))])
        if kind == 22:
            return self.node("Clip", [x, "", f32(0.5)])
        if kind == 23:
            return self.chain(x, lambda v: self.node("Abs", [v]), lambda v: self.node("Add", [v, f32(0.5)]),
                              lambda v: self.node(self.pick(("Sqrt", "Log", "Reciprocal")), [v]))
        if kind == 24:
            return self.node("Pow", [x, f32(self.pick((2, 3)))])
        if kind == 25:  # SiLU
            return self.chain(self.node("Sigmoid", [x]), lambda v: self.node("Mul", [x, v]))
        if kind == 26:  # GELU by erf
            e = self.chain(x, lambda v: self.node("Div", [v, f32(2**0.5)]), lambda v: self.node("Erf", [v]),
                           lambda v: self.node("Add", [v, f32(1)]))
            return self.chain(e, lambda v: self.node("Mul", [x, v]), lambda v: self.node("Mul", [v, f32(0.5)]))
        if kind == 27:  # GELU by tanh
            t = self.chain(x, lambda v: self.node("Pow", [v, f32(3)]), lambda v: self.node("Mul", [v, f32(0.044715)]),
                           lambda v: self.node("Add", [x, v]), lambda v: self.node("Mul", [v, f32(0.7978845608)]),
                           lambda v: self.node("Tanh", [v]), lambda v: self.node("Add", [v, f32(1)]))
            return self.chain(t, lambda v: self.node("Mul", [x, v]), lambda v: self.node("Mul", [f32(0.5), v]))
        if kind == 28:  # hard-swish
            h = self.chain(self.node("Add", [x, f32(3)]), lambda v: self.node("Clip", [v, f32(0), f32(6)]))
            return self.chain(h, lambda v: self.node("Mul", [x, v]), lambda v: self.node("Div", [v, f32(6)]))
        shape = self.shape(x)
        return self.node("PRelu", [x, self.weights(*(shape[1:2] + (1,) * (len(shape) - 2)))])

    def broadcast_partner(self, x):
        """A value or constant that broadcasts with x."""
        shape = self.shape(x)
        if self.chance(0.5):
            fit = [n for n in self.alive if len(self.shape(n)) == len(shape) and
                   all(a == b or a == 1 or b == 1 for a, b in zip(self.shape(n), shape))]
            return self.pick(fit)
        partner = tuple(self.pick((d, d, 1)) for d in shape)[self.integer(0, len(shape)):]
        if self.chance(0.15):
            partner = (self.integer(1, 3),) + (1,) * len(shape)
        return self.weights(*partner, scale=1.0)

    def binary(self, x):
        y = self.broadcast_partner(x)
        op = self.pick(("Add", "Add", "Add", "Sub", "Mul", "Mul", "Max", "Min", "Div", "Where", "Sum", "Mean"))
        if op == "Div":
            y = self.chain(y, lambda v: self.node("Abs", [v]), lambda v: self.node("Add", [v, self.constant(np.float32(0.5))]))
            return y and self.node("Div", [x, y])
        if op == "Where":
            mask = self.random.random(self.pick((self.shape(x), self.shape(x)[-1:]))) < 0.5
            return self.node("Where", [self.constant(mask), x, y])
        if op in ("Sum", "Mean"):
            return self.node(op, [x, y, self.broadcast_partner(x)][:self.integer(2, 3)])
        return self.node(op, [x, y] if self.chance(0.6) else [y, x])

    # --- movement ---------------------------------------------------------------------------------------------------
    def movement(self, x):
        shape, rank = self.shape(x), len(self.shape(x))
        kind = self.integer(0, 14)
        axis = self.integer(-rank, rank - 1)
        if kind in (0, 1):
            return self.node("Transpose", [x], perm=[int(v) for v in self.random.permutation(rank)])
        if kind in (2, 3):
            fit = [n for n in self.alive if len(self.shape(n)) == rank and
                   all(a == b or i == axis % rank for i, (a, b) in enumerate(zip(self.shape(n), shape)))]
            parts = [x] + [self.pick(fit) for _ in range(self.integer(1, 3))]
            if self.chance(0.2):
                parts.append(self.weights(*(self.integer(1, 4) if i == axis % rank else d for i, d in enumerate(shape)), scale=1.0))
            return self.node("Concat", [parts[int(i)] for i in self.random.permutation(len(parts))], axis=axis)
        if kind == 4:
            extent = shape[axis]
            if extent < 2:
                return None
            count = self.integer(2, min(4, extent))
            cuts = sorted(int(v) for v in self.random.choice(np.arange(1, extent), count - 1, replace=False))
            sizes = np.diff([0] + cuts + [extent])
            return self.node("Split", [x, self.indices(*sizes)], outputs=count, axis=axis)
        if kind in (5, 6):
            starts, ends, steps = [], [], []
            for d in shape:
                step = self.pick((1, 1, 1, 2, 3, -1, -2))
                low, high = sorted((self.integer(0, d - 1), self.integer(0, d - 1)))
                if self.chance(0.5):
                    low, high = 0, d - 1
                starts.append(low if step > 0 else high)
                ends.append(high + 1 if step > 0 else low - 1 if low > 0 else -d - 1)
                steps.append(step)
            return self.node("Slice", [x, self.indices(*starts), self.indices(*ends), self.indices(*range(rank)),
                                       self.indices(*steps)])
        if kind == 7:
            mode = self.pick(("constant", "constant", "reflect", "edge"))
            pads = [self.integer(0, 3) * self.chance(0.5) for _ in range(2 * rank)]
            if mode == "constant" and self.chance(0.2):
                pads[self.integer(0, 2 * rank - 1)] = -1
            return self.node("Pad", [x, self.indices(*pads)] +
                             ([self.constant(np.float32(self.pick((0, 1.5))))] if mode == "constant" else []), mode=mode)
        if kind in (8, 9):
            return self.reshape(x)
        if kind == 10:
            shapes = self.pick(((1,), (2,), (3, 1)))
            return self.node("Expand", [x, self.indices(*shapes, *(1,) * rank)]) if self.chance(0.5) else \
                self.node("Tile", [x, self.indices(*(self.pick((1, 1, 2, 3)) for _ in range(rank)))])
        if kind == 11:
            count = self.integer(1, 6)
            index = self.random.integers(-shape[axis], shape[axis], self.pick(((), (count,), (2, count))))
            return self.node("Gather", [x, self.constant(index.astype(np.int64))], axis=axis)
        if kind == 12:
            index = self.random.integers(0, shape[axis], tuple(self.integer(1, d) for d in shape))
            return self.node("GatherElements", [x, self.constant(index.astype(np.int64))], axis=axis)
        if kind == 13:
            return self.node("Unsqueeze", [x, self.indices(self.integer(0, rank))]) if rank < 5 else None
        if rank == 4 and self.chance(0.5):  # channel shuffle
            groups = [g for g in (2, 3, 4) if shape[1] % g == 0]
            if groups:
                g = self.pick(groups)
                return self.chain(
                    x, lambda v: self.node("Reshape", [v, self.indices(shape[0], g, shape[1] // g, *shape[2:])]),
                    lambda v: self.node("Transpose", [v], perm=[0, 2, 1, 3, 4]),
                    lambda v: self.node("Reshape", [v, self.indices(*shape)]))
        if rank == 4:
            return self.node("DepthToSpace", [x], blocksize=2, mode=self.pick(("DCR", "CRD"))) if self.chance(0.5) else \
                self.node("SpaceToDepth", [x], blocksize=2)
        return self.node("Flatten", [x], axis=self.integer(0, rank))

    def reshape(self, x):
        shape = list(self.shape(x))
        for _ in range(self.integer(1, 2)):
            i = self.integer(0, len(shape) - 1)
            factors = [f for f in range(2, shape[i]) if shape[i] % f == 0]
            if len(shape) < 5 and factors and self.chance(0.5):
                f = self.pick(factors)
                shape[i:i + 1] = [f, shape[i] // f]
            elif i + 1 < len(shape):
                shape[i:i + 2] = [shape[i] * shape[i + 1]]
        if self.chance(0.5):
            shape[self.integer(0, len(shape) - 1)] = -1
        return self.node("Reshape", [x, self.indices(*shape)])

    # --- contractions -----------------------------------------------------------------------------------------------
    def convolution(self, x):
        batch, channels, *spatial = self.shape(x)
        groups = [g for g in (1, 2, 3, 4) if channels % g == 0] + [1, 1, channels]
        group = self.pick(groups)
        out = group * self.pick((1, 1, 2) if group == channels else (1, 2, 3, 4, 5, 8, 16, 17)) if group > 1 else \
            self.pick(CHANNELS)
        style = self.pick(("1x1", "3x3", "3x3", "3x3", "any", "any"))
        n = len(spatial)
        kernel = [1] * n if style == "1x1" else [3] * n if style == "3x3" else [self.pick((1, 2, 3, 4, 5, 7)) for _ in spatial]
        attributes = {}
        if self.chance(0.3) or (style == "1x1" and self.chance(0.3)):
            attributes["strides"] = [self.pick((1, 2, 3)) for _ in spatial] if self.chance(0.5) else [2] * n
        if style != "1x1" and self.chance(0.2):
            attributes["dilations"] = [self.pick((1, 2, 3)) for _ in spatial]
        how = self.pick(("same", "same", "same", "none", "any", "auto"))
        if how == "same":
            attributes["pads"] = [k // 2 for k in kernel] * 2
        elif how == "any":
            attributes["pads"] = [self.integer(0, k - 1 if k > 1 else 1) for k in kernel * 2]
        elif how == "auto":
            attributes["auto_pad"] = self.pick(("SAME_UPPER", "SAME_LOWER", "VALID"))
            if "strides" in attributes:
                attributes.pop("dilations", None)
        if batch * out * int(np.prod(spatial)) * channels // group * int(np.prod(kernel)) > MAX_PRODUCTS:
            return None
        inputs = [x, self.weights(out, channels // group, *kernel)]
        if self.chance(0.6):
            inputs.append(self.weights(out, scale=0.3))
        y = self.node("Conv", inputs, group=group, **attributes)
        if self.chance(0.4):
            y = y and self.batch_norm(y)
        if self.chance(0.4):
            y = y and self.unary(y)
        return y

    def batch_norm(self, x):
        c = self.shape(x)[1]
        variance = self.constant(self.random.uniform(0.5, 1.5, c).astype(np.float32))
        return self.node("BatchNormalization", [x, self.weights(c, scale=0.5), self.weights(c, scale=0.3),
                                                self.weights(c, scale=0.3), variance])

    def conv_transpose(self, x):
        batch, channels, *spatial = self.shape(x)
        group = self.pick([g for g in (1, 1, 2, 3) if channels % g == 0])
        strides = [self.integer(1, 3) for _ in spatial]
        kernel = [self.integer(1, 4) for _ in spatial]
        attributes = {"strides": strides, "pads": [self.integer(0, k - 1) for k in kernel * 2]}
        if self.chance(0.3):
            attributes["output_padding"] = [self.integer(0, s - 1) for s in strides]
        if self.chance(0.2):
            attributes["dilations"] = [self.integer(1, 2) for _ in spatial]
        per_group = self.pick((1, 2, 3, 8, 17))
        if batch * per_group * channels * int(np.prod(spatial)) * int(np.prod(kernel)) > MAX_PRODUCTS:
            return None
        scale = (1 / (channels // group * max(1, int(np.prod(kernel) / np.prod(strides))))) ** 0.5
        inputs = [x, self.weights(channels, per_group, *kernel, scale=scale)]
        if self.chance(0.5):
            inputs.append(self.weights(per_group * group, scale=0.3))
        return self.node("ConvTranspose", inputs, group=group, **attributes)

    def product(self, x):
        shape, rank = self.shape(x), len(self.shape(x))
        width = self.pick((1, 2, 3, 7, 8, 16, 17, 24, 33, 64))
        kind = self.integer(0, 6)
        if kind in (0, 1):
            y = self.node("MatMul", [x, self.weights(shape[-1], width, scale=shape[-1] ** -0.5)])
            return self.node("Add", [y, self.weights(width)]) if y and self.chance(0.6) else y
        if kind == 2 and rank >= 2:
            return self.node("MatMul", [self.weights(width, shape[-2], scale=shape[-2] ** -0.5), x])
        if kind == 3 and rank >= 3:  # weights with a batch of their own
            batch = tuple(self.pick((d, 1)) for d in shape[:-2])[self.integer(0, rank - 3):]
            return self.node("MatMul", [x, self.weights(*batch, shape[-1], width, scale=shape[-1] ** -0.5)])
        if kind == 4 and rank == 2:
            trans_a, trans_b = self.integer(0, 1), self.integer(0, 1)
            depth, rows = (shape[0], shape[1]) if trans_a else (shape[1], shape[0])
            b = (width, depth) if trans_b else (depth, width)
            inputs = [x, self.weights(*b, scale=depth**-0.5)]
            if self.chance(0.7):
                inputs.append(self.weights(*self.pick(((width,), (1, width), (rows, 1), (rows, width), (1,)))))
            return self.node("Gemm", inputs, transA=trans_a, transB=trans_b, alpha=self.pick((1.0, 0.5)), beta=self.pick((1.0, -2.0)))
        if kind == 5 and rank >= 2:  # x times its transpose, in one of two orders
            y = self.node("Transpose", [x], perm=[*range(rank - 2), rank - 1, rank - 2])
            z = y and self.node("MatMul", [x, y] if self.chance(0.5) else [y, x])
            return z and self.node("Mul", [z, self.constant(np.float32(0.1))])
        fit = [n for n in self.alive if len(self.shape(n)) >= 2 and self.shape(n)[-2] == shape[-1]]
        return self.node("MatMul", [x, self.pick(fit)]) if fit else None

    def attention(self, x):
        batch, length, width = self.shape(x)
        heads = self.pick([h for h in (1, 2, 3, 4) if width % h == 0])
        depth = width // heads

        def part(perm):
            y = self.node("MatMul", [x, self.weights(width, width)])
            if y and self.chance(0.5):
                y = self.node("Add", [y, self.weights(width, scale=0.2)])
            return self.chain(y, lambda v: self.node("Reshape", [v, self.indices(batch, length, heads, depth)]),
                              lambda v: self.node("Transpose", [v], perm=perm))
        q, k, v = part([0, 2, 1, 3]), part([0, 2, 3, 1]), part([0, 2, 1, 3])
        if not (q and k and v):
            return None
        s = self.node("MatMul", [q, k])
        scale = self.constant(np.float32(depth**0.5))
        s = s and self.node("Div", [s, scale])
        if s and self.chance(0.5):
            mask = np.where(np.tri(length, dtype=bool), 0, -1e4).astype(np.float32)
            s = s and self.node("Add", [s, self.constant(mask.reshape(1, 1, length, length))], limit=1e9)
            if s:
                self.alive.remove(s)  # large on purpose, for the softmax only
        s = s and self.node("Softmax", [s], axis=-1)
        y = s and self.node("MatMul", [s, v])
        return self.chain(y, lambda u: self.node("Transpose", [u], perm=[0, 2, 1, 3]),
                          lambda u: self.node("Reshape", [u, self.indices(batch, length, width)]),
                          lambda u: self.node("MatMul", [u, self.weights(width, width)]),
                          lambda u: self.node("Add", [u, x]))

    # --- the rest ---------------------------------------------------------------------------------------------------
    def reduction(self, x):
        rank = len(self.shape(x))
        axes = [int(a) for a in np.nonzero(self.random.random(rank) < 0.5)[0]]
        if self.chance(0.3):
            axes = [a - rank for a in axes]
        op = self.pick(REDUCTIONS)
        inputs = [x, self.indices(*axes)] if axes else [x]
        keep = self.integer(0, 1)
        return self.node(op, inputs, keepdims=keep)

    def softmax(self, x):
        rank = len(self.shape(x))
        return self.node(self.pick(("Softmax", "Softmax", "LogSoftmax")), [x], axis=self.integer(-rank, rank - 1))

    def normalisation(self, x):
        shape, rank = self.shape(x), len(self.shape(x))
        kind = self.integer(0, 3)
        if kind == 0 and rank >= 2:
            return self.batch_norm(x)
        if kind == 1 and rank >= 3 and np.prod(shape[2:]) > 1:
            return self.node("InstanceNormalization", [x, self.weights(shape[1], scale=0.5), self.weights(shape[1])], epsilon=1e-2)
        if kind == 2 and rank == 4:
            return self.node("LRN", [x], size=self.pick((1, 3, 5)), alpha=0.1)
        axis = self.integer(0, rank - 1)
        if np.prod(shape[axis:]) < 2:
            return None
        return self.node("LayerNormalization", [x, self.weights(*shape[axis:], scale=0.5), self.weights(*shape[axis:], scale=0.5)],
                         axis=axis, epsilon=1e-2)

    def spelt_norm(self, x):
        """Layer norm or RMS norm in small operators, as exporters write them."""
        width = self.shape(x)[-1]
        if width < 2:
            return None
        f32 = lambda v: self.constant(np.float32(v))
        d = x
        if self.chance(0.6):
            mean = self.node("ReduceMean", [x, self.indices(-1)], keepdims=1)
            d = mean and self.node("Sub", [x, mean])
        square = d and (self.node("Pow", [d, f32(2)]) if self.chance(0.5) else self.node("Mul", [d, d]))
        root = self.chain(square, lambda v: self.node("ReduceMean", [v, self.indices(-1)], keepdims=1),
                          lambda v: self.node("Add", [v, f32(1e-2)]), lambda v: self.node("Sqrt", [v]))
        return self.chain(root, lambda v: self.node("Div", [d, v]), lambda v: self.node("Mul", [v, self.weights(width, scale=0.5)]),
                          lambda v: self.node("Add", [v, self.weights(width, scale=0.5)]))

    def pooling(self, x):
        spatial = self.shape(x)[2:]
        op = self.pick(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
        if op.startswith("Global"):
            return self.node(op, [x])
        kernel = [self.integer(1, 4) for _ in spatial]
        attributes = {"kernel_shape": kernel, "ceil_mode": self.integer(0, 1)}
        if self.chance(0.7):
            attributes["strides"] = [self.integer(1, 3) for _ in spatial]
        if self.chance(0.6):
            attributes["pads"] = [self.integer(0, k - 1) for k in kernel * 2]
        elif self.chance(0.3):
            attributes["auto_pad"] = self.pick(("SAME_UPPER", "SAME_LOWER"))
            attributes["ceil_mode"] = 0
        if op == "AveragePool":
            attributes["count_include_pad"] = self.integer(0, 1)
        elif self.chance(0.2):
            dilations = [self.integer(1, 2) for _ in spatial]
            if "auto_pad" not in attributes:  # whose pads ONNX Runtime computes without the dilations
                attributes["dilations"] = dilations
        if not attributes["ceil_mode"] and "auto_pad" not in attributes:
            # ONNX Runtime rounds towards zero, and has a window where by ONNX's formula none fits.
            pads, rank = attributes.get("pads", [0] * 2 * len(spatial)), len(spatial)
            dilations = attributes.get("dilations", [1] * rank)
            if any((k - 1) * d + 1 > e + pads[i] + pads[i + rank]
                   for i, (k, d, e) in enumerate(zip(kernel, dilations, spatial))):
                return None
        return self.node(op, [x], **attributes)

    def resize(self, x):
        spatial = self.shape(x)[2:]
        mode = self.pick(("nearest", "nearest", "linear", "linear", "cubic"))
        if mode == "cubic" and len(spatial) != 2:
            mode = "linear"
        attributes = {"mode": mode, "coordinate_transformation_mode": self.pick(
            ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))}
        if mode == "nearest":
            attributes["nearest_mode"] = self.pick(("round_prefer_floor", "floor", "ceil", "round_prefer_ceil"))
        sizes = [self.pick((1, 2, 3, 2 * d, 2 * d, d + 1, max(1, d // 2), d)) for d in spatial]
        if self.chance(0.5):
            # Which of two pixels is the nearest must not depend on how a scale is rounded.
            if mode == "nearest" and any(float(np.float32(m / d)) != m / d for m, d in zip(sizes, spatial)):
                attributes["mode"] = "linear"
                del attributes["nearest_mode"]
            return self.node("Resize", [x, "", "", self.indices(*self.shape(x)[:2], *sizes)], **attributes)
        scales = np.array([1, 1] + [self.pick((0.5, 2, 2, 1, 1.5, 3)) for _ in spatial], np.float32)
        return self.node("Resize", [x, "", self.constant(scales)], **attributes)

    def squeeze_excite(self, x):
        c = self.shape(x)[1]
        inner = max(1, c // 4)
        gate = self.chain(
            x, lambda v: self.node("GlobalAveragePool", [v]) if self.chance(0.5) else
            self.node("ReduceMean", [v, self.indices(2, 3)], keepdims=1),
            lambda v: self.node("Conv", [v, self.weights(inner, c, 1, 1), self.weights(inner, scale=0.2)]),
            lambda v: self.node("Relu", [v]),
            lambda v: self.node("Conv", [v, self.weights(c, inner, 1, 1), self.weights(c, scale=0.2)]),
            lambda v: self.node(self.pick(("Sigmoid", "HardSigmoid")), [v]))
        return gate and self.node("Mul", [x, gate])

    def residual(self, x):
        shape = self.shape(x)
        y = x
        for i in range(self.integer(1, 2)):
            c = self.shape(y)[1]
            group = self.pick((1, 1, c))
            y = self.node("Conv", [y, self.weights(shape[1], c // group, 3, 3)], group=group, pads=[1, 1, 1, 1]) \
                if shape[0] * shape[1] ** 2 * 9 * int(np.prod(shape[2:])) < MAX_PRODUCTS else None
            if y and self.chance(0.7):
                y = self.batch_norm(y)
            if y and self.chance(0.5):
                y = self.node(self.pick(("Relu", "Sigmoid", "HardSwish")), [y])
            if not y:
                return None
        y = self.node("Add", [y, x] if self.chance(0.5) else [x, y])
        return self.node("Relu", [y]) if y and self.chance(0.6) else y

    # --- the end ----------------------------------------------------------------------------------------------------
    def choose_outputs(self):
        read = {name for node in self.nodes for name in node.input}
        made = [name for node in self.nodes for name in node.output]
        self.outputs = [n for n in made if n not in read]
        inner = [n for n in made if n in read and self.values[n].dtype == np.float32]
        if inner and self.chance(0.3):  # a value that is also an output cannot be fused away
            self.outputs.append(self.pick(inner))

    def used_constants(self, nodes):
        return {n: self.constants[n] for node in nodes for n in reads(node) if n in self.constants}
