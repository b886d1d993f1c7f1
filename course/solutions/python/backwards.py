"""backwards.py - assignments 2 to 6 in Python: each function adds to the gradients that it is given
(dx += ...), and returns nothing. The pages of the assignments say what is to be written."""

import numpy as np


def cube_backward(x, dy, dx):
    dx += 3 * x * x * dy


def relu_backward(x, dy, dx):
    dx += (x > 0) * dy


def tanh_backward(y, dy, dx):
    dx += (1 - y * y) * dy


def silu_backward(x, dy, dx):
    s = 1 / (1 + np.exp(-x))
    dx += (s + x * s * (1 - s)) * dy


def divide_backward(a, b, dy, da, db):
    da += dy / b
    db -= dy * a / (b * b)


def product_backward(a, b, dy, da, db):
    da += dy * b
    db += (dy * a).sum(0)


def sum_backward(dy, dx):
    dx += dy[:, None]


def gather_backward(index, dy, dtable):
    np.add.at(dtable, index, dy)


def view_backward(strides, dy, dx):
    np.add.at(dx, np.tensordot(strides, np.indices(dy.shape), 1), dy)


def outer_case(fault):  # returns a and b
    return np.arange(3) - 0.7, 1.3 - np.arange(5)


def matmul_backward(a, b, dy, da, db):
    da += dy @ b.T
    db += a.T @ dy


def linear_backward(x, w, dy, dx, dw, dbias):
    dx += dy @ w
    dw += dy.T @ x
    if dbias is not None:
        dbias += dy.sum(0)


def softmax_backward(y, dy, dx):
    dx += y * (dy - (y * dy).sum(-1, keepdims=True))


def cross_entropy_backward(x, target, dloss, dx):
    rows = np.flatnonzero(target >= 0)
    e = np.exp(x - x.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    p[rows, target[rows]] -= 1
    dx[rows] += p[rows] * (dloss / max(len(rows), 1))


def revealing_case(fault):  # returns x
    return np.full(3, -1000.0 if fault else 0.0)


def rms_norm_backward(x, w, dy, dx, part):
    rstd = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    xhat = x * rstd
    dx += rstd * (dy * w - xhat * (dy * w * xhat).mean(-1, keepdims=True))
    part += (dy * xhat).sum(0)


def add_parts(parts, dw):
    dw += parts.sum(0)


def add_rms_norm_backward(w, sum, dy, dsum, dx, dbranch, dw):
    both = dsum.copy()
    rms_norm_backward(sum, w, dy, both, dw)
    dx += both
    dbranch += both
