"""Losses of pairs, and the newer functions of one variable, against PyTorch's, in random cases."""

from ctypes import Structure, byref, c_bool, c_double, c_int, c_int32, c_int64, c_void_p
from inspect import signature

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from calls import INT32, Library, c

CASES = 400  # of each op, half of them in float64
REDUCTIONS = ("mean", "sum", "none", "batchmean")


@pytest.fixture
def library():
    library = Library()
    yield library
    library.close()


def plain(name, theirs, *numbers):
    """The op gd_NAME(x, target, numbers ..., reduction)."""
    f = c(name, c_void_p, c_void_p, c_void_p, *[c_double for _ in numbers], c_int)

    def case(rng, shape):
        given = [float(rng.uniform(0.1, 2)) for _ in numbers]
        r = int(rng.integers(0, 3))
        return (lambda x, t: f(x, t, *given, r),
                lambda x, t: theirs(x, t, reduction=REDUCTIONS[r], **dict(zip(numbers, given))),
                [rng.normal(size=shape), rng.normal(size=shape)])
    return case


def bce(rng, shape):
    f = c("gd_bce_with_logits", c_void_p, c_void_p, c_void_p, c_void_p, c_int)
    r = int(rng.integers(0, 3))
    values = [rng.normal(size=shape) * 4, rng.uniform(size=shape)]
    if rng.random() < 0.5:
        return (lambda x, t: f(x, t, None, r),
                lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction=REDUCTIONS[r]),
                values)
    weight = rng.uniform(0.5, 3, size=shape[-1:])

    def theirs(x, t, w):  # the formula, as PyTorch's op has no gradient for the weight
        loss = (1 - t) * F.softplus(x) + w * t * F.softplus(-x)
        assert torch.allclose(loss, F.binary_cross_entropy_with_logits(
            x, t, pos_weight=w.detach(), reduction="none"), rtol=1e-4, atol=1e-5)
        return loss.mean() if r == 0 else loss.sum() if r == 1 else loss
    return lambda x, t, w: f(x, t, w, r), theirs, values + [weight]


def kl_div(rng, shape):
    f = c("gd_kl_div", c_void_p, c_void_p, c_void_p, c_bool, c_int)
    r, log_target = int(rng.integers(0, 4)), bool(rng.random() < 0.5)
    logits, target = rng.normal(size=shape), rng.uniform(0.01, 1, size=shape)
    return (lambda x, t: f(x, t, log_target, r),
            lambda x, t: F.kl_div(x, t, reduction=REDUCTIONS[r], log_target=log_target),
            [logits, np.log(target) if log_target else target])


def unary(name, theirs, *numbers):
    f = c(name, c_void_p, c_void_p, *[c_double for _ in numbers])

    def case(rng, shape):
        given = [float(rng.uniform(low, high)) for low, high in numbers]
        x = rng.normal(size=shape) * 3
        if name == "gd_reciprocal":
            x = np.where(np.abs(x) < 0.1, 0.1, x)
        if name == "gd_round":
            x = np.round(x * 2) / 2  # halves
        return lambda t: f(t, *given), lambda t: theirs(t, *given), [x]
    return case


def cosine_similarity(rng, shape):
    f = c("gd_cosine_similarity", c_void_p, c_void_p, c_void_p, c_int, c_double)
    axis = int(rng.integers(-len(shape), len(shape)))
    values = [rng.normal(size=shape) for _ in range(2)]
    return (lambda x, y: f(x, y, axis, 1e-8), lambda x, y: F.cosine_similarity(x, y, axis, 1e-8),
            [v + np.sign(v) / 2 for v in values])  # short ones have gradients left of large terms


def cosine_embedding_loss(rng, shape):
    shape = (shape[0], shape[-1] + 1)
    f = c("gd_cosine_embedding_loss", c_void_p, c_void_p, c_void_p, c_void_p, c_double, c_int)
    r, margin = int(rng.integers(0, 3)), float(rng.uniform(-0.5, 0.5))
    sign = np.sign(rng.normal(size=shape[:1]))
    return (lambda x, y, t: f(x, y, t, margin, r),
            lambda x, y, t: F.cosine_embedding_loss(x, y, t.detach(), margin,
                                                    reduction=REDUCTIONS[r]) + 0 * t.sum(),
            [rng.normal(size=shape), rng.normal(size=shape), sign])


def some_axes(rng, shape):
    """One axis or several, for PyTorch and as arguments of the library."""
    n = int(rng.integers(1, len(shape) + 1))
    axes = [int(a) for a in rng.permutation(len(shape))[:n]]
    return axes, ((c_int * n)(*axes), n)


def norm(rng, shape):
    f = c("gd_norm", c_void_p, c_void_p, c_double, c_void_p, c_int, c_bool)
    p = float(rng.choice([0, 0.5, 1, 1.5, 2, 3, 7.5, -1, -2.5, np.inf, -np.inf]))
    axes, given = some_axes(rng, shape)
    keep = bool(rng.random() < 0.5)
    x = rng.normal(size=shape)
    if p < 0:
        x += np.sign(x)
    elif p != np.inf and p >= 1 and rng.random() < 0.3:
        x *= rng.random() < 0.5
        x.flat[0] = 0
    return (lambda t: f(t, p, *given, keep),
            lambda t: torch.linalg.vector_norm(t, p, axes, keep) + 0 * t.sum(), [x])


def prod(rng, shape):
    f = c("gd_prod", c_void_p, c_void_p, c_void_p, c_int, c_bool)
    axis, keep = int(rng.integers(-len(shape), len(shape))), bool(rng.random() < 0.5)
    x = rng.normal(size=shape)
    zeros = rng.random(size=shape) < (0, 0.1, 0.4)[rng.integers(0, 3)]
    return (lambda t: f(t, byref(c_int(axis)), 1, keep), lambda t: torch.prod(t, axis, keep),
            [np.where(zeros, 0, x)])


def as_numbers(f, axis, *rest):
    """The whole numbers that f gives, as x's dtype, and 0 times x's sum, so that there is a gradient."""
    cast = c("gd_cast", c_void_p, c_void_p, c_int)
    add, scale = c("gd_add", c_void_p, c_void_p, c_void_p), c("gd_scale", c_void_p, c_void_p, c_double)
    kind, total = c("gd_tensor_dtype", c_int, c_void_p), c("gd_sum_all", c_void_p, c_void_p)
    return lambda t: add(cast(f(t, axis, *rest), kind(t)), scale(total(t), 0))


def found(name, theirs):
    f = c(name, c_void_p, c_void_p, c_void_p, c_int, c_bool)

    def case(rng, shape):
        axis, keep = int(rng.integers(-len(shape), len(shape))), bool(rng.random() < 0.5)
        x = rng.integers(-1, 2, size=shape) * rng.integers(0, 2, size=shape)
        return (as_numbers(f, byref(c_int(axis)), 1, keep),
                lambda t: theirs(t, axis, keep).to(t.dtype) + 0 * t.sum(), [x])
    return case


def argmin(rng, shape):
    """Of equal ones the first; PyTorch promises none."""
    f = c("gd_argmin", c_void_p, c_void_p, c_int, c_bool)
    axis, keep = int(rng.integers(-len(shape), len(shape))), bool(rng.random() < 0.5)
    return (as_numbers(f, axis, keep),
            lambda t: torch.argmin(t, axis, keep).to(t.dtype) + 0 * t.sum(), [rng.normal(size=shape)])


def index_select(rng, shape, ctx):
    f = c("gd_index_select", c_void_p, c_void_p, c_int, c_void_p)
    axis = int(rng.integers(-len(shape), len(shape)))
    index = rng.integers(0, shape[axis], size=int(rng.integers(0, 12)))
    return (lambda t: f(t, axis, int_tensor(index, ctx)),
            lambda t: torch.index_select(t, axis, torch.from_numpy(index)), [rng.normal(size=shape)])


def roll(rng, shape):
    f = c("gd_roll", c_void_p, c_void_p, c_int, c_int64)
    axis, shift = int(rng.integers(-len(shape), len(shape))), int(rng.integers(-20, 21))
    return lambda t: f(t, axis, shift), lambda t: torch.roll(t, shift, axis), [rng.normal(size=shape)]


def split(rng, shape):
    """One of the parts."""
    f = c("gd_split", c_int, c_void_p, c_int, c_int, c_void_p, c_void_p)
    axis = int(rng.integers(-len(shape), len(shape)))
    cuts = np.sort(rng.integers(0, shape[axis] + 1, int(rng.integers(0, 4))))
    sizes = np.diff([0, *cuts, shape[axis]]).tolist()
    n, which = len(sizes), int(rng.integers(0, len(sizes)))

    def ours(t):
        parts = (c_void_p * n)()
        assert f(t, axis, n, (c_int64 * n)(*sizes), parts) == 0
        return parts[which]
    return ours, lambda t: torch.split(t, sizes, axis)[which], [rng.normal(size=shape)]


def least(rng, shape):
    f = c("gd_min", c_void_p, c_void_p, c_void_p, c_int, c_bool)
    axis = int(rng.integers(0, len(shape)))
    return (lambda t: f(t, byref(c_int(axis)), 1, False), lambda t: torch.amin(t, axis),
            [np.round(rng.normal(size=shape) * 2)])  # with ties


class EntropyOptions(Structure):
    _fields_ = [("reduction", c_int), ("ignore_index", c_int32), ("weight", c_void_p),
                ("label_smoothing", c_double)]


def int_tensor(value, ctx):
    value = np.array(value, np.int32)
    return c("gd_tensor_from", c_void_p, c_void_p, c_int, c_int, c_void_p, c_void_p)(
        ctx, INT32, value.ndim, (c_int64 * max(1, value.ndim))(*value.shape), value.ctypes.data)


def nll_loss(rng, shape, ctx):
    """With class weights, which have no gradient, and an ignore index."""
    f = c("gd_nll_loss", c_void_p, c_void_p, c_void_p, c_void_p)
    r, V = int(rng.integers(0, 3)), shape[-1] + 1
    targets = np.array(rng.integers(0, V, size=shape[:-1]))
    if r == 0:
        targets.flat[0] = 0
    ignore = int(rng.integers(1, V)) if V > 1 and rng.random() < 0.5 else -100
    weight = rng.uniform(0.5, 2, size=V) if rng.random() < 0.5 else None

    def ours(x):
        w = None
        if weight is not None:
            w = c("gd_tensor_create", c_void_p, c_void_p, c_int, c_int, c_void_p)(
                ctx, c("gd_tensor_dtype", c_int, c_void_p)(x), 1, (c_int64 * 1)(V))
            c("gd_tensor_write_f64", c_int, c_void_p, c_void_p, c_int64)(w, weight.ctypes.data, V)
        return f(x, int_tensor(targets, ctx), byref(EntropyOptions(r, ignore, w, 0)))

    def theirs(x):
        t = torch.from_numpy(targets)
        w = None if weight is None else torch.from_numpy(weight).to(x.dtype)
        loss = F.nll_loss(x.reshape(-1, V), t.reshape(-1), w, ignore_index=ignore,
                          reduction=REDUCTIONS[r])
        return loss.reshape(t.shape) if r == 2 else loss
    return ours, theirs, [rng.normal(size=(*shape[:-1], V))]


def cross_entropy(rng, shape):
    """Of probabilities, with class weights, which have a gradient, and smoothing."""
    f = c("gd_cross_entropy_with", c_void_p, c_void_p, c_void_p, c_void_p)
    r, smooth = int(rng.integers(0, 3)), float(rng.choice([0, 0.3, 1]))
    V = shape[-1] + 1
    shape = (*shape[:-1], V)

    def theirs(x, q, w):
        loss = F.cross_entropy(x.reshape(-1, V), q.reshape(-1, V), w, label_smoothing=smooth,
                               reduction=REDUCTIONS[r])
        return loss.reshape(shape[:-1]) if r == 2 else loss
    return (lambda x, q, w: f(x, q, byref(EntropyOptions(r, 0, w, smooth))), theirs,
            [rng.normal(size=shape) * 3, rng.uniform(size=shape), rng.uniform(0.2, 2, size=V)])


def sort(rng, shape):
    """The values and, by them, the gradient; ties and NaN are in the next one."""
    f = c("gd_sort", c_void_p, c_void_p, c_int, c_bool, c_void_p)
    axis, falling = int(rng.integers(-len(shape), len(shape))), bool(rng.random() < 0.5)
    return (lambda t: f(t, axis, falling, None),
            lambda t: torch.sort(t, dim=axis, descending=falling, stable=True)[0],
            [np.round(rng.normal(size=shape) * 2) / 2])


def sorted_places(rng, shape):
    """Where the elements are."""
    f = c("gd_sort", c_void_p, c_void_p, c_int, c_bool, c_void_p)
    axis, falling = int(rng.integers(-len(shape), len(shape))), bool(rng.random() < 0.5)
    x = np.round(rng.normal(size=shape) * 2) / 2

    def places(t, *rest):
        index = c_void_p()
        f(t, *rest, byref(index))
        return index
    return (as_numbers(places, axis, falling), lambda t: torch.sort(t, dim=axis, descending=falling, stable=True)[1] + 0 * t, [x])


def flip(rng, shape):
    f = c("gd_flip", c_void_p, c_void_p, c_void_p, c_int)
    axes, given = some_axes(rng, shape)
    return lambda t: f(t, *given), lambda t: torch.flip(t, axes), [rng.normal(size=shape)]


def triangle(name, theirs):
    f = c(name, c_void_p, c_void_p, c_int64)

    def case(rng, shape):
        shape, k = (*shape, 3) if len(shape) == 1 else shape, int(rng.integers(-9, 10))
        return lambda t: f(t, k), lambda t: theirs(t, k), [rng.normal(size=shape)]
    return case


OPS = {
    "sort": sort,
    "sorted_places": sorted_places,
    "flip": flip,
    "tril": triangle("gd_tril", torch.tril),
    "triu": triangle("gd_triu", torch.triu),
    "nll_loss": nll_loss,
    "cross_entropy": cross_entropy,
    "cosine_similarity": cosine_similarity,
    "cosine_embedding_loss": cosine_embedding_loss,
    "norm": norm,
    "prod": prod,
    "min": least,
    "any": found("gd_any", torch.any),
    "all": found("gd_all", torch.all),
    "argmin": argmin,
    "index_select": index_select,
    "roll": roll,
    "split": split,
    "mse_loss": plain("gd_mse_loss", F.mse_loss),
    "l1_loss": plain("gd_l1_loss", F.l1_loss),
    "huber_loss": plain("gd_huber_loss", F.huber_loss, "delta"),
    "smooth_l1_loss": plain("gd_smooth_l1_loss", F.smooth_l1_loss, "beta"),
    "bce_with_logits": bce,
    "kl_div": kl_div,
    "leaky_relu": unary("gd_leaky_relu", F.leaky_relu, (-1, 1)),
    "elu": unary("gd_elu", F.elu, (0.1, 2)),
    "mish": unary("gd_mish", F.mish),
    "hardtanh": unary("gd_hardtanh", F.hardtanh, (-2, 0), (0, 2)),
    "sign": unary("gd_sign", torch.sign),
    "floor": unary("gd_floor", torch.floor),
    "ceil": unary("gd_ceil", torch.ceil),
    "round": unary("gd_round", torch.round),
    "reciprocal": unary("gd_reciprocal", torch.reciprocal),
    "atan": unary("gd_atan", torch.atan),
}


def test_sort_nan(library):
    """NaN counts as the largest, and equal elements keep their order."""
    f = c("gd_sort", c_void_p, c_void_p, c_int, c_bool, c_void_p)
    rng = np.random.default_rng(3)
    for i in range(400):
        x = np.round(rng.normal(size=(3, 17)) * 2).astype((np.float32, np.float64)[i % 2])
        x[rng.random(size=x.shape) < 0.2] = (np.nan, -np.inf, -0.0)[i % 3]
        t, index = library.tensor(x, False), c_void_p()
        f(t, 1, i % 4 < 2, byref(index))
        wanted = torch.sort(torch.from_numpy(x), dim=1, descending=i % 4 < 2, stable=True)[1]
        assert (library.read(index, wanted) == wanted.numpy()).all()


def test_arange_and_one_hot(library):
    arange = c("gd_arange", c_void_p, c_void_p, c_int, c_double, c_double, c_double)
    one_hot = c("gd_one_hot", c_void_p, c_void_p, c_int64, c_int)
    rng = np.random.default_rng(4)
    for i in range(400):
        start, end = (float(v) for v in rng.uniform(-20, 20, 2))
        step = float(rng.uniform(0.1, 3)) * (1 if end >= start else -1)
        wanted = torch.arange(start, end, step, dtype=(torch.float32, torch.float64)[i % 2])
        value = library.read(arange(library.ctx, i % 2, start, end, step), wanted)
        assert np.allclose(value, wanted.numpy(), rtol=(1e-6, 1e-14)[i % 2], atol=1e-6)
        shape = tuple(int(n) for n in rng.integers(0, 5, int(rng.integers(0, 4))))
        ids = np.array(rng.integers(0, 7, size=shape))
        wanted = F.one_hot(torch.from_numpy(ids), 7)
        assert (library.read(one_hot(int_tensor(ids, library.ctx), 7, i % 5), wanted) == wanted.numpy()).all()


@pytest.mark.parametrize("name", OPS)
def test_is_torchs(library, name):
    rng = np.random.default_rng(11)
    for i in range(CASES):
        dtype, tolerance = (np.float64, 1e-13) if i % 2 else (np.float32, 1e-5)
        shape = tuple(int(n) for n in rng.integers(1, 9, int(rng.integers(1, 4))))
        context = [library.ctx] if "ctx" in signature(OPS[name]).parameters else []
        ours, theirs, inputs = OPS[name](rng, shape, *context)
        library.compare(ours, theirs, [v.astype(dtype) for v in inputs], rng, tolerance)
