"""Cases for make_onnx_cases.py: recurrent layers and scatters."""
import numpy as np


def add_recurrent(b):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}

    def case(name, op, time=5, batch=2, size=3, hidden=4, directions=1, bias=True, lengths=None, states=False,
             peepholes=False, outputs=None, constant_weights=True, **attributes):
        random = b.random(name)

        def values(*shape):
            scale = 0.5 if len(shape) < 3 or shape[-1] < 10 else 0.1  # long sums would saturate, or become chaotic
            return (random.standard_normal(shape) * scale).astype(np.float32)

        rows = gates[op] * hidden
        inputs = [values(time, batch, size), values(directions, rows, size), values(directions, rows, hidden),
                  values(directions, 2 * rows) if bias else None,
                  None if lengths is None else np.array(lengths, np.int32),
                  values(directions, batch, hidden) if states else None]
        if op == "LSTM":
            inputs += [values(directions, batch, hidden) if states else None,
                       values(directions, 3 * hidden) if peepholes else None]
        while inputs[-1] is None:
            inputs.pop()
        constants = [i for i in (1, 2, 3, 7) if constant_weights and i < len(inputs) and inputs[i] is not None]
        b.op(name, op, inputs, 14, outputs or (3 if op == "LSTM" else 2), constants, hidden_size=hidden, **attributes)

    for op in gates:
        low = op.lower()
        case(f"{low}_plain", op)
        case(f"{low}_one_by_one", op, time=1, batch=1, size=1, hidden=1)
        case(f"{low}_long", op, time=40, batch=1, size=20, hidden=33)
        case(f"{low}_no_bias", op, bias=False)
        case(f"{low}_states", op, states=True)
        case(f"{low}_weights_as_inputs", op, constant_weights=False, states=True)
        case(f"{low}_reverse", op, direction="reverse", states=True)
        case(f"{low}_bidirectional", op, direction="bidirectional", directions=2, states=True)
        case(f"{low}_lengths", op, batch=3, lengths=[5, 2, 4], states=True)
        case(f"{low}_lengths_reverse", op, batch=3, lengths=[1, 5, 3], direction="reverse")
        case(f"{low}_lengths_bidirectional", op, batch=3, lengths=[4, 5, 3], direction="bidirectional", directions=2,
             states=True)
        case(f"{low}_clip", op, clip=0.3, states=True)
    case("lstm_peepholes", "LSTM", peepholes=True, states=True)
    case("lstm_peepholes_bidirectional", "LSTM", peepholes=True, states=True, direction="bidirectional", directions=2)
    case("lstm_input_forget", "LSTM", input_forget=1, states=True)
    case("lstm_activations", "LSTM", activations=["HardSigmoid", "Softsign", "Relu"], states=True)
    case("lstm_activation_constants", "LSTM", activations=["HardSigmoid", "LeakyRelu", "ScaledTanh"],
         activation_alpha=[0.25, 0.05, 1.5], activation_beta=[0.4, 0.7])
    case("gru_linear_before_reset", "GRU", linear_before_reset=1, states=True)
    case("gru_linear_before_reset_reverse", "GRU", linear_before_reset=1, direction="reverse")
    case("gru_activations", "GRU", activations=["HardSigmoid", "Elu"])
    # ONNX Runtime has no defaults for some constants, so all are given.
    for function, constants in [("Relu", {}), ("Affine", {"activation_alpha": [0.5], "activation_beta": [0.1]}),
                                ("LeakyRelu", {"activation_alpha": [0.1]}),
                                ("ThresholdedRelu", {"activation_alpha": [0.2]}),
                                ("ScaledTanh", {"activation_alpha": [1.5], "activation_beta": [0.6]}),
                                ("HardSigmoid", {"activation_alpha": [0.3], "activation_beta": [0.4]}),
                                ("Elu", {"activation_alpha": [0.7]}), ("Softsign", {}), ("Softplus", {}),
                                ("Sigmoid", {})]:
        case(f"rnn_{function.lower()}", "RNN", activations=[function], **constants)


def add_scatter(b):
    def indices(random, extents, rows, unique):
        if unique:
            flat = random.permutation(int(np.prod(extents)))[:rows]
        else:
            flat = random.integers(0, int(np.prod(extents)), rows)
        return np.stack(np.unravel_index(flat, extents), -1).astype(np.int64)

    for name, shape, depth, rows, constant in [
            ("rows", (6, 5), 1, 3, False), ("elements", (4, 5), 2, 7, False), ("wide", (9, 100), 1, 4, False),
            ("deep", (3, 4, 2, 33), 3, 6, False), ("one", (1,), 1, 1, False), ("constant", (6, 5), 1, 3, True),
            ("constant_elements", (4, 5, 3), 2, 7, True), ("constant_all", (4, 3), 1, 4, True)]:
        for reduction in ("none", "add", "mul", "min", "max"):
            case = f"scatter_nd_{name}_{reduction}"
            random = b.random(case)
            table = indices(random, shape[:depth], rows, reduction == "none" or name == "constant_all")
            if name == "elements":
                table[0] -= shape[:depth]
            updates = random.standard_normal((rows, *shape[depth:])).astype(np.float32)
            b.op(case, "ScatterND", [shape, table, updates], 18, constants=(1,) if constant else (),
                 reduction=reduction)
    table = np.arange(2, 5, dtype=np.int64)[:, None]
    b.op("scatter_nd_slice", "ScatterND", [(7, 4), table, (3, 4)], 16, constants=(1,))
    b.op("scatter_nd_integers", "ScatterND", [np.arange(12, dtype=np.int64).reshape(4, 3), np.array([[1], [3], [1]]),
                                              np.ones((3, 3), np.int64)], 18, reduction="add")
    for reduction in ("none", "add", "max"):
        random = b.random(f"scatter_nd_many_{reduction}")
        places = random.integers(0, 64, (900, 2)) if reduction != "none" else \
            np.stack(np.unravel_index(random.permutation(64 * 64)[:900], (64, 64)), 1)
        b.op(f"scatter_nd_many_{reduction}", "ScatterND", [(64, 64), places, (900,)], 18, reduction=reduction)
        rows = random.permutation(500)[:40][:, None]
        b.op(f"scatter_nd_long_rows_{reduction}", "ScatterND", [(500, 70), rows, (40, 70)], 18, reduction=reduction)
    for axis in (0, 1, 2):
        for reduction in ("none", "add", "mul", "min", "max"):
            case = f"scatter_elements_{axis}_{reduction}"
            random = b.random(case)
            shape, sizes = (5, 4, 6), [2, 3, 4]
            sizes[axis] = 5 if reduction != "none" else 3
            if reduction == "none":
                places = np.argsort(random.random((2, 3, 4)[:axis] + (shape[axis],) + (2, 3, 4)[axis + 1:]), axis)
                places = np.take(places, range(sizes[axis]), axis)
            else:
                places = random.integers(-shape[axis], shape[axis], sizes)
            b.op(case, "ScatterElements", [shape, places.astype(np.int64), tuple(sizes)], 18, axis=axis,
                 reduction=reduction)
    b.op("scatter_opset9", "Scatter", [(3, 3), np.array([[1, 0, 2], [0, 2, 1]], np.int32), (2, 3)], 10)


def add_cases(b):
    add_recurrent(b)
    add_scatter(b)
