"""Networks of Caffe for tests: layers as text, weights by the schema of the reader. Standard library, numpy, protobuf, protoc."""

import functools
import pathlib
import subprocess
import tempfile

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ROOT = pathlib.Path(__file__).resolve().parents[2]


@functools.cache
def schema():
    """{name: class} of the messages of net.proto."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "net.desc")
        subprocess.run(["protoc", f"--descriptor_set_out={path}", "--proto_path", str(ROOT / "src/import/caffe"), "net.proto"], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    names = [message.name for message in files.file[0].message_type]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tessera.caffe_net.{name}")) for name in names}


class Network:
    """Layers one after the other; `x` is the name of the last top."""

    def __init__(self, dims, seed=0, name="net"):
        self.random = np.random.default_rng(seed)
        self.text = f'name: "{name}"\nlayer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ '
        self.text += " ".join(f"dim: {dim}" for dim in dims) + " } } }\n"
        self.weights = schema()["NetParameter"](name=name)
        self.x, self.channels = "data", {"data": dims[1] if len(dims) > 1 else 1}

    def layer(self, kind, parameters="", blobs=(), bottoms=None, tops=None, name=None):
        """Adds a layer, of the last one where `bottoms` does not say otherwise; answers its first top."""
        name = name or f"{kind.lower()}{self.text.count('layer {')}"
        bottoms = [self.x] if bottoms is None else bottoms
        tops = [name] if tops is None else tops
        lines = [f'name: "{name}"', f'type: "{kind}"', *(f'bottom: "{b}"' for b in bottoms), *(f'top: "{t}"' for t in tops), parameters]
        self.text += "layer { " + " ".join(line for line in lines if line) + " }\n"
        if blobs:
            saved = self.weights.layer.add(name=name, type=kind)
            for blob in blobs:
                array = np.asarray(blob, np.float32)
                proto = saved.blobs.add(data=array.ravel().tolist())
                proto.shape.dim.extend(array.shape)
        if tops:
            self.x = tops[0]
            self.channels[self.x] = self.channels.get(bottoms[0], 1) if bottoms else 1
        return self.x

    def noise(self, *dims, spread=1.0):
        return (self.random.standard_normal(dims) * spread).astype(np.float32)

    def conv(self, outputs, kernel, parameters="", group=1, bottom=None, bias=True, kind="Convolution", name=None):
        bottom = bottom or self.x
        inputs = self.channels[bottom] // group
        kernels = [kernel, kernel] if isinstance(kernel, int) else kernel
        size = f"kernel_size: {kernel}" if isinstance(kernel, int) else f"kernel_h: {kernel[0]} kernel_w: {kernel[1]}"
        shape = (self.channels[bottom], outputs // group) if kind == "Deconvolution" else (outputs, inputs)
        w = self.noise(*shape, *kernels, spread=1.4 / np.sqrt(inputs * np.prod(kernels)))
        blobs = [w, self.noise(outputs, spread=0.1)] if bias else [w]
        text = f"convolution_param {{ num_output: {outputs} {size} group: {group} {'' if bias else 'bias_term: false'} {parameters} }}"
        self.layer(kind, text, blobs, [bottom], name=name)
        self.channels[self.x] = outputs
        return self.x

    def relu(self):
        return self.layer("ReLU", bottoms=[self.x], tops=[self.x])

    def pool(self, method, parameters):
        return self.layer("Pooling", f"pooling_param {{ pool: {method} {parameters} }}")

    def dense(self, outputs, inputs):
        w = self.noise(outputs, inputs, spread=1 / np.sqrt(inputs))
        self.layer("InnerProduct", f"inner_product_param {{ num_output: {outputs} }}", [w, self.noise(outputs, spread=0.1)])
        self.channels[self.x] = outputs
        return self.x

    def batch_norm(self):
        """BatchNorm and Scale, in place, as ResNets have them."""
        c = self.channels[self.x]
        factor = 3.0  # the statistics are sums
        blobs = [factor * self.noise(c, spread=0.1), factor * (1 + self.random.random(c)), [factor]]
        self.layer("BatchNorm", "batch_norm_param { use_global_stats: true }", blobs, [self.x], [self.x])
        scale, shift = 1 + self.noise(c, spread=0.1), self.noise(c, spread=0.1)
        self.layer("Scale", "scale_param { bias_term: true }", [scale, shift], [self.x], [self.x])
        return self.x

    def save(self, folder, name="net"):
        path = pathlib.Path(folder, f"{name}.prototxt")
        path.write_text(self.text)
        path.with_suffix(".caffemodel").write_bytes(self.weights.SerializeToString())
        return path


def lenet():
    net = Network((2, 1, 28, 28), 1, "LeNet")
    net.conv(20, 5)
    net.pool("MAX", "kernel_size: 2 stride: 2")
    net.conv(50, 5)
    net.pool("MAX", "kernel_size: 2 stride: 2")
    net.dense(500, 800)
    net.relu()
    net.dense(10, 500)
    net.layer("Softmax")
    return net


def alexnet():
    net = Network((1, 3, 227, 227), 2, "AlexNet")
    lrn = "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }"
    net.conv(96, 11, "stride: 4")
    net.relu()
    net.layer("LRN", lrn)
    net.pool("MAX", "kernel_size: 3 stride: 2")
    net.conv(256, 5, "pad: 2", group=2)
    net.relu()
    net.layer("LRN", lrn)
    net.pool("MAX", "kernel_size: 3 stride: 2")
    for outputs, group in ((384, 1), (384, 2), (256, 2)):
        net.conv(outputs, 3, "pad: 1", group=group)
        net.relu()
    net.pool("MAX", "kernel_size: 3 stride: 2")
    for outputs, inputs in ((256, 9216), (256, 256)):  # 4096 in the paper; the layers are the same
        net.dense(outputs, inputs)
        net.relu()
        net.layer("Dropout", "dropout_param { dropout_ratio: 0.5 }", bottoms=[net.x], tops=[net.x])
    net.dense(100, 256)
    net.layer("Softmax")
    return net


def inception(net, c1, r3, c3, r5, c5, pool):
    x, parts = net.x, []
    parts.append(net.conv(c1, 1, bottom=x) and net.relu())
    for reduced, outputs, kernel in ((r3, c3, 3), (r5, c5, 5)):
        net.conv(reduced, 1, bottom=x)
        net.relu()
        net.conv(outputs, kernel, f"pad: {kernel // 2}")
        parts.append(net.relu())
    net.layer("Pooling", "pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 }", bottoms=[x])
    net.conv(pool, 1)
    parts.append(net.relu())
    net.layer("Concat", bottoms=parts)
    net.channels[net.x] = c1 + c3 + c5 + pool


def googlenet():
    net = Network((1, 3, 224, 224), 3, "GoogLeNet")
    net.conv(64, 7, "pad: 3 stride: 2")
    net.relu()
    net.pool("MAX", "kernel_size: 3 stride: 2")
    net.layer("LRN", "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }")
    net.conv(64, 1)
    net.relu()
    net.conv(192, 3, "pad: 1")
    net.relu()
    net.pool("MAX", "kernel_size: 3 stride: 2")
    for sizes in ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)):
        inception(net, *sizes)
    net.pool("MAX", "kernel_size: 3 stride: 2")
    for sizes in ((192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (256, 160, 320, 32, 128, 128)):
        inception(net, *sizes)
    net.pool("MAX", "kernel_size: 3 stride: 2")
    inception(net, 384, 192, 384, 48, 128, 128)
    net.pool("AVE", "kernel_size: 7 stride: 1")
    net.layer("Dropout", bottoms=[net.x], tops=[net.x])
    net.dense(100, 1024)
    net.layer("Softmax")
    return net


def resnet():
    net = Network((1, 3, 224, 224), 4, "ResNet-18")

    def convolved(outputs, kernel, stride, bottom=None):
        net.conv(outputs, kernel, f"pad: {kernel // 2} stride: {stride}", bottom=bottom, bias=False)
        return net.batch_norm()

    convolved(64, 7, 2)
    net.relu()
    net.pool("MAX", "kernel_size: 3 stride: 2")
    for stage, outputs in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            x = net.x
            short = convolved(outputs, 1, stride, x) if stride == 2 else x
            convolved(outputs, 3, stride, x)
            net.relu()
            net.layer("Eltwise", bottoms=[short, convolved(outputs, 3, 1)])
            net.relu()
    net.pool("AVE", "global_pooling: true")
    net.dense(100, 512)
    net.layer("Softmax")
    return net


def squeezenet():
    net = Network((1, 3, 227, 227), 5, "SqueezeNet")
    net.conv(64, 3, "stride: 2")
    net.relu()
    fires = ((16, 64, True), (16, 64, False), (32, 128, True), (32, 128, False), (48, 192, True), (64, 256, False))
    for squeezed, expanded, pooled in fires:
        if pooled:
            net.pool("MAX", "kernel_size: 3 stride: 2")
        net.conv(squeezed, 1)
        x = net.relu()
        one = net.conv(expanded, 1, bottom=x) and net.relu()
        net.conv(expanded, 3, "pad: 1", bottom=x)
        net.layer("Concat", bottoms=[one, net.relu()])
        net.channels[net.x] = 2 * expanded
    net.layer("Dropout", bottoms=[net.x], tops=[net.x])
    net.conv(100, 1)
    net.relu()
    net.pool("AVE", "global_pooling: true")
    net.layer("Softmax")
    return net


def mobilenet_ssd():
    """MobileNet SSD up to its detections: places and scores of boxes, and the prior boxes."""
    net = Network((1, 3, 300, 300), 6, "MobileNet-SSD")

    def separable(outputs, stride):
        c = net.channels[net.x]
        net.conv(c, 3, f"pad: 1 stride: {stride}", group=c, bias=False)
        net.batch_norm()
        net.relu()
        net.conv(outputs, 1, bias=False)
        net.batch_norm()
        return net.relu()

    net.conv(32, 3, "pad: 1 stride: 2", bias=False)
    net.batch_norm()
    net.relu()
    for outputs, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5):
        middle = separable(outputs, stride)
    separable(1024, 2)
    maps = [(middle, 60, None), (separable(1024, 1), 105, 150)]
    for outputs, least, most in ((512, 150, 195), (256, 195, 240), (256, 240, 285), (128, 285, 300)):
        net.conv(outputs // 2, 1)
        net.relu()
        net.conv(outputs, 3, "pad: 1 stride: 2")
        maps.append((net.relu(), least, most))
    heads = {"loc": [], "conf": [], "prior": []}
    for top, least, most in maps:
        boxes = 3 if most is None else 6
        for head, numbers in (("loc", 4), ("conf", 21)):
            net.conv(boxes * numbers, 1, bottom=top)
            net.layer("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }")
            heads[head].append(net.layer("Flatten", "flatten_param { axis: 1 }"))
        sizes = f"min_size: {least}" + ("" if most is None else f" max_size: {most}")
        ratios = "aspect_ratio: 2" + ("" if most is None else " aspect_ratio: 3")
        variances = "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2"
        text = f"prior_box_param {{ {sizes} {ratios} flip: true clip: false {variances} offset: 0.5 }}"
        heads["prior"].append(net.layer("PriorBox", text, bottoms=[top, "data"]))
    net.layer("Concat", "concat_param { axis: 1 }", bottoms=heads["loc"], name="mbox_loc")
    net.layer("Concat", "concat_param { axis: 2 }", bottoms=heads["prior"], name="mbox_priorbox")
    net.layer("Concat", "concat_param { axis: 1 }", bottoms=heads["conf"], name="mbox_conf")
    net.layer("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 21 } }")
    net.layer("Softmax", "softmax_param { axis: 2 }")
    net.layer("Flatten", "flatten_param { axis: 1 }", name="mbox_conf_flatten")
    return net


NETWORKS = {"lenet": lenet, "alexnet": alexnet, "googlenet": googlenet, "resnet": resnet, "squeezenet": squeezenet,
            "mobilenet_ssd": mobilenet_ssd}
