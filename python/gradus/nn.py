"""torch.nn.RMSNorm with the kernels of gradus."""

import math

import torch

from ._kernels import DTYPES
from .ops import rms_norm

_EPS = {dtype: torch.finfo(dtype).eps for dtype in DTYPES}


class RMSNorm(torch.nn.RMSNorm):
    """A drop-in for torch.nn.RMSNorm: the same constructor, parameters and state."""

    def forward(self, x):
        eps = _EPS.get(x.dtype) if self.eps is None else self.eps
        shape, weight = self.normalized_shape, self.weight
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
