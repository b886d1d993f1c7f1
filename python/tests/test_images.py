"""Convolution, its parts, pooling and padding against PyTorch's, in random cases."""

from ctypes import byref, c_double, c_int, c_int64, c_void_p

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from calls import Library, c, options

CASES = 400  # of each op, half of them in float64


@pytest.fixture
def library():
    library = Library()
    yield library
    library.close()


def pair(rng, low, high):
    return tuple(int(n) for n in rng.integers(low, high + 1, 2))


class Windows:
    """Random kernel, stride, padding, dilation, groups, and an image that a window fits in."""

    def __init__(self, rng):
        self.kernel, self.stride = pair(rng, 1, 4), pair(rng, 1, 3)
        self.padding, self.dilation = pair(rng, 0, 3), pair(rng, 1, 3)
        self.groups = int(rng.integers(1, 4))
        self.batch = int(rng.integers(1, 4))
        self.C, self.O = (self.groups * int(n) for n in rng.integers(1, 6, 2))
        if rng.random() < 0.2:
            self.C = self.groups  # depthwise
        grow = pair(rng, 0, 12)
        self.size = tuple(
            max(1, d * (k - 1) + 1 + g - 2 * p)
            for k, d, g, p in zip(self.kernel, self.dilation, grow, self.padding)
        )

    def options(self, output_padding=(0, 0)):
        return byref(options(stride=self.stride, padding=self.padding, dilation=self.dilation,
                             groups=self.groups, output_padding=output_padding))

    def torch(self):
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}


def conv2d(rng):
    w = Windows(rng)
    f = c("gd_conv2d", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
    bias = rng.random() < 0.8
    shapes = [(w.batch, w.C, *w.size), (w.O, w.C // w.groups, *w.kernel)] + bias * [(w.O,)]
    return (lambda x, k, b=None: f(x, k, b, w.options()),
            lambda x, k, b=None: F.conv2d(x, k, b, groups=w.groups, **w.torch()), shapes)


def conv1d(rng):
    w = Windows(rng)
    f = c("gd_conv1d", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
    given = options(stride=(w.stride[0], 0), padding=(w.padding[0], 0),
                    dilation=(w.dilation[0], 0), groups=w.groups, output_padding=(0, 0))
    shapes = [(w.batch, w.C, w.size[0]), (w.O, w.C // w.groups, w.kernel[0]), (w.O,)]
    theirs = {k: v[0] for k, v in w.torch().items()}
    return (lambda x, k, b: f(x, k, b, byref(given)),
            lambda x, k, b: F.conv1d(x, k, b, groups=w.groups, **theirs), shapes)


def conv_transpose2d(rng):
    while True:
        w = Windows(rng)
        extra = tuple(int(rng.integers(0, max(s, d))) for s, d in zip(w.stride, w.dilation))
        size = [(n - 1) * s - 2 * p + d * (k - 1) + 1 + e for n, s, p, d, k, e in
                zip(w.size, w.stride, w.padding, w.dilation, w.kernel, extra)]
        if min(size) > 0:
            break
    f = c("gd_conv_transpose2d", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
    bias = rng.random() < 0.8
    shapes = [(w.batch, w.C, *w.size), (w.C, w.O // w.groups, *w.kernel)] + bias * [(w.O,)]
    return (lambda x, k, b=None: f(x, k, b, w.options(extra)),
            lambda x, k, b=None: F.conv_transpose2d(x, k, b, groups=w.groups, output_padding=extra,
                                                    **w.torch()), shapes)


def unfold(rng):
    w = Windows(rng)
    f = c("gd_unfold", c_void_p, c_void_p, c_int64, c_int64, c_void_p)
    return (lambda x: f(x, *w.kernel, w.options()), lambda x: F.unfold(x, w.kernel, **w.torch()),
            [(w.batch, w.C, *w.size)])


def fold(rng):
    w = Windows(rng)
    f = c("gd_fold", c_void_p, c_void_p, c_int64, c_int64, c_int64, c_int64, c_void_p)
    columns = F.unfold(torch.zeros(w.batch, w.C, *w.size), w.kernel, **w.torch())
    return (lambda x: f(x, *w.size, *w.kernel, w.options()),
            lambda x: F.fold(x, w.size, w.kernel, **w.torch()), [tuple(columns.shape)])


def pool(name, theirs):
    def case(rng):
        kernel, stride = pair(rng, 1, 4), pair(rng, 1, 4)
        padding = tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel)
        size = tuple(k + int(rng.integers(0, 9)) for k in kernel)
        given = options(kernel=kernel, stride=stride, padding=padding)
        f = c(name, c_void_p, c_void_p, c_void_p)
        return (lambda x: f(x, byref(given)), lambda x: theirs(x, kernel, stride, padding),
                [(2, 3, *size)])
    return case


def pad(rng):
    mode = int(rng.integers(0, 3))
    size = pair(rng, 4, 9)
    amounts = tuple(int(n) for n in rng.integers(0, 4, 4))  # left, right, top, bottom
    value = 0.5 if mode == 0 else 0.0
    fields = dict(zip(("left", "right", "top", "bottom"), amounts))
    given = options(**fields, mode=c_int(mode), value=value)
    f = c("gd_pad", c_void_p, c_void_p, c_void_p)
    name = ("constant", "reflect", "replicate")[mode]
    return (lambda x: f(x, byref(given)),
            lambda x: F.pad(x, amounts, name, value if mode == 0 else None), [(2, 3, *size)])


def upsample(rng):
    factors = pair(rng, 1, 4)
    f = c("gd_upsample_nearest", c_void_p, c_void_p, c_int64, c_int64)
    return (lambda x: f(x, *factors),
            lambda x: F.interpolate(x, scale_factor=tuple(float(n) for n in factors)),
            [(2, 3, *pair(rng, 1, 7))])


OPS = {
    "conv2d": conv2d, "conv1d": conv1d, "conv_transpose2d": conv_transpose2d, "unfold": unfold,
    "fold": fold, "max_pool2d": pool("gd_max_pool2d", F.max_pool2d),
    "avg_pool2d": pool("gd_avg_pool2d", F.avg_pool2d), "pad": pad, "upsample_nearest": upsample,
}


@pytest.mark.parametrize("name", OPS)
def test_is_torchs(library, name):
    rng = np.random.default_rng(7)
    for i in range(CASES):
        dtype, tolerance = (np.float64, 1e-13) if i % 2 else (np.float32, 1e-5)
        ours, theirs, shapes = OPS[name](rng)
        inputs = [rng.normal(size=shape).astype(dtype) for shape in shapes]
        if name == "max_pool2d" and i % 3 == 0:
            inputs = [np.round(v).astype(dtype) for v in inputs]  # with ties
        library.compare(ours, theirs, inputs, rng, tolerance)
