"""Calls of the C library with NumPy arrays: the results and the gradients beside PyTorch's."""

import ctypes
from ctypes import Structure, byref, c_bool, c_char_p, c_double, c_int, c_int64, c_uint, c_void_p

import numpy as np
import torch

from gradus._library import lib, FLOAT32, FLOAT64

INT32 = 4  # GD_INT32
DTYPES = {np.float32: FLOAT32, np.float64: FLOAT64, np.int64: INT32}


def wide(value):
    """A copy, of which the numbers that are not whole are float64."""
    return value.astype(np.int64 if value.dtype == np.int64 else np.float64)


class T(c_void_p):
    """A tensor of the library. ctypes makes a plain c_void_p that a function returns a number."""


def c(name, result, *arguments):
    function = lib[name]  # one of its own: lib.NAME would be that of all who declare it
    function.restype, function.argtypes = result, arguments
    return function


def gd(name, *arguments):
    """Calls gd_NAME, which returns a tensor. Whole numbers are int; c_int64 is named at the call."""
    function = lib["gd_" + name]
    function.restype = T
    kinds = {bool: c_bool, float: c_double}
    return function(*[kinds.get(type(v), lambda same: same)(v) for v in arguments])


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


def row(tensors):
    return (T * len(tensors))(*tensors)


class GradientOptions(Structure):
    _fields_ = [("cotangents", c_void_p), ("keep_tape", c_bool), ("differentiable", c_bool),
                ("zeros", c_bool)]


class BackwardOptions(Structure):
    _fields_ = [("cotangents", c_void_p), ("keep_tape", c_bool)]


def torch_gradients(outputs, cotangents, inputs, further):
    """The gradients, zeros where there are none; with a graph of their own if `further`."""
    real = [(o, v) for o, v in zip(outputs, cotangents) if o.requires_grad]
    found = [None] * len(inputs)
    if real:
        found = torch.autograd.grad([o for o, _ in real], inputs, [v for _, v in real],
                                    create_graph=further, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs)]


class Library:
    """A context, in which `compare` runs an op and the same of PyTorch."""

    def __init__(self, threads=2):
        given = (c_int64 * 32)()  # gd_context_options, larger than it
        ctypes.cast(given, ctypes.POINTER(c_int))[1] = threads
        self.ctx = c("gd_context_create", T, c_void_p)(byref(given))

    def close(self):
        c("gd_context_free", None, c_void_p)(self.ctx)

    def check(self):
        message = c("gd_error", c_char_p, c_void_p)(self.ctx)
        assert message is None, message

    def tensor(self, value, grad=False):
        value = np.asarray(value, order="C")  # also without dimensions
        shape = (c_int64 * max(1, value.ndim))(*value.shape)
        t = c("gd_tensor_create", T, c_void_p, c_int, c_int, c_void_p)(
            self.ctx, DTYPES[value.dtype.type], value.ndim, shape
        )
        self.write(t, value)
        c("gd_tensor_set_requires_grad", None, c_void_p, c_bool)(t, grad)
        return t

    def write(self, t, value):
        wide = np.ascontiguousarray(value, np.float64)
        c("gd_tensor_write_f64", c_int, c_void_p, c_void_p, c_int64)(t, wide.ctypes.data, wide.size)

    def read(self, t, like):
        assert t, "a tensor is missing"
        n = c("gd_tensor_ndim", c_int, c_void_p)(t)
        shape = tuple(c("gd_tensor_shape", ctypes.POINTER(c_int64), c_void_p)(t)[:n])
        assert shape == tuple(like.shape), f"{shape}, wanted {tuple(like.shape)}"
        value = np.empty(shape)
        read = c("gd_tensor_read_f64", c_int, c_void_p, c_void_p, c_int64)
        read(t, value.ctypes.data, value.size)
        return value

    def gradients(self, outputs, cotangents, inputs, further):
        found, cotangents = (T * len(inputs))(), row(cotangents)
        given = GradientOptions(ctypes.addressof(cotangents), True, further, True)
        c("gd_gradients", c_int, c_void_p, c_int, c_void_p, c_void_p, c_int, c_void_p)(
            row(outputs), len(outputs), byref(given), row(inputs), len(inputs), found)
        self.check()
        return list(found)

    def compare(self, ours, theirs, inputs, rng, dtype, tolerance, orders):
        """`ours` takes and returns tensors of the library in `dtype`, `theirs` those of PyTorch in float64.
        Compares the result, the gradients of a backward, those of each order if there are several, and
        what becomes of the constants: inputs of whole numbers, in a tuple, or None. The largest number or
        1 is what `tolerance` is relative to; in several orders it is 1e-10, of the largest number of that
        order or the first, or of 1e-3."""
        constant = [isinstance(v, tuple) or v is None or v.dtype == np.int64 for v in inputs]
        inputs = [v[0] if isinstance(v, tuple) else v for v in inputs]
        inputs = [v if v is None or v.dtype == np.int64 else v.astype(dtype) for v in inputs]
        wanted = [None if v is None else torch.from_numpy(wide(v)).requires_grad_(not k)
                  for v, k in zip(inputs, constant)]
        given = [None if v is None else self.tensor(v, not k) for v, k in zip(inputs, constant)]
        made = [t for t in given if t]
        y = theirs(*wanted)
        z = c("gd_keep", T, c_void_p)(ours(*given))
        self.check()

        def near(t, other, what, bound=tolerance, least=1.0):
            other = other.numpy(force=True).astype(np.float64)
            size = max(least, np.abs(other).max(initial=0))
            difference = np.abs(self.read(t, other) - other).max(initial=0)
            assert difference <= bound * size, f"{what} differs by {difference}, of {size}"

        near(z, y, "the result")
        for i, (t, w) in enumerate(zip(given, wanted)):
            if t and constant[i]:
                near(t, w, f"input {i}", tolerance * 10)
        if y.requires_grad:
            x = [v for v, k in zip(wanted, constant) if not k]
            leaves = [t for t, k in zip(given, constant) if not k]
            u, *factors = [rng.normal(size=v.shape).astype(dtype) for v in (y, *x)]
            dy, *v = [self.tensor(a) for a in (u, *factors)]
            made += [dy, *v]
            right = torch_gradients([y], [torch.from_numpy(wide(u))], x, orders > 1)
            cotangents = row([dy])
            c("gd_backward_from", c_int, c_void_p, c_int, c_void_p)(
                row([z]), 1, byref(BackwardOptions(ctypes.addressof(cotangents), True)))
            self.check()
            for i, (t, w) in enumerate(zip(leaves, right)):
                g = c("gd_grad", T, c_void_p)(t)
                if g or w.any():  # what the result does not depend on may have none
                    near(g, w, f"gradient {i}")
            first = max(1e-3, *[float(w.detach().abs().max()) for w in right])
            found = self.gradients([z], [dy], leaves, True) if orders > 1 else []
            for order in range(1, orders + 1):
                for i, (t, w) in enumerate(zip(found, right)):
                    near(t, w, f"gradient {i} of order {order}", 1e-10, first)
                if order < orders:
                    right = torch_gradients(right, [torch.from_numpy(a) for a in factors], x, True)
                    found = self.gradients(found, v, leaves, order + 1 < orders)
        c("gd_step_end", None, c_void_p)(self.ctx)
        for t in made:
            c("gd_tensor_free", None, c_void_p)(t)
        self.check()


class Group(Library):
    """Parameters in float64 and their optimizer, that of gd_CREATE_create with those options."""

    def __init__(self, create, given=None):
        super().__init__()
        self.params = c("gd_params_create", c_void_p, c_void_p, c_int)(self.ctx, FLOAT64)
        self.create, self.given, self.t = create, given, {}

    def add(self, name, shape, flags=0, buffer=False):
        ndim, sizes, name_bytes = len(shape), (c_int64 * max(1, len(shape)))(*shape), name.encode()
        if buffer:
            call = c("gd_params_add_buffer", T, c_void_p, c_char_p, c_int, c_int, c_void_p)
            self.t[name] = call(self.params, name_bytes, FLOAT64, ndim, sizes)
        else:
            call = c("gd_params_add", T, c_void_p, c_char_p, c_int, c_void_p, c_uint)
            self.t[name] = call(self.params, name_bytes, ndim, sizes, flags)

    def finish(self):
        c("gd_params_finish", c_int, c_void_p)(self.params)
        self.optimizer = c(f"gd_{self.create}_create", c_void_p, c_void_p, c_void_p)(
            self.params, self.given and byref(self.given))
        self.check()

    def clear(self):
        c("gd_params_clear_grads", c_int, c_void_p)(self.params)
        self.check()

    def close(self):
        c("gd_optimizer_free", None, c_void_p)(self.optimizer)
        c("gd_params_free", None, c_void_p)(self.params)
        super().close()
