"""torch.nn.RMSNorm with the kernels of gradus."""

import math
import warnings

import torch

from ._kernels import DTYPES
from ._messages import shown
from .ops import rms_norm


def _probe_eps():
    """{(x's dtype, weight's or None): the eps that this PyTorch's rms_norm uses for eps=None}.

    It is that of x's dtype before PyTorch 2.7, and of the dtype of the computation since. A row of
    one small number shows it: y = x / sqrt(x^2 + eps).
    """
    x, found = 2.0**-12, {}
    with torch.no_grad(), torch.autocast("cpu", enabled=False), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns if the two dtypes differ
        for kind in DTYPES:
            for other in (None, *DTYPES):
                row = torch.full((1,), x, dtype=kind, device="cpu")
                weight = None if other is None else torch.ones(1, dtype=other, device="cpu")
                y = torch.nn.functional.rms_norm(row, (1,), weight).item()
                ratio = lambda eps: abs(math.log(eps / ((x / y) ** 2 - x**2)))
                found[kind, other] = min((torch.finfo(d).eps for d in DTYPES), key=ratio)
    return found


_EPS = _probe_eps()
# The devices on which autocast lets PyTorch's rms_norm compute in float32, with float32's eps.
_AUTOCAST_WIDENS = [
    device for device, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA"))
    if torch._C._dispatch_has_kernel_for_dispatch_key("aten::rms_norm", key)
]


def _default_eps(x, weight):
    """PyTorch's eps for eps=None; None for dtypes that rms_norm refuses."""
    kinds = x.dtype, None if weight is None else weight.dtype
    if x.device.type in _AUTOCAST_WIDENS and torch.is_autocast_enabled(x.device.type):
        narrow = (torch.float16, torch.bfloat16)
        kinds = tuple(torch.float32 if kind in narrow else kind for kind in kinds)
    return _EPS.get(kinds)


class RMSNorm(torch.nn.RMSNorm):
    """A drop-in for torch.nn.RMSNorm: the same constructor, parameters, state and default eps."""

    def forward(self, x):
        shape, weight = self.normalized_shape, self.weight
        if not isinstance(x, torch.Tensor):
            raise ValueError(f"RMSNorm: x is {shown(x)}, wanted a tensor")
        if not shape:
            raise ValueError("RMSNorm: normalized_shape is (), wanted at least one dimension")
        eps = _default_eps(x, weight) if self.eps is None else self.eps
        if len(shape) == 1:
            if weight is None and x.shape[-1:] != shape:
                raise ValueError(_complaint(x, shape))
            return rms_norm(x, weight, eps=eps)
        if x.shape[x.dim() - len(shape) :] != shape:
            raise ValueError(_complaint(x, shape))
        rows = x.reshape(*x.shape[: x.dim() - len(shape)], math.prod(shape))
        weight = None if weight is None else weight.reshape(-1)
        return rms_norm(rows, weight, eps=eps).reshape(x.shape)


def _complaint(x, shape):
    return f"RMSNorm: x has shape {list(x.shape)}, wanted one that ends in {list(shape)}"
