"""Cases for make_onnx_cases.py: operators whose number of results depends on values, and updates of weights."""
import numpy as np


def add_choices(b):
    x = b.random("compress").standard_normal((4, 5, 3)).astype(np.float32)
    for constants in ((), (1,)):
        word = "constant" if constants else "given"
        b.op(f"compress_flat_{word}", "Compress", [x, b.random("flat").random(60) > 0.6], 9, constants=constants)
        b.op(f"compress_short_{word}", "Compress", [x, np.array([1, 0, 1], bool)], 11, constants=constants, axis=1)
        b.op(f"compress_negative_{word}", "Compress", [x, np.array([0, 1, 1], bool)], 11, constants=constants, axis=-1)
        b.op(f"compress_none_{word}", "Compress", [x, np.zeros(4, bool)], 11, constants=constants, axis=0)
        b.op(f"compress_all_{word}", "Compress", [x, np.ones(4, bool)], 11, constants=constants, axis=0)
    for shape in ((7,), (3, 4), (2, 3, 4), (1, 1)):
        for dtype in (np.float32, np.int64, np.bool_, np.uint8):
            values = b.random("nonzero").integers(0, 2, shape).astype(dtype)
            b.op(f"nonzero_{np.dtype(dtype).name}_{'x'.join(map(str, shape))}", "NonZero", [values], 13)
    b.op("nonzero_none", "NonZero", [np.zeros((3, 4), np.float32)], 9)
    b.op("nonzero_nan", "NonZero", [np.float32([0, np.nan, -0.0, 2])], 9)
    b.op("nonzero_constant", "NonZero", [np.float32([[0, 1], [2, 0]])], 13, constants=(0,))
    for order in (0, 1):
        for dtype in (np.float32, np.int64, np.int8):
            random = b.random(f"unique_{order}")
            b.op(f"unique_flat_{order}_{np.dtype(dtype).name}", "Unique", [random.integers(-3, 4, (3, 5)).astype(dtype)],
                 11, 4, sorted=order)
            for axis in (0, 1, -1):
                rows = random.integers(0, 2, (6, 5, 2)).astype(dtype)
                b.op(f"unique_{order}_{axis}_{np.dtype(dtype).name}".replace("-", "m"), "Unique", [rows], 11, 4,
                     sorted=order, axis=axis)
    b.op("unique_one", "Unique", [np.int64([5])], 11, 4)
    for order in (0, 1):
        random = b.random(f"unique_many_{order}")
        b.op(f"unique_many_{order}_int64", "Unique", [random.integers(-400, 400, 3000)], 11, 4, sorted=order)
        b.op(f"unique_many_{order}_wide", "Unique", [random.integers(-2, 2, 500) << 60], 11, 4, sorted=order)
        b.op(f"unique_many_{order}_float32", "Unique", [random.standard_normal(2000).astype(np.float32)], 11, 4,
             sorted=order)
        b.op(f"unique_many_{order}_rows", "Unique", [random.integers(0, 6, (700, 3))], 11, 4, sorted=order, axis=0)
    b.op("unique_values_only", "Unique", [np.float32([2, 1, 1, 3, 4, 3])], 11, 1)


def add_suppression(b):
    for name, images, classes, n, most, iou, score, centre in [
            ("plain", 1, 1, 12, 5, 0.4, 0.1, 0), ("classes", 2, 3, 20, 4, 0.5, 0.3, 0), ("all", 1, 2, 9, 100, 0.99, None, 0),
            ("tight", 1, 1, 30, 30, 0.05, 0.0, 0), ("centre", 2, 1, 15, 3, 0.3, 0.2, 1), ("none", 1, 1, 5, 3, 0.5, 5.0, 0),
            ("many", 1, 3, 600, 40, 0.4, 0.2, 0), ("many_centres", 2, 1, 500, 300, 0.3, 0.1, 1)]:
        random = b.random(name)
        corners = random.uniform(0, 1, (images, n, 2))
        sizes = random.uniform(0.1, 0.6, (images, n, 2))
        boxes = np.concatenate([corners, sizes if centre else corners + sizes], -1).astype(np.float32)
        if name == "classes":
            boxes = boxes[..., [2, 1, 0, 3]]  # corners in any order
        inputs = [boxes, random.uniform(0, 1, (images, classes, n)).astype(np.float32), np.int64([most]),
                  np.float32([iou])] + ([] if score is None else [np.float32([score])])
        for constants in ((), (2, 3, 4)[:len(inputs) - 2]):
            b.op(f"suppression_{name}_{'constant' if constants else 'given'}", "NonMaxSuppression", inputs, 11,
                 constants=constants, center_point_box=centre)
    b.op("suppression_ties", "NonMaxSuppression", [np.float32([[[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3]]]),
                                                   np.float32([[[0.5, 0.5, 0.5]]]), np.int64([3]), np.float32([0.5])], 10)


def add_updates(b):
    domain = "ai.onnx.preview.training"
    with b.onnx_reference():
        for number in (0, 1, 7):
            for count in (1, 2):
                shapes = [(3, 4), (5,)][:count]
                random = b.random(f"update_{number}")

                def tensors(groups):
                    lists = [[random.uniform(0.1, 1, shape).astype(np.float32) for shape in shapes] for _ in range(groups)]
                    return [np.float32(0.1), np.int64(number)] + [tensor for group in lists for tensor in group]

                b.op(f"adagrad_{number}_{count}", "Adagrad", tensors(3), 17, 2 * count, domain=domain,
                     norm_coefficient=0.01, decay_factor=0.2, epsilon=1e-5)
                b.op(f"adam_{number}_{count}", "Adam", tensors(4), 17, 3 * count, domain=domain, alpha=0.8, beta=0.95,
                     norm_coefficient=0.01, norm_coefficient_post=0.02, epsilon=1e-3)
                for mode in ("standard", "nesterov"):
                    b.op(f"momentum_{mode}_{number}_{count}", "Momentum", tensors(3), 17, 2 * count, domain=domain,
                         mode=mode, alpha=0.9, beta=0.7, norm_coefficient=0.01)
        for name, shape in [("image", (3, 2, 4, 5)), ("rows", (6, 4)), ("volume", (2, 3, 2, 3, 2))]:
            random = b.random(name)
            vectors = [random.uniform(0.5, 2, shape[1]).astype(np.float32) for _ in range(4)]
            b.op(f"batch_norm_training_{name}", "BatchNormalization", [shape, *vectors], 15, 3, training_mode=1,
                 momentum=0.7, epsilon=1e-3)


def add_cases(b):
    add_choices(b)
    add_suppression(b)
    add_updates(b)
