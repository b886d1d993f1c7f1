"""backwards.py - assignments 2 to 6 in Python: each function adds to the gradients that it is given
(dx += ...), and returns nothing. The pages of the assignments say what is to be written."""


def cube_backward(x, dy, dx):
    pass


def relu_backward(x, dy, dx):
    pass


def tanh_backward(y, dy, dx):
    pass


def silu_backward(x, dy, dx):
    pass


def divide_backward(a, b, dy, da, db):
    pass


def product_backward(a, b, dy, da, db):
    pass


def sum_backward(dy, dx):
    pass


def gather_backward(index, dy, dtable):
    pass


def view_backward(strides, dy, dx):
    pass


def matmul_backward(a, b, dy, da, db):
    pass


def linear_backward(x, w, dy, dx, dw, dbias):
    pass


def softmax_backward(y, dy, dx):
    pass


def cross_entropy_backward(x, target, dloss, dx):
    pass


def rms_norm_backward(x, w, dy, dx, dw):
    pass


def add_rms_norm_backward(w, sum, dy, dsum, dx, dbranch, dw):
    pass
