"""Networks of Caffe beside OpenCV's reader: layers with random parameters and sizes, the classic networks with random weights,
and what OpenCV does not read beside numpy.

caffe_test.py [NAME...]"""

import sys
import tempfile
import time

import other_python

other_python.enter("caffe", "cv2")

import cv2
import numpy as np

import tessera
from caffe_support import NETWORKS, Network

BOUND = 1e-4  # of the largest
ROUNDS = 6


def opencv(net, path, x):
    """{name of an output: array}."""
    reader = cv2.dnn.readNetFromCaffe(str(path), str(path.with_suffix(".caffemodel")))
    reader.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
    reader.setInput(x, "data")
    names = reader.getUnconnectedOutLayersNames()
    return dict(zip(names, reader.forward(names)))


def differences(net, wanted=None, shape=None):
    """The largest difference of the outputs, of the largest magnitude. `wanted`: outputs by name, instead of OpenCV's."""
    with tempfile.TemporaryDirectory() as folder:
        path = net.save(folder)
        model = tessera.compile(path, shapes={"data": shape} if shape else {})
        x = net.random.standard_normal(model.inputs[0].shape).astype(np.float32)
        want = opencv(net, path, x) if wanted is None else wanted(x)
        got = dict(zip([output.name for output in model.outputs], model.run([x])))
    assert got.keys() == want.keys(), f"outputs {list(got)} for {list(want)}"
    worst = 0.0
    for name, y in got.items():
        reference = want[name].reshape(y.shape) if want[name].size == y.size else want[name]
        assert y.shape == reference.shape, f"{name}: {y.shape} for {reference.shape}"
        worst = max(worst, float(np.abs(y - reference).max(initial=0) / max(np.abs(reference).max(initial=0), 1e-30)))
    return worst


def image(r, channels=None):
    dims = (int(r.integers(1, 3)), channels or int(r.integers(1, 9)), int(r.integers(7, 20)), int(r.integers(7, 20)))
    return Network(dims, int(r.integers(1 << 30)))


def conv(r):
    net = image(r, 2 * int(r.integers(1, 5)))
    group = int(r.choice([1, 2]))
    kernel = int(r.integers(1, 5)) if r.random() < 0.5 else [int(r.integers(1, 4)), int(r.integers(1, 4))]
    numbers = f"pad: {r.integers(0, 3)} stride: {r.integers(1, 4)} dilation: {r.integers(1, 3)}"
    net.conv(2 * int(r.integers(1, 6)), kernel, numbers, group, bias=r.random() < 0.7)
    return net


def pairs(r):
    """Numbers for height and width by themselves."""
    net = image(r)
    net.conv(4, [3, 2], f"pad_h: {r.integers(0, 3)} pad_w: {r.integers(0, 2)} stride_h: {r.integers(1, 3)} stride_w: {r.integers(1, 4)}")
    net.pool("MAX", "kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 2 pad_h: 1 pad_w: 0")
    return net


def deconv(r):
    net = image(r, 4)
    net.conv(int(r.integers(1, 4)) * 2, int(r.integers(1, 5)), f"pad: {r.integers(0, 2)} stride: {r.integers(1, 4)}",
             int(r.choice([1, 2])), kind="Deconvolution")
    return net


def pooling(r):
    net = image(r)
    kernel = int(r.integers(1, 5))
    text = f"kernel_size: {kernel} stride: {r.integers(1, kernel + 1)} pad: {r.integers(0, kernel // 2 + 1)}"
    net.pool(str(r.choice(["MAX", "AVE"])), text if r.random() < 0.8 else "global_pooling: true")
    return net


def activations(r):
    net = image(r)
    net.layer("Power", f"power_param {{ scale: {r.random() + 0.5:.3f} shift: {r.random():.3f} }}")
    net.layer("ReLU", f"relu_param {{ negative_slope: {r.random():.3f} }}")
    net.layer("ELU", f"elu_param {{ alpha: {r.random():.3f} }}")
    net.layer("PReLU", "", [net.noise(net.channels[net.x])])
    net.layer("TanH")
    net.layer("AbsVal")
    net.layer("BNLL")
    net.layer("Power", "power_param { power: 2 }")
    net.layer("Sigmoid")
    return net


def lrn(r):
    net = image(r)
    region = str(r.choice(["ACROSS_CHANNELS", "WITHIN_CHANNEL"]))
    net.layer("LRN", f"lrn_param {{ local_size: {r.choice([3, 5])} alpha: {r.random():.3f} beta: 0.75 norm_region: {region} }}")
    return net


def dense(r):
    net = image(r)
    n, c, h, w = [int(word) for word in net.text.split("shape {")[1].split("}")[0].replace("dim:", "").split()]
    net.dense(int(r.integers(1, 40)), c * h * w)
    return net


def parts(r):
    net = image(r, 6)
    net.layer("Slice", "slice_param { slice_point: 1 slice_point: 4 }", tops=["a", "b", "c"])
    net.layer("Concat", bottoms=["c", "a"])
    net.layer("Flatten", bottoms=["b"])
    return net


def sums(r):
    net = image(r)
    a, b = net.conv(5, 3, bottom="data"), net.conv(5, 3, bottom="data")
    kind = str(r.choice(["SUM coeff: 0.5 coeff: -2", "PROD", "MAX"]))
    net.layer("Eltwise", f"eltwise_param {{ operation: {kind} }}", bottoms=[a, b])
    return net


def shapes(r):
    net = image(r, 6)
    net.layer("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }")
    net.layer("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 3 } }")
    net.layer("Softmax", f"softmax_param {{ axis: {r.integers(1, 3)} }}")
    return net


def normalized(r):
    net = image(r, int(r.integers(2, 9)))
    net.batch_norm()
    c = net.channels[net.x]
    net.layer("Normalize", "norm_param { across_spatial: false channel_shared: false }", [1 + net.noise(c, spread=0.3)])
    net.layer("MVN", f"mvn_param {{ across_channels: {r.choice(['true', 'false'])} }}")
    return net


def priors(r):
    net = image(r, 3)
    top = net.conv(4, 3, "stride: 2")
    text = f"min_size: {r.integers(2, 6)} max_size: {r.integers(7, 12)} aspect_ratio: 2 aspect_ratio: 3 flip: {r.choice(['true', 'false'])}"
    net.layer("PriorBox", f"prior_box_param {{ {text} clip: {r.choice(['true', 'false'])} variance: 0.1 }}", bottoms=[top, "data"])
    return net


def cropped(r):
    net = image(r)
    small = net.conv(3, 3, bottom="data")
    net.layer("Crop", "crop_param { axis: 2 offset: 1 }", bottoms=["data", small])
    return net


LAYERS = [conv, pairs, deconv, pooling, activations, lrn, dense, parts, sums, shapes, normalized, priors, cropped]


def beside_numpy():
    """(name, network, outputs of x) of layers that OpenCV does not read, or reads otherwise."""
    net = Network((3, 4, 5), 7)
    net.layer("Reduction", "reduction_param { operation: MEAN axis: 1 coeff: 3 }", name="y")
    yield "reduction", net, lambda x: {"y": 3 * x.mean((1, 2))}
    net = Network((3, 4, 5, 2), 8)
    net.layer("ArgMax", "argmax_param { axis: 1 }", name="y")
    yield "argmax", net, lambda x: {"y": x.argmax(1)[:, None].astype(np.float32)}
    net = Network((2, 3, 4), 9)
    net.layer("Tile", "tile_param { axis: 1 tiles: 3 }", name="y")
    yield "tile", net, lambda x: {"y": np.tile(x, (1, 3, 1))}
    net = Network((2, 3, 4), 10)
    net.layer("Threshold", "threshold_param { threshold: 0.25 }", name="y")
    yield "threshold", net, lambda x: {"y": (x > 0.25).astype(np.float32)}
    net = Network((2, 3, 4), 11)
    net.layer("Exp", "exp_param { base: 2 scale: 0.5 shift: 1 }", name="e")
    net.layer("Log", "log_param { base: 10 shift: 1 }", name="y")
    yield "exp and log", net, lambda x: {"y": np.log10(1 + 2.0 ** (1 + 0.5 * x))}
    net = Network((2, 3, 4, 5), 12)
    bias = net.noise(3, 4)
    net.layer("Bias", "bias_param { axis: 1 num_axes: 2 }", [bias], name="y")
    yield "bias", net, lambda x: {"y": x + bias[..., None]}
    net = Network((2, 3, 4), 13)
    net.layer("Power", "power_param { scale: 0 shift: 2 }", name="z")
    table = net.noise(5, 6)
    net.layer("Embed", "embed_param { num_output: 6 input_dim: 5 bias_term: false }", [table], name="y")
    yield "embed", net, lambda x: {"y": np.broadcast_to(table[2], (2, 3, 4, 6))}
    # Layers of other phases, values that are written again, several outputs.
    net = Network((2, 3, 4), 14)
    net.layer("Accuracy", "include { phase: TRAIN }", name="gone")
    net.x = "data"
    net.layer("Split", tops=["a", "b"])
    net.layer("ReLU", bottoms=["a"], tops=["a"])
    net.layer("Power", "power_param { scale: 2 }", bottoms=["a"], tops=["a"])
    net.layer("Silence", bottoms=["b"], tops=[])
    yield "phases", net, lambda x: {"a": 2 * np.maximum(x, 0)}


def old_files():
    """`layers` with numbers for their kinds, four numbers for sizes, weights of four dimensions."""
    from caffe_support import schema

    net = Network((2, 3, 6, 6), 15)
    w, b = net.noise(4, 3, 3, 3), net.noise(4)
    net.text = """name: "old" input: "data" input_dim: 2 input_dim: 3 input_dim: 6 input_dim: 6
layers { bottom: "data" top: "c" name: "c" type: CONVOLUTION blobs_lr: 1 convolution_param { num_output: 4 kernel_size: 3 } }
layers { bottom: "c" top: "c" name: "r" type: RELU }
layers { bottom: "c" top: "y" name: "y" type: INNER_PRODUCT inner_product_param { num_output: 5 } }"""
    dense, bias = net.noise(5, 64), net.noise(5)
    net.weights = schema()["NetParameter"]()
    for name, blobs in (("c", (w, b)), ("y", (dense, bias))):
        saved = net.weights.layers.add(name=name)
        for blob in blobs:
            dims = [1] * (4 - blob.ndim) + list(blob.shape)
            saved.blobs.add(data=blob.ravel().tolist(), num=dims[0], channels=dims[1], height=dims[2], width=dims[3])
    return net


def main():
    wanted = sys.argv[1:]
    failed, count, worst = [], 0, 0.0

    def run(name, work):
        nonlocal count, worst
        if wanted and not any(word in name for word in wanted):
            return
        count += 1
        begin = time.time()
        try:
            off = work()
            if off > BOUND:
                raise AssertionError(f"differs by {off:.1e}")
            worst = max(worst, off)
            print(f"ok {name}: {off:.1e}, {time.time() - begin:.1f} s", flush=True)
        except (AssertionError, tessera.Error, cv2.error) as error:
            failed.append(name)
            print(f"FAILED {name}: {error}", flush=True)

    for layer in LAYERS:
        for round_ in range(ROUNDS):
            run(f"{layer.__name__} {round_}", lambda: differences(layer(np.random.default_rng(100 * round_ + len(layer.__name__)))))
    for name, net, outputs in beside_numpy():
        run(name, lambda: differences(net, outputs))
    run("old files", lambda: differences(old_files()))
    run("another size", other_size)
    for name, make in NETWORKS.items():
        run(name, lambda: differences(make()))
    print(f"{count - len(failed)} of {count} match, the worst by {worst:.1e}")
    return 1 if failed else 0


def other_size():
    """Another size than the file's, which OpenCV is given by the input."""
    net = Network((1, 3, 9, 9), 16)
    net.conv(4, 3)
    net.pool("MAX", "kernel_size: 2 stride: 2")
    return differences(net, shape=(2, 3, 12, 15))


if __name__ == "__main__":
    sys.exit(main())
