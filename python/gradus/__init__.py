"""gradus for PyTorch: RMSNorm with the C library's kernels, and its gradient check for functions of
PyTorch and NumPy."""

from ._library import version as __version__
from .checking import GradcheckError, gradcheck

__all__ = ["GradcheckError", "__version__", "gradcheck"]
try:
    import torch as _torch
except ImportError:  # gradcheck of NumPy functions needs no PyTorch
    _torch = None
if _torch is not None:
    if tuple(int(n) for n in _torch.__version__.split(".")[:2]) < (2, 4):
        raise ImportError(f"gradus: PyTorch is {_torch.__version__}, wanted 2.4 or newer")
    from . import nn
    from .ops import add_rms_norm, rms_norm
    from .patching import patch, unpatch

    __all__ += ["add_rms_norm", "nn", "patch", "rms_norm", "unpatch"]
