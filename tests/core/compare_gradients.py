#!/usr/bin/env python3
"""Compares gradients of the first, second and third order with PyTorch's (create_graph), in float64 on
the CPU: of random calls of ops, and of random graphs of ops. Needs PyTorch, NumPy and a shared library:

    GRADUS_LIBRARY=build/lib/libgradus.so python3 tests/core/compare_gradients.py

Differences are relative to the largest gradient of that order or of the first. Status 1 if one is
above --tolerance. --known shows, instead, what docs/numerics.md says of PyTorch's second and third orders.
"""

import argparse
import collections
import ctypes
import os
import random
import sys
from ctypes import POINTER, c_bool, c_double, c_int, c_int64, c_void_p

import numpy as np
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
lib = ctypes.CDLL(os.environ.get("GRADUS_LIBRARY", "build/lib/libgradus.so"))
FLOAT64, INT32 = 1, 4
T = c_void_p


class Options(ctypes.Structure):
    _fields_ = [("cotangents", POINTER(T)), ("keep_tape", c_bool), ("differentiable", c_bool),
                ("zeros", c_bool)]


class Attention(ctypes.Structure):
    _fields_ = [("causal", c_bool), ("scale", c_double), ("dropout", c_double), ("mask", T),
                ("window", c_int64)]


class Weights(ctypes.Structure):
    _fields_ = [("input", T), ("hidden", T), ("input_bias", T), ("hidden_bias", T)]


class Pool(ctypes.Structure):
    _fields_ = [("kernel", c_int64 * 2), ("stride", c_int64 * 2), ("padding", c_int64 * 2)]


def declare(name, result, *arguments):
    function = getattr(lib, name)
    function.restype, function.argtypes = result, arguments
    return function


create = declare("gd_context_create", T, c_void_p)
error = declare("gd_error", ctypes.c_char_p, T)
clear = declare("gd_error_clear", None, T)
step_end = declare("gd_step_end", None, T)
make = declare("gd_tensor_create", T, T, c_int, c_int, POINTER(c_int64))
free = declare("gd_tensor_free", None, T)
write = declare("gd_tensor_write_f64", c_int, T, POINTER(c_double), c_int64)
read = declare("gd_tensor_read_f64", c_int, T, POINTER(c_double), c_int64)
require = declare("gd_tensor_set_requires_grad", c_int, T, c_bool)
gradients = declare("gd_gradients", c_int, POINTER(T), c_int, POINTER(Options), POINTER(T), c_int,
                    POINTER(T))
context = create(None)


def check(value):
    text = error(context)
    if text:
        clear(context)
        raise RuntimeError(text.decode())
    return value


def tensor(array, dtype=FLOAT64):
    array = np.array(array, dtype=np.float64, order="C")
    t = make(context, dtype, array.ndim, (c_int64 * array.ndim)(*array.shape))
    write(t, array.ctypes.data_as(POINTER(c_double)), array.size)
    return check(t)


def array(t, shape):
    out = np.zeros(shape)
    read(t, out.ctypes.data_as(POINTER(c_double)), out.size)
    return check(out)


def call(name, *arguments):
    """A function of the library that makes a tensor. Tensors are int, numbers float, axes tuples."""
    function = getattr(lib, "gd_" + name)
    function.restype = T
    return check(function(*arguments))


def axes(axis, keep):
    """(axes, count, keep_dims)"""
    return (c_int * 1)(axis), c_int(1), c_bool(keep)


# ---- Ops: (inputs, gradus's function, PyTorch's) -----------------------------------------------

rng = random.Random()


def normal(*shape, mean=0.0, width=1.0):
    return mean + width * np.array([rng.gauss(0, 1) for _ in range(int(np.prod(shape)))]).reshape(shape)


def positive(*shape):
    return 0.3 + np.abs(normal(*shape))


def size(low=1, high=5):
    return rng.randint(low, high)


def any_shape():
    return [size() for _ in range(rng.randint(1, 3))]


def unary(name, theirs, domain=normal, *numbers):
    def case():
        return [domain(*any_shape())], lambda x: call(name, T(x), *map(c_double, numbers)), theirs
    return case


def binary(name, theirs, first=normal, second=normal):
    def case():
        shape = any_shape()
        other = [1 if rng.random() < 0.3 else n for n in shape][rng.randint(0, len(shape) - 1):]
        x, y = first(*shape), second(*other)
        return [x, y], lambda a, b: call(name, T(a), T(b)), theirs
    return case


def reduce(name, theirs, *numbers, domain=normal, low=1):
    def case():
        shape = [size(low) for _ in range(rng.randint(1, 3))]
        axis, keep = rng.randrange(len(shape)), rng.random() < 0.5
        first, last = [c_double(n) for n in numbers if n > 1.5], [c_double(n) for n in numbers if n <= 1.5]

        def ours(x):
            where, count, kept = axes(axis, keep)
            return call(name, T(x), *first, where, count, *last, kept)
        return [domain(*shape)], ours, lambda x: theirs(x, axis, keep)
    return case


def along(name, theirs):
    def case():
        shape = any_shape()
        axis = rng.randrange(len(shape))
        return [normal(*shape)], lambda x: call(name, T(x), c_int(axis)), lambda x: theirs(x, axis)
    return case


def loss(name, theirs, *numbers, target=normal):
    def case():
        shape = any_shape()
        return [normal(*shape), target(*shape)], \
            lambda x, t: call(name, T(x), T(t), *map(c_double, numbers), c_int(0)), theirs
    return case


def matmul():
    m, k, n = size(), size(), size()
    lead = [size()] if rng.random() < 0.5 else []
    b = lead if rng.random() < 0.5 else []
    return [normal(*lead, m, k), normal(*b, k, n)], \
        lambda a, b: call("matmul", T(a), T(b)), torch.matmul


def linear():
    m, k, n = size(), size(), size()
    return [normal(m, k), normal(n, k), normal(n)], \
        lambda x, w, b: call("linear", T(x), T(w), T(b)), F.linear


def layer_norm():
    m, n = size(), size(2, 6)
    return [normal(m, n), normal(n), normal(n)], \
        lambda x, w, b: call("layer_norm", T(x), T(w), T(b), c_double(1e-5)), \
        lambda x, w, b: w * ((x - x.mean(-1, True)) *
                             torch.rsqrt(x.var(-1, correction=0, keepdim=True) + 1e-5)) + b


def rms_norm():
    m, n = size(), size(2, 6)
    return [normal(m, n), normal(n)], lambda x, w: call("rms_norm", T(x), T(w), c_double(1e-5)), \
        lambda x, w: w * x * torch.rsqrt((x * x).mean(-1, True) + 1e-5)


def group_norm():
    b, groups, c, n = size(1, 3), size(1, 2), size(1, 2), size(2, 4)
    return [normal(b, groups * c, n), normal(groups * c), normal(groups * c)], \
        lambda x, w, v: call("group_norm", T(x), c_int64(groups), T(w), T(v), c_double(1e-5)), \
        lambda x, w, v: F.group_norm(x, groups, w, v, 1e-5)


def batch_norm():
    b, c, n = size(2, 4), size(1, 3), size(1, 3)
    return [normal(b, c, n), normal(c), normal(c)], \
        lambda x, w, v: call("batch_norm", T(x), T(w), T(v), None), \
        lambda x, w, v: by_channel(w) * (x - x.mean((0, 2), True)) * \
        torch.rsqrt(x.var((0, 2), correction=0, keepdim=True) + 1e-5) + by_channel(v)


def by_channel(t):
    return t[:, None]


def swiglu():
    shape = any_shape()
    return [normal(*shape), normal(*shape)], lambda g, u: call("swiglu", T(g), T(u)), \
        lambda g, u: F.silu(g) * u


def conv2d():
    b, c, o, k = size(1, 2), size(1, 2), size(1, 3), size(1, 3)
    return [normal(b, c, k + size(0, 2), k + size(0, 3)), normal(o, c, k, k), normal(o)], \
        lambda x, w, v: call("conv2d", T(x), T(w), T(v), None), F.conv2d


def conv_transpose2d():
    b, c, o, k = size(1, 2), size(1, 2), size(1, 3), size(1, 3)
    return [normal(b, c, size(1, 3), size(1, 3)), normal(c, o, k, k), normal(o)], \
        lambda x, w, v: call("conv_transpose2d", T(x), T(w), T(v), None), F.conv_transpose2d


def attention():
    b, t, h, d = size(1, 2), size(1, 4), size(1, 2), size(1, 3)

    def theirs(q, k, v):
        q, k, v = (z.transpose(1, 2) for z in (q, k, v))
        scores = q @ k.transpose(-1, -2) / d ** 0.5
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        return (scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v).transpose(1, 2)

    options = Attention(True, 0, 0, None, 0)
    return [normal(b, t, h, d) for _ in range(3)], \
        lambda q, k, v: call("attention", T(q), T(k), T(v), ctypes.byref(options)), theirs


def recurrent(name, gates, layer):
    """One layer, as torch.nn's."""
    def case():
        b, t, i, h = size(1, 2), size(1, 3), size(1, 3), size(1, 3)

        def ours(x, *weights):
            last = [None, None, None, None] if name == "lstm" else [None, None]
            return call(name, T(x), ctypes.byref(Weights(*weights)), c_int(1), *last)

        def theirs(x, *weights):
            names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
            return torch.func.functional_call(layer(i, h, batch_first=True), dict(zip(names, weights)), x)[0]
        return [normal(b, t, i), normal(gates * h, i), normal(gates * h, h), normal(gates * h),
                normal(gates * h)], ours, theirs
    return case


def pool(name, theirs):
    def case():
        rows, columns = size(1, 3), size(1, 3)
        options = Pool((rows, columns))
        return [normal(size(1, 2), size(1, 2), rows * size(1, 2), columns * size(1, 3))], \
            lambda x: call(name, T(x), ctypes.byref(options)), lambda x: theirs(x, (rows, columns))
    return case


def bce_with_logits():
    shape = any_shape()
    return [normal(*shape), positive(*shape)], \
        lambda x, t: call("bce_with_logits", T(x), T(t), None, c_int(0)), F.binary_cross_entropy_with_logits


def kl_div():
    shape = any_shape()
    return [normal(*shape), positive(*shape)], \
        lambda x, t: call("kl_div", T(x), T(t), c_bool(False), c_int(1)), \
        lambda x, t: (t * (t.log() - x)).sum()


def concat():
    m, n, axis = size(), size(), rng.randrange(2)
    return [normal(m, n), normal(m, n)], \
        lambda a, b: call("concat", (T * 2)(a, b), c_int(2), c_int(axis)), \
        lambda a, b: torch.cat((a, b), axis)


def with_index(make_case):
    """A case with whole numbers, which are tensors of the call alone."""
    def case():
        inputs, index, ours, theirs = make_case()
        kept = torch.tensor(index, dtype=torch.long)

        def run(*x):
            t = tensor(index, INT32)
            owned.append(t)
            return ours(*x, t)
        return inputs, run, lambda *x: theirs(*x, kept)
    return case


owned = []


@with_index
def cross_entropy():
    m, n = size(), size()
    return [normal(m, n)], np.array([rng.randrange(n) for _ in range(m)]), \
        lambda x, t: call("cross_entropy", T(x), T(t)), F.cross_entropy


@with_index
def linear_cross_entropy():
    m, k, n = size(), size(), size()
    return [normal(m, k), normal(n, k)], np.array([rng.randrange(n) for _ in range(m)]), \
        lambda x, w, t: call("linear_cross_entropy", T(x), T(w), T(t), None), \
        lambda x, w, t: F.cross_entropy(F.linear(x, w), t)


@with_index
def embedding():
    v, c, m = size(), size(), size()
    return [normal(v, c)], np.array([rng.randrange(v) for _ in range(m)]), \
        lambda x, t: call("embedding", T(x), T(t)), lambda x, t: F.embedding(t, x)


@with_index
def gather():
    m, n = size(), size()
    return [normal(m, n)], np.array([[rng.randrange(m) for _ in range(n)] for _ in range(size())]), \
        lambda x, t: call("gather", T(x), c_int(0), T(t)), lambda x, t: x.gather(0, t)


OPS = {
    "neg": unary("neg", torch.neg), "exp": unary("exp", torch.exp), "expm1": unary("expm1", torch.expm1),
    "log": unary("log", torch.log, positive), "log1p": unary("log1p", torch.log1p, positive),
    "sqrt": unary("sqrt", torch.sqrt, positive), "rsqrt": unary("rsqrt", torch.rsqrt, positive),
    "reciprocal": unary("reciprocal", torch.reciprocal, positive), "sin": unary("sin", torch.sin),
    "cos": unary("cos", torch.cos), "atan": unary("atan", torch.atan), "tanh": unary("tanh", torch.tanh),
    "sigmoid": unary("sigmoid", torch.sigmoid), "erf": unary("erf", torch.erf),
    "relu": unary("relu", torch.relu), "softplus": unary("softplus", F.softplus),
    "gelu": unary("gelu", F.gelu), "gelu_tanh": unary("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")),
    "silu": unary("silu", F.silu), "mish": unary("mish", F.mish), "abs": unary("abs", torch.abs),
    "scale": unary("scale", lambda x: x * 1.7, normal, 1.7), "add_scalar": unary("add_scalar", lambda x: x + 0.3, normal, 0.3),
    "pow": unary("pow", lambda x: x ** 3.0, normal, 3.0), "pow_2.5": unary("pow", lambda x: x ** 2.5, positive, 2.5),
    "leaky_relu": unary("leaky_relu", lambda x: F.leaky_relu(x, 0.1), normal, 0.1),
    "elu": unary("elu", lambda x: F.elu(x, 1.3), normal, 1.3),
    "clamp": unary("clamp", lambda x: x.clamp(-0.5, 0.7), normal, -0.5, 0.7),
    "add": binary("add", torch.add), "sub": binary("sub", torch.sub), "mul": binary("mul", torch.mul),
    "div": binary("div", torch.div, normal, positive), "maximum": binary("maximum", torch.maximum),
    "minimum": binary("minimum", torch.minimum), "pow_tensor": binary("pow_tensor", torch.pow, positive),
    "sum": reduce("sum", lambda x, a, k: x.sum(a, k)), "mean": reduce("mean", lambda x, a, k: x.mean(a, k)),
    "max": reduce("max", lambda x, a, k: x.amax(a, k)), "prod": reduce("prod", lambda x, a, k: x.prod(a, k)),
    "logsumexp": reduce("logsumexp", lambda x, a, k: x.logsumexp(a, k)),
    "norm": reduce("norm", lambda x, a, k: torch.linalg.vector_norm(x, 2, a, k), 2.0),
    "norm_3": reduce("norm", lambda x, a, k: torch.linalg.vector_norm(x, 3, a, k), 3.0, domain=positive),
    "var": reduce("var", lambda x, a, k: x.var(a, correction=1, keepdim=k), 1.0, low=2),
    "std": reduce("std", lambda x, a, k: x.std(a, correction=1, keepdim=k), 1.0, low=3),
    "softmax": along("softmax", torch.softmax), "log_softmax": along("log_softmax", torch.log_softmax),
    "cumsum": along("cumsum", torch.cumsum),
    "mse_loss": loss("mse_loss", F.mse_loss), "l1_loss": loss("l1_loss", F.l1_loss),
    "huber_loss": loss("huber_loss", lambda x, t: F.huber_loss(x, t, delta=0.8), 0.8),
    "smooth_l1_loss": loss("smooth_l1_loss", lambda x, t: F.smooth_l1_loss(x, t, beta=0.8), 0.8),
    "matmul": matmul, "linear": linear, "layer_norm": layer_norm, "rms_norm": rms_norm,
    "group_norm": group_norm, "batch_norm": batch_norm, "swiglu": swiglu, "conv2d": conv2d,
    "conv_transpose2d": conv_transpose2d, "cross_entropy": cross_entropy, "embedding": embedding,
    "attention": attention,
    "lstm": recurrent("lstm", 4, torch.nn.LSTM), "gru": recurrent("gru", 3, torch.nn.GRU),
    "max_pool2d": pool("max_pool2d", F.max_pool2d), "avg_pool2d": pool("avg_pool2d", F.avg_pool2d),
    "bce_with_logits": bce_with_logits, "kl_div": kl_div, "concat": concat, "linear_cross_entropy": linear_cross_entropy, "gather": gather,
}


# ---- Graphs --------------------------------------------------------------------------------------

def graph():
    """A random graph of 4 to 12 ops on matrices [n, n]; the last three nodes are added."""
    n = size(2, 4)
    unaries = ["tanh", "sigmoid", "sin", "cos", "silu", "softplus", "gelu", "atan", "softmax", "transpose",
               "rms"]
    theirs = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "sin": torch.sin, "cos": torch.cos,
              "silu": F.silu, "softplus": F.softplus, "gelu": F.gelu, "atan": torch.atan,
              "add": torch.add, "sub": torch.sub, "mul": torch.mul, "matmul": torch.matmul,
              "softmax": lambda x: torch.softmax(x, 1), "transpose": lambda x: x.transpose(0, 1),
              "rms": lambda x: x * torch.rsqrt((x * x).mean(-1, True) + 1e-2)}
    ours = {"softmax": lambda x: call("softmax", T(x), c_int(1)),
            "transpose": lambda x: call("transpose", T(x), c_int(0), c_int(1)),
            "rms": lambda x: call("rms_norm", T(x), None, c_double(1e-2))}
    inputs = rng.randint(1, 3)
    plan = []
    for k in range(rng.randint(4, 12)):
        pick = lambda: rng.randrange(max(0, inputs + k - 4), inputs + k) if rng.random() < 0.7 \
            else rng.randrange(inputs + k)
        if rng.random() < 0.5:
            plan.append((rng.choice(unaries), [pick()]))
        else:
            plan.append((rng.choice(["add", "sub", "mul", "matmul"]), [pick(), pick()]))

    def run(x, functions, plus):
        x = list(x)
        for name, of in plan:
            function = functions.get(name) or (lambda *t, name=name: call(name, *map(T, t)))
            x.append(function(*[x[i] for i in of]))
        return plus(plus(x[-1], x[-2]), x[-3])
    return [normal(n, n, width=0.7) for _ in range(inputs)], \
        lambda *x: run(x, ours, lambda a, b: call("add", T(a), T(b))), \
        lambda *x: run(x, theirs, torch.add)


# ---- Both sides -----------------------------------------------------------------------------------

def by_torch(theirs, inputs, u, factors):
    x = [torch.tensor(a, requires_grad=True) for a in inputs]
    y, cotangents, found = theirs(*x), [torch.tensor(u)], []
    outputs = [y]
    for order in range(3):
        real = [(o, v) for o, v in zip(outputs, cotangents) if o.requires_grad]
        if real:
            g = torch.autograd.grad([o for o, _ in real], x, [v for _, v in real], create_graph=True,
                                    allow_unused=True)
        else:
            g = [None] * len(x)
        outputs = [torch.zeros_like(a) if z is None else z for z, a in zip(g, x)]
        found.append([z.detach().numpy(force=True) for z in outputs])
        cotangents = [torch.tensor(v) for v in factors]
    return found


def by_gradus(ours, inputs, u, factors):
    x = [tensor(a) for a in inputs]
    n = len(x)
    for t in x:
        require(t, True)
    found, v = [], [tensor(a) for a in factors]
    seed = tensor(u)
    owned.extend(x + v + [seed])
    try:
        outputs, cotangents = [ours(*x)], [seed]
        for order in range(3):
            g = (T * n)()
            options = Options((T * len(cotangents))(*cotangents), False, True, True)
            gradients((T * len(outputs))(*outputs), len(outputs), ctypes.byref(options), (T * n)(*x), n, g)
            check(None)
            outputs, cotangents = list(g), v
            found.append([array(t, a.shape) for t, a in zip(g, inputs)])
    finally:
        step_end(context)
        while owned:
            free(owned.pop())
    return found


def compare(case):
    """The largest difference of each order."""
    inputs, ours, theirs = case()
    with torch.no_grad():
        y = theirs(*[torch.tensor(a) for a in inputs])
    u, factors = normal(*y.shape), [normal(*a.shape) for a in inputs]
    right, got = by_torch(theirs, inputs, u, factors), by_gradus(ours, inputs, u, factors)
    first = max((np.abs(a).max(initial=0) for a in right[0]), default=0)
    worst = []
    for a, b in zip(right, got):
        scale = max([first] + [np.abs(z).max(initial=0) for z in a]) or 1
        apart = max(np.abs(p - q).max(initial=0) for p, q in zip(a, b))
        worst.append(apart / scale if np.isfinite(apart) else np.inf)
    return worst


def known():
    """What PyTorch does at higher orders, where that is known to be special."""
    def third(f, x):
        for _ in range(3):
            x = x.detach().requires_grad_()
        outputs, g = f(x), None
        for _ in range(3):
            g, = torch.autograd.grad((outputs * torch.linspace(0.3, 1.1, outputs.numel()).reshape(outputs.shape)).sum(),
                                     x, create_graph=True)
            outputs = g
        return g.detach()
    torch.manual_seed(0)
    print("PyTorch", torch.__version__)
    x = torch.randn(3, 4)
    w, b = torch.randn(4), torch.randn(4)
    by_hand = lambda x: (x - x.mean(-1, True)) * torch.rsqrt(x.var(-1, correction=0, keepdim=True) + 1e-5) * w + b
    apart = (third(lambda x: F.layer_norm(x, (4,), w, b), x) - third(by_hand, x)).abs().max()
    print(f"layer_norm, third order: {apart:.1e} from that of its formula, whose largest is "
          f"{third(by_hand, x).abs().max():.1e}")
    try:
        third(lambda x: F.batch_norm(x, None, None, w, b, True), x)
        print("batch_norm, third order: computed")
    except RuntimeError as refused:
        print(f"batch_norm, third order: {refused}")
    for zeros in (1, 2, 3):
        x = torch.tensor([2.0, 3.0, 5.0, 7.0])
        x[:zeros] = 0
        x.requires_grad_()
        try:
            g, = torch.autograd.grad(x.prod(), x, create_graph=True)
            h, = torch.autograd.grad(g.sum(), x)
            print(f"prod with {zeros} zeros, second order: {h.tolist()}")
        except RuntimeError as refused:
            print(f"prod with {zeros} zeros: {refused}")
    q = torch.randn(1, 2, 3, 4, requires_grad=True)
    for name, f in (("lstm", torch.nn.LSTM(4, 3)), ("gru", torch.nn.GRU(4, 3)),
                    ("attention", lambda x: (F.scaled_dot_product_attention(x, x, x, is_causal=True),))):
        try:
            y = f(q if name == "attention" else q[0])[0]
            g, = torch.autograd.grad(y.sum(), q, create_graph=True)
            torch.autograd.grad((g * g).sum(), q)
            print(f"{name} on the CPU, second order: computed")
        except (RuntimeError, NotImplementedError) as refused:
            print(f"{name} on the CPU, second order: {str(refused)[:100]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000, help="random calls of ops (2000)")
    parser.add_argument("--graphs", type=int, default=300, help="random graphs (300)")
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers (0)")
    parser.add_argument("--tolerance", type=float, default=1e-10, help="relative (1e-10)")
    parser.add_argument("--op", help="this op alone")
    parser.add_argument("--known", action="store_true", help="PyTorch's own limits")
    options = parser.parse_args()
    if options.known:
        return known()
    torch.set_num_threads(1)
    worst, count, failed = collections.defaultdict(lambda: [0, 0, 0]), collections.Counter(), 0
    names = [options.op] if options.op else sorted(OPS)
    plan = [names[k % len(names)] for k in range(options.calls)] + ["a graph"] * options.graphs
    for k, name in enumerate(plan):
        rng.seed(f"{options.seed} {k}")
        try:
            apart = compare(OPS.get(name, graph))
        except RuntimeError as refused:
            apart = [np.inf] * 3
            print(f"{name}, {k}: {refused}")
        count[name] += 1
        worst[name] = [max(a, b) for a, b in zip(worst[name], apart)]
        if max(apart) > options.tolerance:
            failed += 1
            print(f"{name}, {k}: orders differ by {', '.join(f'{a:.1e}' for a in apart)}")
    for name in sorted(worst):
        print(f"{name:22}{count[name]:5}  " + "  ".join(f"{a:.1e}" for a in worst[name]))
    most = [max(w[order] for w in worst.values()) for order in range(3)]
    print(f"{len(plan)} cases of {len(worst)} kinds, {failed} above {options.tolerance:g}; the largest "
          f"differences of orders 1, 2, 3: {', '.join(f'{a:.1e}' for a in most)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
