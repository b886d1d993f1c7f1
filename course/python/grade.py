"""Grades assignments 2 to 6 in Python, with the points of the grader in C:

    python3 grade.py 2 backwards.py

Your functions get NumPy arrays and add to the gradients that they are given; gradus.gradcheck compares
them with differences of the forward. PyTorch and its autograd cannot be imported. The status is 0 for all
points, 1 for fewer."""

import importlib.util
import sys
from functools import partial

sys.modules["torch"] = None  # before gradus looks for it

import gradus  # noqa: E402
import numpy as np  # noqa: E402

EPS = 1e-5
SHARES = 60, 15, 10, 15  # in 100: values, adding, being linear in dy, other shapes
random = np.random.RandomState(1)


def real(*shape):
    return np.asarray(random.randn(*shape))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    return e / e.sum(-1, keepdims=True)


def cross_entropy(x, target):
    rows = np.flatnonzero(target >= 0)
    p = softmax(x)[rows, target[rows]]
    return np.array(-np.log(p).sum() / max(len(rows), 1), x.dtype)


def linear(x, w, bias):
    return x @ w.T + (0 if bias is None else bias)


def rms_norm(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(EPS)) * w


def add_rms_norm(x, branch, w):
    return rms_norm(x + branch, w), x + branch


def view(x, shape, strides):
    return x[np.tensordot(strides, np.indices(shape), 1)]


def is_real(x):
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def tuple_of(y):
    return y if isinstance(y, tuple) else (y,)


def index(high, *shape, low=0):
    return random.randint(low, high, shape)


def outer_backward(fault, dy, a, b):
    """Of y = a[i] b[j], with a fault, or -1 for none."""
    rows, columns = dy.shape
    if fault == 1:
        dy = dy.ravel()[(rows * np.arange(rows)[:, None] + np.arange(columns)) % dy.size]
    if fault == 2:
        dy = dy * (np.arange(columns) < columns - columns % 4)
    return dy @ (abs(b) if fault == 3 else b), a[-1] * dy[-1] if fault == 0 else a @ dy


def row_loss(x):
    return np.log(np.exp(x - x.max()).sum()) + x.max() - x[0]


def row_backward(fault, dloss, x):
    e = np.exp(x - max(x.max(), 0 if fault == 1 else -np.inf))
    return dloss * (e / e.sum() - (x == x[0] if fault == 0 else np.arange(len(x)) == 0))


# The reverse, of some assignments: the function, its points for each fault, the forward, its backward with a
# fault or -1, the most numbers in an array, and the faults.
REVERSES = {
    3: [("outer_case", 5, np.outer, outer_backward, 16,
         ["db of the last row alone", "row i at dy[i rows]", "columns by fours", "da with |b[j]|"])],
    5: [("revealing_case", 10, row_loss, row_backward, 8,
         ["element 0 by its value", "the largest is at least 0"])],
}

# Of each assignment: the function, its points, the forward, the names of inputs and outputs, what the
# function takes, and cases, of which the first is that of the values.
ELEMENTS = [(real(3, 5),), (real(1),), (real(33),), (real(2, 1, 7),), (real(0),)]
NORMS = (5, 8), (4, 7), (7, 33), (3, 1), (1, 130), (0, 5)
ASSIGNMENTS = {
    2: [("cube_backward", 20, lambda x: x**3, "x", "y", "x dy dx", ELEMENTS),
        ("relu_backward", 20, lambda x: np.maximum(x, 0), "x", "y", "x dy dx", ELEMENTS),
        ("tanh_backward", 20, np.tanh, "x", "y", "y dy dx", ELEMENTS),
        ("silu_backward", 20, lambda x: x / (1 + np.exp(-x)), "x", "y", "x dy dx", ELEMENTS),
        ("divide_backward", 20, lambda a, b: a / b, "a b", "y", "a b dy da db",
         [(real(*s), 1.5 + random.rand(*s)) for s in ((3, 5), (1,), (33,), (0,))])],
    3: [("product_backward", 20, lambda a, b: a * b, "a b", "y", "a b dy da db",
         [(real(m, n), real(n)) for m, n in ((4, 3), (1, 7), (5, 1), (0, 4))]),
        ("sum_backward", 20, lambda x: x.sum(1), "x", "y", "dy dx",
         [(real(2, 3, 4),), (real(1, 5, 1),), (real(3, 1, 2),), (real(3, 0, 2),)]),
        ("gather_backward", 20, lambda table, index: table[index], "table index", "y",
         "index dy dtable",
         [(real(5, 3), np.array([0, 2, 2, 4, 2])), (real(1, 4), np.zeros(6, int)),
          (real(3, 2), index(3, 1)), (real(4, 3), index(4, 0))]),
        ("view_backward", 20, view, "x shape strides", "y", "strides dy dx",
         [(real(count), np.array(shape), np.array(strides)) for count, shape, strides in
          ((5, (3, 5), (0, 1)), (15, (5, 3), (1, 5)), (8, (6, 3), (1, 1)), (25, (3, 4), (9, 2)),
           (4, (0, 4), (4, 1)))])],
    4: [("matmul_backward", 40, lambda a, b: a @ b, "a b", "y", "a b dy da db",
         [(real(m, k), real(k, n)) for m, k, n in ((4, 3, 5), (3, 3, 3), (1, 7, 1), (2, 0, 3))]),
        ("linear_backward", 60, linear, "x w bias", "y", "x w dy dx dw dbias",
         [(real(4, 3), real(5, 3), real(5)), (real(3, 3), real(3, 3), real(3)),
          (real(2, 7), real(3, 7), None), (real(0, 3), real(5, 3), real(5))])],
    5: [("softmax_backward", 40, softmax, "x", "y", "y dy dx",
         [(real(4, 6),), (real(1, 33),), (real(7, 2),), (np.full((3, 5), 2.0),), (real(0, 5),)]),
        ("cross_entropy_backward", 40, cross_entropy, "x target", "loss", "x target dloss dx",
         [(real(4, 6), index(6, 4)), (1000 + real(4, 5), index(5, 4)),
          (real(12, 3), index(3, 12, low=-2)), (-1000 + real(4, 5), index(5, 4)),
          (real(0, 5), index(5, 0))])],
    6: [("rms_norm_backward", 40, rms_norm, "x w", "y", "x w dy dx dw",
         [(real(m, n), 1 + 0.5 * real(n)) for m, n in NORMS]),
        ("add_rms_norm_backward", 40, add_rms_norm, "x branch w", "y sum",
         "w sum dy dsum dx dbranch dw",
         [(real(m, n), real(m, n), 1 + 0.5 * real(n)) for m, n in NORMS]),
        ("rms_norm_backward (lesson)", 20, rms_norm, "x w", "y", "x w dy dx dw",
         [(np.array([[2, -1, 3, 0.5, -0.5, 1.5, -2, 1], [4, -3, 2.5, 1, -1.5, 0, -0.5, 2],
                     [-1, 3.5, -2.5, 1.5, 0, -3, 2.5, -0.5]]), np.ones(8))])],
}


def in_parts(module):
    """The student's backward of RMSNorm, of two rows at a time, the last ones first."""
    def backward(x, w, dy, dx, dw):
        parts = np.zeros(((len(x) + 1) // 2, len(w)), x.dtype)
        for p in reversed(range(len(parts))):
            rows = slice(2 * p, 2 * p + 2)
            module.rms_norm_backward(x[rows], w, dy[rows], dx[rows], parts[p])
        module.add_parts(parts, dw)
    return backward


class Row:
    """A function of the student's as the backward of a forward."""

    def __init__(self, module, name, forward, inputs, outputs, takes, cases):
        self.name, self.forward, self.cases = name, forward, cases
        self.f = in_parts(module) if name.startswith("rms") else getattr(module, name)
        self.inputs, self.outputs, self.takes = inputs.split(), outputs.split(), takes.split()

    def call(self, dy, inputs, start=0.0):
        """The gradients after the function has added to arrays that hold `start`."""
        arrays = dict(zip(self.inputs, inputs))
        grads = {"d" + name: np.full_like(x, start) for name, x in arrays.items() if is_real(x)}
        arrays.update(zip(self.outputs, tuple_of(self.forward(*inputs))))
        arrays.update(zip(["d" + name for name in self.outputs], tuple_of(dy)))
        given = {name: np.array(x) for name, x in arrays.items() if x is not None} | grads
        self.f(*[given.get(name) for name in self.takes])
        return list(grads.values())

    def check(self, inputs, dtype):
        inputs = [x.astype(dtype) if is_real(x) else x for x in inputs]
        y = self.forward(*inputs)
        if not all(np.size(x) for x in inputs + [y]):  # no element moves y
            fine = all((g == 1).all() for g in self.call(y, inputs, 1))
            return None if fine else "a gradient of no numbers adds something"
        report = gradus.gradcheck(self.forward, inputs, raise_exception=False, names=self.inputs,
                                  rtol=1e-8 * (len(self.cases) == 1 and dtype == np.float64),
                                  backward=lambda dy, *x: tuple(self.call(dy, x)))
        said = [f"d{i['name']}: {i['finding'] or i['behaviour']}" for i in report.inputs
                if i["verdict"] != "PASS"]
        return None if report else "; ".join(said) or report.message or report.summary

    def judge(self):
        """The sentence of each column, or of all; None where it is right."""
        inputs = self.cases[0]
        one, two = (tuple(real(*np.shape(y)) for y in tuple_of(self.forward(*inputs)))
                    for _ in range(2))
        plain, other = self.call(one, inputs), self.call(two, inputs)
        both = self.call(tuple(a + 2 * b for a, b in zip(one, two)), inputs)
        values = self.check(inputs, np.float64) or self.check(inputs, np.float32)
        if not any(g.any() for g in plain):
            return f"{self.name} adds nothing yet; begin here: one element of dx by hand"
        if len(self.cases) == 1:
            return values
        adds = all(np.allclose(g + 1.25, h) for g, h in zip(plain, self.call(one, inputs, 1.25)))
        linear = all(np.allclose(g + 2 * h, s) for g, h, s in zip(plain, other, both))
        shapes = (self.check(x, (np.float32, np.float64)[i % 2]) for i, x in enumerate(self.cases)
                  if i)
        return [values,
                None if adds else "what was there before is not in the gradient any more",
                None if linear else "it is not linear in dy",
                next(filter(None, shapes), None)]


def judge_case(f, fault, forward, backward, most):
    """None if the student's case tells a faulty backward from the right one, or a sentence."""
    def passes(fault):
        return bool(gradus.gradcheck(forward, inputs, raise_exception=False,
                                     backward=lambda dy, *x: backward(fault, dy, *x)))
    given = f(fault)
    inputs = [np.array(x, float) for x in tuple_of(given)]
    if given is None:
        return f"{f.__name__} returns nothing yet; begin here: numbers for each input"
    if not all(x.ndim == 1 and 1 <= x.size <= most for x in inputs):
        return f"wanted arrays of 1 to {most} numbers"
    if not passes(-1):
        return "the right backward does not pass on this case: are its numbers finite?"
    if passes(fault):
        return "the faulty backward passes on this case: nothing in it shows the fault"


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in "23456":
        sys.exit(__doc__)
    spec = importlib.util.spec_from_file_location("backwards", sys.argv[2])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    number, got, of = int(sys.argv[1]), 0, 0
    rows = [(name, points, Row(module, name, *row).judge)
            for name, points, *row in ASSIGNMENTS[number]]
    rows += [(name, points, partial(judge_case, getattr(module, f), fault, *row))
             for f, points, *row, faults in REVERSES.get(number, [])
             for fault, name in enumerate(faults)]
    for name, of_row, judge in rows:
        try:
            with np.errstate(all="ignore"):
                hints = judge()
        except Exception as error:  # whatever a student's function raises
            hints = f"{type(error).__name__}: {error}"
        hints = hints if isinstance(hints, list) else [hints] * 4
        points = sum(of_row * share for share, hint in zip(SHARES, hints) if not hint) // 100
        got, of = got + points, of + of_row
        print(f"{name:28}{points:4}/{of_row}")
        for hint in dict.fromkeys(filter(None, hints)):
            print(f"    {hint}")
    print(f"{sys.argv[2]:28}{got:4}/{of}")
    sys.exit(got < of)


main()
