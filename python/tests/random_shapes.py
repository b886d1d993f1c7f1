"""Random calls of rms_norm and add_rms_norm, forward and backward, against the formula in float64: shapes
from one element on, views with offsets and gaps between rows, tensors whose elements lie apart, weights of
each head, every dtype and option. It takes as long as it is told; test_ops.py has the same comparison of
chosen calls.

    GRADUS_LIBRARY=build/lib/libgradus.so PYTHONPATH=python \\
        python3 python/tests/random_shapes.py --device cuda --count 20000 --seed 1
"""

import argparse
import collections
import math
import random
import time

import torch

import gradus

REAL = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
ROUNDING = {torch.float64: 1e-12, torch.float32: 3e-6, torch.bfloat16: 1.2e-2, torch.float16: 2e-3}
EPS = 1e-5


def reference(x, weight=None, bias=None, residual=None, offset=0.0):
    """y, the sum, and what a cotangent of y is multiplied by on its way to x, in float64."""
    x = x.double() if residual is None else x.double() + residual.double()
    slope = torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)
    if weight is not None:
        slope = slope * (offset + weight.double())
    y = x * slope
    return (y if bias is None else y + bias.double()), x, slope


def near(name, got, want, allowed, terms=0):
    if got.shape != want.shape:
        return f"{name} is {list(got.shape)}, wanted {list(want.shape)}"
    error = (got.detach().double() - want.detach()).abs().max().item() if got.numel() else 0
    scale = max(1.0, terms, want.detach().abs().max().item()) if got.numel() else 1.0
    return None if error <= allowed * scale else f"{name} is {error:.3g} off, of {scale:.3g}"


def compare(x, r, w, b, offset, results, cotangent=torch.randn_like):
    """What is wrong with the results y and sum, and with the gradients of cotangents, or None."""
    doubles = [None if t is None else t.detach().double().requires_grad_() for t in (x, r, w, b)]
    dx, dr, dw, db = doubles
    stored = dx
    if r is not None:  # the norm is computed from the sum as it was rounded
        stored = dx + (results[1].detach().double() - dx.detach() - dr.detach())
    *wanted, slope = reference(stored, dw, db, dr, offset)
    coarse = max(ROUNDING[t.dtype] for t in (x, *results))
    for name, got, want in zip(("y", "sum"), results, wanted):
        wrong = near(name, got, want, ROUNDING[got.dtype])
        if wrong:
            return wrong
    leaves = [(n, t, d) for n, t, d in zip(("dx", "dresidual", "dweight", "dbias"), (x, r, w, b),
                                           doubles) if t is not None and t.requires_grad]
    if not leaves:
        return None
    dy = [cotangent(t) for t in results]
    # dx is a difference of numbers of this size, which may be much larger: always for one column
    terms = (dy[0].double() * slope).abs().max().item() if dy[0].numel() else 0
    got = torch.autograd.grad(results, [t for _, t, _ in leaves], dy, allow_unused=True)
    want = torch.autograd.grad(wanted[: len(results)], [d for _, _, d in leaves],
                               [g.double() for g in dy], allow_unused=True)
    for (name, t, _), g, v in zip(leaves, got, want):
        g = torch.zeros_like(t) if g is None else g
        v = torch.zeros_like(t, dtype=torch.float64) if v is None else v
        assert g.dtype == t.dtype and g.device == t.device
        rows = x.numel() // max(1, t.numel()) if name in ("dweight", "dbias") else 1
        allowed = max(ROUNDING[t.dtype], coarse) * max(1.0, rows ** 0.5 / 8)
        wrong = near(name, g, v, allowed, terms if name in ("dx", "dresidual") else 0)
        if wrong:
            return wrong
    return None


class Calls:
    def __init__(self, seed, device, most):
        self.rng = random.Random(seed)
        self.noise = torch.Generator(device).manual_seed(seed)
        self.device, self.most = device, most
        self.kinds = collections.Counter()

    def one_in(self, n):
        return self.rng.randrange(n) == 0

    def size(self, most):
        """Small ones and large ones as often, and those beside powers of two."""
        n = int(2 ** self.rng.uniform(0, math.log2(most)))
        if self.one_in(3):
            n = 2 ** round(math.log2(max(1, n))) + self.rng.choice((-1, 0, 1, 4, 8))
        return max(1, min(n, most))

    def shape(self):
        cols = self.size(min(self.most, 70000))
        if self.one_in(2):  # multiples of eight have kernels of their own
            cols = min((cols + 7) // 8 * 8, max(8, self.most // 8 * 8))
        rows = self.size(max(1, self.most // cols))
        heads = self.size(min(rows, 64)) if cols <= 1024 and self.one_in(2) else 0
        if not heads:
            return (rows, cols) if self.one_in(2) else (cols,) if rows == 1 else (1, rows, cols)
        return (max(1, rows // heads), heads, cols)

    def tensor(self, shape, dtype):
        """Contiguous, or a view of a larger tensor, the rest of which is NaN."""
        values = torch.randn(shape, device=self.device, generator=self.noise).to(dtype)
        way = self.rng.choice(("contiguous", "contiguous", "offset", "padded", "sliced", "transposed"))
        self.kinds[way] += 1
        if way == "contiguous":
            return values
        if way == "transposed":
            return values.transpose(0, -1).contiguous().transpose(0, -1)
        gap = self.rng.choice((1, 3, 8, 64))
        if way == "offset":  # also by less than the alignment of vectors
            room = torch.full((gap + values.numel(),), math.nan, dtype=dtype, device=self.device)
            view = room[gap:].view(shape)
        elif way == "padded":
            room = torch.full((*shape[:-1], shape[-1] + gap), math.nan, dtype=dtype,
                              device=self.device)
            view = room[..., : shape[-1]]
        else:  # one of three, as q, k and v are
            room = torch.full((*shape[:-1], 3, shape[-1]), math.nan, dtype=dtype, device=self.device)
            view = room[..., 1, :]
        view.copy_(values)
        return view

    def leaf(self, shape, dtype):
        return self.tensor(shape, dtype).detach().requires_grad_(not self.one_in(6))

    def run(self):
        """A description of what is wrong, or None."""
        shape, x_dtype = self.shape(), self.rng.choice(REAL)
        add, own_weights = self.one_in(2), len(shape) == 3 and self.one_in(2)
        param_shape = shape[-2:] if own_weights else shape[-1:]
        w_dtype = x_dtype if self.one_in(2) else self.rng.choice(REAL)
        x = self.leaf(shape, x_dtype)
        r = self.leaf(shape, x_dtype if self.one_in(2) else self.rng.choice(REAL)) if add else None
        w = None if self.one_in(6) else self.leaf(param_shape, w_dtype)
        b = self.leaf(param_shape, w_dtype) if self.one_in(4) else None
        offset = self.rng.choice((0.0, 0.0, 1.0))
        self.kinds["add_rms_norm" if add else "rms_norm"] += 1
        self.kinds["heads"] += len(shape) == 3
        self.kinds["weights of heads"] += own_weights
        text = (f"{'add_' if add else ''}rms_norm {list(shape)} {x_dtype}, residual "
                f"{r.dtype if add else None}, weight {w.dtype if w is not None else None}, "
                f"{'per head, ' if own_weights else ''}strides {x.stride()}, offset {offset}")
        if add:
            results = gradus.add_rms_norm(x, r, w, b, eps=EPS, offset=offset)
        else:
            results = (gradus.rms_norm(x, w, b, eps=EPS, offset=offset),)
        found = compare(x, r, w, b, offset, results, lambda t: self.tensor(t.shape, t.dtype))
        return found and f"{found}: {text}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=1 << 17, help="elements of a tensor, at most")
    options = parser.parse_args()
    calls = Calls(options.seed, options.device, options.most)
    began, wrong = time.monotonic(), []
    for i in range(options.count):
        found = calls.run()
        if found:
            wrong.append(found)
            print(f"call {i}: {found}", flush=True)
        if len(wrong) == 20:
            break
    if options.device == "cuda":
        torch.cuda.synchronize()
    print(f"{i + 1} random calls on {options.device}, seed {options.seed}, "
          f"{time.monotonic() - began:.0f} s: {len(wrong)} wrong")
    print(", ".join(f"{n} {kind}" for kind, n in sorted(calls.kinds.items())))
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
