"""Models that are built in Python, without a file. Written by scripts/write-graph-stub."""

from collections.abc import Sequence

from numpy.typing import DTypeLike

from ._graph import Attribute as Attribute
from ._graph import Graph as Graph
from ._graph import Operand
from ._graph import Operator as Operator
from ._graph import Value as Value
from ._graph import operators as operators

def abs(x0: Operand, /, *, name: str = "") -> Value:
    """|x|; the smallest integer stays itself."""

def acos(x0: Operand, /, *, name: str = "") -> Value:
    """The angle whose cosine is x."""

def acosh(x0: Operand, /, *, name: str = "") -> Value:
    """The inverse of cosh."""

def adagrad(x0: Operand, x1: Operand, x2: Operand, x3: Operand, x4: Operand, /, *, l2: float, epsilon: float, decay: float, name: str = "") -> Value:
    """A step of Adagrad: the new weight and the new sum of squared gradients. The operands are weight, gradient, sum of squared gradients, learning rate, number of the step.

    l2 (float): the gradient grows by this much of the weight
    epsilon (float): added to the root that divides
    decay (float): the rate is divided by 1 + this times the number of the step
    """

def adam(x0: Operand, x1: Operand, x2: Operand, x3: Operand, x4: Operand, x5: Operand, /, *, l2: float, epsilon: float, alpha: float, beta: float, shrink: float, name: str = "") -> Value:
    """A step of Adam: the new weight and the new averages of gradients and of their squares. The operands are weight, gradient, average, average of squares, learning rate, number of the step: at 0 or below, the averages are not corrected.

    l2 (float): the gradient grows by this much of the weight
    epsilon (float): added to the root that divides
    alpha (float): how much of the average stays
    beta (float): how much of the average of squares stays
    shrink (float): the part of the new weight that is taken away at the end
    """

def add(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """a + b; integers wrap."""

def all_gather(x0: Operand, /, *, mesh: str, axes: str, turn: int | None = None, name: str = "") -> Value:
    """What all ranks of a group have, one behind the other along dimension 0.

    mesh (string): all ranks, "data=2,model=4"
    axes (string): along which a group lies: "data"
    turn (int, may be left out): not 0: the collective stays in its place, and differs from those of other turns
    """

def all_reduce(x0: Operand, /, *, mesh: str, axes: str, kind: str, turn: int | None = None, name: str = "") -> Value:
    """The sum, product, minimum or maximum of what all ranks of a group have.

    mesh (string): all ranks, "data=2,model=4"
    axes (string): along which a group lies: "data"
    turn (int, may be left out): not 0: the collective stays in its place, and differs from those of other turns
    kind (string): sum, prod, min or max
    """

def all_to_all(x0: Operand, /, *, mesh: str, axes: str, turn: int | None = None, name: str = "") -> Value:
    """Each rank's part, along dimension 0, of what every rank of a group has, one behind the other.

    mesh (string): all ranks, "data=2,model=4"
    axes (string): along which a group lies: "data"
    turn (int, may be left out): not 0: the collective stays in its place, and differs from those of other turns
    """

def asin(x0: Operand, /, *, name: str = "") -> Value:
    """The angle whose sine is x."""

def asinh(x0: Operand, /, *, name: str = "") -> Value:
    """The inverse of sinh."""

def atan(x0: Operand, /, *, name: str = "") -> Value:
    """The angle whose tangent is x."""

def atanh(x0: Operand, /, *, name: str = "") -> Value:
    """The inverse of tanh."""

def attention(x0: Operand, x1: Operand, x2: Operand, x3: Operand | None = None, /, *, scale: float, fill: float | None = None, name: str = "") -> Value:
    """softmax(q k^T * scale) v over the last two dimensions; a fourth operand is added to the scores, or, a bool, says which of them count. q may have a multiple of the heads of k and v.

    scale (float): the factor of the scores, mostly 1 / sqrt(D)
    fill (float, may be left out): what stands where a bool mask is false; default -inf
    """

def average_pool(x0: Operand, /, *, strides: Sequence[int], pads_begin: Sequence[int], pads_end: Sequence[int], dilations: Sequence[int], window: Sequence[int], ceil_mode: bool | None = None, count_include_pad: bool | None = None, name: str = "") -> Value:
    """The mean of every window.

    strides (ints): distance between neighbouring windows, per spatial dimension
    pads_begin (ints): padding before the first element; negative cuts off
    pads_end (ints): padding after the last element; negative cuts off
    dilations (ints): distance between neighbouring places of a window
    window (ints): the window's extents
    ceil_mode (bool, may be left out): whether a last window may reach over the end; default false
    count_include_pad (bool, may be left out): whether padding counts as elements of value 0; default false
    """

def batch_norm(x0: Operand, x1: Operand, x2: Operand, x3: Operand, x4: Operand, /, *, epsilon: float, name: str = "") -> Value:
    """(x - mean) * scale / sqrt(var + epsilon) + bias, the operands x, scale, bias, mean, var.

    epsilon (float): added to the variance
    """

def batch_norm_training(x0: Operand, x1: Operand, x2: Operand, x3: Operand, x4: Operand, /, *, epsilon: float, momentum: float, unbiased: bool | None = None, stash: DTypeLike | None = None, name: str = "") -> Value:
    """x with mean 0 and variance 1 in each channel of the batch, times scale plus bias; then the running mean and variance, which take in the batch's; then the batch's mean and 1 / sqrt(variance + epsilon). The operands are x, scale, bias, running mean, running variance.

    epsilon (float): added to the variance
    momentum (float): the part of the running values that stays; the batch gives the rest
    unbiased (bool, may be left out): the running variance divides by one less than the number of elements
    stash (dtype, may be left out): the type in which x is normalised; its own if left out
    """

def bitcast(x0: Operand, /, *, to: DTypeLike, name: str = "") -> Value:
    """The bits of x as another element type of the same width. Floats of 16 bits and fewer may get another NaN for a NaN.

    to (dtype): the result's element type
    """

def bitwise_and(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """The bits set in both."""

def bitwise_not(x0: Operand, /, *, name: str = "") -> Value:
    """x with every bit inverted."""

def bitwise_or(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """The bits set in either."""

def bitwise_xor(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """The bits set in one of the two."""

def broadcast(x0: Operand, /, *, shape: Sequence[int | str], name: str = "") -> Value:
    """x stretched to `shape` by numpy's rule.

    shape (sizes): the result's extents
    """

def cast(x0: Operand, /, *, to: DTypeLike, name: str = "") -> Value:
    """x converted to another element type.

    to (dtype): the result's element type
    """

def ceil(x0: Operand, /, *, name: str = "") -> Value:
    """The smallest integer not below x."""

def celu(x0: Operand, /, *, alpha: float, name: str = "") -> Value:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)).

    alpha (float): not 0
    """

def channel_shuffle(x0: Operand, /, *, groups: int, name: str = "") -> Value:
    """Dimension 1 of x as `groups` groups, of which one element each comes in turn.

    groups (int): how many groups; divides the extent of dimension 1
    """

def clip(x0: Operand, x1: Operand, x2: Operand, /, *, name: str = "") -> Value:
    """min(max(x, lo), hi); lo and hi broadcast to x."""

def compute(*operands: Operand, body: str, sizes: Sequence[int | str] | None = None, name: str = "") -> Value:
    """A body of one's own over the operands x0, x1, ...

    body (string): "out[i<4] = expression" or "out[i<4] = sum[k<3] expression" (also prod, min, max)
    sizes (sizes, may be left out): what s0, s1, ... in the body are; default none
    """

def concat(x0: Operand, /, *operands: Operand, axis: int, in_place: int | None = None, name: str = "") -> Value:
    """The operands one after the other along `axis`.

    axis (int): the dimension along which they are joined
    in_place (int, may be left out): 1: set by the compiler where operands are computed into the result
    """

def conv(x0: Operand, x1: Operand, /, *, strides: Sequence[int], pads_begin: Sequence[int], pads_end: Sequence[int], dilations: Sequence[int], input_dilations: Sequence[int], groups: int, name: str = "") -> Value:
    """The convolution of x[N,C,spatial...] with the weights w[O,C/groups,kernel...]: y[n,o,p...] = sum over c, k of x[n, c of o's group, p * stride + k * dilation - pad] * w[o,c,k...].

    strides (ints): distance between neighbouring windows, per spatial dimension
    pads_begin (ints): padding before the first element; negative cuts off
    pads_end (ints): padding after the last element; negative cuts off
    dilations (ints): distance between neighbouring places of a window
    input_dilations (ints): distance at which the input's elements are laid out
    groups (int): groups of channels that do not see each other
    """

def conv_integer(x0: Operand, x1: Operand, x2: Operand | None = None, x3: Operand | None = None, /, *, strides: Sequence[int], pads_begin: Sequence[int], pads_end: Sequence[int], dilations: Sequence[int], groups: int, name: str = "") -> Value:
    """The convolution of bytes less their zero points, of which either may be left out from the end, in i32; padding is zero.

    strides (ints): distance between neighbouring windows, per spatial dimension
    pads_begin (ints): padding before the first element; negative cuts off
    pads_end (ints): padding after the last element; negative cuts off
    dilations (ints): distance between neighbouring places of a window
    groups (int): channels of x and y are split into so many
    """

def conv_transpose(x0: Operand, x1: Operand, /, *, strides: Sequence[int], pads_begin: Sequence[int], pads_end: Sequence[int], dilations: Sequence[int], output_padding: Sequence[int], groups: int, name: str = "") -> Value:
    """The transposed convolution of x[N,C,spatial...] with w[C,O/groups,kernel...].

    strides (ints): distance in the output between neighbouring input elements
    pads_begin (ints): elements cut off before the output
    pads_end (ints): elements cut off after the output
    dilations (ints): distance between neighbouring places of the kernel
    output_padding (ints): elements added after the output
    groups (int): groups of channels that do not see each other
    """

def conv_weights(x0: Operand, x1: Operand, /, *, strides: Sequence[int], pads_begin: Sequence[int], pads_end: Sequence[int], dilations: Sequence[int], input_dilations: Sequence[int], groups: int, window: Sequence[int], name: str = "") -> Value:
    """The gradient of the weights of conv, from its input x[N,C,spatial...] and its result's gradient dy[N,O,places...]: dw[o,c,k...] = sum over n, p of x[n, c of o's group, p * stride + k * dilation - pad] * dy[n,o,p...].

    strides (ints): distance between neighbouring windows, per spatial dimension
    pads_begin (ints): padding before the first element; negative cuts off
    pads_end (ints): padding after the last element; negative cuts off
    dilations (ints): distance between neighbouring places of a window
    input_dilations (ints): distance at which the input's elements are laid out
    groups (int): groups of channels that do not see each other
    window (ints): extents of the weights, per spatial dimension
    """

def cos(x0: Operand, /, *, name: str = "") -> Value:
    """The cosine of an angle in radians."""

def cosh(x0: Operand, /, *, name: str = "") -> Value:
    """The hyperbolic cosine."""

def cumulate(x0: Operand, /, *, axis: int, kind: str, exclusive: bool | None = None, reverse: bool | None = None, name: str = "") -> Value:
    """The running sum or product along an axis. f16 and bf16 are accumulated in f32.

    axis (int): the dimension along which it runs
    kind (string): sum or prod
    exclusive (bool, may be left out): without the element itself; default false
    reverse (bool, may be left out): from the end; default false
    """

def dequantize(x0: Operand, x1: Operand, x2: Operand | None = None, /, *, axis: int | None = None, name: str = "") -> Value:
    """(x - zero) * scale.

    axis (int, may be left out): the dimension of x whose entries have scales of their own
    """

def dequantize_blocks(x0: Operand, x1: Operand | None = None, x2: Operand | None = None, /, *, format: str, group: int | None = None, elements: int | None = None, name: str = "") -> Value:
    """The numbers of rows of blocks: the last dimension of the first operand is the bytes of a row, that of y its elements. Formats are GGUF's q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k and q6_k, f16 and bf16, whose blocks have one element, and u2, u4 and u8: (number - zero point) * scale, the lowest bits of a byte first, with scales and zero points (the middle of the range without them) for groups of a row as operands.

    format (string): what the bytes of a block mean
    group (int, may be left out): u2, u4, u8: numbers that share a scale
    elements (int, may be left out): u2, u4, u8: of a row; as many as it has room for, otherwise
    """

def div(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """a / b; integers truncate towards zero, and division by zero gives 0."""

def dropout(x0: Operand, /, *, ratio: float, seed: int | None = None, name: str = "") -> Value:
    """x: a training step drops elements with this probability and divides the others by what is left.

    ratio (float): the probability, 0 to 1
    seed (int, may be left out): of its random numbers, in place of the training step's
    """

def dynamic_quantize(x0: Operand, /, *, name: str = "") -> Value:
    """x as u8 that cover all its numbers and zero, their scale, and their zero point: real = (integer - zero) * scale."""

def dynamic_slice(x0: Operand, x1: Operand, /, *, sizes: Sequence[int | str], name: str = "") -> Value:
    """A box of x from the place `starts` on, moved to lie inside x.

    sizes (sizes): the box's extents, those of the result
    """

def dynamic_update_slice(x0: Operand, x1: Operand, x2: Operand, /, *, name: str = "") -> Value:
    """x with the second operand in a box from the place `starts`, the third, on, moved to lie inside x."""

def elu(x0: Operand, /, *, alpha: float, name: str = "") -> Value:
    """x, but alpha * (exp(x) - 1) where x < 0.

    alpha (float): minus the limit at -infinity
    """

def eq(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """a = b."""

def erf(x0: Operand, /, *, name: str = "") -> Value:
    """The error function."""

def exp(x0: Operand, /, *, name: str = "") -> Value:
    """e to the power x."""

def fake_quantize(x0: Operand, x1: Operand, x2: Operand, /, *, to: DTypeLike, name: str = "") -> Value:
    """x as integers of type `to` that cover low .. high and zero, made real again; and whether x was covered. The gradient passes straight through where it was.

    to (dtype): u8, or i8 without a zero point
    """

def fake_quantize_weights(x0: Operand, /, *, bits: int, axis: int | None = None, name: str = "") -> Value:
    """x as integers of `bits` bits, the largest magnitude the largest integer, made real again. The gradient passes straight through.

    bits (int): 2 to 8, a sign among them
    axis (int, may be left out): the dimension of x whose entries have scales of their own
    """

def floor(x0: Operand, /, *, name: str = "") -> Value:
    """The largest integer not above x."""

def fma(x0: Operand, x1: Operand, x2: Operand, /, *, name: str = "") -> Value:
    """a * b + c, rounded once where the machine has such an instruction; the three broadcast."""

def gather(x0: Operand, x1: Operand, /, *, axis: int, name: str = "") -> Value:
    """Slices of x along `axis`, one per element of indices, whose dimensions take the axis's place. A negative index counts from the end; what is still outside is clamped into the range.

    axis (int): the dimension of x that is indexed
    """

def gather_elements(x0: Operand, x1: Operand, /, *, axis: int, name: str = "") -> Value:
    """y[i, j, ...] = x[indices[i, j, ...], j, ...] for axis 0, and so on. A negative index counts from the end; what is still outside is clamped into the range.

    axis (int): the dimension of x that is indexed
    """

def ge(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """a >= b."""

def gelu(x0: Operand, /, *, approximate: str | None = None, name: str = "") -> Value:
    """x times the normal distribution's probability of values below x.

    approximate (string, may be left out): none (the default, with erf) or tanh
    """

def gemm(x0: Operand, x1: Operand, x2: Operand | None = None, /, *, alpha: float | None = None, beta: float | None = None, trans_a: bool | None = None, trans_b: bool | None = None, name: str = "") -> Value:
    """alpha * a * b + beta * c, where c is optional and broadcasts.

    alpha (float, may be left out): factor of the product; default 1
    beta (float, may be left out): factor of c; default 1
    trans_a (bool, may be left out): a is given transposed; default false
    trans_b (bool, may be left out): b is given transposed; default false
    """

def global_average_pool(x0: Operand, /, *, name: str = "") -> Value:
    """The mean over all spatial dimensions, which stay with extent 1."""

def global_max_pool(x0: Operand, /, *, name: str = "") -> Value:
    """The maximum over all spatial dimensions, which stay with extent 1."""

def group_norm(x0: Operand, x1: Operand, x2: Operand, /, *, epsilon: float, groups: int, stash: DTypeLike | None = None, name: str = "") -> Value:
    """Groups of channels of each sample of x with mean 0 and variance 1, times scale plus bias, one for each channel.

    epsilon (float): added to the variance
    groups (int): how many groups the channels are in
    stash (dtype, may be left out): the type in which x is normalised; its own if left out
    """

def gt(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """a > b."""

def hard_sigmoid(x0: Operand, /, *, alpha: float, beta: float, name: str = "") -> Value:
    """alpha * x + beta, held within 0 and 1.

    alpha (float): the slope
    beta (float): the value at 0
    """

def hard_swish(x0: Operand, /, *, name: str = "") -> Value:
    """x * max(0, min(1, x / 6 + 1/2))."""

def instance_norm(x0: Operand, x1: Operand, x2: Operand, /, *, epsilon: float, name: str = "") -> Value:
    """Each channel of each sample of x with mean 0 and variance 1, times scale plus bias.

    epsilon (float): added to the variance
    """

def is_inf(x0: Operand, /, *, name: str = "") -> Value:
    """Whether x is an infinity of either sign."""

def is_nan(x0: Operand, /, *, name: str = "") -> Value:
    """Whether x is NaN."""

def layer_norm(x0: Operand, x1: Operand | None = None, x2: Operand | None = None, /, *, epsilon: float, axis: int, stash: DTypeLike | None = None, statistics: bool | None = None, name: str = "") -> Value:
    """x with mean 0 and variance 1 over the dimensions from axis on, times scale and plus bias if given.

    epsilon (float): added to the variance
    axis (int): the first dimension that is normalised over
    stash (dtype, may be left out): the type in which x is normalised; its own if left out
    statistics (bool, may be left out): mean and 1 / sqrt(variance + epsilon) are results, too
    """

def le(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """a <= b."""

def leaky_relu(x0: Operand, /, *, alpha: float, name: str = "") -> Value:
    """x, times alpha where x < 0.

    alpha (float): the slope below 0
    """

def log(x0: Operand, /, *, name: str = "") -> Value:
    """The natural logarithm."""

def log_softmax(x0: Operand, /, *, axis: int, name: str = "") -> Value:
    """The logarithm of softmax.

    axis (int): the dimension that sums to 1
    """

def logical_and(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """a and b."""

def logical_not(x0: Operand, /, *, name: str = "") -> Value:
    """not x."""

def logical_or(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """a or b."""

def logical_xor(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """a or b but not both."""

def lt(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """a < b."""

def matmul(x0: Operand, x1: Operand, /, *, transpose_a: bool | None = None, transpose_b: bool | None = None, name: str = "") -> Value:
    """Matrix products over the last two dimensions; the dimensions before them broadcast.

    transpose_a (bool, may be left out): swap the last two dimensions of a first; default false
    transpose_b (bool, may be left out): swap the last two dimensions of b first; default false
    """

def matmul_integer(x0: Operand, x1: Operand, x2: Operand | None = None, x3: Operand | None = None, /, *, name: str = "") -> Value:
    """The matrix product of bytes less their zero points, of which either may be left out from the end, in i32."""

def max(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """The larger; NaN when either is NaN."""

def max_pool(x0: Operand, /, *, strides: Sequence[int], pads_begin: Sequence[int], pads_end: Sequence[int], dilations: Sequence[int], window: Sequence[int], ceil_mode: bool | None = None, name: str = "") -> Value:
    """The maximum of every window; padding does not take part.

    strides (ints): distance between neighbouring windows, per spatial dimension
    pads_begin (ints): padding before the first element; negative cuts off
    pads_end (ints): padding after the last element; negative cuts off
    dilations (ints): distance between neighbouring places of a window
    window (ints): the window's extents
    ceil_mode (bool, may be left out): whether a last window may reach over the end; default false
    """

def min(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """The smaller; NaN when either is NaN."""

def mish(x0: Operand, /, *, name: str = "") -> Value:
    """x * tanh(softplus(x))."""

def momentum(x0: Operand, x1: Operand, x2: Operand, x3: Operand, x4: Operand, /, *, l2: float, alpha: float, beta: float, nesterov: bool | None = None, name: str = "") -> Value:
    """A step of gradient descent with momentum: the new weight and the new momentum. The operands are weight, gradient, momentum, learning rate, number of the step: at 0 or below, the gradient counts in full.

    l2 (float): the gradient grows by this much of the weight
    alpha (float): how much of the momentum stays
    beta (float): how much of the gradient the momentum takes in
    nesterov (bool, may be left out): the weight follows the gradient and alpha times the new momentum
    """

def mul(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """a * b; integers wrap."""

def ne(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """Whether a and b differ."""

def neg(x0: Operand, /, *, name: str = "") -> Value:
    """-x; integers wrap."""

def nll_loss(x0: Operand, x1: Operand, x2: Operand | None = None, /, *, reduction: str, ignore_index: int | None = None, name: str = "") -> Value:
    """The negative log likelihood of targets t[N,...], given log probabilities x[N,C,...] of C classes and, as a third operand, a weight for each class.

    reduction (string): none: a loss for each target; sum; mean: the sum divided by the weights of the targets that count
    ignore_index (int, may be left out): targets of this number count nothing
    """

def order(x0: Operand, /, *, count: int, descending: bool | None = None, name: str = "") -> Value:
    """The numbers of the first `count` elements of each row of x [rows, elements, width] when the elements, compared value by value, are sorted. Equal elements stay in order, 0 equals -0, NaN equals itself and is the largest value.

    count (int): how many
    descending (bool, may be left out): the largest first; default false
    """

def pad(x0: Operand, x1: Operand | None = None, /, *, low: Sequence[int | str], high: Sequence[int | str], mode: str, name: str = "") -> Value:
    """x with elements added before and after each dimension; negative amounts cut off.

    low (sizes): elements added before, per dimension
    high (sizes): elements added after, per dimension
    mode (string): constant: the second operand, a scalar; edge: the nearest element; reflect: mirrored at the end elements; wrap: from the other end
    """

def pow(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """a to the power b; integers wrap, and a negative power of an integer is its truncated reciprocal."""

def prelu(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """x, times the slope (which broadcasts to x) where x < 0."""

def quantize(x0: Operand, x1: Operand, x2: Operand | None = None, /, *, to: DTypeLike, axis: int | None = None, name: str = "") -> Value:
    """round(x / scale) + zero, to the nearest integer, of two the even one, and kept within the range of `to`.

    to (dtype): the integers' type
    axis (int, may be left out): the dimension of x whose entries have scales of their own
    """

def random_bits(x0: Operand, x1: Operand | None = None, /, *, shape: Sequence[int], name: str = "") -> Value:
    """Random words (Threefry-2x32, 20 rounds): element i, row-major, is word i mod 2 of block i / 2 of the key, counted from the number in operand 1, or from 0.

    shape (ints): the result's extents
    """

def rank_shift(x0: Operand, /, *, mesh: str, axes: str, by: int, turn: int | None = None, name: str = "") -> Value:
    """What the rank of a group has that stands so many places before each; zeros where none does.

    mesh (string): all ranks, "data=2,model=4"
    axes (string): along which a group lies: "data"
    turn (int, may be left out): not 0: the collective stays in its place, and differs from those of other turns
    by (int): how many places before it the rank stands whose operand a rank gets
    """

def receive(x0: Operand, /, *, mesh: str, axes: str, peer: int, message: int, shape: Sequence[int | str], dtype: DTypeLike, turn: int | None = None, name: str = "") -> Value:
    """Gets a tensor of another rank; messages stand in order behind what has no elements.

    mesh (string): all ranks, "data=2,model=4"
    axes (string): along which a group lies: "data"
    turn (int, may be left out): not 0: the collective stays in its place, and differs from those of other turns
    peer (int): the other rank
    message (int): a number that no other message between the two has
    shape (sizes): of what is received
    dtype (dtype): of its elements
    """

def reduce(x0: Operand, /, *, kind: str, axes: Sequence[int], keepdims: bool, name: str = "") -> Value:
    """The elements of x combined over the dimensions in `axes`; over no elements, the combiner's identity (0, 1, the largest or the smallest value).

    kind (string): sum, prod, min or max
    axes (ints): the dimensions to reduce
    keepdims (bool): whether a reduced dimension stays with extent 1
    """

def reduce_l1(x0: Operand, /, *, axes: Sequence[int], keepdims: bool, name: str = "") -> Value:
    """The sum of absolute values over the axes.

    axes (ints): the dimensions to reduce
    keepdims (bool): whether a reduced dimension stays with extent 1
    """

def reduce_l2(x0: Operand, /, *, axes: Sequence[int], keepdims: bool, name: str = "") -> Value:
    """The square root of the sum of squares over the axes.

    axes (ints): the dimensions to reduce
    keepdims (bool): whether a reduced dimension stays with extent 1
    """

def reduce_log_sum(x0: Operand, /, *, axes: Sequence[int], keepdims: bool, name: str = "") -> Value:
    """The logarithm of the sum over the axes.

    axes (ints): the dimensions to reduce
    keepdims (bool): whether a reduced dimension stays with extent 1
    """

def reduce_log_sum_exp(x0: Operand, /, *, axes: Sequence[int], keepdims: bool, name: str = "") -> Value:
    """The logarithm of the sum of exponentials over the axes.

    axes (ints): the dimensions to reduce
    keepdims (bool): whether a reduced dimension stays with extent 1
    """

def reduce_mean(x0: Operand, /, *, axes: Sequence[int], keepdims: bool, name: str = "") -> Value:
    """The mean over the axes.

    axes (ints): the dimensions to reduce
    keepdims (bool): whether a reduced dimension stays with extent 1
    """

def reduce_scatter(x0: Operand, /, *, mesh: str, axes: str, kind: str, turn: int | None = None, name: str = "") -> Value:
    """Each rank's part, along dimension 0, of the sum, product, minimum or maximum of what a group has.

    mesh (string): all ranks, "data=2,model=4"
    axes (string): along which a group lies: "data"
    turn (int, may be left out): not 0: the collective stays in its place, and differs from those of other turns
    kind (string): sum, prod, min or max
    """

def reduce_sum_square(x0: Operand, /, *, axes: Sequence[int], keepdims: bool, name: str = "") -> Value:
    """The sum of squares over the axes.

    axes (ints): the dimensions to reduce
    keepdims (bool): whether a reduced dimension stays with extent 1
    """

def reduce_window(x0: Operand, /, *, strides: Sequence[int], pads_begin: Sequence[int], pads_end: Sequence[int], dilations: Sequence[int], kind: str, window: Sequence[int], input_dilations: Sequence[int] | None = None, name: str = "") -> Value:
    """The sum, maximum or minimum over a window that slides over the spatial dimensions of x[N,C,spatial...]; padded places do not take part.

    strides (ints): distance between neighbouring windows, per spatial dimension
    pads_begin (ints): padding before the first element; negative cuts off
    pads_end (ints): padding after the last element; negative cuts off
    dilations (ints): distance between neighbouring places of a window
    kind (string): sum, max or min
    window (ints): the window's extents, per spatial dimension
    input_dilations (ints, may be left out): of a sum: distance at which the input's elements are laid out; default 1
    """

def region_pool(x0: Operand, x1: Operand, x2: Operand, /, *, rows: int, columns: int, scale: float, kind: str, half_pixel: bool | None = None, name: str = "") -> Value:
    """Regions [R, 4] (x, y of two corners, times `scale`) of images x [N, H, W, C], whose numbers are [R], cut into rows by columns of bins: the mean or maximum of values read bilinearly at ceil(bin height) by ceil(bin width) places of each bin, zeros outside of the image. 16-bit floats are summed in f32.

    rows (int): bins of a region, from top to bottom
    columns (int): bins of a region, from left to right
    scale (float): pixels per unit of a region's corners
    half_pixel (bool, may be left out): corners lie half a pixel before their pixel, and a region may be smaller than a pixel; default false
    kind (string): average, or max: the largest of the four weighted pixels of all places
    """

def region_pool_gradient(x0: Operand, x1: Operand, x2: Operand, /, *, rows: int, columns: int, scale: float, shape: Sequence[int | str], half_pixel: bool | None = None, name: str = "") -> Value:
    """The gradient of the images of region_pool with kind = average: gradients of bins [R, rows, columns, C], added at the pixels that the bins' places read, times their shares.

    rows (int): bins of a region, from top to bottom
    columns (int): bins of a region, from left to right
    scale (float): pixels per unit of a region's corners
    half_pixel (bool, may be left out): corners lie half a pixel before their pixel, and a region may be smaller than a pixel; default false
    shape (sizes): of the images [N, H, W, C]
    """

def region_pool_largest(x0: Operand, x1: Operand, x2: Operand, /, *, rows: int, columns: int, scale: float, what: str, half_pixel: bool | None = None, name: str = "") -> Value:
    """Of region_pool with kind = max: which pixel is a bin's maximum, as its place among the elements of x, the first of equal ones and -1 where none is larger than what lies outside of the image (0); or its share, the weight of its bilinear value, 0 where there is no pixel.

    rows (int): bins of a region, from top to bottom
    columns (int): bins of a region, from left to right
    scale (float): pixels per unit of a region's corners
    half_pixel (bool, may be left out): corners lie half a pixel before their pixel, and a region may be smaller than a pixel; default false
    what (string): place or share
    """

def relu(x0: Operand, /, *, name: str = "") -> Value:
    """max(x, 0)."""

def rem(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """What truncating division leaves, with the sign of a; a itself for an integer b of 0."""

def reshape(x0: Operand, /, *, shape: Sequence[int | str], name: str = "") -> Value:
    """The elements of x in row-major order under another shape.

    shape (sizes): the result's extents, all given
    """

def resize(x0: Operand, x1: Operand | None = None, x2: Operand | None = None, /, *, mode: str, coordinate: str, sizes: Sequence[int | str], nearest_mode: str | None = None, scales: Sequence[float] | None = None, axes: Sequence[int] | None = None, extrapolation: float | None = None, cubic_coeff: float | None = None, exclude_outside: bool | None = None, name: str = "") -> Value:
    """x interpolated to other extents.

    mode (string): nearest, linear or cubic
    coordinate (string): how output indices become input coordinates, see resize_places.h
    nearest_mode (string, may be left out): round_prefer_floor (the default), round_prefer_ceil, floor or ceil
    scales (floats, may be left out): output extent per input extent, for every dimension; 0: the ratio of the two; or else operand 2
    axes (ints, may be left out): the dimensions that operands 2, f64[n], and 3, f64[2n], are about; default all
    sizes (sizes): the result's extents, all of them
    extrapolation (float, may be left out): crop: what stands outside the input; operand 3 is where the region begins, and where it ends, in each dimension
    cubic_coeff (float, may be left out): the cubic's parameter; default -0.75
    exclude_outside (bool, may be left out): cubic: places outside the input get no weight, instead of the nearest element's; default false
    """

def resize_antialiased(x0: Operand, x1: Operand, x2: Operand | None = None, /, *, mode: str, coordinate: str, sizes: Sequence[int | str], axes: Sequence[int] | None = None, cubic_coeff: float | None = None, exclude_outside: bool | None = None, extrapolation: float | None = None, name: str = "") -> Value:
    """x resized so that each element of a smaller result is a mean of all that it stands for.

    mode (string): linear or cubic
    coordinate (string): as for resize
    sizes (sizes): the result's extents, all of them
    axes (ints, may be left out): the dimensions that the scales, f64[n], and the region, f64[2n], are about
    cubic_coeff (float, may be left out): the cubic's parameter; default -0.75
    exclude_outside (bool, may be left out): places outside the input get no weight; default false
    extrapolation (float, may be left out): crop: what stands outside the input
    """

def rms_norm(x0: Operand, x1: Operand | None = None, /, *, epsilon: float, axis: int, stash: DTypeLike | None = None, statistics: bool | None = None, name: str = "") -> Value:
    """x divided by the root of the mean of its squares over the dimensions from axis on, times scale if given, and of scale's type.

    epsilon (float): added to the variance
    axis (int): the first dimension that is normalised over
    stash (dtype, may be left out): the type in which x is normalised; its own if left out
    statistics (bool, may be left out): 1 / sqrt(mean of squares + epsilon) is a result, too
    """

def round(x0: Operand, /, *, name: str = "") -> Value:
    """The nearest integer, halves to even."""

def scaled_matmul(x0: Operand, x1: Operand, x2: Operand, /, *, name: str = "") -> Value:
    """Rows of bytes times the rows of a matrix: the sums over k of x[.., k] * scales[.., k / group] * w[column, k]. As many neighbours of a row as there are elements for each of its scales are a group."""

def scatter(x0: Operand, x1: Operand, x2: Operand, /, *, join: str, name: str = "") -> Value:
    """x [B, P, I] with updates [B, U, I] at places [B, U] of dimension 1, one after the other; a place that does not exist takes none.

    join (string): none (the update replaces what is there), add, mul, min or max (NaN wins)
    """

def select(x0: Operand, x1: Operand, x2: Operand, /, *, name: str = "") -> Value:
    """a where cond holds, else b; the three broadcast."""

def selu(x0: Operand, /, *, alpha: float, gamma: float, name: str = "") -> Value:
    """gamma times elu with alpha.

    alpha (float): as in elu
    gamma (float): the factor
    """

def send(x0: Operand, x1: Operand, /, *, mesh: str, axes: str, peer: int, message: int, turn: int | None = None, name: str = "") -> Value:
    """Gives a tensor to another rank; messages stand in order behind what has no elements.

    mesh (string): all ranks, "data=2,model=4"
    axes (string): along which a group lies: "data"
    turn (int, may be left out): not 0: the collective stays in its place, and differs from those of other turns
    peer (int): the other rank
    message (int): a number that no other message between the two has
    """

def shift_left(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """a shifted left by b bits; 0 when b is not in 0 .. bits - 1."""

def shift_right(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """a shifted right by b bits, keeping the sign; all sign bits when b is not in 0 .. bits - 1."""

def sigmoid(x0: Operand, /, *, name: str = "") -> Value:
    """1 / (1 + exp(-x))."""

def sign(x0: Operand, /, *, name: str = "") -> Value:
    """-1, 0 or 1; NaN for NaN."""

def silu(x0: Operand, /, *, name: str = "") -> Value:
    """x * sigmoid(x)."""

def sin(x0: Operand, /, *, name: str = "") -> Value:
    """The sine of an angle in radians."""

def sinh(x0: Operand, /, *, name: str = "") -> Value:
    """The hyperbolic sine."""

def slice(x0: Operand, /, *, starts: Sequence[int | str], sizes: Sequence[int | str], steps: Sequence[int], in_place: int | None = None, name: str = "") -> Value:
    """A regular part of x: per dimension a start, a number of elements and a step.

    starts (sizes): index of the first element, per dimension
    sizes (sizes): the result's extents
    steps (ints): distance between elements, not 0; negative walks backwards
    in_place (int, may be left out): 1: set by the compiler where the result is a view of x
    """

def softmax(x0: Operand, /, *, axis: int, name: str = "") -> Value:
    """exp(x) divided by its sum along axis.

    axis (int): the dimension that sums to 1
    """

def softmax_cross_entropy(x0: Operand, x1: Operand, x2: Operand | None = None, /, *, reduction: str, ignore_index: int | None = None, name: str = "") -> Value:
    """The negative log likelihood of targets t[N,...] under the softmax of scores x[N,C,...] over C classes, and the logarithm of that softmax; a third operand is a weight for each class.

    reduction (string): none: a loss for each target; sum; mean: the sum divided by the weights of the targets that count
    ignore_index (int, may be left out): targets of this number count nothing
    """

def softplus(x0: Operand, /, *, name: str = "") -> Value:
    """log(1 + exp(x))."""

def softsign(x0: Operand, /, *, name: str = "") -> Value:
    """x / (1 + |x|)."""

def sqrt(x0: Operand, /, *, name: str = "") -> Value:
    """The square root."""

def stop_gradient(x0: Operand, /, *, name: str = "") -> Value:
    """x itself; its gradient is zero."""

def sub(x0: Operand, x1: Operand, /, *, name: str = "") -> Value:
    """a - b; integers wrap."""

def suppress(x0: Operand, x1: Operand, x2: Operand, x3: Operand, x4: Operand | None = None, /, *, most: int, centres: bool | None = None, name: str = "") -> Value:
    """Numbers of boxes [images, boxes, 4] for each class of scores [images, classes, boxes]: the one with the highest score, the next one whose overlap (intersection over union) with those before is not above a threshold, and so on, up to a limit; -1 behind them. With a fifth operand only boxes whose scores are above it; never those whose scores are NaN.

    most (int): places for each class
    centres (bool, may be left out): boxes are x, y of the centre, width, height; else two corners as y, x, y, x (the default)
    """

def tan(x0: Operand, /, *, name: str = "") -> Value:
    """The tangent of an angle in radians."""

def tanh(x0: Operand, /, *, name: str = "") -> Value:
    """The hyperbolic tangent."""

def transpose(x0: Operand, /, *, perm: Sequence[int], name: str = "") -> Value:
    """Dimension i of the result is dimension perm[i] of x.

    perm (ints): a permutation of the dimensions
    """
