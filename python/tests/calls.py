"""Ops of the C library, called with NumPy arrays: the results and the gradients, to be compared with
PyTorch's."""

import ctypes
from ctypes import Structure, byref, c_bool, c_char_p, c_double, c_int, c_int64, c_void_p

import numpy as np
import torch

from gradus._library import lib, FLOAT32, FLOAT64

INT32 = 4  # GD_INT32

DTYPES = {np.float32: FLOAT32, np.float64: FLOAT64}


def c(name, result, *arguments):
    function = getattr(lib, name)
    function.restype, function.argtypes = result, arguments
    return function


class BackwardOptions(Structure):
    _fields_ = [("cotangents", c_void_p), ("keep_tape", c_bool)]


def options(**fields):
    """A struct of the given numbers: a pair of whole ones, one, a double or a bool, in this order."""
    kinds, values = [], []
    for name, value in fields.items():
        if isinstance(value, (tuple, list)):
            kind = c_int64 * len(value)
            value = kind(*value)
        else:
            kind = {bool: c_bool, int: c_int64, float: c_double}.get(type(value), type(value))
        kinds.append((name, kind))
        values.append(value)
    return type("options", (Structure,), {"_fields_": kinds})(*values)


class Library:
    """A context, in which `compare` runs an op and the same of PyTorch."""

    def __init__(self, threads=2):
        given = (c_int64 * 32)()  # gd_context_options, larger than it
        ctypes.cast(given, ctypes.POINTER(c_int))[1] = threads
        self.ctx = c("gd_context_create", c_void_p, c_void_p)(byref(given))

    def close(self):
        c("gd_context_free", None, c_void_p)(self.ctx)

    def check(self):
        message = c("gd_error", c_char_p, c_void_p)(self.ctx)
        assert message is None, message

    def tensor(self, value, grad):
        value = np.asarray(value, order="C")  # also without dimensions
        shape = (c_int64 * max(1, value.ndim))(*value.shape)
        t = c("gd_tensor_create", c_void_p, c_void_p, c_int, c_int, c_void_p)(
            self.ctx, DTYPES[value.dtype.type], value.ndim, shape
        )
        wide = value.astype(np.float64)
        c("gd_tensor_write_f64", c_int, c_void_p, c_void_p, c_int64)(t, wide.ctypes.data, wide.size)
        c("gd_tensor_set_requires_grad", None, c_void_p, c_bool)(t, grad)
        return t

    def read(self, t, like):
        assert t, "a tensor is missing"
        n = c("gd_tensor_ndim", c_int, c_void_p)(t)
        shape = tuple(c("gd_tensor_shape", ctypes.POINTER(c_int64), c_void_p)(t)[:n])
        assert shape == tuple(like.shape), f"{shape}, wanted {tuple(like.shape)}"
        value = np.empty(shape)
        c("gd_tensor_read_f64", c_int, c_void_p, c_void_p, c_int64)(t, value.ctypes.data, value.size)
        return value

    def compare(self, ours, theirs, inputs, rng, tolerance):
        """`ours` takes and returns tensors of the library, `theirs` those of PyTorch. Returns the
        largest difference of the result and of all gradients, relative to the largest number."""
        wanted = [torch.from_numpy(v.copy()).requires_grad_() for v in inputs]
        given = [self.tensor(v, True) for v in inputs]
        y = theirs(*wanted)
        z = c("gd_keep", c_void_p, c_void_p)(ours(*given))
        self.check()
        worst = 0.0

        def near(value, other, what):
            nonlocal worst
            other = other.detach().numpy()
            size = max(1.0, np.abs(other).max(initial=0))
            difference = np.abs(value - other).max(initial=0) / size
            assert difference <= tolerance, f"{what} differs by {difference}"
            worst = max(worst, float(difference))

        near(self.read(z, y), y, "the result")
        cotangent = rng.normal(size=y.shape).astype(inputs[0].dtype)
        y.backward(torch.from_numpy(cotangent))
        dy = self.tensor(cotangent, False)
        cotangents = (c_void_p * 1)(dy)
        c("gd_backward_from", c_int, c_void_p, c_int, c_void_p)(
            byref(c_void_p(z)), 1, byref(BackwardOptions(ctypes.addressof(cotangents), False))
        )
        self.check()
        for i, (t, w) in enumerate(zip(given, wanted)):
            near(self.read(c("gd_grad", c_void_p, c_void_p)(t), w.grad), w.grad, f"gradient {i}")
        c("gd_step_end", None, c_void_p)(self.ctx)
        for t in [*given, dy]:
            c("gd_tensor_free", None, c_void_p)(t)
        self.check()
        return worst
