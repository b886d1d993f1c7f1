"""rms_norm and add_rms_norm: values against a formula in float64, and everything that PyTorch does
with an op."""

import concurrent.futures
import copy
import itertools
import math
import re

import numpy as np
import pytest
import torch

import gradus
import random_shapes
from gradus import _kernels, _library
from random_shapes import EPS, reference

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
REAL = (F32, F64, BF16, F16)


def close(got, wanted, dtype, factor=1.0):
    """Within some rounding errors of the dtype, relative to the largest value."""
    eps = {F64: 1e-12, F32: 3e-6, BF16: 1.2e-2, F16: 2e-3}[dtype]
    error = (got.double() - wanted.double()).abs().max().item() if got.numel() else 0.0
    scale = max(1.0, wanted.abs().max().item()) if got.numel() else 1.0
    assert got.dtype == dtype
    assert error <= factor * eps * scale, (error, scale)


def leaf(*shape, dtype=F32, device="cpu", shift=0.0):
    return (torch.randn(*shape, device=device) + shift).to(dtype).requires_grad_()


def check(x, weight, bias, device, dtype=None, offset=0.0, residual=None):
    """Forward and backward against the reference, with PyTorch's autograd in float64."""
    if residual is None:
        results = (gradus.rms_norm(x, weight, bias, eps=EPS, offset=offset, dtype=dtype),)
    else:
        results = gradus.add_rms_norm(x, residual, weight, bias, eps=EPS, offset=offset)
    assert results[0].dtype == (dtype or x.dtype) and results[0].shape == x.shape
    assert all(r.device.type == device for r in results)
    wrong = random_shapes.compare(x, residual, weight, bias, offset, results)
    assert not wrong, wrong


SHAPES = [(3, 8), (1, 1), (64,), (5, 257), (2, 3, 40), (7, 4096), (300, 16), (0, 12), (2, 0, 12)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rms_norm_shapes(device, shape):
    n = shape[-1]
    check(leaf(*shape, device=device), leaf(n, device=device), leaf(n, device=device), device)
    check(leaf(*shape, device=device), None, None, device)


@pytest.mark.parametrize("dtypes", list(itertools.product(REAL, REAL)), ids=str)
def test_rms_norm_mixtures_of_dtypes(device, dtypes):
    x, w = dtypes
    check(leaf(6, 48, dtype=x, device=device), leaf(48, dtype=w, device=device, shift=1), None,
          device)
    check(leaf(6, 48, dtype=x, device=device), leaf(48, dtype=w, device=device, shift=1), None,
          device, dtype=torch.promote_types(x, w), offset=1.0)


@pytest.mark.parametrize("dtypes", list(itertools.product(REAL, REAL)), ids=str)
def test_add_rms_norm_mixtures_of_dtypes(device, dtypes):
    x, r = dtypes
    check(leaf(6, 48, dtype=x, device=device), leaf(48, dtype=x, device=device, shift=1), None,
          device, residual=leaf(6, 48, dtype=r, device=device))


def test_weights_per_head(device):
    weight, bias = leaf(5, 16, device=device), leaf(5, 16, device=device)
    check(leaf(3, 2, 5, 16, device=device), weight, bias, device)
    check(leaf(3, 5, 2, 16, device=device).transpose(1, 2), weight, bias, device)
    check(leaf(7, 3, 5, 16, device=device)[:, 1], weight, None, device)
    columns = torch.randn(16, 5, device=device).t().requires_grad_()
    check(leaf(3, 5, 16, device=device), columns, None, device)


def strided(device):
    """Tensors whose rows are not adjacent in memory."""
    base = torch.randn(4, 6, 5, 24, device=device)
    yield "transposed heads", base.transpose(1, 2)
    yield "one of three in a fused product", torch.randn(4, 6, 3, 5, 24, device=device)[:, :, 1]
    yield "every second row", base[:, ::2]
    yield "a part of each row", base[..., 3:19]
    yield "columns", torch.randn(24, 9, device=device).t()
    yield "every second number", base[..., ::2]
    yield "expanded rows", torch.randn(24, device=device).expand(4, 6, 24)
    yield "a middle axis expanded", torch.randn(4, 1, 24, device=device).expand(4, 6, 24)
    yield "three orders", base.permute(2, 0, 1, 3)
    yield "all one number", torch.randn(1, device=device).expand(4, 24)


@pytest.mark.parametrize("which", range(10))
def test_strides(device, which):
    name, x = list(strided(device))[which]
    w = leaf(x.shape[-1], device=device, shift=1)
    check(x.requires_grad_(), w, None, device)
    y = gradus.rms_norm(x, w, eps=EPS)
    for _, dy in strided(device):  # the same, with cotangents of various strides
        if dy.shape != x.shape:
            continue
        want = torch.autograd.grad(reference(x.detach().requires_grad_(), w)[0], w, dy.double())
        got = torch.autograd.grad(y, (x, w), dy, retain_graph=True)
        again = torch.autograd.grad(y, (x, w), dy.contiguous(), retain_graph=True)
        close(got[1], want[0], F32, 10)
        assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(got, again)), name
    check(x, w, None, device, residual=torch.randn_like(x).requires_grad_())
    check(x, w, None, device, residual=leaf(*x.shape, device=device))


def test_one_cotangent_for_all(device):
    x, w = leaf(6, 24, device=device), leaf(24, device=device)
    got = torch.autograd.grad(gradus.rms_norm(x, w, eps=EPS).sum(), (x, w))
    want = torch.autograd.grad(reference(x, w)[0].sum(), (x, w))
    assert all(torch.allclose(g, t, atol=1e-5) for g, t in zip(got, want))


def test_any_subset_of_gradients(device):
    x, r, w, b = (leaf(*s, device=device) for s in ((6, 24), (6, 24), (24,), (24,)))
    dy = torch.randn(6, 24, device=device)
    y, total = gradus.add_rms_norm(x, r, w, b, eps=EPS)
    everything = torch.autograd.grad((y, total), (x, r, w, b), (dy, dy), retain_graph=True)
    for count in range(1, 5):
        for subset in itertools.combinations(range(4), count):
            leaves = [t.detach().requires_grad_(i in subset) for i, t in enumerate((x, r, w, b))]
            results = gradus.add_rms_norm(*leaves, eps=EPS)
            # the sum does not depend on the weights, so PyTorch starts without a gradient there
            heads = [t for t in results if t.requires_grad]
            got = torch.autograd.grad(heads, [leaves[i] for i in subset], [dy] * len(heads))
            for i, g in zip(subset, got):
                assert torch.equal(g, everything[i])
    only_sum = torch.autograd.grad(gradus.add_rms_norm(x, r, w, b, eps=EPS)[1], (x, r), dy)
    assert all(torch.equal(g, dy) for g in only_sum)


def test_the_gradients_of_x_and_residual_are_not_one_memory():
    x, r = leaf(3, 8), leaf(3, 8)
    y, total = gradus.add_rms_norm(x, r, eps=EPS)
    (y.sum() + total.sum()).backward()
    x.grad.zero_()
    assert r.grad.abs().max() > 0


def test_round_before_weight(device):
    x, w = leaf(64, 96, dtype=BF16, device=device), leaf(96, dtype=BF16, device=device)
    wide = x.float()
    xhat = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)
    llama = w * xhat.to(BF16)
    got = gradus.rms_norm(x, w, eps=EPS, round_before_weight=True)
    plain = gradus.rms_norm(x, w, eps=EPS)
    assert (got != llama).float().mean() < 0.01 < (plain != llama).float().mean()


# ---- PyTorch's features -------------------------------------------------------------------------


def arguments(device, dtype=F32, bias=True):
    make = lambda *s: leaf(*s, dtype=dtype, device=device)
    return make(4, 6, 32), make(4, 6, 32), make(32), make(32) if bias else None


def test_opcheck(device):
    x, r, w, b = arguments(device)
    for bias, weight in ((b, w), (None, w), (None, None), (b, None)):
        torch.library.opcheck(torch.ops.gradus.rms_norm, (x, weight, bias, EPS, 0.0, False, None))
        torch.library.opcheck(torch.ops.gradus.add_rms_norm, (x, r, weight, bias, EPS, 1.0, True))
    torch.library.opcheck(torch.ops.gradus.rms_norm, (x, w, None, EPS, 0.0, False, F64))
    torch.library.opcheck(
        torch.ops.gradus.rms_norm, (x.transpose(0, 1), w, None, EPS, 0.0, False, None))
    with torch.no_grad():
        y, rstd = torch.ops.gradus.rms_norm(x, w, b, EPS, 0.0, False, None)
        for wanted in itertools.product((False, True), repeat=4):
            torch.library.opcheck(torch.ops.gradus.rms_norm_backward,
                                  (y, None, x, rstd, w, b, 0.0, False, list(wanted)))


def eager_and_op(x, r, w, b, offset=0.0, rounded=False):
    """(what a call returns, the results of the same op through PyTorch's dispatcher)"""
    kind = {"eps": EPS, "offset": offset, "round_before_weight": rounded}
    ops = torch.ops.gradus
    if r is None:
        return (gradus.rms_norm(x, w, b, **kind),), \
            ops.rms_norm(x, w, b, EPS, offset, rounded, None)[:1]
    return gradus.add_rms_norm(x, r, w, b, **kind), \
        ops.add_rms_norm(x, r, w, b, EPS, offset, rounded)[:2]


@pytest.mark.parametrize("shape", [(4, 6, 32), (2, 3, 5, 16), (1, 1), (9,), (0, 8)], ids=str)
@pytest.mark.parametrize("dtypes", [(F32, F32, F32), (BF16, F32, F32), (F16, F16, F16),
                                    (F32, F32, F64)], ids=str)
def test_the_op_and_the_eager_call_give_the_same_bits(device, shape, dtypes):
    make = lambda dtype, *s: leaf(*s, dtype=dtype, device=device)
    xt, rt, wt = dtypes
    per_head = len(shape) == 4
    for layout in (lambda t: t, lambda t: t.transpose(0, -2) if t.dim() > 2 else t):
        x, r = layout(make(xt, *shape)), layout(make(rt, *shape))
        w, b = (make(wt, *x.shape[-2 if per_head else -1 :]) for _ in range(2))
        for residual, weight, bias in itertools.product((None, r), (None, w), (None, b)):
            got, want = eager_and_op(x, residual, weight, bias, 1.0, True)
            leaves = [t for t in (x, residual, weight, bias) if t is not None]
            dy = [torch.randn_like(t) for t in got]
            both = [list(t) + list(torch.autograd.grad(t, leaves, dy)) for t in (got, want)]
            with torch.no_grad():
                both[0] += eager_and_op(x, residual, weight, bias, 1.0, True)[0]
            both[1] += want
            for a, c in itertools.zip_longest(*both):
                assert torch.equal(a, c) and a.dtype == c.dtype and a.stride() == c.stride()


def test_calls_of_several_threads():
    x, r, w, b = arguments("cpu")
    rows = range(1, 40)
    want = [gradus.add_rms_norm(x[0].repeat(n, 1), r[0].repeat(n, 1), w, b, eps=EPS)
            for n in rows]
    gradus.ops._problems.clear()

    def work(_):
        return [gradus.add_rms_norm(x[0].repeat(n, 1), r[0].repeat(n, 1), w, b, eps=EPS)
                for n in rows]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for got in pool.map(work, range(8)):
            assert all(torch.equal(p, q) for g, t in zip(got, want) for p, q in zip(g, t))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_gradcheck_of_pytorch(device, dtype):
    if dtype == F64:
        x, r, w, b = arguments(device, F64)
        f = lambda *t: gradus.rms_norm(*t, eps=0.1, offset=0.5)
        g = lambda *t: gradus.add_rms_norm(*t, eps=0.1)
        small = [t[..., :5].detach().requires_grad_() for t in (x, r, w, b)]
        assert torch.autograd.gradcheck(f, small[:1] + small[2:])
        assert torch.autograd.gradcheck(g, small)
        assert torch.autograd.gradgradcheck(f, small[:1] + small[2:])
        assert torch.autograd.gradgradcheck(g, small)
    else:
        x = leaf(3, 8, device=device)
        y = gradus.rms_norm(x, eps=EPS)
        (dx,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        assert dx.requires_grad


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_fullgraph(device, dynamic):
    x, r, w, b = arguments(device)

    def f(x, r, w, b):
        y, total = gradus.add_rms_norm(x * 2, r, w, b, eps=EPS)
        return gradus.rms_norm(y.sin(), w, eps=EPS, offset=1.0) + total

    compiled = torch.compile(f, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for rows in (4, 3):
        leaves = [t[:rows].detach().requires_grad_() if t.dim() > 1 else t for t in (x, r, w, b)]
        want, got = f(*leaves), compiled(*leaves)
        dy = torch.randn_like(want)
        assert torch.allclose(got, want, atol=1e-5)
        for a, c in zip(*(torch.autograd.grad(t, leaves, dy) for t in (got, want))):
            assert torch.allclose(a, c, atol=1e-4)


def test_the_compiled_backward_is_ours():
    x, _, w, _ = arguments("cpu")
    seen = []

    def look(graph, _):
        seen.append(str(graph.graph))
        return graph

    from torch._dynamo.backends.common import aot_autograd

    f = torch.compile(lambda x, w: gradus.rms_norm(x, w, eps=EPS), fullgraph=True,
                      backend=aot_autograd(fw_compiler=look, bw_compiler=look))
    f(x, w).sum().backward()
    assert "gradus.rms_norm.default" in seen[0] and "rms_norm_backward" in seen[1]


def test_inductor(device):
    x, r, w, b = arguments(device)
    q = leaf(4, 6, 3, 32, device=device)
    f = lambda x, q: gradus.rms_norm(x * 2, w, b, eps=EPS) + gradus.rms_norm(
        q.transpose(1, 2)[:, 1], w, eps=EPS)
    got, want = torch.compile(f, fullgraph=True)(x, q), f(x, q)
    assert torch.allclose(got, want, atol=1e-5)
    dy = torch.randn_like(want)
    for a, c in zip(*(torch.autograd.grad(t, (x, q, w), dy) for t in (got, want))):
        assert torch.allclose(a, c, atol=1e-4)


def test_export():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = gradus.nn.RMSNorm(32)

        def forward(self, x):
            return self.norm(x)

    x = torch.randn(4, 32)
    model = Model()
    assert torch.equal(torch.export.export(model, (x,)).module()(x), model(x))


def test_autocast(device):
    x, _, w, _ = arguments(device)
    linear = torch.nn.Linear(32, 32, device=device)
    with torch.autocast(device, BF16):
        h = linear(x)
        y = gradus.rms_norm(h, w, eps=EPS)
        loss = linear(y).float().square().mean()
    assert h.dtype == y.dtype == BF16
    close(y, reference(h, w)[0], BF16)
    loss.backward()
    assert w.grad.dtype == F32 and x.grad.dtype == F32 and w.grad.abs().max() > 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(device, reentrant):
    from torch.utils.checkpoint import checkpoint

    x, r, w, b = arguments(device)
    f = lambda *t: gradus.add_rms_norm(*t, eps=EPS)[0].sin()
    want = torch.autograd.grad(f(x, r, w, b).sum(), (x, r, w, b))
    checkpoint(f, x, r, w, b, use_reentrant=reentrant).sum().backward()
    assert all(torch.allclose(t.grad, g, atol=1e-6) for t, g in zip((x, r, w, b), want))


def test_selective_checkpointing_sees_the_op(device):
    from torch.utils import checkpoint as module

    if not hasattr(module, "CheckpointPolicy"):
        pytest.skip("PyTorch older than 2.5 keeps it elsewhere")
    CheckpointPolicy, checkpoint = module.CheckpointPolicy, module.checkpoint
    x, _, w, _ = arguments(device)
    seen = []

    def policy(ctx, op, *args, **kwargs):
        seen.append(op)
        return CheckpointPolicy.MUST_SAVE if op == torch.ops.gradus.rms_norm.default \
            else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = lambda: module.create_selective_checkpoint_contexts(policy)
    f = lambda x: gradus.rms_norm(x, w, eps=EPS).sin()
    (want,) = torch.autograd.grad(f(x).sum(), x)
    checkpoint(f, x, use_reentrant=False, context_fn=contexts).sum().backward()
    assert torch.ops.gradus.rms_norm.default in seen
    assert torch.allclose(x.grad, want, atol=1e-6)


def test_in_place_change_of_x_is_noticed(device):
    x, _, w, _ = arguments(device)
    h = x * 1
    y = gradus.rms_norm(h, w, eps=EPS)
    h.add_(1)
    with pytest.raises(RuntimeError, match="inplace"):
        y.sum().backward()


def test_values_that_memory_holds_negated(device):
    """torch.conj(z).imag and the like: a bit of the tensor says that its memory has -x."""
    x, r, w, b = (t.detach() for t in arguments(device))
    dy = torch.randn_like(x)
    negated = lambda t: torch._neg_view(-t)
    for which in range(4):
        values = [negated(t) if i == which else t for i, t in enumerate((x, r, w, b))]
        leaves = [t.detach().requires_grad_() for t in values]
        assert leaves[which].is_neg()
        check(leaves[0], *leaves[2:], device)
        check(leaves[0], *leaves[2:], device, residual=leaves[1])
    for call in (lambda x: gradus.rms_norm(x, w, eps=EPS),
                 lambda x: torch.add(*gradus.add_rms_norm(x, r, w, eps=EPS))):
        x.requires_grad_()
        want, got = (torch.autograd.grad(call(x), x, g)[0] for g in (dy, negated(dy)))
        assert torch.equal(got, want)


def test_meta_tensors():
    x = torch.empty(4, 32, device="meta", dtype=BF16)
    assert gradus.rms_norm(x, eps=EPS).shape == (4, 32)


def test_threads_give_the_same_bits():
    x, w = leaf(1000, 96), leaf(96)
    results = []
    before = torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        y = gradus.rms_norm(x, w, eps=EPS)
        results.append((y, *torch.autograd.grad(y, (x, w), torch.ones(1000, 96))))
    torch.set_num_threads(before)
    assert all(torch.equal(a, b) for r in results[1:] for a, b in zip(results[0], r))


# ---- Wrong input --------------------------------------------------------------------------------

Z = torch.zeros
WRONG = [
    ((Z(4, 8), Z(9)), {},
     "rms_norm: weight has shape [9], wanted the last dimension of x [4, 8], or the last two for one row "
     "per head"),
    ((Z(4, 8), None, Z(9)), {},
     "rms_norm: bias has shape [9], wanted the last dimension of x [4, 8], or the last two for one row "
     "per head"),
    ((Z(4, 8), Z(3, 8)), {},
     "rms_norm: weight has shape [3, 8], wanted the last dimension of x [4, 8], or the last two for one "
     "row per head"),
    ((Z(4, 8), Z(1, 1, 8)), {},
     "rms_norm: weight has shape [1, 1, 8], wanted the last dimension of x [4, 8], or the last two for "
     "one row per head"),
    ((Z(()),), {}, "rms_norm: x is float32 [], wanted [..., N]"),
    ((Z(4, 8),), {"eps": -1.0}, "rms_norm: eps is -1, wanted a finite number of at least 0"),
    ((Z(4, 8),), {"eps": math.nan}, "rms_norm: eps is nan, wanted a finite number of at least 0"),
    ((Z(4, 8),), {"offset": math.inf}, "rms_norm: offset is inf, wanted a finite number"),
    ((Z(4, 8, dtype=torch.int64),), {},
     "rms_norm: x is torch.int64, wanted float32, float64, bfloat16 or float16"),
    ((Z(4, 8), Z(8, dtype=torch.complex64)), {},
     "rms_norm: weight is torch.complex64, wanted float32, float64, bfloat16 or float16"),
    ((Z(4, 8), Z(8), Z(8, dtype=F64)), {},
     "rms_norm: bias is torch.float64, but weight is torch.float32"),
    ((Z(4, 8), Z(4, 8), Z(8)), {},
     "rms_norm: bias has shape [8], but that of weight is [4, 8]"),
    ((Z(4, 8), Z(8, device="meta")), {}, "rms_norm: weight is on meta, but x is on cpu"),
    ((None,), {}, "rms_norm: x is None, wanted a tensor"),
    (([1.0],), {}, "rms_norm: x is [1.0], wanted a tensor"),
    ((np.zeros((40, 8)),), {}, "rms_norm: x is of type ndarray, wanted a tensor"),
    ((Z(4, 8), 1.0), {}, "rms_norm: weight is 1.0, wanted a tensor or None"),
    ((Z(4, 8), Z(8), [1]), {}, "rms_norm: bias is [1], wanted a tensor or None"),
    ((Z(4, 8).to_sparse(),), {},
     "rms_norm: x is torch.sparse_coo, wanted a dense tensor (torch.strided)"),
    ((Z(4, 8), Z(8).to_sparse()), {},
     "rms_norm: weight is torch.sparse_coo, wanted a dense tensor (torch.strided)"),
    ((torch.nested.nested_tensor([Z(3, 8), Z(2, 8)], layout=torch.jagged),), {},
     "rms_norm: x is nested, wanted a dense tensor (torch.strided)"),
    ((Z(4, 8),), {"eps": None}, "rms_norm: eps is None, wanted a finite number of at least 0"),
    ((Z(4, 8),), {"eps": "1"}, "rms_norm: eps is '1', wanted a finite number of at least 0"),
    ((Z(4, 8),), {"eps": 1j}, "rms_norm: eps is 1j, wanted a finite number of at least 0"),
    ((Z(4, 8),), {"eps": 10**400},
     "rms_norm: eps is of type int, wanted a finite number of at least 0"),
    ((Z(4, 8),), {"offset": None}, "rms_norm: offset is None, wanted a finite number"),
    ((Z(4, 8),), {"offset": [1]}, "rms_norm: offset is [1], wanted a finite number"),
    ((Z(4, 8),), {"offset": Z(1)}, "rms_norm: offset is tensor([0.]), wanted a finite number"),
    ((Z(4, 8),), {"round_before_weight": "no"},
     "rms_norm: round_before_weight is 'no', wanted True or False"),
    ((Z(4, 8),), {"round_before_weight": []},
     "rms_norm: round_before_weight is [], wanted True or False"),
    ((Z(4, 8),), {"dtype": "float32"},
     "rms_norm: dtype is 'float32', wanted float32, float64, bfloat16 or float16"),
    ((Z(4, 8),), {"dtype": torch.int64},
     "rms_norm: dtype is torch.int64, wanted float32, float64, bfloat16 or float16"),
]


@pytest.mark.parametrize("case", WRONG, ids=lambda c: c[2])
def test_wrong_input_raises_one_sentence(case):
    inputs, options, sentence = case
    calls = [
        lambda: gradus.rms_norm(*inputs, **{"eps": EPS, **options}),
        lambda: torch.func.vmap(lambda _: calls[0]())(Z(2)),
        lambda: torch.no_grad()(calls[0])(),
    ]
    gradus.rms_norm(Z(4, 8), Z(8), eps=EPS)  # fills the cache of checked calls
    for call in calls:
        with pytest.raises(ValueError) as error:
            call()
        assert str(error.value) == sentence


def test_a_backward_of_another_size():
    with pytest.raises(ValueError, match="rms_norm_backward: dy, dsum or rstd does not have"):
        torch.ops.gradus.rms_norm_backward(
            Z(4, 7), None, Z(4, 8), Z(4), None, None, 0.0, False, [True, False, False, False])


def test_wrong_residual():
    gradus.rms_norm(Z(4, 8), eps=EPS)
    for residual, words in (
        (Z(8, 4), "is float32 [8, 4], wanted [..., N] with N = 8 as in x float32 [4, 8]"),
        (None, "is None, wanted a tensor"),
        (0.0, "is 0.0, wanted a tensor"),
        (Z(4, 8, device="meta"), "is on meta, but x is on cpu"),
        (Z(4, 8, dtype=torch.int32),
         "is torch.int32, wanted float32, float64, bfloat16 or float16"),
    ):
        with pytest.raises(ValueError) as error:
            gradus.add_rms_norm(Z(4, 8), residual, eps=EPS)
        assert str(error.value) == "add_rms_norm: residual " + words


def test_wrong_input_under_compile():
    f = torch.compile(lambda x, w: gradus.rms_norm(x, w, eps=EPS), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match=r"weight has shape \[9\], wanted the last dimension of x"):
        f(Z(4, 8), Z(9))


# ---- The module ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape, eps, affine", [(32, None, True), (32, 1e-6, False),
                                                 ((6, 32), 1e-5, True), ([4, 6, 32], None, True)])
def test_module_takes_the_place_of_torchs(device, shape, eps, affine):
    kind = {"eps": eps, "elementwise_affine": affine, "device": device}
    ours, theirs = gradus.nn.RMSNorm(shape, **kind), torch.nn.RMSNorm(shape, **kind)
    if affine:
        torch.nn.init.normal_(theirs.weight)
    ours.load_state_dict(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    x = leaf(4, 6, 32, device=device)
    got, want = ours(x), theirs(x)
    dy = torch.randn_like(want)
    assert torch.allclose(got, want, atol=1e-5)
    (a,), (b,) = (torch.autograd.grad(t, x, dy) for t in (got, want))
    assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Mismatch dtype")
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtypes", list(itertools.product(REAL, (*REAL, None))), ids=str)
def test_default_eps_is_that_of_torch(device, dtypes, autocast):
    """With small x eps decides: 0.0078 in place of 1.2e-7 gives an eighth of y."""
    kind, other = dtypes
    for scale in (1.0, 0.05, 0.01, 1e-4):
        x = (torch.randn(4, 32, device=device) * scale).to(kind)
        theirs = torch.nn.RMSNorm(32, elementwise_affine=other is not None, dtype=other,
                                  device=device)
        ours = torch.nn.Sequential(copy.deepcopy(theirs))
        assert len(gradus.patch(ours)) == 1
        with torch.autocast(device, BF16, enabled=autocast):
            close(ours(x), theirs(x), kind, 2)


def test_module_copies_and_pickles(tmp_path):
    module = gradus.nn.RMSNorm(16)
    torch.nn.init.normal_(module.weight)
    x = torch.randn(4, 16)
    torch.save(module, tmp_path / "module")
    for other in (copy.deepcopy(module), torch.load(tmp_path / "module", weights_only=False)):
        assert type(other) is gradus.nn.RMSNorm and torch.equal(other(x), module(x))


def test_module_refuses_what_is_not_a_tensor():
    for shape in (8, (4, 8)):
        for x in ([1.0], None, 2):
            with pytest.raises(ValueError, match=rf"^RMSNorm: x is {re.escape(str(x))}, wanted"):
                gradus.nn.RMSNorm(shape)(x)
    with pytest.raises(ValueError, match=r"^RMSNorm: normalized_shape is \(\), wanted"):
        gradus.nn.RMSNorm(())(Z(4))
    with pytest.raises(ValueError, match="eps is 'a', wanted a finite number"):
        gradus.nn.RMSNorm(8, eps="a")(Z(4, 8))


def test_module_refuses_another_width():
    for module in (gradus.nn.RMSNorm(16), gradus.nn.RMSNorm(16, elementwise_affine=False),
                   gradus.nn.RMSNorm((4, 4))):
        with pytest.raises(ValueError, match=r"(x has shape|the last dimension of x) \[2, 8\]"):
            module(torch.zeros(2, 8))


@pytest.mark.parametrize("code, wanted", [
    ((_library.NO_CODE, "8.0 (PTX), 9.0"), "this build has GPU code for 8.0 (PTX), 9.0, and this GPU (T4) is "
     "7.5: build with pip install ./python -C cmake.define.GRADUS_CUDA=KERNELS -C "
     "cmake.define.CMAKE_CUDA_ARCHITECTURES=75"),
    (None, "this build has GPU code for none, and this GPU (T4) is 7.5: build with pip"),
    ((_library.MACHINE_CODE, "7.5"), "device error")])
def test_a_gpu_without_code_is_named(monkeypatch, code, wanted):
    if code is None and _library.cuda_code((7, 5))[1] != "none":
        pytest.skip("the library has GPU code")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "T4")
    if code is not None:
        monkeypatch.setattr(_library, "cuda_code", lambda capability: code)
    problem = _kernels.Problem(leaf(2, 4), None, None, None, EPS, 0.0, False, F32)
    problem.device = 3
    with pytest.raises(RuntimeError) as error:
        problem.fail(_library.ERROR_DEVICE)
    assert str(error.value).startswith("gradus: RMSNorm on cuda:3: " + wanted)


@pytest.mark.parametrize("kind", [_library.NO_CODE, _library.PTX, _library.MACHINE_CODE])
def test_code_that_the_driver_compiles_is_announced_once(monkeypatch, recwarn, kind):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "T4")
    monkeypatch.setattr(_library, "cuda_code", lambda capability: (kind, "7.5 (PTX)"))
    _kernels.warn_of_ptx.cache_clear()
    for _ in range(2):
        _kernels.warn_of_ptx(3)
    _kernels.warn_of_ptx.cache_clear()
    messages = [str(w.message) for w in recwarn]
    assert len(messages) == (kind == _library.PTX)
    assert all("no machine code for this GPU (T4, 7.5)" in message for message in messages)
