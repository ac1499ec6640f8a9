"""Functions of JAX with examples of their arguments, for jax_test.py: small ones, each for some operators of StableHLO, and three
networks in plain JAX."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

RANDOM = np.random.default_rng(0)


def real(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def whole(low, high, *shape):
    return RANDOM.integers(low, high, shape).astype(np.int32)


def positive(*shape):
    return (np.abs(real(*shape)) + 0.1).astype(np.float32)


def unary(x):
    return [
        f(x)
        for f in (
            jnp.abs,
            jnp.exp,
            jnp.expm1,
            jnp.log1p,
            jnp.log,
            jnp.sqrt,
            lax.rsqrt,
            jnp.cbrt,
            jnp.sin,
            jnp.cos,
            jnp.tan,
            jnp.tanh,
            jnp.sinh,
            jnp.cosh,
            jnp.arctan,
            jnp.arcsinh,
            jnp.floor,
            jnp.ceil,
            jnp.round,
            jnp.sign,
            jnp.isfinite,
            jnp.negative,
            jax.nn.sigmoid,
            jax.nn.relu,
            jax.nn.gelu,
            jax.nn.silu,
            jax.nn.softplus,
            lax.erf,
            jnp.square,
            jnp.trunc,
        )
    ]


def binary(x, y):
    return [
        f(x, y)
        for f in (
            jnp.add,
            jnp.subtract,
            jnp.multiply,
            jnp.divide,
            jnp.maximum,
            jnp.minimum,
            jnp.arctan2,
            jnp.mod,
            jnp.fmod,
            jnp.floor_divide,
            jnp.equal,
            jnp.not_equal,
            jnp.less,
            jnp.less_equal,
            jnp.greater,
            jnp.greater_equal,
            jnp.hypot,
            jnp.logaddexp,
        )
    ] + [jnp.power(jnp.abs(x), y), jnp.copysign(x, y)]


def integers(a, b):
    u = a.astype(jnp.uint32)
    return [
        a + b,
        a * b,
        a - b,
        a // b,
        a % b,
        lax.div(a, b),
        lax.rem(a, b),
        a & b,
        a | b,
        a ^ b,
        ~a,
        a << 3,
        a >> 2,
        u >> 3,
        lax.population_count(a),
        jnp.abs(a),
        jnp.sign(a),
        a.astype(jnp.int8),
        a.astype(jnp.float32),
        jnp.clip(a, -3, 4),
        a > b,
        lax.bitcast_convert_type(a, jnp.float32) * 0,
    ]


def bools(a, b):
    x, y = a > 0, b > 0
    return [x & y, x | y, x ^ y, ~x, jnp.any(x, 0), jnp.all(x, 1), jnp.where(x, a, b), x.astype(jnp.float32), x.sum(), x == y]


def shapes(x):
    return [
        x.reshape(4, -1),
        x.T,
        jnp.transpose(x, (2, 0, 1)),
        x[:, 1:3, ::2],
        x[::-1, :, 1],
        jnp.concatenate([x, x * 2], 1),
        jnp.pad(x, ((1, 0), (0, 2), (1, 1)), constant_values=3),
        jnp.flip(x, (0, 2)),
        jnp.broadcast_to(x[:, :1], (2, 5, 6)),
        jnp.squeeze(x[:1]),
        jnp.stack([x, x + 1], 2),
        jnp.tile(x, (1, 2, 1)),
        jnp.repeat(x, 2, 0),
        jnp.roll(x, 1, 1),
        jnp.expand_dims(x, 1),
        lax.pad(x, 0.5, ((1, -1, 2), (0, 0, 1), (-2, 3, 0))),
        jnp.split(x, 2, 1),
        jnp.tril(x),
        jnp.moveaxis(x, 0, -1),
    ]


def made(x):
    return [
        jnp.arange(5, dtype=jnp.float32) * x[0],
        jnp.eye(3),
        jnp.linspace(0, x.sum(), 7),
        jnp.ones((2, 3)) * x[:3],
        jnp.full((2,), 7),
        lax.iota(jnp.uint8, 9),
    ]


def reductions(x):
    return [
        x.sum(),
        x.sum(1),
        x.mean((0, 2)),
        x.max(0),
        x.min(2),
        x.prod(1),
        x.argmax(1),
        x.argmin(0),
        jnp.argmax(x),
        x.var(2),
        x.std(0),
        jnp.linalg.norm(x),
        jax.nn.logsumexp(x, 1),
        jnp.cumsum(x, 1),
        jnp.cumprod(x, 0),
        jnp.cumsum(x, 2)[..., ::-1],
        lax.cumsum(x, 1, reverse=True),
        jnp.median(x, 0),
        jnp.ptp(x, 1),
        jnp.count_nonzero(x > 0, 0),
        lax.cummax(x, 1),
    ]


def not_numbers(x):
    x = x.at[1, 2].set(jnp.nan).at[3, 0].set(jnp.inf)
    return [
        x.max(1),
        x.min(0),
        x.argmax(1),
        x.argmin(1),
        jnp.nansum(x),
        jnp.isnan(x),
        jnp.sort(x, 1),
        jnp.argsort(x, 1),
        jnp.nan_to_num(x),
        jnp.maximum(x, 0),
    ]


def products(a, b, c):
    return [
        a @ b,
        jnp.einsum("ij,kj->ik", a, b.T),
        jnp.einsum("bij,bjk->bik", c, c.transpose(0, 2, 1)),
        jnp.tensordot(c, c, ((0, 2), (0, 2))),
        jnp.einsum("bij,bij->b", c, c),
        a[0] @ b,
        jnp.outer(a[0], b[0]),
        jnp.einsum("bij,jk->kbi", c, jnp.ones((5, 2))),
        jnp.vdot(a, a),
        jnp.dot(c, b),
    ]


def low_precision(a, b):
    x, y = a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
    return [
        jnp.dot(x, y, preferred_element_type=jnp.float32),
        x.astype(jnp.float32) + 1,
        lax.reduce_precision(a, 5, 10),
        jnp.dot(jnp.round(a * 20).astype(jnp.int8), jnp.round(b * 20).astype(jnp.int8), preferred_element_type=jnp.int32),
    ]


def convolutions(x, w, grouped):
    nhwc = ("NHWC", "HWIO", "NHWC")
    return [
        lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=nhwc),
        lax.conv_general_dilated(x, w, (2, 2), ((1, 0), (0, 2)), rhs_dilation=(1, 2), dimension_numbers=nhwc),
        lax.conv_general_dilated(x, grouped, (1, 1), "VALID", feature_group_count=4, dimension_numbers=nhwc),
        lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=nhwc),
        lax.conv_general_dilated(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), (1, 1), "VALID"),
        lax.conv_general_dilated(x[:, 0], w[0], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")),
        lax.conv_general_dilated(x.repeat(3, 0), w, (1, 1), "VALID", batch_group_count=3, dimension_numbers=nhwc),
    ]


def pooling(x):
    return [
        lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4,
        lax.reduce_window(x, jnp.inf, lax.min, (1, 2, 3, 2), (1, 1, 1, 1), "VALID"),
        lax.reduce_window(x, 1.0, lax.add, (1, 1, 3, 1), (1, 1, 1, 1), ((0, 0), (0, 0), (1, 1), (0, 0))),
        lax.reduce_window(x, -jnp.inf, lax.max, (2, 1, 2, 1), (1, 1, 1, 1), "VALID", window_dilation=(1, 1, 2, 1)),
    ]


def gathers(x, i, j):
    return [
        x[i],
        x[:, i % 4],
        jnp.take(x, i, axis=1, mode="clip"),
        x[i, j],
        x[i[:, None], j[None] % 4],
        jnp.take_along_axis(x, (i % 4)[:, None], 1),
        jax.vmap(lambda row, k: lax.dynamic_slice(row, (k,), (2,)))(x, i),
        jax.vmap(lambda row, k: row[k])(x, i),
        lax.dynamic_slice(x, (i[0], j[1]), (2, 3)),
        lax.dynamic_update_slice(x, jnp.ones((2, 2)), (i[1], 40)),
        x.at[i[0]].get(),
        x[i[1], 1:],
        jnp.take(x, i + 100, axis=0, mode="fill"),
    ]


def scatters(x, i, j):
    return [
        x.at[i].set(2.0),
        x.at[i].add(1.0),
        x.at[i, j].add(3.0),
        x.at[:, i % 4].mul(2.0),
        x.at[i].max(0.5),
        x.at[i].min(-0.5),
        x.at[i + 100].add(1.0),
        x.at[1:3, 2].set(7.0),
        jax.ops.segment_sum(x, i, 6),
        jax.vmap(lambda row, k: row.at[k].add(1.0))(x, i % 4),
        jnp.zeros(9, jnp.int32).at[i].add(1),
        jnp.zeros(8, bool).at[i].set(True),
        jax.vmap(lambda row, k: lax.dynamic_update_slice(row, jnp.ones(2), (k,)))(x, i),
    ]


def sorting(x, a):
    return [
        jnp.sort(x, 0),
        jnp.argsort(x, 1),
        -jnp.sort(-x, 1),
        lax.sort((a, x), num_keys=1),
        lax.sort((a, a[::-1], x), num_keys=2),
        lax.top_k(x, 3),
        jnp.sort(a, 1, descending=True),
        jnp.argsort(x, 1, descending=True),
        jnp.lexsort((x[0], a[0])),
        jnp.sort(a > 0, 1),
        jnp.searchsorted(jnp.sort(x[0]), x[1]),
        jnp.percentile(x, 30, axis=1),
    ]


def branches(x, n):
    return [
        lax.cond(n > 2, lambda v: v * 2, lambda v: v + 1, x),
        lax.cond(x.sum() > 0, lambda: x, lambda: -x),
        lax.switch(n, [lambda v: v + n, lambda v: v @ jnp.ones((4, 4)), lambda v: v * x[0, 0], jnp.tanh], x),
        lax.cond(n > 0, lambda v: (v.sum(), n), lambda v: (v.max(), n * 2), x),
    ]


def loops(x, n):
    def halve(state):
        value, steps = state
        return value / 2, steps + 1

    total = lax.scan(lambda carry, row: (carry * 0.5 + row, carry.sum()), jnp.zeros(4), x)
    back = lax.scan(lambda carry, row: (carry + row, carry), jnp.zeros(4), x, reverse=True)
    return [
        lax.fori_loop(0, n, lambda i, v: v * 1.1 + i, x),
        lax.while_loop(lambda s: s[0].max() > 0.1, halve, (jnp.abs(x), 0)),
        total,
        back,
        lax.fori_loop(0, 3, lambda i, v: lax.fori_loop(0, i, lambda j, w: w + j * x, v), x),
        lax.map(lambda row: row @ x.T, x),
        lax.fori_loop(0, n, lambda i, v: lax.cond(i % 2 == 0, lambda w: w + x, lambda w: w * 0.5, v), x),
    ]


def random(seed):
    key = jax.random.PRNGKey(seed)
    return [
        jax.random.uniform(key, (3, 5)),
        jax.random.bits(key, (4,)),
        jax.random.randint(key, (6,), 0, 100),
        jax.random.bernoulli(key, 0.3, (9,)),
        jax.random.uniform(jax.random.split(key)[1], (2,)),
    ]


def gradients(x, w):
    def loss(w):
        y = jnp.tanh(x @ w)
        return (jax.nn.log_softmax(y) * jnp.eye(3)).sum() + jnp.sqrt((w * w).sum() + 1)

    return [
        jax.grad(loss)(w),
        jax.value_and_grad(loss)(w),
        jax.jacfwd(lambda v: jnp.sin(v) * v)(w[0]),
        jax.hessian(lambda v: (v**3).sum())(w[0]),
        jax.jvp(loss, (w,), (jnp.ones_like(w),)),
    ]


def convolution_gradients(x, w):
    def loss(x, w):
        y = lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return (jax.nn.relu(y) ** 2).mean()

    return jax.grad(loss, (0, 1))(x, w)


def norms(x, scale):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return [
        (x - mean) * lax.rsqrt(variance + 1e-5) * scale,
        jax.nn.standardize(x),
        jax.nn.softmax(x),
        jax.nn.log_softmax(x, 0),
        x / jnp.linalg.norm(x, axis=1, keepdims=True),
        jax.nn.glu(x),
        jax.nn.one_hot(x.argmax(1), 8),
        lax.batch_matmul(x[None], x.T[None]),
    ]


def attention(q, k, v):
    return [
        jax.nn.dot_product_attention(q, k, v),
        jax.nn.dot_product_attention(q, k, v, is_causal=True),
        jnp.einsum("bqhd,bkhd->bhqk", q, k),
    ]


def trees(state):
    return {"next": {k: v * 2 for k, v in state.items()}, "all": tuple(state.values())}


def constants(x):
    return (
        x @ jnp.asarray(WEIGHTS) + jnp.asarray(BIAS),
        jnp.asarray(BYTES)[::3],
        jnp.asarray(BITS),
        jnp.asarray(HALVES).astype(jnp.float32),
    )


WEIGHTS, BIAS = real(6, 40), real(40)
BYTES, BITS, HALVES = np.arange(256, dtype=np.uint8), real(200) > 0, real(150).astype(np.float16)


def linear_algebra(x):
    return [
        jnp.trace(x),
        jnp.kron(x, x),
        x @ x @ x,
        jnp.linalg.matrix_power(x, 3),
        jnp.diag(x),
        jnp.triu(x),
        jnp.cross(x[:, :3], x[:, 1:4]),
        jnp.polyval(x[0], x[1]),
    ]


def interpolation(x):
    return [
        jax.image.resize(x, (1, 9, 7, 3), "bilinear"),
        jax.image.resize(x, (1, 4, 3, 3), "nearest"),
        jnp.interp(x[0, :, 0, 0], jnp.arange(5.0), jnp.arange(5.0) ** 2),
    ]


def statistics(x, y):
    return [
        jnp.corrcoef(x),
        jnp.cov(x, y),
        jnp.histogram(x, 5, (-2, 2))[0],
        jnp.digitize(x, jnp.array([-1.0, 0.0, 1.0])),
        jnp.bincount(jnp.abs(x[0] * 3).astype(jnp.int32), length=8),
        jnp.convolve(x[0], y[0]),
        jnp.diff(x),
        jnp.gradient(x[0]),
    ]


def lstm(xs, w, u, b):
    def step(state, x):
        h, c = state
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((xs.shape[1], u.shape[0]))
    return lax.scan(step, (zeros, zeros), xs)


def mlp(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def mlp_params(*sizes):
    return [(real(m, n) / np.sqrt(m).astype(np.float32), real(n) * np.float32(0.1)) for m, n in zip(sizes, sizes[1:])]


# ---- a small GPT ----
def gpt_params(layers, width, vocabulary, length):
    def matrix(m, n):
        return real(m, n) / np.sqrt(m).astype(np.float32)

    block = lambda: dict(
        ln1=np.ones(width, np.float32),
        ln2=np.ones(width, np.float32),
        qkv=matrix(width, 3 * width),
        out=matrix(width, width),
        up=matrix(width, 4 * width),
        down=matrix(4 * width, width),
    )
    return dict(
        tokens=real(vocabulary, width),
        places=real(length, width),
        blocks=[block() for _ in range(layers)],
        ln=np.ones(width, np.float32),
    )


def gpt(params, tokens, heads=4):
    def norm(x, scale):
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale

    x = jnp.asarray(params["tokens"])[tokens] + params["places"][: tokens.shape[-1]]
    length, width = x.shape[-2:]
    mask = jnp.tril(jnp.ones((length, length), bool))
    for block in params["blocks"]:
        q, k, v = (
            part.reshape(*part.shape[:-1], heads, width // heads)
            for part in jnp.split(norm(x, block["ln1"]) @ block["qkv"], 3, -1)
        )
        scores = jnp.einsum("...qhd,...khd->...hqk", q, k) / np.sqrt(width // heads).astype(np.float32)
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), -1)
        x = x + jnp.einsum("...hqk,...khd->...qhd", weights, v).reshape(x.shape) @ block["out"]
        x = x + jax.nn.gelu(norm(x, block["ln2"]) @ block["up"]) @ block["down"]
    return norm(x, params["ln"]) @ params["tokens"].T


# ---- ResNet-18, NHWC ----
def resnet_params(classes=1000):
    def conv(h, w, i, o):
        return dict(
            w=real(h, w, i, o) * np.sqrt(2 / (h * w * i)).astype(np.float32),
            scale=np.ones(o, np.float32) + 0.1 * real(o),
            shift=0.1 * real(o),
            mean=0.1 * real(o),
            variance=positive(o),
        )

    blocks, inputs = [], 64
    for stage, width in enumerate((64, 128, 256, 512)):
        for i in range(2):
            stride = 2 if stage > 0 and i == 0 else 1
            block = dict(a=conv(3, 3, inputs, width), b=conv(3, 3, width, width))
            if stride != 1:
                block["skip"] = conv(1, 1, inputs, width)
            blocks.append((stride, block))
            inputs = width
    return dict(stem=conv(7, 7, 3, 64), blocks=blocks, head=(real(512, classes) * np.float32(0.05), real(classes)))


def resnet(params, x):
    def conv(p, x, stride, pad):
        y = lax.conv_general_dilated(
            x, p["w"], (stride, stride), ((pad, pad), (pad, pad)), dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return (y - p["mean"]) * (p["scale"] * lax.rsqrt(p["variance"] + 1e-5)) + p["shift"]

    x = jax.nn.relu(conv(params["stem"], x, 2, 3))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    for stride, block in params["blocks"]:
        y = conv(block["b"], jax.nn.relu(conv(block["a"], x, stride, 1)), 1, 1)
        x = jax.nn.relu(y + (conv(block["skip"], x, stride, 0) if "skip" in block else x))
    w, b = params["head"]
    return x.mean((1, 2)) @ w + b


def flax_resnet18(classes=100):
    """ResNet-18 as flax writes it, or nothing where flax is missing."""
    try:
        from flax import linen as nn
    except ImportError:
        return None

    class Block(nn.Module):
        width: int
        stride: int

        @nn.compact
        def __call__(self, x):
            norm = lambda: nn.BatchNorm(use_running_average=True)
            y = nn.relu(norm()(nn.Conv(self.width, (3, 3), (self.stride, self.stride), use_bias=False)(x)))
            y = norm()(nn.Conv(self.width, (3, 3), use_bias=False)(y))
            if x.shape != y.shape:
                x = norm()(nn.Conv(self.width, (1, 1), (self.stride, self.stride), use_bias=False)(x))
            return nn.relu(x + y)

    class ResNet(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.relu(
                nn.BatchNorm(use_running_average=True)(nn.Conv(64, (7, 7), (2, 2), padding=[(3, 3), (3, 3)], use_bias=False)(x))
            )
            x = nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
            for stage in range(4):
                for i in range(2):
                    x = Block(64 * 2**stage, 2 if stage and not i else 1)(x)
            return nn.Dense(classes)(x.mean((1, 2)))

    model = ResNet()
    x = real(2, 64, 64, 3)
    variables = model.init(jax.random.PRNGKey(0), x)
    return lambda x: model.apply(variables, x), x


def flax_mlp(classes=10):
    """A perceptron with normalisation and dropout at rest, as flax's nnx writes it."""
    try:
        from flax import nnx
    except ImportError:
        return None

    class MLP(nnx.Module):
        def __init__(self, rngs):
            self.first, self.norm = nnx.Linear(30, 64, rngs=rngs), nnx.LayerNorm(64, rngs=rngs)
            self.second, self.last = nnx.Linear(64, 48, rngs=rngs), nnx.Linear(48, classes, rngs=rngs)

        def __call__(self, x):
            x = nnx.gelu(self.norm(self.first(x)))
            return nnx.softmax(self.last(nnx.silu(self.second(x))))

    model = MLP(nnx.Rngs(0))
    return lambda x: model(x), real(8, 30)


def flax_gpt(layers=2, width=64, heads=4, vocabulary=96, length=24):
    """A small GPT of flax's layers: embeddings, attention with a causal mask, GELU, layer norms."""
    try:
        from flax import linen as nn
    except ImportError:
        return None

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, mask):
            y = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(num_heads=heads, qkv_features=width)(y, y, mask=mask)
            return x + nn.Dense(width)(nn.gelu(nn.Dense(4 * width)(nn.LayerNorm()(x))))

    class GPT(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            places = jnp.arange(tokens.shape[1])[None]
            x = nn.Embed(vocabulary, width)(tokens) + nn.Embed(length, width)(places)
            mask = nn.make_causal_mask(tokens)
            for _ in range(layers):
                x = Block()(x, mask)
            return nn.Dense(vocabulary, use_bias=False)(nn.LayerNorm()(x))

    model = GPT()
    tokens = whole(0, vocabulary, 2, length)
    variables = model.init(jax.random.PRNGKey(0), tokens)
    return lambda t: model.apply(variables, t), tokens


FLAX = {"flax_resnet18": flax_resnet18, "flax_mlp": flax_mlp, "flax_gpt": flax_gpt}


def inverse_errors(x):
    return lax.erf_inv(x), lax.erf_inv(jnp.array([-1.0, 1.0, 0.0, 0.999999], jnp.float32)), jax.random.normal(jax.random.key(3), (4, 5))


def pooling_gradients(x, y):
    """Windows that overlap, that leave elements out, that reach over the edges; the smallest; equal elements."""
    largest = lambda window, strides, padding: lambda v: lax.reduce_window(v, -jnp.inf, lax.max, window, strides, padding)
    smallest = lambda v: lax.reduce_window(v, jnp.inf, lax.min, (1, 2, 3, 1), (1, 2, 2, 1), "VALID")
    forms = [smallest, largest((1, 3, 3, 1), (1, 2, 2, 1), "SAME")]
    forms += [largest((1, 2, 2, 1), (1, 3, 2, 1), "VALID"), largest((1, 2, 2, 1), (1, 1, 1, 1), "SAME")]
    made = []
    for form in forms:
        out, pull = jax.vjp(form, x)
        made += [*pull(jnp.sin(out) + 0.5), jax.grad(lambda v: (form(v) ** 2).sum())(y)]
    return made


def fourier(x, y):
    """Transforms of lengths that are powers of two, products of small numbers, prime, cut and filled up; their inverses."""
    spectrum = jnp.fft.rfft(x)
    image = jnp.fft.fft2(x.reshape(2, 3, 5, 6), axes=(1, 3))
    parts = lambda z: (jnp.real(z), jnp.imag(z))
    return [
        parts(spectrum),
        parts(jnp.fft.fft(x)),
        parts(jnp.fft.fft(x, n=16)),
        parts(jnp.fft.rfft(x, n=13, axis=0)),
        parts(jnp.fft.ifft(jnp.fft.fft(x) * (2 - 1j))),
        jnp.fft.irfft(spectrum, n=x.shape[-1]),
        jnp.fft.irfft(spectrum, n=9),
        parts(image),
        parts(jnp.fft.ifftn(image, axes=(2, 3), norm="ortho")),
        jnp.fft.irfftn(jnp.fft.rfftn(x.reshape(2, 3, 5, 6)), s=(3, 5, 6), axes=(1, 2, 3)),
        parts(jnp.fft.fftshift(jnp.fft.fft(x))),
        jnp.real(jnp.fft.fft(jnp.fft.fft(x), axis=0)),
        jnp.fft.irfft(jnp.fft.rfft(y, n=400) * jnp.fft.rfft(y[::-1], n=400), n=400),
    ]


def complex_numbers(a, b):
    x, y = lax.complex(a, b), lax.complex(b, a + 1)
    chosen = lax.cond(a[0, 0] > 0, lambda: jnp.real(x * y), lambda: jnp.abs(y))
    results = [
        x + y,
        x - y,
        x * y,
        x / y,
        -x,
        jnp.conj(x),
        jnp.exp(x),
        x * (0.5 - 2j),
        x @ y.T,
        jnp.einsum("ij,ik->jk", x, jnp.conj(y)),
        x.sum(0),
        y.mean(),
        x[:, :3].prod(1),
        jnp.sqrt(x),
        jnp.where(a > 0, x, y),
        jnp.concatenate([x, y])[1:, ::2].T.reshape(-1),
        x[jnp.array([2, 0, 1])],
        jnp.pad(x, ((1, 0), (2, 1))),
        jnp.flip(x, 1),
        lax.dynamic_slice(x, (1, 2), (2, 3)),
        lax.dynamic_update_slice(x, y[:1, :2], (2, 1)),
        jnp.broadcast_to(x[:1], (4, 3, 5)),
        a.astype(jnp.complex64) + jnp.array([1j, 2, 3 - 1j, 0, 0.5j], jnp.complex64),
    ]
    real = [jnp.abs(x * 1e30), jnp.abs(x * 0), jnp.angle(x), x == y, x != y, jnp.real(a), jnp.imag(x) + 3 * chosen]
    return [(jnp.real(z), jnp.imag(z)) for z in results] + real


FUNCTIONS = {
    "unary": (unary, positive(3, 7)),
    "binary": (binary, real(4, 5), real(4, 5)),
    "integers": (integers, whole(-100, 100, 3, 8), whole(1, 9, 3, 8)),
    "bools": (bools, real(4, 5), real(4, 5)),
    "shapes": (shapes, real(2, 4, 6)),
    "made": (made, real(5)),
    "reductions": (reductions, real(3, 5, 4)),
    "not_numbers": (not_numbers, real(5, 6)),
    "products": (products, real(4, 5), real(5, 6), real(3, 4, 5)),
    "low_precision": (low_precision, real(4, 32), real(32, 8)),
    "convolutions": (convolutions, real(2, 9, 8, 4), real(3, 3, 4, 6), real(3, 3, 1, 8)),
    "pooling": (pooling, real(2, 7, 8, 3)),
    "gathers": (gathers, real(5, 7), whole(0, 5, 5), whole(0, 5, 5)),
    "scatters": (scatters, real(5, 7), whole(0, 5, 5), whole(0, 5, 5)),
    "sorting": (sorting, real(4, 9), whole(0, 4, 4, 9)),
    "branches": (branches, real(4, 4), np.int32(2)),
    "loops": (loops, real(6, 4)[:4], np.int32(5)),
    "random": (random, np.int32(7)),
    "gradients": (gradients, real(3, 4), real(4, 3)),
    "convolution_gradients": (convolution_gradients, real(2, 7, 6, 3), real(3, 3, 3, 5)),
    "norms": (norms, real(6, 8), real(8)),
    "inverse_errors": (inverse_errors, (RANDOM.random((3, 50)) * 2 - 1).astype(np.float32)),
    "pooling_gradients": (pooling_gradients, real(2, 7, 8, 3), whole(0, 4, 1, 6, 7, 2).astype(np.float32)),
    "attention": (attention, real(2, 9, 4, 16), real(2, 9, 4, 16), real(2, 9, 4, 16)),
    "trees": (trees, {"b": real(3), "a": real(2, 2)}),
    "constants": (constants, real(3, 6)),
    "linear_algebra": (linear_algebra, real(4, 4)),
    "interpolation": (interpolation, real(1, 5, 6, 3)),
    "statistics": (statistics, real(3, 12), real(3, 12)),
    "fourier": (fourier, real(12, 15), real(397)),
    "complex_numbers": (complex_numbers, real(3, 5), real(3, 5)),
    "lstm": (lstm, real(7, 2, 5), real(5, 24), real(6, 24), real(24)),
    "scalars": (lambda a, b: (a + b, a * 2, jnp.sin(b)), np.float32(1.5), np.float32(2)),
    "unused": (lambda a, b: a + 1, real(3), real(4)),
    "mlp": ((lambda p: lambda x: mlp(p, x))(mlp_params(20, 64, 32, 10)), real(8, 20)),
    "mlp_params": (mlp, mlp_params(20, 64, 10), real(8, 20)),
    "gpt": ((lambda p: lambda t: gpt(p, t))(gpt_params(3, 64, 100, 24)), whole(0, 100, 2, 20)),
    "resnet18": ((lambda p: lambda x: resnet(p, x))(resnet_params()), real(1, 64, 64, 3)),
}
