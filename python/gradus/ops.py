"""gradus::rms_norm and gradus::add_rms_norm as PyTorch ops, and the functions that call them.

Three ops with kernels for the CPU and CUDA, fake kernels, and autograd:

    gradus::rms_norm          -> y, rstd
    gradus::add_rms_norm      -> y, sum, rstd
    gradus::rms_norm_backward -> dx, dbranch, dweight, dbias; empty if not wanted

torch.compile, torch.export, modes, transforms and tensor subclasses see these ops. Eager calls on
plain tensors bypass PyTorch's dispatcher, whose overhead for ops in Python exceeds the time of the
kernels: they go through an autograd.Function to the same kernels.

The kernels compute first derivatives in reverse mode. Within forward mode and torch.func's
transforms, and for second derivatives, the same formulas are computed by PyTorch's ops, which all
of these can transform.
"""

import math
from typing import Optional, Tuple

import numpy as np
import torch
from torch import Tensor, is_grad_enabled
from torch._C import _are_functorch_transforms_active, _len_torch_dispatch_stack
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from . import _library
from ._kernels import DTYPES, Problem, backward, empty_gradients, empty_results, forward
from ._messages import shown

# ---- Argument checks ----------------------------------------------------------------------------

_NUMBERS = (int, float, np.floating, np.integer, torch.SymInt, torch.SymFloat)


def _is_finite(number):
    try:
        return isinstance(number, _NUMBERS) and math.isfinite(number)
    except OverflowError:  # a whole number that a double cannot hold
        return False


def _fault(tensors, eps, offset, round_before_weight, dtype):
    """What is wrong with the kinds of the arguments, of which the C library knows nothing; or
    None."""
    optional = ("weight", "bias")
    dtypes = "float32, float64, bfloat16 or float16"
    for name, t in tensors.items():
        if t is None and name in optional:
            continue
        if not isinstance(t, Tensor):
            return f"{name} is {shown(t)}, wanted a tensor" + " or None" * (name in optional)
        if t.layout != torch.strided or t.is_nested:
            kind = "nested" if t.is_nested else t.layout
            return f"{name} is {kind}, wanted a dense tensor (torch.strided)"
        if t.dtype not in DTYPES:
            return f"{name} is {t.dtype}, wanted {dtypes}"
        if t.device != tensors["x"].device:
            return f"{name} is on {t.device}, but x is on {tensors['x'].device}"
    if not _is_finite(eps):
        return f"eps is {shown(eps)}, wanted a finite number of at least 0"
    if not _is_finite(offset):
        return f"offset is {shown(offset)}, wanted a finite number"
    if not isinstance(round_before_weight, (bool, np.bool_)):
        return f"round_before_weight is {shown(round_before_weight)}, wanted True or False"
    if dtype is not None and dtype not in DTYPES:
        return f"dtype is {shown(dtype)}, wanted {dtypes}"
    return None


def _fits(p, x):
    return p is None or (
        p.shape == x.shape[-1:] if p.dim() == 1 else p.dim() == 2 and p.shape == x.shape[-2:])


def _check(op, x, residual, weight, bias, eps, offset, round_before_weight, dtype):
    """Raises an error of one sentence, the C library's if it has one. Where all is right no size is
    compared with a number: sizes may be symbolic."""
    tensors = {"x": x, "residual": residual, "weight": weight, "bias": bias}
    if op == "rms_norm":
        del tensors["residual"]
    sentence = _fault(tensors, eps, offset, round_before_weight, dtype)
    both = weight is not None and bias is not None
    if sentence is None and not (
        x.dim() > 0
        and _fits(weight, x)
        and _fits(bias, x)
        and not (both and (weight.shape != bias.shape or weight.dtype != bias.dtype))
        and (op == "rms_norm" or residual.shape == x.shape)
        and eps >= 0
    ):
        sentence = _misfit(op, tensors, eps, offset)
    if sentence is not None:
        raise ValueError(f"{op}: {sentence}")


def _misfit(op, tensors, eps, offset):
    sentence = _library.complaint(
        op,
        [t if t is None else (DTYPES[t.dtype], [int(n) for n in t.shape])
         for t in tensors.values()],
        _library.rms_norm_args(eps, offset),
    )
    if sentence is not None:
        return sentence.partition(": ")[2]
    weight, bias = tensors["weight"], tensors["bias"]
    if weight.dtype != bias.dtype:
        return f"bias is {bias.dtype}, but weight is {weight.dtype}"
    return f"bias has shape {list(bias.shape)}, but that of weight is {list(weight.shape)}"


_problems = {}


def _problem(op, x, residual, weight, bias, eps, offset, round_before_weight, dtype):
    """The checked Problem of a call, cached by sizes and dtypes; None on other devices than the CPU
    and CUDA."""
    try:
        key = (
            op, x.shape, x.dtype, x.layout, x.device, eps, offset, round_before_weight, dtype,
            residual is None or (residual.shape, residual.dtype, residual.layout, residual.device),
            weight is None or (weight.shape, weight.dtype, weight.layout, weight.device),
            bias is None or (bias.shape, bias.dtype, bias.layout, bias.device),
        )
        known = _problems.get(key)
    except (TypeError, RuntimeError):  # an option without a hash, a nested tensor: refused below
        known = None
    if known is None:
        _check(op, x, residual, weight, bias, eps, offset, round_before_weight, dtype)
        if not (x.is_cpu or x.is_cuda):
            return None
        if len(_problems) >= 4096:
            _problems.clear()
        known = Problem(x, residual, weight, bias, eps, offset, round_before_weight,
                        x.dtype if dtype is None else dtype).prepare(x)
        _problems[key] = known
    return known


# ---- The ops ------------------------------------------------------------------------------------

_ops = torch.library.Library("gradus", "DEF")
_arguments = "Tensor? weight, Tensor? bias, float eps, float offset, bool round_before_weight"
_tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
for _schema in (
    f"rms_norm(Tensor x, {_arguments}, ScalarType? dtype) -> (Tensor y, Tensor rstd)",
    f"add_rms_norm(Tensor x, Tensor residual, {_arguments}) -> (Tensor y, Tensor sum, Tensor rstd)",
    "rms_norm_backward(Tensor dy, Tensor? dsum, Tensor x, Tensor rstd, Tensor? weight,"
    " Tensor? bias, float offset, bool round_before_weight, bool[] wanted)"
    " -> (Tensor dx, Tensor dbranch, Tensor dweight, Tensor dbias)",
):
    _ops.define(_schema, tags=_tags)


def _impl(name, function):
    for key in ("CPU", "CUDA"):
        _ops.impl(name, function, key)


def _rms_norm(x, weight, bias, *options):
    p = _problem("rms_norm", x, None, weight, bias, *options)
    return forward(p, x, None, weight, bias)[::2]


def _add_rms_norm(x, residual, weight, bias, *options):
    p = _problem("add_rms_norm", x, residual, weight, bias, *options, None)
    return forward(p, x, residual, weight, bias)


def _rms_norm_backward(dy, dsum, x, rstd, weight, bias, *options_and_wanted):
    *options, wanted = options_and_wanted
    p = _problem("rms_norm", x, None, weight, bias, 0.0, *options, dy.dtype)
    if not (
        dy.shape == x.shape and (dsum is None or (dsum.shape == x.shape and dsum.dtype == x.dtype))
        and rstd.shape == x.shape[:-1] and rstd.dtype == p.rstd
    ):
        raise ValueError(
            "rms_norm_backward: dy, dsum or rstd does not have the forward's shape or dtype")
    results = backward(p, dy, dsum, x, rstd, weight, bias, wanted)
    return tuple(x.new_empty(0) if g is None else g for g in results)


_impl("rms_norm", _rms_norm)
_impl("add_rms_norm", _add_rms_norm)
_impl("rms_norm_backward", _rms_norm_backward)


# Fake kernels: the results' shapes and dtypes, without data. Sizes may be symbolic.


@torch.library.register_fake("gradus::rms_norm", lib=_ops)
def _(x, weight, bias, eps, offset, round_before_weight, dtype):
    _check("rms_norm", x, None, weight, bias, eps, offset, round_before_weight, dtype)
    p = Problem(x, None, weight, bias, eps, offset, round_before_weight, dtype or x.dtype)
    return empty_results(p, x, None)[::2]


@torch.library.register_fake("gradus::add_rms_norm", lib=_ops)
def _(x, residual, weight, bias, eps, offset, round_before_weight):
    _check("add_rms_norm", x, residual, weight, bias, eps, offset, round_before_weight, None)
    p = Problem(x, residual, weight, bias, eps, offset, round_before_weight, x.dtype)
    return empty_results(p, x, residual)


@torch.library.register_fake("gradus::rms_norm_backward", lib=_ops)
def _(dy, dsum, x, rstd, weight, bias, offset, round_before_weight, wanted):
    p = Problem(x, None, weight, bias, 0.0, offset, round_before_weight, dy.dtype)
    results = empty_gradients(p, x, weight, bias, wanted)
    return tuple(x.new_empty(0) if g is None else g for g in results)


# ---- Formulas in PyTorch's ops ------------------------------------------------------------------


def _forward_formula(p, x, residual, weight, bias):
    """y, the sum (None without a residual), and rstd."""
    total, wide = None, x.to(p.rstd)
    if residual is not None:
        total = (wide + residual.to(p.rstd)).to(p.base)  # what is normalised is the rounded sum
        wide = total.to(p.rstd)
    rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + p.eps)
    y = wide * rstd
    if p.round_before:
        y = y.to(p.dtype).to(p.rstd)
    if weight is not None:
        y = y * (p.offset + weight.to(p.rstd))
    if bias is not None:
        y = y + bias.to(p.rstd)
    return y.to(p.dtype), total, rstd.squeeze(-1)


def _backward_formula(p, dy, dsum, x, weight, bias, wanted):
    """dx, dbranch, dweight, dbias."""
    exact = p.rstd
    wide, h = x.to(exact), dy.to(exact)
    rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + p.eps)
    xhat = wide * rstd
    leading = tuple(range(x.dim() - (2 if p.per_head else 1)))
    dweight = dbias = None
    if wanted[2]:
        dweight = (h * xhat).sum(leading).to(p.param) if leading else (h * xhat).to(p.param)
    if wanted[3]:
        dbias = h.sum(leading).to(p.param) if leading else h.to(p.param)
    if weight is not None:
        h = h * (p.offset + weight.to(exact))
    dx = rstd * (h - xhat * (h * xhat).mean(-1, keepdim=True))
    if dsum is not None:
        dx = dx + dsum.to(exact)
    dbranch = dx.to(p.dtype) if wanted[1] else None
    return dx.to(p.base) if wanted[0] else None, dbranch, dweight, dbias


def _transformed():
    """Whether forward mode or a transform of torch.func is active."""
    return forward_ad._current_level >= 0 or _are_functorch_transforms_active()


def _rms_norm_formula(x, weight, bias, *options):
    _check("rms_norm", x, None, weight, bias, *options)
    p = Problem(x, None, weight, bias, *options[:3], options[3] or x.dtype)
    return _forward_formula(p, x, None, weight, bias)[::2]


def _add_rms_norm_formula(x, residual, weight, bias, *options):
    _check("add_rms_norm", x, residual, weight, bias, *options, None)
    p = Problem(x, residual, weight, bias, *options, x.dtype)
    return _forward_formula(p, x, residual, weight, bias)


# ---- Autograd -----------------------------------------------------------------------------------


def _by_op(p, dy, dsum, x, rstd, weight, bias, wanted):
    gradients = torch.ops.gradus.rms_norm_backward(
        dy, dsum, x, rstd, weight, bias, p.offset, p.round_before, wanted)
    return tuple(g if w else None for g, w in zip(gradients, wanted))


def _gradients(ctx, dy, dsum, wanted, run):
    """dx, dbranch, dweight, dbias: by `run`, or by the formula if they may be differentiated."""
    x, rstd, weight, bias = ctx.saved_tensors
    p = ctx.problem
    if dy is None:
        dy = torch.zeros_like(x, dtype=p.dtype)
    if (
        is_grad_enabled()
        or _transformed()
        or is_legacy_batchedtensor(dy)  # by torch.autograd.grad(..., is_grads_batched=True)
        or (dsum is not None and is_legacy_batchedtensor(dsum))
    ):
        return _backward_formula(p, dy, dsum, x, weight, bias, wanted)
    if not (type(dy) in _TENSORS and type(dsum) in _PLAIN) or dy.is_neg() or (
        dsum is not None and dsum.is_neg()
    ):
        run = _by_op
    return run(p, dy, dsum, x, rstd, weight, bias, wanted)


def _of_rms_norm(ctx, dy, run):
    x, weight, bias = ctx.needs_input_grad[:3]
    dx, _, dweight, dbias = _gradients(ctx, dy, None, (x, False, weight, bias), run)
    return dx, dweight, dbias


def _of_add_rms_norm(ctx, dy, dsum, run):
    x, residual, weight, bias = ctx.needs_input_grad[:4]
    one = ctx.problem.dtype == ctx.problem.base  # x and the residual share one gradient
    wanted = residual or (x and one), x and not one, weight, bias
    dx, dbranch, dweight, dbias = _gradients(ctx, dy, dsum, wanted, run)
    return (dx if one else dbranch) if x else None, dx if residual else None, dweight, dbias


def _setup_rms_norm(ctx, x, weight, bias, eps, offset, round_before, dtype, results):
    y, rstd = results
    ctx.problem = Problem(x, None, weight, bias, eps, offset, round_before, y.dtype)
    ctx.save_for_backward(x, rstd, weight, bias)


def _setup_add_rms_norm(ctx, x, residual, weight, bias, eps, offset, round_before, results):
    _, total, rstd = results
    ctx.problem = Problem(x, residual, weight, bias, eps, offset, round_before, x.dtype)
    ctx.save_for_backward(total, rstd, weight, bias)


def _no_derivative(*_):
    raise NotImplementedError(
        "gradus::rms_norm_backward has no derivative: differentiate gradus.rms_norm twice, with "
        "create_graph=True in the first backward")


def _register_autograd(name, setup, gradients, formula):
    """The op's derivatives: `gradients` in reverse mode; elsewhere those of `formula`."""
    op = getattr(torch.ops.gradus, name).default

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *arguments_and_compute):
            *arguments, compute = arguments_and_compute
            results = compute(*arguments)
            setup(ctx, *arguments, results)
            ctx.set_materialize_grads(False)
            return results

        @staticmethod
        def backward(ctx, *cotangents):
            return *gradients(ctx, *cotangents), None

    def run(keys, *arguments):
        def compute(*arguments):
            with torch._C._AutoDispatchBelowAutograd():
                return op.redispatch(keys & torch._C._after_autograd_keyset, *arguments)

        tensors = [t for t in arguments if isinstance(t, Tensor)]
        recorded = is_grad_enabled() and any(t.requires_grad for t in tensors)
        if _transformed():
            return formula(*arguments)
        return Recorded.apply(*arguments, compute) if recorded else compute(*arguments)

    _ops.impl(name, run, "Autograd", with_keyset=True)


_register_autograd(
    "rms_norm", _setup_rms_norm,
    lambda ctx, dy, drstd: _of_rms_norm(ctx, dy, _by_op) + (None,) * 4, _rms_norm_formula)
_register_autograd(
    "add_rms_norm", _setup_add_rms_norm,
    lambda ctx, dy, dsum, drstd: _of_add_rms_norm(ctx, dy, dsum, _by_op) + (None,) * 3,
    _add_rms_norm_formula)
_register_autograd("rms_norm_backward", lambda *_: None, _no_derivative, _no_derivative)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, p):
        y, _, rstd = forward(p, x, None, weight, bias)
        ctx.problem = p
        ctx.save_for_backward(x, rstd, weight, bias)
        return y

    @staticmethod
    def backward(ctx, dy):
        return _of_rms_norm(ctx, dy, backward) + (None,)


class _AddRMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, bias, p):
        y, total, rstd = forward(p, x, residual, weight, bias)
        ctx.problem = p
        ctx.save_for_backward(total, rstd, weight, bias)
        ctx.set_materialize_grads(False)
        return y, total

    @staticmethod
    def backward(ctx, dy, dsum):
        return _of_add_rms_norm(ctx, dy, dsum, backward) + (None,)


# The engine calls `apply`, which would look up the backward each time.
_RMSNorm._backward_cls.apply = _RMSNorm.backward
_AddRMSNorm._backward_cls.apply = _AddRMSNorm.backward
# Skips Function.apply's search for functorch's tensors, which _eager has excluded.
_apply_rms_norm = super(torch.autograd.Function, _RMSNorm).apply
_apply_add_rms_norm = super(torch.autograd.Function, _AddRMSNorm).apply


# ---- Public functions ---------------------------------------------------------------------------

_TENSORS = frozenset((Tensor, torch.nn.Parameter))
_PLAIN = _TENSORS | {type(None)}


def _eager(x, residual, weight, bias):
    """Whether these are plain tensors whose memory holds their values, and no mode must see the
    op."""
    return (
        not is_compiling()
        and type(x) in _TENSORS
        and type(residual) in _PLAIN
        and type(weight) in _PLAIN
        and type(bias) in _PLAIN
        and not x.is_neg()
        and (residual is None or not residual.is_neg())
        and (weight is None or not weight.is_neg())
        and (bias is None or not bias.is_neg())
        and not _len_torch_dispatch_stack()
    )


def rms_norm(
    x: Tensor,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    *,
    eps: float,
    offset: float = 0.0,
    round_before_weight: bool = False,
    dtype: Optional[torch.dtype] = None,
) -> Tensor:
    """y = x / sqrt(mean(x^2) + eps) * (offset + weight) + bias, along the last dimension.

    x is [..., N]; weight and bias are [N], or [H, N] if x is [..., H, N]. Each may be float32,
    float64, bfloat16 or float16, in any mixture (weight and bias alike); sums are computed in
    float32 or wider. y has x's dtype unless `dtype` is given. offset is 1 in Gemma's models.
    round_before_weight rounds x / sqrt(...) to y's dtype before the product, as Llama's code does.
    """
    if _transformed():
        return _rms_norm_formula(x, weight, bias, eps, offset, round_before_weight, dtype)[0]
    p = _eager(x, None, weight, bias) and _problem(
        "rms_norm", x, None, weight, bias, eps, offset, round_before_weight, dtype)
    if not p:
        if not is_compiling():
            _check("rms_norm", x, None, weight, bias, eps, offset, round_before_weight, dtype)
        return torch.ops.gradus.rms_norm(
            x, weight, bias, eps, offset, round_before_weight, dtype)[0]
    if is_grad_enabled():
        return _apply_rms_norm(x, weight, bias, p)
    return forward(p, x, None, weight, bias)[0]


def add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    *,
    eps: float,
    offset: float = 0.0,
    round_before_weight: bool = False,
) -> Tuple[Tensor, Tensor]:
    """(y, sum) with sum = x + residual and y = rms_norm(sum, weight, ...), in one pass.

    x and residual have the same shape. y has x's dtype; the sum, which is the next residual, has
    the dtype of `residual`.
    """
    if _transformed():
        return _add_rms_norm_formula(
            x, residual, weight, bias, eps, offset, round_before_weight)[:2]
    p = _eager(x, residual, weight, bias) and _problem(
        "add_rms_norm", x, residual, weight, bias, eps, offset, round_before_weight, None)
    if not p:
        if not is_compiling():
            _check("add_rms_norm", x, residual, weight, bias, eps, offset, round_before_weight,
                   None)
        return torch.ops.gradus.add_rms_norm(
            x, residual, weight, bias, eps, offset, round_before_weight)[:2]
    if is_grad_enabled():
        return _apply_add_rms_norm(x, residual, weight, bias, p)
    return forward(p, x, residual, weight, bias)[:2]
