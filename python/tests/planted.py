"""Sixty wrong backwards of small PyTorch functions, for gradient checks to find.

    python tests/planted.py     # runs gradus.gradcheck and torch.autograd.gradcheck on each
"""

import math

import torch
import torch.nn.functional as F

T = torch.float64


def op(forward, backward):
    """A torch.autograd.Function; backward(dy, *inputs) returns a gradient or a tuple of them."""

    class Planted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx, *dy):
            found = backward(*dy, *ctx.saved_tensors)
            return found if isinstance(found, tuple) else (found,)

    return Planted.apply


def normal(*shape, scale=1.0, shift=0.0):
    return lambda: (torch.randn(*shape, dtype=T) * scale + shift).requires_grad_()


X, W, V = normal(5, 4), normal(4), normal(4, 3)
POSITIVE = lambda: (torch.rand(5, 4, dtype=T) + 0.5).requires_grad_()
TARGETS = torch.tensor([0, 2, 1, 3, 2])


# ---- Correct functions; each wrong one differs by one mistake -----------------------------------


def softmax_backward(dy, x):
    y = x.softmax(-1)
    return y * (dy - (dy * y).sum(-1, keepdim=True))


def rms(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w


def rms_backward(dy, x, w, mean=True, weight=True, rstd_power=1, sum_rows=True):
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)
    xhat, h = x * rstd, dy * w if weight else dy
    dx = rstd**rstd_power * (h - xhat * (h * xhat).mean(-1, keepdim=True) * mean)
    dw = dy * xhat
    return dx, dw.sum(0) if sum_rows else dw[0]


def layer(x, w, b):
    return F.layer_norm(x, (4,), w, b)


def layer_backward(dy, x, w, b, first=1.0, second=1.0, unbiased=False, bias=1.0):
    mean = x.mean(-1, keepdim=True)
    rstd = torch.rsqrt(x.var(-1, keepdim=True, unbiased=unbiased) + 1e-5)
    xhat, h = (x - mean) * rstd, dy * w
    dx = rstd * (h - first * h.mean(-1, keepdim=True)
                 - second * xhat * (h * xhat).mean(-1, keepdim=True))
    return dx, (dy * xhat).sum(0), bias * dy.sum(0)


def attention(q, k, v):
    return (q @ k.T / math.sqrt(q.shape[-1])).softmax(-1) @ v


def attention_backward(dy, q, k, v, scale=True, turn=False, row=True):
    s = 1 / math.sqrt(q.shape[-1])
    p = (q @ k.T * s).softmax(-1)
    dp = dy @ v.T
    ds = p * (dp - (dp * p).sum(-1, keepdim=True) * row) * (s if scale else 1)
    return ds @ k, (ds if turn else ds.T) @ q, p.T @ dy


def swiglu_backward(dy, a, b, slope=True):
    s = torch.sigmoid(a)
    return dy * b * (s * (1 + a * (1 - s)) if slope else s), dy * a * s


def cross_entropy_backward(dy, x, minus=1.0, mean=True):
    p = x.softmax(-1) - minus * F.one_hot(TARGETS, 4)
    return dy * p / (len(x) if mean else 1)


def one_element(dx, factor, at=(2, 1)):
    dx = dx.clone()
    dx[at] *= factor
    return dx


def add_at(dx, what, at):
    dx = dx.clone()
    dx[at] += what
    return dx


# ---- Functions that misbehave -------------------------------------------------------------------

kept = {}


class KeptOutside(torch.autograd.Function):
    """Saves x where the next call of the forward overwrites it."""

    @staticmethod
    def forward(ctx, x):
        kept["x"] = x
        return x.sin()

    @staticmethod
    def backward(ctx, dy):
        return dy * kept["x"].cos()


class NeedsAll(torch.autograd.Function):
    """Computes dw only if x needs a gradient too."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        if not ctx.needs_input_grad[0]:
            return None, torch.zeros_like(w)
        return dy * w, (dy * x).sum(0)


class Forgets(torch.autograd.Function):
    """Ignores the gradient of the second output."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx, da, db):
        (x,) = ctx.saved_tensors
        return da * x.cos()


class Wavers(torch.autograd.Function):
    """Each result differs by a few rounding errors."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, dy):
        kept["calls"] = kept.get("calls", 0) + 1
        return dy * ctx.saved_tensors[0].cos() * (1 + 1e-13 * (kept["calls"] % 7))


class SpoilsSaved(torch.autograd.Function):
    """Overwrites the saved x with its cosine."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x.sin()

    @staticmethod
    def backward(ctx, dy):
        with torch.no_grad():
            return dy * ctx.x.data.cos_()


def spoils_dy(dy, x):
    return dy.mul_(x.cos())


def changes_input(x):
    x.data.mul_(2)
    return x.sin()


# ---- The sixty ----------------------------------------------------------------------------------

# name: (function, inputs)
BUGS = {
    # a sign, a factor
    "sin: the sign": (op(torch.sin, lambda dy, x: -dy * x.cos()), [X]),
    "cos: the sign": (op(torch.cos, lambda dy, x: dy * x.sin()), [X]),
    "square: the 2 forgotten": (op(torch.square, lambda dy, x: dy * x), [X]),
    "cube: 2 for 3": (op(lambda x: x**3, lambda dy, x: 2 * dy * x**2), [X]),
    "mean: divided by the rows": (op(torch.mean, lambda dy, x: dy.expand(5, 4) / 5), [X]),
    "mean: as a sum": (op(torch.mean, lambda dy, x: dy.expand(5, 4)), [X]),
    "product: twice the gradient": (op(torch.mul, lambda dy, x, y: (2 * dy * y, dy * x)), [X, X]),
    "square by x * x: one of two": (op(lambda x: x * x, lambda dy, x: dy * x), [X]),
    "sub: the sign of b": (op(torch.sub, lambda dy, a, b: (dy, dy)), [X, X]),
    "log: log2's factor": (op(torch.log2, lambda dy, x: dy / x), [POSITIVE]),
    # a formula
    "sigmoid: y (1 + y)": (
        op(torch.sigmoid, lambda dy, x: dy * x.sigmoid() * (1 + x.sigmoid())), [X]),
    "tanh: 1 - y": (op(torch.tanh, lambda dy, x: dy * (1 - x.tanh())), [X]),
    "exp: x for y": (op(torch.exp, lambda dy, x: dy * x), [X]),
    "sqrt: without the half": (op(torch.sqrt, lambda dy, x: dy / x.sqrt()), [POSITIVE]),
    "rsqrt: y^2 for y^3": (op(torch.rsqrt, lambda dy, x: -0.5 * dy / x), [POSITIVE]),
    "div: b for b^2": (op(torch.div, lambda dy, a, b: (dy / b, -dy * a / b)), [X, POSITIVE]),
    "silu: without its slope's second term": (
        op(F.silu, lambda dy, x: dy * x.sigmoid()), [X]),
    "gelu: the slope of tanh's form": (
        op(F.gelu, lambda dy, x: torch.autograd.functional.vjp(
            lambda t: F.gelu(t, approximate="tanh"), x, dy)[1]), [X]),
    "softplus: beta's factor": (
        op(lambda x: F.softplus(x, beta=2), lambda dy, x: dy * x.sigmoid()), [X]),
    "leaky relu: slope 0.1 for 0.01": (
        op(F.leaky_relu, lambda dy, x: torch.where(x > 0, dy, 0.1 * dy)), [X]),
    "elu: 1 for exp(x)": (
        op(F.elu, lambda dy, x: dy * torch.where(x > 0, 1.0, x.exp() - 1)), [X]),
    "abs: no sign": (op(torch.abs, lambda dy, x: dy.clone()), [X]),
    "relu: the mask of dy": (op(torch.relu, lambda dy, x: dy * (dy > 0)), [X]),
    "clamp: passes below": (
        op(lambda x: x.clamp(-0.5, 0.5), lambda dy, x: dy * (x < 0.5)), [X]),
    # sums and rows
    "softmax: no mean term": (op(lambda x: x.softmax(-1), lambda dy, x: dy * x.softmax(-1)), [X]),
    "softmax: sums along columns": (
        op(lambda x: x.softmax(-1),
           lambda dy, x: x.softmax(-1) * (dy - (dy * x.softmax(-1)).sum(0))), [X]),
    "softmax: mean for sum": (
        op(lambda x: x.softmax(-1),
           lambda dy, x: x.softmax(-1) * (dy - (dy * x.softmax(-1)).mean(-1, keepdim=True))), [X]),
    "log_softmax: softmax of dy": (
        op(lambda x: x.log_softmax(-1),
           lambda dy, x: dy - dy.softmax(-1) * dy.sum(-1, keepdim=True)), [X]),
    "logsumexp: of the whole": (
        op(lambda x: x.logsumexp(-1),
           lambda dy, x: dy[:, None] * x.flatten().softmax(0).view(5, 4)),
        [X]),
    "cumsum: not reversed": (op(lambda x: x.cumsum(0), lambda dy, x: dy.cumsum(0)), [X]),
    "flip: not flipped": (op(lambda x: x.flip(1), lambda dy, x: dy.clone()), [X]),
    "roll: the same way": (op(lambda x: x.roll(1, 0), lambda dy, x: dy.roll(1, 0)), [X]),
    "transpose of a square: forgotten": (
        op(lambda x: x.T.clone(), lambda dy, x: dy.clone()), [normal(4, 4)]),
    "sum of rows: spread over one": (
        op(lambda x: x.sum(0), lambda dy, x: F.pad(dy[None], (0, 0, 0, 4))), [X]),
    "broadcast weight: one row's gradient": (
        op(torch.mul, lambda dy, x, w: (dy * w, (dy * x)[0])), [X, W]),
    "broadcast bias: mean for sum": (op(torch.add, lambda dy, x, b: (dy, dy.mean(0))), [X, W]),
    "max: to all that are near": (
        op(lambda x: x.amax(-1), lambda dy, x: dy[:, None] * (x > x.amax(-1, keepdim=True) - 0.5)),
        [X]),
    "variance: n for n - 1": (
        op(lambda x: x.var(0), lambda dy, x: dy * 2 / 5 * (x - x.mean(0))), [X]),
    "norm: x for x / |x|": (op(lambda x: x.norm(), lambda dy, x: dy * x), [X]),
    # products
    "matmul: dA by B": (
        op(torch.matmul, lambda dy, a, b: (dy @ b, a.T @ dy)), [normal(3, 3), normal(3, 3)]),
    "matmul: dB as dA": (
        op(torch.matmul, lambda dy, a, b: (dy @ b.T, dy.T @ a)), [normal(3, 3), normal(3, 3)]),
    "linear: the bias's gradient once too often": (
        op(lambda x, w, b: x @ w + b,
           lambda dy, x, w, b: (dy @ w.T, x.T @ dy, 2 * dy.sum(0))), [X, V, normal(3)]),
    "outer product: exchanged": (
        op(torch.outer, lambda dy, a, b: (dy.T @ b, dy @ a)), [W, normal(4)]),
    # norms
    "rms_norm: no mean term": (
        op(rms, lambda dy, x, w: rms_backward(dy, x, w, mean=False)), [X, W]),
    "rms_norm: without the weight": (
        op(rms, lambda dy, x, w: rms_backward(dy, x, w, weight=False)), [X, W]),
    "rms_norm: rstd squared": (
        op(rms, lambda dy, x, w: rms_backward(dy, x, w, rstd_power=2)), [X, W]),
    "layer_norm: the first mean forgotten": (
        op(layer, lambda *t: layer_backward(*t, first=0)), [X, W, W]),
    "layer_norm: the unbiased variance": (
        op(layer, lambda *t: layer_backward(*t, unbiased=True)), [X, W, W]),
    # models
    "attention: the scale forgotten": (
        op(attention, lambda *t: attention_backward(*t, scale=False)),
        [X, normal(6, 4), normal(6, 3)]),
    "attention: ds not transposed": (
        op(attention, lambda *t: attention_backward(*t, turn=True)), [X, X, normal(5, 3)]),
    "swiglu: the gate's slope": (
        op(lambda a, b: F.silu(a) * b, lambda *t: swiglu_backward(*t, slope=False)), [X, X]),
    "cross entropy: not divided by the rows": (
        op(lambda x: F.cross_entropy(x, TARGETS),
           lambda dy, x: cross_entropy_backward(dy, x, mean=False)), [X]),
    # tiny errors
    "sin: one element, by 1%": (
        op(torch.sin, lambda dy, x: one_element(dy * x.cos(), 1.01)), [X]),
    "softmax: all, by 0.01%": (
        op(lambda x: x.softmax(-1), lambda dy, x: 1.0001 * softmax_backward(dy, x)), [X]),
    "square of tiny numbers: a factor": (
        op(lambda x: 1e-3 * x * x, lambda dy, x: 4e-3 * dy * x), [normal(5, 4, scale=1e-4)]),
    # misbehaviour
    "sin: x kept outside of ctx": (KeptOutside.apply, [X]),
    "product: no dw without dx": (NeedsAll.apply, [X, W]),
    "two outputs: one forgotten": (Forgets.apply, [X]),
    "sin: another result each time": (Wavers.apply, [X]),
    "sin: dy used as room": (op(torch.sin, spoils_dy), [X]),
}


def make(inputs):
    torch.manual_seed(5)
    return tuple(i() for i in inputs)


def torch_catches(function, inputs):
    try:
        return not torch.autograd.gradcheck(function, make(inputs), raise_exception=False)
    except Exception:
        return True


def gradus_says(function, inputs):
    import gradus

    report = gradus.gradcheck(function, make(inputs), raise_exception=False)
    if report:
        return ""
    words = [i["finding"] or i["behaviour"] for i in report.inputs if i["verdict"] != "PASS"]
    return "; ".join(w for w in [report.message, *words] if w) or report.verdict


if __name__ == "__main__":
    ours = theirs = 0
    for name, (function, inputs) in BUGS.items():
        said, caught = gradus_says(function, inputs), torch_catches(function, inputs)
        ours += bool(said)
        theirs += caught
        print(f"{name:45} {'caught' if caught else 'missed':7} {said or 'MISSED'}")
    print(f"{len(BUGS)} bugs: gradus.gradcheck catches {ours}, torch.autograd.gradcheck {theirs}")
