"""Batch and group norm with their running statistics, LSTM and GRU, against PyTorch's, in random
cases."""

from ctypes import Structure, byref, c_double, c_int, c_int64, c_void_p

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from calls import Library, c, options

CASES = 400  # of each op, half of them in float64


@pytest.fixture
def library():
    library = Library()
    yield library
    library.close()


def image(rng):
    """A shape [B, C], [B, C, L] or [B, C, H, W] of more than one element a channel."""
    return (int(rng.integers(2, 7)), int(rng.integers(1, 40)),
            *(int(n) for n in rng.integers(1, 6, rng.integers(0, 3))))


def given(rng, shape, far):
    """An image with a mean of about `far`, and perhaps a weight and a bias; which of these there are."""
    some = tuple(rng.random(2) < 0.7)
    parameters = [rng.normal(1, 0.5, shape[1]), rng.normal(0, 1, shape[1])]
    return [rng.normal(rng.normal(0, far), 1, shape)] + [p for p, s in zip(parameters, some) if s], some


def both(some, x, *parameters):
    """x, weight and bias, None where there is none."""
    parameters = iter(parameters)
    return (x, *(next(parameters) if s else None for s in some))


@pytest.mark.parametrize("evaluate", [False, True])
def test_batch_norm_is_torchs(library, evaluate):
    rng = np.random.default_rng(11)
    f = c("gd_batch_norm", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
    free = c("gd_tensor_free", None, c_void_p)
    for i in range(CASES):
        dtype, tolerance = (np.float64, 1e-12) if i % 2 else (np.float32, 2e-5)
        shape = image(rng)
        values, some = given(rng, shape, 5)
        running = [rng.normal(0, 1, shape[1]).astype(dtype),
                   rng.uniform(0.5, 2, shape[1]).astype(dtype)]
        buffers = [torch.from_numpy(r.copy()) for r in running]
        own = [library.tensor(r, False) for r in running]
        eps, momentum = float(rng.uniform(1e-3, 0.1)), float(rng.uniform(0.05, 0.9))
        settings = options(eps=eps, momentum=momentum, mean=c_void_p(own[0]), var=c_void_p(own[1]),
                           evaluate=evaluate)

        def ours(*tensors):
            return f(*both(some, *tensors), byref(settings))

        def theirs(*tensors):
            x, weight, bias = both(some, *tensors)
            return F.batch_norm(x, *buffers, weight, bias, not evaluate, momentum, eps)

        library.compare(ours, theirs, [v.astype(dtype) for v in values], rng, tolerance)
        for t, b in zip(own, buffers):
            assert np.abs(library.read(t, b) - b.numpy()).max() <= tolerance * 10
            free(t)


def test_group_norm_is_torchs(library):
    rng = np.random.default_rng(12)
    f = c("gd_group_norm", c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_double)
    for i in range(CASES):
        dtype, tolerance = (np.float64, 1e-12) if i % 2 else (np.float32, 2e-5)
        groups = int(rng.integers(1, 5))
        B, C, *places = image(rng)
        C = groups * (1 + C % 6)
        if C == groups and not places:
            places = [2]  # a group of one element has no variance
        # Near 0: in float32 PyTorch's differences of numbers near 5 are off by 2e-5.
        values, some = given(rng, (B, C, *places), 0.5)

        def ours(*tensors):
            x, weight, bias = both(some, *tensors)
            return f(x, groups, weight, bias, 1e-2)

        def theirs(*tensors):
            x, weight, bias = both(some, *tensors)
            return F.group_norm(x, groups, weight, bias, 1e-2)

        library.compare(ours, theirs, [v.astype(dtype) for v in values], rng, tolerance)


class Weights(Structure):
    _fields_ = [(name, c_void_p) for name in ("input", "hidden", "input_bias", "hidden_bias")]


def in_a_row(*tensors):
    """Tensors of the library as one, so that all of them are compared and get gradients."""
    flat = c("gd_reshape", c_void_p, c_void_p, c_int, c_void_p)
    join = c("gd_concat", c_void_p, c_void_p, c_int, c_int)
    rows = [flat(t, 1, byref(c_int64(-1))) for t in tensors]
    return join((c_void_p * len(rows))(*rows), len(rows), 0)


def torch_in_a_row(*tensors):
    return torch.cat([t.reshape(-1) for t in tensors])


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_layers_are_torchs(library, name):
    """The weights are PyTorch's parameters, in its order; the state and the cell are given. Compared are y
    and the last states, with the gradients of all."""
    rng = np.random.default_rng(13)
    lstm = name == "lstm"
    states = 2 if lstm else 1
    f = c(f"gd_{name}", c_void_p, c_void_p, c_void_p, c_int, *[c_void_p] * (states + states))
    for i in range(CASES):
        dtype, tolerance = (np.float64, 1e-12) if i % 2 else (np.float32, 2e-5)
        B, T, width, H, layers = (int(n) for n in rng.integers(1, [4, 7, 6, 9, 3]))
        bias = bool(rng.random() < 0.8)
        module = (torch.nn.LSTM if lstm else torch.nn.GRU)(width, H, layers, bias, True)
        shapes = [tuple(p.shape) for p in module.parameters()]
        each = len(shapes) // layers
        names = [n for n, _ in module.named_parameters()]

        def ours(x, *tensors):
            table = (Weights * layers)()
            for k in range(layers):
                table[k] = Weights(*tensors[states + k * each:states + (k + 1) * each])
            last = [c_void_p() for _ in range(states)]
            y = f(x, table, layers, *tensors[:states], *map(byref, last))
            return in_a_row(y, *last)

        def theirs(x, *tensors):
            given_states = tensors[:states] if lstm else tensors[0]
            parameters = dict(zip(names, tensors[states:]))
            y, last = torch.func.functional_call(module, parameters, (x, given_states))
            return torch_in_a_row(y, *(last if lstm else (last,)))

        values = [rng.normal(size=(B, T, width))]
        values += [rng.normal(0, 0.5, (layers, B, H)) for _ in range(states)]
        values += [rng.normal(0, 0.5, s) for s in shapes]
        library.compare(ours, theirs, [v.astype(dtype) for v in values], rng, tolerance)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_cells_are_torchs(library, name):
    rng = np.random.default_rng(19)
    lstm = name == "lstm"
    states = 2 if lstm else 1
    f = c(f"gd_{name}_cell", c_void_p, *[c_void_p] * (5 if lstm else 3))
    for i in range(CASES):
        dtype, tolerance = (np.float64, 1e-12) if i % 2 else (np.float32, 2e-5)
        B, width, H = (int(n) for n in rng.integers(1, [4, 6, 9]))
        module = (torch.nn.LSTMCell if lstm else torch.nn.GRUCell)(width, H, bool(rng.random() < 0.8))
        names, parameters = zip(*module.named_parameters())

        def ours(x, *tensors):
            weights, cell = byref(Weights(*tensors[states:])), c_void_p()
            if not lstm:
                return f(x, tensors[0], weights)
            return in_a_row(f(x, *tensors[:2], weights, byref(cell)), cell)

        def theirs(x, *tensors):
            given_states = tensors[:2] if lstm else tensors[0]
            new = torch.func.functional_call(module, dict(zip(names, tensors[states:])),
                                             (x, given_states))
            return torch_in_a_row(*new) if lstm else new

        shapes = [(B, width), *[(B, H)] * states, *(tuple(p.shape) for p in parameters)]
        values = [rng.normal(0, 0.5, s).astype(dtype) for s in shapes]
        library.compare(ours, theirs, values, rng, tolerance)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_two_directions_are_torchs(library, name):
    """As kernels/rnn/README.md makes them of gd_flip and gd_concat."""
    rng = np.random.default_rng(17)
    lstm = name == "lstm"
    f = c(f"gd_{name}", c_void_p, c_void_p, c_void_p, c_int, *[c_void_p] * (4 if lstm else 2))
    turn = c("gd_flip", c_void_p, c_void_p, c_void_p, c_int)
    join = c("gd_concat", c_void_p, c_void_p, c_int, c_int)
    time = byref(c_int(1))
    for i in range(CASES // 4):
        dtype, tolerance = (np.float64, 1e-12) if i % 2 else (np.float32, 2e-5)
        B, T, width, H, layers = (int(n) for n in rng.integers(1, [4, 7, 6, 9, 3]))
        module = (torch.nn.LSTM if lstm else torch.nn.GRU)(
            width, H, layers, batch_first=True, bidirectional=True)
        names = [n for n, _ in module.named_parameters()]

        def ours(x, *tensors):
            def one(x, k):
                return f(x, byref(Weights(*tensors[4 * k:4 * k + 4])), 1,
                         *[None] * (4 if lstm else 2))

            for k in range(layers):
                back = turn(one(turn(x, time, 1), 2 * k + 1), time, 1)
                x = join((c_void_p * 2)(one(x, 2 * k), back), 2, 2)
            return x

        def theirs(x, *tensors):
            return torch.func.functional_call(module, dict(zip(names, tensors)), (x,))[0]

        values = [rng.normal(size=(B, T, width))]
        values += [rng.normal(0, 0.5, tuple(p.shape)) for p in module.parameters()]
        library.compare(ours, theirs, [v.astype(dtype) for v in values], rng, tolerance)
