"""Functions of PyTorch's operators with inputs, by families, for torch_test.py."""

import torch
import torch.nn.functional as F


def tensor(*shape, dtype=torch.float32, low=-3.0, high=3.0, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape) * 7)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(0 if dtype == torch.uint8 else -9, 10, shape, generator=generator).to(dtype)
    return (torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low).to(dtype)


SHAPES = [(), (1,), (5,), (3, 4), (2, 1, 3), (1, 17, 33)]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.uint8]


def unary(x):
    a = x.abs() + 0.1
    return (x.abs(), x.neg(), x.relu(), x.sigmoid(), x.tanh(), x.exp(), a.log(), a.sqrt(), a.rsqrt(), a.reciprocal(), x.square(),
            x.sin(), x.cos(), x.floor(), x.ceil(), x.round(), x.trunc(), x.sign(), x.erf(), a.log2(), a.log10(), a.log1p(),
            x.expm1(), F.silu(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.hardswish(x), F.hardsigmoid(x), F.hardtanh(x), F.relu6(x),
            F.leaky_relu(x, 0.2), F.elu(x, 0.7), F.selu(x), F.celu(x, 1.3), F.softplus(x), F.softplus(x, 2, 3), F.mish(x),
            F.logsigmoid(x), F.softsign(x), F.tanhshrink(x), F.softshrink(x), F.hardshrink(x), F.threshold(x, 0.1, 20.0),
            x.clamp(-1, 1), x.clamp(min=0.5), x.clamp_max(0.3), torch.isnan(x), torch.isinf(x / 0), x.frac(), torch.nan_to_num(x / 0))


def inverse(x):
    small = x / 4
    return small.asin(), small.acos(), small.atan(), x.sinh(), x.cosh(), x.asinh(), (x.abs() + 1.1).acosh(), small.atanh(), small.tan()


def integer_unary(x):
    return x.abs(), x.neg(), x.relu(), x.sign(), ~x, x.clamp(1, 5), x.float().sqrt(), torch.sqrt(x), x.to(torch.float64), x.bool()


def binary(x, y):
    return (x + y, x - y, x * y, x / (y.abs() + 1), torch.maximum(x, y), torch.minimum(x, y), x == y, x != y, x < y, x <= y, x > y,
        x >= y,
            x + 2, 2 - x, x * 0.5, x.abs() ** 1.5, x ** 2, x ** 3, torch.where(x > y, x, y), x.masked_fill(y > 0, -1.0),
            torch.add(x, y, alpha=2), torch.addcmul(x, x, y, value=0.5), torch.lerp(x, y, 0.25), torch.logical_and(x > 0, y > 0),
            torch.fmod(x, 2.0), torch.remainder(x, 2.0), torch.div(x, 0.7, rounding_mode="floor"),
            torch.div(x, 0.7, rounding_mode="trunc"), torch.atan2(x, y))


def integer_binary(x, y):
    d = y.abs() + 1
    return (x + y, x - y, x * y, x / d, x // d, x % d, torch.fmod(x, d), torch.div(x, d, rounding_mode="trunc"), x & y, x | y, x ^ y,
            x << 1,
            x >> 1, x == y, x < y, torch.maximum(x, y), x + 1.5, x * True)


def mixed(x, n, b):
    return x + n, x * b, n * b, n + 1.5, torch.where(b, x, n), x > n, b + b, torch.cat([x, n.to(x.dtype)]), x.double() + x


def shapes(x):  # [2, 6, 4]
    a, b, c = x.split([1, 2, 3], 1)
    return (x.view(12, 4), x.reshape(-1), x.permute(2, 0, 1), x.transpose(0, 2), x.unsqueeze(1), x.unsqueeze(-1), x[:, None].squeeze(1),
            x.expand(3, 2, 6, 4), x.repeat(2, 1, 3), x.repeat_interleave(2, 1), torch.cat([x, x], -1), torch.stack([x, x], 1), a, b, c,
            *x.chunk(3, 1), *x.unbind(2), x[1], x[:, 1:5:2], x[..., -1], x[:, -3:-1], x.flip([0, 2]), x.roll(1, 1), x.roll(-3),
            x.flatten(1), x.unflatten(1, (2, 3)), x.movedim(0, 2), x.narrow(1, 2, 3), x.tile(2), x.diagonal(0, 1, 2), x.unfold(1, 3, 2),
            x.select(1, 2), x.contiguous(), x.t() if x.dim() == 2 else x.mT, F.pad(x, (1, 2)), F.pad(x, (1, 2, 0, 3), value=5.0),
            F.pad(x, (2, 1), mode="reflect"), F.pad(x, (2, 1), mode="replicate"), F.pad(x, (1, -1, 0, 1)), F.pad(x, (1, 2),
            mode="circular"),
            x.tril(), x.triu(1), x.tril(-1), torch.slice_scatter(x, x[:, :2] * 2, 1, 3, 5), torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 5,
            2),
            torch.select_scatter(x, x[:, 0] * 3, 1, -1))


def reductions(x):
    return (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), x.mean(), x.mean(-1), x.amax(1), x.amin((0, 1)), x.max(), x.min(), *x.max(1),
            *x.min(-1),
            x.argmax(), x.argmax(1), x.argmin(0, keepdim=True), x.prod(), x.prod(1), (x > 0).any(), (x > 0).all(1), x.var(), x.var(1,
            correction=0),
            x.std(-1), *torch.var_mean(x, (0, 1)), x.logsumexp(1), x.norm(), x.norm(1, dim=1), x.norm(float("inf"), -1), x.cumsum(1),
            x.cumprod(-1),
            *x.topk(2), *x.topk(2, 0, largest=False), *x.sort(1), x.argsort(-1, descending=True), torch.count_nonzero(x),
            x.sum(dtype=torch.float64))


def integer_reductions(x):
    return x.sum(), x.sum(0), x.amax(0), x.max(), x.argmin(-1), x.cumsum(0), x.prod(), x.any(), x.float().mean()


def indexing(x, i, j):  # [5, 6, 4], indices [3], [2, 3]
    return (x[i], x[:, i], x[i, i], x[i, :, i], x[:, i, i], x[j], x[j, i], x[i, 1:3], x.index_select(1, i.abs()), x.gather(0,
        x[:3].argsort(0)),
            x.scatter(0, x[:2].argsort(0), x[:2] * 2), x.scatter(1, x[:, :2].argsort(1), 7.0), x.scatter_add(1, x[:, :2].argsort(1), x[:,
            :2]),
            x.index_put((i,), x[i] * 2), x.index_put((i, i), torch.tensor(3.0), accumulate=True), torch.ops.aten.index_put(x, [None,
            i], x[:, i] * 2),
            x.take(i), F.embedding(j, x[:, 0]), F.one_hot(i.abs(), 7), x.scatter_reduce(0, x[:2].argsort(0), x[:2], "amax"))


def generated(x):
    n = x.shape[0]
    return (torch.zeros(2, 3) + x[0, 0], x + torch.ones_like(x), torch.full((2,), 3) + n, torch.arange(n) * 2, torch.arange(1, 9, 2) + n,
            torch.arange(0, 1, 0.25) + x[0, 0], torch.linspace(0, 1, 7) * x[0, 0], torch.eye(4) @ x[:4, :4], x.new_zeros(3) + x[0, 0],
            x.new_full((2, 2), 1.5) * x[0, 0])


def products(a, b, v):  # [2, 3, 4], [2, 4, 5], [4]
    return (a @ b, a[0] @ b[0], a @ b[0], a @ v, v @ b, v @ v, torch.bmm(a, b), torch.addmm(b[0, :3], a[0], b[0, :, :5], beta=0.5,
        alpha=2),
            torch.baddbmm(a @ b, a, b), F.linear(a, b[0].T, b[0, 0]), torch.einsum("bij,bjk->bki", a, b), torch.outer(v, v),
            torch.mv(a[0], v))


def convolutions(x, w, t, w1, w3):  # [2, 6, 9, 10], [4, 6, 3, 3], transposed [6, 4, 3, 3]
    return (F.conv2d(x, w), F.conv2d(x, w, torch.arange(4.0), stride=2, padding=1), F.conv2d(x, w[:, :3], padding=(0, 2), groups=2),
            F.conv2d(x, w, dilation=2, padding="same"), F.conv2d(x[0], w), F.conv_transpose2d(x, t, stride=2, padding=1,
            output_padding=1),
            F.conv1d(x[:, :, 0], w1, padding=1), F.conv3d(x[:, None], w3), F.conv2d(x, w[:, :1].repeat(3, 1, 1, 1)[:6], groups=6))


def pools(x):  # [2, 3, 12, 13]
    return (F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 3, 2, ceil_mode=True), F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 5)),
            F.adaptive_avg_pool2d(x, (4, 13)), F.adaptive_max_pool2d(x, 1), F.max_pool1d(x[0], 2), F.avg_pool1d(x[0], 3),
            F.interpolate(x, scale_factor=2), F.interpolate(x, (7, 20)), F.interpolate(x, scale_factor=2, mode="bilinear"),
            F.interpolate(x, (20, 9), mode="bilinear", align_corners=True), F.interpolate(x, (17, 17), mode="bicubic"),
            F.interpolate(x[0], scale_factor=3, mode="linear"), F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2), F.pixel_unshuffle(x[...,
            :12], 3),
            F.channel_shuffle(x.repeat(1, 2, 1, 1), 3))


def norms(x, s):  # [2, 6, 5, 5], [6]
    y = x.flatten(2).transpose(1, 2)
    return (F.batch_norm(x, s, s.abs() + 0.5, s, s), F.batch_norm(x, s, s.abs() + 0.5), F.layer_norm(y, (6,), s, s), F.layer_norm(y,
        (6,)),
            F.layer_norm(y, (6,), s), F.group_norm(x, 3, s, s), F.group_norm(x, 2), F.instance_norm(x), F.instance_norm(x, weight=s,
            bias=s),
            F.rms_norm(y, (6,), s, 1e-6), F.softmax(x, 1), F.softmax(y, -1), F.log_softmax(x, 1), F.softmax(x, -1, dtype=torch.float64),
            F.normalize(y, dim=-1), F.local_response_norm(x, 3), F.glu(x, 1))


def attention(q, k, v, mask):
    return (F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=True),
            F.scaled_dot_product_attention(q, k, v, mask),
            F.scaled_dot_product_attention(q, k, v, mask & (mask.sum(-1, True) > 4)),
            F.scaled_dot_product_attention(q, k, v, torch.full((9, 9), -float("inf"))),
            F.scaled_dot_product_attention(q, k, v, mask.float(), scale=0.3))


def quotients(a, b):
    return (a // b, a % b, torch.div(a, b, rounding_mode="floor"), torch.div(a, b, rounding_mode="trunc"), torch.fmod(a, b), a // 0.1,
            a % -0.1)


def special(x, y):
    return (x.sign(), F.threshold(x, 0.5, 3.0), torch.atan2(y, x), x // y, x % y, x.clamp(-1, 1), torch.maximum(x, y),
            torch.where(x > y, x, y), F.relu(x), x.sigmoid(), x.tanh(), torch.nan_to_num(x), x == y, x < y)


def wide(x):  # sums and squares of 16-bit floats that are no 16-bit floats
    return ((x + 100).mean(), (x * 300).norm(), (x * 300).norm(dim=0), (x * 100).var(), (x * 100).std(), (x + 9).logsumexp(0),
            F.normalize((x * 300).reshape(4, -1), dim=1))


def no_dimensions(x):
    return x.any(dim=()), x.all(dim=()), x.squeeze(()), x.sum(dim=()), x.amax(dim=()), x.flip([])


def one_number(x):
    return (x.flip(0), x.index_select(0, torch.tensor([0])), x.logsumexp(0), x.cumsum(0), x.sort(), x.max(0), x.softmax(0),
            x.argmax(0, keepdim=True), x.gather(0, torch.tensor(0)))


def resized(x):  # [1, 2, 5, 7]
    return (F.interpolate(x, (5, 7), mode="bilinear"),
            F.interpolate(x, scale_factor=1.1, mode="bicubic"), F.interpolate(x, scale_factor=1.1, mode="bilinear", align_corners=True),
            F.interpolate(x, scale_factor=(1.3, 0.7), mode="bilinear"))


def nothing(x):  # [0, 3]
    return (x.split(2), x.chunk(3), x.chunk(2, 1), torch.ones(5, 3).slice_scatter(x, 0, 3, 2, 2), torch.ones(5, 0) @ x, x.softmax(0),
            x.logsumexp(0), x.mean(1), x.prod(0), x.flip(0), F.linear(x, torch.ones(4, 3)), x.topk(2, 1), x[:, [0, 1]])


def cases():
    for shape in SHAPES:
        yield f"unary {shape}", unary, (tensor(*shape),)
        yield f"binary {shape}", binary, (tensor(*shape), tensor(*shape, seed=1))
    for dtype in FLOATS[1:]:
        yield f"binary {dtype}", binary, (tensor(3, 4, dtype=dtype), tensor(4, dtype=dtype, seed=1))
        yield f"reductions {dtype}", lambda x: (x.sum(1), x.mean(), x.amax(0), x.softmax(-1), F.layer_norm(x, (4,))), (tensor(3, 4,
            dtype=dtype),)
    yield "inverse functions", inverse, (tensor(3, 7),)
    yield "broadcasting", binary, (tensor(2, 1, 4), tensor(3, 1, seed=1))
    for dtype in INTEGERS:
        yield f"integers {dtype}", integer_unary, (tensor(3, 5, dtype=dtype),)
        yield f"pairs of integers {dtype}", integer_binary, (tensor(3, 5, dtype=dtype), tensor(3, 5, dtype=dtype, seed=1))
        yield f"reductions of integers {dtype}", integer_reductions, (tensor(3, 5, dtype=dtype),)
    yield "mixed types", mixed, (tensor(5), tensor(5, dtype=torch.int64), tensor(5, dtype=torch.bool))
    yield "shapes", shapes, (tensor(2, 6, 4),)
    yield "reductions", reductions, (tensor(3, 5, 4),)
    yield "ties", lambda x: (x.argmax(1), x.argmin(), *x.max(0), *x.min(1), *torch.sort(x, dim=1, stable=True)), (tensor(3, 5,
        4).round(),)
    yield "indexing", indexing, (tensor(5, 6, 4), torch.tensor([3, 0, -1]), torch.tensor([[0, 2, 1], [3, 1, 0]]))
    yield "generated", generated, (tensor(5, 5),)
    yield "products", products, (tensor(2, 3, 4), tensor(2, 4, 5), tensor(4))
    yield "convolutions", convolutions, (tensor(2, 6, 9, 10), tensor(4, 6, 3, 3), tensor(6, 4, 3, 3), tensor(4, 6, 3), tensor(4, 1, 3, 3,
        3))
    yield "pools", pools, (tensor(2, 3, 12, 13),)
    yield "norms", norms, (tensor(2, 6, 5, 5), tensor(6))
    yield "attention", attention, (tensor(2, 4, 9, 8), tensor(2, 4, 9, 8, seed=1), tensor(2, 4, 9, 8, seed=2), tensor(2, 1, 9, 9,
        dtype=torch.bool))
    tenths = torch.arange(-60, 61)[:, None] / 10
    for dtype in FLOATS:
        yield f"quotients {dtype}", quotients, (tenths.to(dtype), torch.tensor([0.1, 0.2, 0.3, 0.7, -0.1, -0.3, 3.0, -7.0], dtype=dtype))
    numbers = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, -0.5, float("inf"), -float("inf"), float("nan")])
    yield "special numbers", special, tuple(t.contiguous() for t in torch.meshgrid(numbers, numbers, indexing="ij"))
    small = torch.tensor([0.0, 1e-30, 1e-20, 1e-12, 1e-6, 9e-4, 1.1e-3, 0.3, 0.5, 0.999, 1.0])
    for dtype in FLOATS[:2]:
        yield f"quantiles of small numbers {dtype}", torch.special.ndtri, (small.to(dtype),)
    yield "places of numbers and NaN", lambda line, x: (torch.searchsorted(line, x), torch.searchsorted(line, x, right=True)), (
        torch.tensor([1.0, 2.0, 2.0, 3.0]), numbers)
    for dtype in FLOATS:
        yield f"large sums {dtype}", wide, (tensor(12000, dtype=dtype),)
    yield "lists of no dimensions", no_dimensions, (tensor(3, 1),)
    yield "one number", one_number, (tensor(),)
    yield "maxima of two types", lambda x, n: (torch.max(x, n), torch.min(n > 0, x > 0)), (tensor(5), tensor(5, dtype=torch.int64))
    yield "resizing", resized, (tensor(1, 2, 5, 7),)
    yield "parts of nothing", nothing, (tensor(0, 3),)
    yield "no elements", lambda x: (x + 1, x.sum(), x.sum(1), torch.cat([x, x]), x.reshape(3, 0)), (tensor(0, 3),)
