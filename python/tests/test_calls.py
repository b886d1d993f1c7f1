"""Ops of the C library beside PyTorch's, in random cases: the result and the gradients, in float64 those
of the first three orders."""

from ctypes import Structure, byref, c_double, c_int, c_int32, c_int64

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from calls import Library, T, gd, options, row

CASES = 400  # of each row, half of them in float64
REDUCTIONS = ("mean", "sum", "none", "batchmean")


class Draw(np.random.Generator):
    """The random numbers of the cases."""

    def whole(self, low, high):
        return int(self.integers(low, high + 1))

    def pair(self, low, high):
        return self.whole(low, high), self.whole(low, high)

    def flag(self, chance=0.5):
        return bool(self.random() < chance)

    def real(self, low, high):
        return float(self.uniform(low, high))

    def shape(self, most=3):
        return tuple(self.whole(1, 8) for _ in range(self.whole(1, most)))

    def axis(self, shape):
        return self.whole(-len(shape), len(shape) - 1)


# A row of the table is a function (name, draw) -> (a call of gd_NAME, PyTorch's, inputs). A fourth is the
# highest order compared, where it is not 3. Inputs in a tuple, and whole numbers, are constants.

def normal(d, shape):
    return d.normal(size=shape)


def wide(d, shape):
    return d.normal(size=shape) * 3


def positive(d, shape):
    return 0.3 + np.abs(d.normal(size=shape))


def halves(d, shape):
    return np.round(d.normal(size=shape) * 6) / 2


def away(d, shape):
    x = wide(d, shape)
    return np.where(np.abs(x) < 0.1, 0.1, x)


def unary(theirs, *ranges, values=wide):
    """gd_NAME(x, numbers ...)"""
    def case(name, d):
        numbers = [d.real(*r) for r in ranges]
        return (lambda x: gd(name, x, *numbers), lambda x: theirs(x, *numbers),
                [values(d, d.shape())])
    return case


def binary(theirs, first=normal, second=normal, broadcast=True):
    """gd_NAME(x, y), of which y may be broadcast"""
    def case(name, d):
        shape = d.shape()
        other = shape
        if broadcast:
            other = [1 if d.flag(0.3) else n for n in shape][d.whole(0, len(shape) - 1):]
        return lambda x, y: gd(name, x, y), theirs, [first(d, shape), second(d, other)]
    return case


def loss(theirs, *numbers):
    """gd_NAME(x, target, numbers ..., reduction)"""
    def case(name, d):
        given, r, shape = {n: d.real(0.1, 2) for n in numbers}, d.whole(0, 2), d.shape()
        return (lambda x, t: gd(name, x, t, *given.values(), r),
                lambda x, t: theirs(x, t, reduction=REDUCTIONS[r], **given),
                [normal(d, shape), normal(d, shape)])
    return case


def axes(d, shape, most=9):
    """One axis or several, for PyTorch and as arguments of the library."""
    n = d.whole(1, min(most, len(shape)))
    some = [int(a) - len(shape) * d.flag() for a in d.permutation(len(shape))[:n]]
    return some, ((c_int * n)(*some), n)


def reduce(theirs, *last, values=normal, most=9, low=1):
    """gd_NAME(x, axes, count, last ..., keep)"""
    def case(name, d):
        shape = tuple(n + low - 1 for n in d.shape())
        some, given = axes(d, shape, most)
        keep, some = d.flag(), some if most > 1 else some[0]
        return (lambda x: gd(name, x, *given, *last, keep), lambda x: theirs(x, some, keep),
                [values(d, shape)])
    return case


def along(theirs, *numbers, values=normal, inputs=1):
    """gd_NAME(x ..., axis, numbers ...)"""
    def case(name, d):
        shape = d.shape()
        axis = d.axis(shape)
        return (lambda *x: gd(name, *x, axis, *numbers), lambda *x: theirs(*x, axis, *numbers),
                [values(d, shape) for _ in range(inputs)])
    return case


def bce(name, d):
    shape, r = d.shape(), d.whole(0, 2)
    values = [d.normal(size=shape) * 4, d.uniform(size=shape)]
    if d.flag():
        return (lambda x, t: gd(name, x, t, None, r),
                lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction=REDUCTIONS[r]),
                values)

    def theirs(x, t, w):  # the formula, as PyTorch's op has no gradient for the weight
        loss = (1 - t) * F.softplus(x) + w * t * F.softplus(-x)
        assert torch.allclose(loss, F.binary_cross_entropy_with_logits(
            x, t, pos_weight=w.detach(), reduction="none"), rtol=1e-4, atol=1e-5)
        return loss.mean() if r == 0 else loss.sum() if r == 1 else loss
    weight = d.uniform(0.5, 3, size=shape[-1:])
    return lambda x, t, w: gd(name, x, t, w, r), theirs, values + [weight]


def kl_div(name, d):
    shape, r, log_target = d.shape(), d.whole(0, 3), d.flag()
    target = d.uniform(0.01, 1, size=shape)
    return (lambda x, t: gd(name, x, t, log_target, r),
            lambda x, t: F.kl_div(x, t, reduction=REDUCTIONS[r], log_target=log_target),
            [normal(d, shape), np.log(target) if log_target else target])


def cosine_embedding_loss(name, d):
    m, n, r, margin = d.whole(1, 8), d.whole(2, 9), d.whole(0, 2), d.real(-0.5, 0.5)
    return (lambda x, y, t: gd(name, x, y, t, margin, r),
            lambda x, y, t: F.cosine_embedding_loss(x, y, t, margin, reduction=REDUCTIONS[r]),
            [normal(d, (m, n)), normal(d, (m, n)), (np.sign(normal(d, m)),)])


def norm(name, d):
    shape, keep = d.shape(), d.flag()
    p = float(d.choice([0, 0.5, 1, 1.5, 2, 3, 7.5, -1, -2.5, np.inf, -np.inf]))
    some, given = axes(d, shape)
    x, orders = normal(d, shape), 3
    if p < 0:
        x += np.sign(x)
    elif p != np.inf and p >= 1 and d.flag(0.3):
        x *= d.random(size=shape) < 0.5
        x.flat[0], orders = 0, 1  # PyTorch's second order has NaN at 0
    return (lambda x: gd(name, x, p, *given, keep),
            lambda x: torch.linalg.vector_norm(x, p, some, keep) + 0 * x.sum(), [x], orders)


def zeros(d, shape):
    return np.where(d.random(size=shape) < d.choice([0, 0.1, 0.4]), 0, normal(d, shape))


def few(d, shape):
    return d.integers(-1, 2, size=shape) * d.integers(0, 2, size=shape) * 1.0


def ties(d, shape):
    return np.round(d.normal(size=shape) * 2) / 2


def arg(theirs):
    def case(name, d):
        shape, keep = d.shape(), d.flag()
        axis = d.axis(shape)
        return (lambda x: gd(name, x, axis, keep), lambda x: theirs(x, axis, keep),
                [normal(d, shape)])
    return case


def index_select(name, d):
    shape = d.shape()
    axis = d.axis(shape)
    return (lambda x, i: gd(name, x, axis, i), lambda x, i: torch.index_select(x, axis, i),
            [normal(d, shape), d.integers(0, shape[axis], size=d.whole(0, 12))])


def gather(name, d):
    m, n = d.pair(1, 5)
    return (lambda x, i: gd(name, x, 0, i), lambda x, i: x.gather(0, i),
            [normal(d, (m, n)), d.integers(0, m, size=(d.whole(1, 5), n))])


def embedding(name, d):
    shape = d.pair(1, 5)
    return (lambda x, i: gd(name, x, i), lambda x, i: F.embedding(i, x),
            [normal(d, shape), d.integers(0, shape[0], size=d.shape())])


def roll(name, d):
    shape, shift = d.shape(), d.whole(-20, 20)
    axis = d.axis(shape)
    return (lambda x: gd(name, x, axis, c_int64(shift)), lambda x: torch.roll(x, shift, axis),
            [normal(d, shape)])


def split(name, d):
    """One of the parts."""
    shape = d.shape()
    axis = d.axis(shape)
    cuts = np.sort(d.integers(0, shape[axis] + 1, d.whole(0, 3)))
    sizes = np.diff([0, *cuts, shape[axis]]).tolist()
    n, which, parts = len(sizes), d.whole(0, len(sizes) - 1), row([None] * len(sizes))

    def ours(x):
        gd(name, x, axis, n, (c_int64 * n)(*sizes), parts)
        return parts[which]
    return ours, lambda x: torch.split(x, sizes, axis)[which], [normal(d, shape)]


def concat(name, d):
    shape = d.shape()
    axis = d.axis(shape)
    return (lambda *x: gd(name, row(x), 2, axis), lambda *x: torch.cat(x, axis),
            [normal(d, shape), normal(d, shape)])


def flip(name, d):
    shape = d.shape()
    some, given = axes(d, shape)
    return lambda x: gd(name, x, *given), lambda x: torch.flip(x, some), [normal(d, shape)]


def triangle(theirs):
    def case(name, d):
        shape, k = (*d.shape(2), 3), d.whole(-9, 9)
        return lambda x: gd(name, x, c_int64(k)), lambda x: theirs(x, k), [normal(d, shape)]
    return case


def sort(name, d):
    """The values, or the places: NaN counts as the largest, and equal elements keep their order."""
    shape, falling, places = d.shape(), d.flag(), name != "sort"
    axis, x = d.axis(shape), ties(d, shape)
    if places and d.flag():
        x[d.random(size=shape) < 0.2] = d.choice([np.nan, -np.inf, -0.0])

    def ours(x):
        index = T()
        y = gd("sort", x, axis, falling, byref(index))
        return index if places else y
    return ours, lambda x: torch.sort(x, dim=axis, descending=falling, stable=True)[places], [x]


class Entropy(Structure):
    _fields_ = [("reduction", c_int), ("ignore_index", c_int32), ("weight", T),
                ("label_smoothing", c_double)]


def nll_loss(name, d):
    """With class weights, which have no gradient, and an ignore index."""
    *lead, V = d.shape()
    V, r = V + 1, d.whole(0, 2)
    targets = np.array(d.integers(0, V, size=lead))
    if r == 0:
        targets.flat[0] = 0
    ignore = d.whole(1, V - 1) if d.flag() else -100

    def theirs(x, t, w=None):
        loss = F.nll_loss(x.reshape(-1, V), t.reshape(-1), w, ignore_index=ignore,
                          reduction=REDUCTIONS[r])
        return loss.reshape(t.shape) if r == 2 else loss
    return (lambda x, t, w=None: gd(name, x, t, byref(Entropy(r, ignore, w, 0))), theirs,
            [normal(d, (*lead, V)), targets] + d.flag() * [(d.uniform(0.5, 2, size=V),)])


def cross_entropy_with(name, d):
    """Of probabilities, with class weights, which have a gradient, and smoothing."""
    *lead, V = d.shape()
    V, r, smooth = V + 1, d.whole(0, 2), float(d.choice([0, 0.3, 1]))

    def theirs(x, q, w):
        loss = F.cross_entropy(x.reshape(-1, V), q.reshape(-1, V), w, label_smoothing=smooth,
                               reduction=REDUCTIONS[r])
        return loss.reshape(lead) if r == 2 else loss
    return (lambda x, q, w: gd(name, x, q, byref(Entropy(r, 0, w, smooth))), theirs,
            [wide(d, (*lead, V)), d.uniform(size=(*lead, V)), d.uniform(0.2, 2, size=V)])


def cross_entropy(name, d):
    m, n = d.pair(1, 5)
    return (lambda x, t: gd(name, x, t), F.cross_entropy,
            [normal(d, (m, n)), d.integers(0, n, size=m)])


def linear_cross_entropy(name, d):
    m, n, k = *d.pair(1, 5), d.whole(1, 5)
    return (lambda x, w, t: gd(name, x, w, t, None),
            lambda x, w, t: F.cross_entropy(F.linear(x, w), t),
            [normal(d, (m, k)), normal(d, (n, k)), d.integers(0, n, size=m)])


def matmul(name, d):
    m, k, n, lead = *d.pair(1, 5), d.whole(1, 5), d.flag() * (d.whole(1, 5),)
    return (lambda x, y: gd(name, x, y), torch.matmul,
            [normal(d, (*lead, m, k)), normal(d, (*d.flag() * lead, k, n))])


def linear(name, d):
    m, k, n = *d.pair(1, 5), d.whole(1, 5)
    return (lambda x, w, b: gd(name, x, w, b), F.linear,
            [normal(d, (m, k)), normal(d, (n, k)), normal(d, n)])


def attention(name, d):
    b, t, h, width = *d.pair(1, 4), *d.pair(1, 3)

    def theirs(q, k, v):
        q, k, v = (z.transpose(1, 2) for z in (q, k, v))
        scores = q @ k.transpose(-1, -2) / width ** 0.5
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        return (scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v).transpose(1, 2)

    given = options(causal=True, scale=0.0, dropout=0.0, mask=T(None), window=0)
    return (lambda q, k, v: gd(name, q, k, v, byref(given)), theirs,
            [normal(d, (b, t, h, width)) for _ in range(3)])


# ---- Images ----------------------------------------------------------------------------------

class Windows:
    """Random kernel, stride, padding, dilation, groups, and an image that a window fits in."""

    def __init__(self, d):
        self.kernel, self.stride = d.pair(1, 4), d.pair(1, 3)
        self.padding, self.dilation = d.pair(0, 3), d.pair(1, 3)
        self.groups, self.batch = d.pair(1, 3)
        self.C, self.O = (self.groups * n for n in d.pair(1, 5))
        if d.flag(0.2):
            self.C = self.groups  # depthwise
        self.size = tuple(
            max(1, r * (k - 1) + 1 + g - 2 * p)
            for k, r, g, p in zip(self.kernel, self.dilation, d.pair(0, 12), self.padding)
        )

    def options(self, output_padding=(0, 0), places=2):
        rest = (0,) * (2 - places)
        pairs = {k: (*v, *rest) for k, v in self.torch(places).items()}
        return byref(options(**pairs, groups=self.groups, output_padding=output_padding))

    def torch(self, places=2):
        return {k: getattr(self, k)[:places] for k in ("stride", "padding", "dilation")}


def conv(places):
    def case(name, d):
        w = Windows(d)
        theirs = (F.conv1d, F.conv2d)[places - 1]
        shapes = [(w.batch, w.C, *w.size[:places]), (w.O, w.C // w.groups, *w.kernel[:places])]
        return (lambda x, k, b=None: gd(name, x, k, b, w.options(places=places)),
                lambda x, k, b=None: theirs(x, k, b, groups=w.groups, **w.torch(places)),
                [normal(d, s) for s in shapes + d.flag(0.8) * [(w.O,)]])
    return case


def conv_transpose2d(name, d):
    while True:
        w = Windows(d)
        extra = tuple(d.whole(0, max(s, r) - 1) for s, r in zip(w.stride, w.dilation))
        size = [(n - 1) * s - 2 * p + r * (k - 1) + 1 + e for n, s, p, r, k, e in
                zip(w.size, w.stride, w.padding, w.dilation, w.kernel, extra)]
        if min(size) > 0:
            break
    shapes = [(w.batch, w.C, *w.size), (w.C, w.O // w.groups, *w.kernel)] + d.flag(0.8) * [(w.O,)]
    return (lambda x, k, b=None: gd(name, x, k, b, w.options(extra)),
            lambda x, k, b=None: F.conv_transpose2d(x, k, b, groups=w.groups, output_padding=extra,
                                                    **w.torch()), [normal(d, s) for s in shapes])


def unfold(name, d):
    w = Windows(d)
    return (lambda x: gd(name, x, *map(c_int64, w.kernel), w.options()),
            lambda x: F.unfold(x, w.kernel, **w.torch()), [normal(d, (w.batch, w.C, *w.size))])


def fold(name, d):
    w = Windows(d)
    columns = F.unfold(torch.zeros(w.batch, w.C, *w.size), w.kernel, **w.torch())
    return (lambda x: gd(name, x, *map(c_int64, w.size + w.kernel), w.options()),
            lambda x: F.fold(x, w.size, w.kernel, **w.torch()), [normal(d, tuple(columns.shape))])


def pool(theirs):
    def case(name, d):
        kernel, stride = d.pair(1, 4), d.pair(1, 4)
        padding = tuple(d.whole(0, k // 2) for k in kernel)
        given = options(kernel=kernel, stride=stride, padding=padding)
        x = normal(d, (2, 3, *(k + d.whole(0, 8) for k in kernel)))
        return (lambda x: gd(name, x, byref(given)), lambda x: theirs(x, kernel, stride, padding),
                [np.round(x) if name == "max_pool2d" and d.flag(0.3) else x])  # with ties
    return case


def pad(name, d):
    mode, amounts = d.whole(0, 2), (*d.pair(0, 3), *d.pair(0, 3))
    value = 0.5 if mode == 0 else 0.0
    fields = dict(zip(("left", "right", "top", "bottom"), amounts))
    given = options(**fields, mode=c_int(mode), value=value)
    kind = ("constant", "reflect", "replicate")[mode]
    return (lambda x: gd(name, x, byref(given)),
            lambda x: F.pad(x, amounts, kind, value if mode == 0 else None),
            [normal(d, (2, 3, *d.pair(4, 9)))])


def upsample_nearest(name, d):
    factors = d.pair(1, 4)
    return (lambda x: gd(name, x, *map(c_int64, factors)),
            lambda x: F.interpolate(x, scale_factor=tuple(map(float, factors))),
            [normal(d, (2, 3, *d.pair(1, 7)))])


# ---- Layers ----------------------------------------------------------------------------------

def row_norm(theirs):
    """gd_NAME(x, parameters ..., eps). The formula, as PyTorch's layer_norm has a wrong third order."""
    def case(name, d):
        m, n, count = d.whole(1, 5), d.whole(2, 6), theirs.__code__.co_argcount
        return (lambda *x: gd(name, *x, 1e-5), theirs,
                [normal(d, (m, n))] + [normal(d, n) for _ in range(count - 1)])
    return case


def layer_norm(x, w, b):
    var = x.var(-1, correction=0, keepdim=True)
    return w * (x - x.mean(-1, True)) * torch.rsqrt(var + 1e-5) + b


def rms_norm(x, w):
    return w * x * torch.rsqrt((x * x).mean(-1, True) + 1e-5)


def batch_norm_formula(name, d):
    """The third order, which PyTorch's refuses."""
    B, C, n = d.whole(2, 4), *d.pair(1, 3)

    def theirs(x, w, b):
        var = x.var((0, 2), correction=0, keepdim=True)
        return w[:, None] * (x - x.mean((0, 2), True)) * torch.rsqrt(var + 1e-5) + b[:, None]
    return (lambda x, w, b: gd("batch_norm", x, w, b, None), theirs,
            [normal(d, (B, C, n)), normal(d, C), normal(d, C)])


def image(d):
    """A shape [B, C], [B, C, L] or [B, C, H, W] of more than one element a channel."""
    return (d.whole(2, 6), d.whole(1, 39), *(d.whole(1, 5) for _ in range(d.whole(0, 2))))


def affine(d, shape, far):
    """An image with a mean of about `far`, weight and bias, of which each may be missing."""
    parameters = [d.normal(1, 0.5, shape[1]), d.normal(0, 1, shape[1])]
    return [d.normal(d.normal(0, far), 1, shape)] + [p if d.flag(0.7) else None for p in parameters]


def batch_norm(evaluate):
    def case(name, d):
        shape, eps, momentum = image(d), d.real(1e-3, 0.1), d.real(0.05, 0.9)
        running = [(d.normal(0, 1, shape[1]),), (d.uniform(0.5, 2, shape[1]),)]

        def ours(x, w, b, mean, var):
            given = options(eps=eps, momentum=momentum, mean=mean, var=var, evaluate=evaluate)
            return gd("batch_norm", x, w, b, byref(given))
        inputs = affine(d, shape, 5) + running
        return (ours, lambda x, w, b, *r: F.batch_norm(x, *r, w, b, not evaluate, momentum, eps),
                inputs, 1 if inputs[1] is None else 2)  # PyTorch refuses the second order without a weight
    return case


def group_norm(name, d):
    groups, (B, C, *places) = d.whole(1, 4), image(d)
    C = groups * (1 + C % 6)
    if C == groups and not places:
        places = [2]  # a group of one element has no variance
    return (lambda x, w, b: gd(name, x, c_int64(groups), w, b, 1e-2),
            lambda x, w, b: F.group_norm(x, groups, w, b, 1e-2), affine(d, (B, C, *places), 0.5))


class Weights(Structure):
    _fields_ = [(name, T) for name in ("input", "hidden", "input_bias", "hidden_bias")]


def in_a_row(*tensors):
    """Tensors of the library as one, so that all of them are compared and get gradients."""
    flat = [gd("reshape", t, 1, byref(c_int64(-1))) for t in tensors]
    return gd("concat", row(flat), len(flat), 0)


def torch_in_a_row(*tensors):
    return torch.cat([t.reshape(-1) for t in tensors])


def recurrent(kind, states):
    """The weights are PyTorch's parameters, in its order; the state and the cell are given. Compared are
    y and the last states."""
    def case(name, d):
        B, steps, width, H, layers = (d.whole(1, most) for most in (3, 6, 5, 8, 2))
        module = kind(width, H, layers, d.flag(0.8), True)
        names, parameters = zip(*module.named_parameters())
        each = len(names) // layers

        def ours(x, *t):
            weights = [Weights(*t[k:k + each]) for k in range(states, len(t), each)]
            last = [T() for _ in range(states)]
            y = gd(name, x, (Weights * layers)(*weights), layers, *t[:states], *map(byref, last))
            return in_a_row(y, *last)

        def theirs(x, *t):
            given = t[:2] if states == 2 else t[0]
            y, last = torch.func.functional_call(module, dict(zip(names, t[states:])), (x, given))
            return torch_in_a_row(y, *(last if states == 2 else (last,)))
        return ours, theirs, [normal(d, (B, steps, width))] + [
            d.normal(0, 0.5, s) for s in [(layers, B, H)] * states + [p.shape for p in parameters]]
    return case


def cell(kind, states):
    def case(name, d):
        B, width, H = (d.whole(1, most) for most in (3, 5, 8))
        module = kind(width, H, d.flag(0.8))
        names, parameters = zip(*module.named_parameters())

        def ours(x, *t):
            weights, last = byref(Weights(*t[states:])), T()
            if states == 1:
                return gd(name, x, t[0], weights)
            return in_a_row(gd(name, x, *t[:2], weights, byref(last)), last)

        def theirs(x, *t):
            given = t[:2] if states == 2 else t[0]
            new = torch.func.functional_call(module, dict(zip(names, t[states:])), (x, given))
            return torch_in_a_row(*new) if states == 2 else new
        return ours, theirs, [d.normal(0, 0.5, s) for s in
                              [(B, width)] + [(B, H)] * states + [p.shape for p in parameters]]
    return case


def two_directions(kind, states):
    """As kernels/rnn/README.md makes them of gd_flip and gd_concat."""
    def case(name, d):
        B, steps, width, H, layers = (d.whole(1, most) for most in (3, 6, 5, 8, 2))
        module = kind(width, H, layers, batch_first=True, bidirectional=True)
        names, parameters = zip(*module.named_parameters())

        def turn(x):
            return gd("flip", x, byref(c_int(1)), 1)

        def ours(x, *t):
            def one(x, k):
                return gd(name, x, byref(Weights(*t[4 * k:4 * k + 4])), 1, *[None] * 2 * states)

            for k in range(0, 2 * layers, 2):
                x = gd("concat", row([one(x, k), turn(one(turn(x), k + 1))]), 2, 2)
            return x

        def theirs(x, *t):
            return torch.func.functional_call(module, dict(zip(names, t)), (x,))[0]
        return (ours, theirs, [normal(d, (B, steps, width))] +
                [d.normal(0, 0.5, p.shape) for p in parameters])
    return case


def graph(name, d):
    """A random graph of 4 to 12 ops on matrices [n, n]; the last three nodes are added."""
    unary = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "sin": torch.sin, "cos": torch.cos,
             "silu": F.silu, "softplus": F.softplus, "gelu": F.gelu, "atan": torch.atan,
             "softmax": lambda x: torch.softmax(x, 1), "transpose": lambda x: x.transpose(0, 1),
             "rms_norm": lambda x: x * torch.rsqrt((x * x).mean(-1, True) + 1e-2)}
    binary = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "matmul": torch.matmul}
    more = {"softmax": (1,), "transpose": (0, 1), "rms_norm": (None, 1e-2)}
    n, inputs, plan = d.whole(2, 4), d.whole(1, 3), []
    for k in range(inputs, inputs + d.whole(4, 12)):
        count = d.whole(1, 2)
        op = str(d.choice(list((unary, binary)[count - 1])))
        first = max(0, k - 4) if d.flag(0.7) else 0
        plan.append((op, [d.whole(first, k - 1) for _ in range(count)]))

    def run(x, call):
        x = list(x)
        for op, of in plan:
            x.append(call(op, *[x[i] for i in of]))
        return call("add", call("add", x[-1], x[-2]), x[-3])
    return (lambda *x: run(x, lambda op, *t: gd(op, *t, *more.get(op, ()))),
            lambda *x: run(x, lambda op, *t: {**unary, **binary}[op](*t)),
            [normal(d, (n, n)) * 0.7 for _ in range(inputs)])


# The row of an op has its name; what follows a comma tells two of an op apart.
OPS = {
    **{name: unary(getattr(torch, name)) for name in (
        "neg", "exp", "expm1", "sin", "cos", "atan", "tanh", "sigmoid", "erf", "relu", "abs",
        "sign", "floor", "ceil")},
    **{name: unary(getattr(torch, name), values=positive) for name in (
        "log", "log1p", "sqrt", "rsqrt")},
    "reciprocal": unary(torch.reciprocal, values=away), "round": unary(torch.round, values=halves),
    "softplus": unary(F.softplus), "gelu": unary(F.gelu), "silu": unary(F.silu),
    "mish": unary(F.mish),
    "gelu_tanh": unary(lambda x: F.gelu(x, approximate="tanh")),
    "scale": unary(torch.mul, (-2, 2)), "add_scalar": unary(torch.add, (-2, 2)),
    "pow": unary(lambda x, _: x ** 3, (3, 3)),
    "pow, of positive": unary(torch.pow, (-3, 3), values=positive),
    "leaky_relu": unary(F.leaky_relu, (-1, 1)), "elu": unary(F.elu, (0.1, 2)),
    "hardtanh": unary(F.hardtanh, (-2, 0), (0, 2)), "clamp": unary(torch.clamp, (-2, 0), (0, 2)),
    **{name: binary(getattr(torch, name)) for name in ("add", "sub", "mul", "maximum", "minimum")},
    "div": binary(torch.div, second=positive), "pow_tensor": binary(torch.pow, positive),
    "swiglu": binary(lambda g, u: F.silu(g) * u, broadcast=False),
    "sum": reduce(torch.sum), "mean": reduce(torch.mean), "logsumexp": reduce(torch.logsumexp),
    "max": reduce(torch.amax, values=ties), "min": reduce(torch.amin, values=ties),
    "var": reduce(lambda x, a, k: x.var(a, correction=1, keepdim=k), 1.0, low=2),
    "std": reduce(lambda x, a, k: x.std(a, correction=1, keepdim=k), 1.0, low=3),
    "prod": reduce(torch.prod, values=zeros, most=1), "norm": norm,
    "any": reduce(torch.any, values=few, most=1), "all": reduce(torch.all, values=few, most=1),
    "argmin": arg(torch.argmin), "argmax": arg(torch.argmax),
    "softmax": along(torch.softmax), "log_softmax": along(torch.log_softmax),
    "cumsum": along(torch.cumsum),
    "cosine_similarity": along(F.cosine_similarity, 1e-8, inputs=2,
                               values=lambda d, shape: (x := normal(d, shape)) + np.sign(x) / 2),
    "index_select": index_select, "gather": gather, "embedding": embedding,
    "roll": roll, "split": split,
    "concat": concat, "flip": flip, "tril": triangle(torch.tril), "triu": triangle(torch.triu),
    "sort": sort, "sort, places": sort,
    "mse_loss": loss(F.mse_loss), "l1_loss": loss(F.l1_loss),
    "huber_loss": loss(F.huber_loss, "delta"),
    "smooth_l1_loss": loss(F.smooth_l1_loss, "beta"), "bce_with_logits": bce, "kl_div": kl_div,
    "cosine_embedding_loss": cosine_embedding_loss, "nll_loss": nll_loss,
    "cross_entropy": cross_entropy,
    "cross_entropy_with": cross_entropy_with, "linear_cross_entropy": linear_cross_entropy,
    "matmul": matmul, "linear": linear, "attention": attention,
    "conv1d": conv(1), "conv2d": conv(2), "conv_transpose2d": conv_transpose2d, "unfold": unfold,
    "fold": fold, "max_pool2d": pool(F.max_pool2d), "avg_pool2d": pool(F.avg_pool2d), "pad": pad,
    "upsample_nearest": upsample_nearest, "a graph": graph,
}

LAYERS = {
    "layer_norm": row_norm(layer_norm), "rms_norm": row_norm(rms_norm), "group_norm": group_norm,
    "batch_norm, in training": batch_norm(False), "batch_norm, evaluated": batch_norm(True),
    "batch_norm, its formula": batch_norm_formula,
    "lstm": recurrent(torch.nn.LSTM, 2), "gru": recurrent(torch.nn.GRU, 1),
    "lstm_cell": cell(torch.nn.LSTMCell, 2), "gru_cell": cell(torch.nn.GRUCell, 1),
    "lstm, two directions": two_directions(torch.nn.LSTM, 2),
    "gru, two directions": two_directions(torch.nn.GRU, 1),
}


@pytest.fixture
def library():
    library = Library()
    yield library
    library.close()


@pytest.mark.parametrize("name", OPS | LAYERS)
def test_is_torchs(library, name):
    d = Draw(np.random.PCG64(11))
    for i in range(CASES // 4 if "directions" in name else CASES):
        dtype = (np.float32, np.float64)[i % 2]
        tolerance = ((2e-5, 1e-12) if name in LAYERS else (1e-5, 1e-13))[i % 2]
        ours, theirs, inputs, *orders = (OPS | LAYERS)[name](name.split(",")[0], d)
        most = orders[0] if orders else 3
        library.compare(ours, theirs, inputs, d, dtype, tolerance, most if i % 2 else 1)


def test_arange_and_one_hot(library):
    d = Draw(np.random.PCG64(4))
    for i in range(CASES):
        start, end = d.real(-20, 20), d.real(-20, 20)
        step = d.real(0.1, 3) * (1 if end >= start else -1)
        wanted = torch.arange(start, end, step, dtype=(torch.float32, torch.float64)[i % 2])
        value = library.read(gd("arange", library.ctx, i % 2, start, end, step), wanted)
        assert np.allclose(value, wanted.numpy(), rtol=(1e-6, 1e-14)[i % 2], atol=1e-6)
        ids = np.array(d.integers(0, 7, size=d.integers(0, 5, d.whole(0, 3))))
        wanted = F.one_hot(torch.from_numpy(ids), 7)
        value = library.read(gd("one_hot", library.tensor(ids), c_int64(7), i % 5), wanted)
        assert (value == wanted.numpy()).all()
