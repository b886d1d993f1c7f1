"""Forward mode, torch.func's transforms and batched gradients, against the formula in float64."""

import random

import pytest
import torch
from torch import func
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves

import gradus
from test_ops import BF16, EPS, F16, F32, F64, REAL, close, reference

# Each makes, of a function of one matrix, one of x and a direction t.
TRANSFORMS = {
    "jvp": lambda f, x, t: func.jvp(f, (x,), (t,)),
    "jacfwd": lambda f, x, t: func.jacfwd(f)(x),
    "grad": lambda f, x, t: func.grad(lambda x: f(x).pow(3).sum())(x),
    "vjp": lambda f, x, t: func.vjp(f, x)[1](t),
    "jacrev": lambda f, x, t: func.jacrev(f)(x),
    "hessian": lambda f, x, t: func.hessian(lambda x: f(x).pow(3).sum())(x),
    "vmap": lambda f, x, t: func.vmap(f)(x),
    "vmap of columns": lambda f, x, t: func.vmap(f, in_dims=1, out_dims=1)(x),
    "jvp of vmap": lambda f, x, t: func.jvp(func.vmap(f), (x,), (t,)),
    "vmap of jvp": lambda f, x, t: func.vmap(lambda *a: func.jvp(f, a[:1], a[1:]))(x, t),
    "vmap of grad": lambda f, x, t: func.vmap(func.grad(lambda x: f(x).pow(3).sum()))(x),
    "jvp of jvp": lambda f, x, t: func.jvp(lambda x: func.jvp(f, (x,), (t,))[1], (x,), (t + 1,)),
    "jvp of grad": lambda f, x, t: func.jvp(
        func.grad(lambda x: f(x).pow(3).sum()), (x,), (t,)),
    "grad of jvp": lambda f, x, t: func.grad(
        lambda x: func.jvp(f, (x,), (t,))[1].pow(3).sum())(x),
}
UNCOMPILED = {
    "linearize": lambda f, x, t: func.linearize(f, x)[1](t),
    "forward_ad": lambda f, x, t: by_dual_numbers(f, x, t),
    "forward_ad, no_grad": lambda f, x, t: by_dual_numbers(torch.no_grad()(f), x, t),
    "jacobian": lambda f, x, t: torch.autograd.functional.jacobian(f, x, vectorize=True),
    "forward jacobian": lambda f, x, t: torch.autograd.functional.jacobian(
        f, x, vectorize=True, strategy="forward-mode"),
    "batched gradients": lambda f, x, t: batched(f, x, t),
    "jvp of a backward": lambda f, x, t: func.jvp(backward_of(f, x), (t,), (x,)),
    "vmap of a backward": lambda f, x, t: func.vmap(backward_of(f, x))(torch.stack([t, 2 * t])),
    "a backward of dual numbers": lambda f, x, t: by_dual_numbers(backward_of(f, x), t, x),
    "make_fx": lambda f, x, t: torch.fx.experimental.proxy_tensor.make_fx(
        lambda x: func.jvp(f, (x,), (t,)))(x)(x),
}


def by_dual_numbers(f, x, t):
    with forward_ad.dual_level():
        return tuple(forward_ad.unpack_dual(f(forward_ad.make_dual(x, t))))


def backward_of(f, x):
    x = x.clone().requires_grad_()
    y = f(x)
    return lambda dy: torch.autograd.grad(y, x, dy, retain_graph=True)[0]


def batched(f, x, t):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(f(x), x, torch.stack([t, 2 * t]), is_grads_batched=True)


NORM = gradus.nn.RMSNorm(6, EPS, dtype=F64)
W = torch.linspace(-1, 2, 6, dtype=F64)
FUNCTIONS = {
    "rms_norm": (lambda x: gradus.rms_norm(x, W.to(x.device), eps=EPS),
                 lambda x: reference(x, W.to(x.device))[0]),
    "add_rms_norm": (
        lambda x: torch.add(*gradus.add_rms_norm(x.sin(), x, W.to(x.device), eps=EPS, offset=1.0)),
        lambda x: torch.add(*reference(x.sin(), W.to(x.device), residual=x, offset=1.0))),
    "RMSNorm": (lambda x: NORM(x),
                lambda x: reference(x)[0]),
}


def same(got, want):
    for a, b in zip(tree_leaves(got), tree_leaves(want), strict=True):
        assert a.shape == b.shape and torch.allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("error:There is a performance drop")
@pytest.mark.parametrize("transform", [*TRANSFORMS, *UNCOMPILED])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_transforms(device, name, transform):
    ours, theirs = FUNCTIONS[name]
    apply = {**TRANSFORMS, **UNCOMPILED}[transform]
    NORM.to(device)
    size = (6, 6) if "columns" in transform else (4, 6)
    x, t = torch.randn(2, *size, dtype=F64, device=device)
    same(apply(ours, x, t), apply(theirs, x, t))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("transform", ["jvp", "jacfwd", "grad", "vmap", "jvp of grad"])
def test_compiled_transforms(device, transform, backend):
    ours, theirs = FUNCTIONS["rms_norm"]
    apply = TRANSFORMS[transform]
    x, t = torch.randn(2, 4, 6, dtype=F64, device=device)
    want = apply(theirs, x, t)
    torch._dynamo.reset()
    same(torch.compile(lambda x, t: apply(ours, x, t), backend=backend, fullgraph=True)(x, t), want)
    torch._dynamo.reset()
    same(apply(torch.compile(ours, backend=backend), x, t), want)
    torch._dynamo.reset()
    want = by_dual_numbers(theirs, x, t)
    same(by_dual_numbers(torch.compile(ours, backend=backend), x, t), want)
    torch._dynamo.reset()
    compiled = torch.compile(by_dual_numbers, backend=backend, fullgraph=True)
    same(compiled(ours, x, t), want)


def test_inductor_jvp(device):
    ours, theirs = FUNCTIONS["add_rms_norm"]
    x, t = torch.randn(2, 4, 6, dtype=F64, device=device)
    jvp = lambda f: lambda x, t: func.jvp(f, (x,), (t,))
    same(torch.compile(jvp(ours), fullgraph=True)(x, t), jvp(theirs)(x, t))


def random_case(draw, device):
    """Inputs, the options, and which inputs have tangents."""
    shape = [draw.randint(1, 5) for _ in range(draw.randint(1, 4))] + [draw.choice((1, 2, 7, 33))]
    per_head = len(shape) > 2 and draw.random() < 0.3
    make = lambda *s: torch.randn(*s, dtype=F64, device=device) * draw.choice((0.1, 1, 30))
    x = make(*shape)
    if draw.random() < 0.3:
        x = make(*reversed(shape)).permute(*reversed(range(len(shape))))
    params = [make(*x.shape[-2 if per_head else -1 :]) if draw.random() < 0.7 else None
              for _ in range(2)]
    residual = make(*shape) if draw.random() < 0.5 else None
    options = {"eps": draw.choice((0.0, 1e-6, 0.1)), "offset": draw.choice((0.0, 1.0, -0.3)),
               "round_before_weight": draw.random() < 0.5}
    return [x, residual, *params], options


def test_jvp_of_random_cases(device):
    draw = random.Random(1)
    for _ in range(300):
        tensors, options = random_case(draw, device)
        present = [i for i, t in enumerate(tensors) if t is not None]
        moved = draw.sample(present, draw.randint(1, len(present)))
        tangents = [torch.randn_like(tensors[i]) for i in moved]
        dtype = draw.choice((F64, F64, F32, BF16, F16))
        weighted = tensors[2] is not None

        def ours(*values):
            x, residual, weight, bias = (
                values[moved.index(i)] if i in moved else t for i, t in enumerate(tensors))
            x, residual, weight, bias = (
                t if t is None else t.to(dtype) for t in (x, residual, weight, bias))
            if residual is None:
                return gradus.rms_norm(x, weight, bias, **options)
            return gradus.add_rms_norm(x, residual, weight, bias, **options)

        def theirs(*values):
            x, residual, weight, bias = (
                values[moved.index(i)] if i in moved else t for i, t in enumerate(tensors))
            x, residual, weight, bias = (
                t if t is None else t.to(dtype).to(F64) for t in (x, residual, weight, bias))
            y, total = reference(x, weight, bias, residual, options["eps"],
                                 options["offset"] if weighted else 0.0)
            return y if residual is None else (y, total)

        values = tuple(tensors[i] for i in moved)
        got, want = (func.jvp(f, values, tuple(tangents)) for f in (ours, theirs))
        for a, b in zip(tree_leaves(got), tree_leaves(want), strict=True):
            # a row of one number with eps 0 has the tangent 0, the difference of two large ones
            size = max(1.0, b.abs().max().item(), *(t.abs().max().item() for t in tangents))
            close(a / size, b / size, dtype, 30)
        with torch.no_grad():
            for a, b in zip(tree_leaves(got[0]), tree_leaves(ours(*values)), strict=True):
                size = max(1.0, b.abs().max().item())
                close(a / size, b / size, dtype, 2)


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_a_subclass_keeps_its_tangent(dtype):
    class Mine(torch.Tensor):
        pass

    x, t = torch.randn(2, 4, 6).to(dtype)
    want = by_dual_numbers(lambda x: gradus.rms_norm(x, eps=EPS), x, t)
    got = by_dual_numbers(lambda x: gradus.rms_norm(x.as_subclass(Mine), eps=EPS), x, t)
    assert all(torch.equal(a, b) and a.dtype == dtype for a, b in zip(got, want))


def test_the_op_itself_keeps_tangents(device):
    """torch.ops.gradus is what exported and compiled graphs call."""
    x, t = torch.randn(2, 4, 6, dtype=F64, device=device)
    op = lambda x: torch.ops.gradus.rms_norm(x, None, None, EPS, 0.0, False, None)[0]
    same(func.jvp(op, (x,), (t,)), func.jvp(lambda x: reference(x)[0], (x,), (t,)))
    add = lambda x: torch.ops.gradus.add_rms_norm(x, x, None, None, EPS, 0.0, False)[:2]
    same(func.jvp(add, (x,), (t,)), func.jvp(lambda x: reference(x, residual=x), (x,), (t,)))


def test_wrong_input_within_a_transform():
    x, t = torch.randn(2, 4, 6)
    with pytest.raises(ValueError, match=r"weight has shape \[5\], wanted the last dimension of x"):
        func.jvp(lambda x: gradus.rms_norm(x, torch.ones(5), eps=EPS), (x,), (t,))
    with pytest.raises(ValueError, match=r"residual is float32 \[3\]"):
        func.grad(lambda x: gradus.add_rms_norm(x, torch.ones(3), eps=EPS)[0].sum())(x)


def test_the_backward_op_has_no_derivative():
    x, dy = torch.randn(2, 4, 6)
    y, rstd = torch.ops.gradus.rms_norm(x, None, None, EPS, 0.0, False, None)
    backward = lambda dy: torch.ops.gradus.rms_norm_backward(
        dy, None, x, rstd, None, None, 0.0, False, [True, False, False, False])[0]
    with pytest.raises(NotImplementedError, match="has no derivative"):
        func.jvp(backward, (dy,), (dy,))
    with pytest.raises(NotImplementedError, match="has no derivative"):
        func.grad(lambda dy: backward(dy).sum())(dy)
    with pytest.raises(NotImplementedError, match="has no derivative"):
        backward(dy.requires_grad_()).sum().backward()


def test_patched_llama(device):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=48, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, attn_implementation="eager")
    torch.manual_seed(3)
    model = transformers.LlamaForCausalLM(config).eval().to(device)
    params = {n: p.detach() for n, p in model.named_parameters()}
    tangents = {n: torch.randn_like(p) * 0.1 for n, p in params.items()}
    tokens = torch.arange(40, device=device).reshape(2, 20) * 7 % 61

    def loss(params):
        return func.functional_call(model, params, kwargs={
            "input_ids": tokens, "labels": tokens, "use_cache": False}).loss

    want = func.jvp(loss, (params,), (tangents,)), func.grad(loss)(params)
    assert want[0][1].abs() > 0.005
    assert len(gradus.patch(model)) == 5
    got = func.jvp(loss, (params,), (tangents,)), func.grad(loss)(params)
    for a, b in zip(tree_leaves(got), tree_leaves(want), strict=True):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-5)
