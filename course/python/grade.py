"""Grades assignments 2 to 6 in Python, with the points of the grader in C:

    python3 grade.py 2 backwards.py

Your functions get NumPy arrays and add to the gradients that they are given; gradus.gradcheck compares
them with differences of the forward. PyTorch and its autograd cannot be imported. The status is 0 for all
points, 1 for fewer."""

import importlib.util
import sys

sys.modules["torch"] = None  # before gradus looks for it

import gradus  # noqa: E402
import numpy as np  # noqa: E402

EPS = 1e-5
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


def rms_norm(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(EPS)) * w


def add_rms_norm(x, branch, w):
    return rms_norm(x + branch, w), x + branch


def view(x, shape, strides):
    return x[np.tensordot(strides, np.indices(shape), 1)]


def index(high, *shape, low=0):
    return random.randint(low, high, shape)


# Of each assignment: the function, its points, the forward, the names of inputs and outputs, what the
# function takes, and cases, of which the first is that of the values.
ELEMENTS = [(real(3, 5),), (real(1),), (real(33),), (real(2, 1, 7),)]
ASSIGNMENTS = {
    2: [("cube_backward", 20, lambda x: x**3, "x", "y", "x dy dx", ELEMENTS),
        ("relu_backward", 20, lambda x: np.maximum(x, 0), "x", "y", "x dy dx", ELEMENTS),
        ("tanh_backward", 20, np.tanh, "x", "y", "y dy dx", ELEMENTS),
        ("silu_backward", 20, lambda x: x / (1 + np.exp(-x)), "x", "y", "x dy dx", ELEMENTS),
        ("divide_backward", 20, lambda a, b: a / b, "a b", "y", "a b dy da db",
         [(real(*s), 1.5 + random.rand(*s)) for s in ((3, 5), (1,), (33,))])],
    3: [("product_backward", 20, lambda a, b: a * b, "a b", "y", "a b dy da db",
         [(real(4, 3), real(3)), (real(1, 7), real(7)), (real(5, 1), real(1))]),
        ("sum_backward", 20, lambda x: x.sum(1), "x", "y", "dy dx",
         [(real(2, 3, 4),), (real(1, 5, 1),), (real(3, 1, 2),)]),
        ("gather_backward", 20, lambda table, index: table[index], "table index", "y",
         "index dy dtable",
         [(real(5, 3), np.array([0, 2, 2, 4, 2])), (real(1, 4), np.zeros(6, int)),
          (real(3, 2), index(3, 1))]),
        ("view_backward", 20, view, "x shape strides", "y", "strides dy dx",
         [(real(count), np.array(shape), np.array(strides)) for count, shape, strides in
          ((5, (3, 5), (0, 1)), (15, (5, 3), (1, 5)), (8, (6, 3), (1, 1)), (25, (3, 4), (9, 2)))])],
    4: [("matmul_backward", 40, lambda a, b: a @ b, "a b", "y", "a b dy da db",
         [(real(4, 3), real(3, 5)), (real(3, 3), real(3, 3)), (real(1, 7), real(7, 1))]),
        ("linear_backward", 60, lambda x, w, bias: x @ w.T + bias, "x w bias", "y",
         "x w dy dx dw dbias",
         [(real(4, 3), real(5, 3), real(5)), (real(3, 3), real(3, 3), real(3)),
          (real(1, 7), real(2, 7), real(2))])],
    5: [("softmax_backward", 40, softmax, "x", "y", "y dy dx",
         [(real(4, 6),), (real(1, 33),), (real(7, 2),), (np.full((3, 5), 2.0),)]),
        ("cross_entropy_backward", 40, cross_entropy, "x target", "loss", "x target dloss dx",
         [(real(4, 6), index(6, 4)), (1000 + real(4, 5), index(5, 4)),
          (real(12, 3), index(3, 12, low=-2)), (-1000 + real(4, 5), index(5, 4))])],
    6: [("rms_norm_backward", 40, rms_norm, "x w", "y", "x w dy dx dw",
         [(real(m, n), 1 + 0.5 * real(n)) for m, n in ((5, 8), (4, 7), (7, 33), (1, 130))]),
        ("add_rms_norm_backward", 40, add_rms_norm, "x branch w", "y sum",
         "w sum dy dsum dx dbranch dw",
         [(real(m, n), real(m, n), 1 + 0.5 * real(n)) for m, n in ((5, 8), (4, 7), (1, 130))]),
        ("rms_norm_backward (lesson)", 20, rms_norm, "x w", "y", "x w dy dx dw",
         [(np.array([[2, -1, 3, 0.5, -0.5, 1.5, -2, 1], [4, -3, 2.5, 1, -1.5, 0, -0.5, 2],
                     [-1, 3.5, -2.5, 1.5, 0, -3, 2.5, -0.5]]), np.ones(8))])],
}


class Row:
    """A function of the student's as the backward of a forward."""

    def __init__(self, module, row):
        self.name, self.points, self.forward, inputs, outputs, takes, self.cases = row
        self.f = getattr(module, self.name.split()[0])
        self.inputs, self.outputs, self.takes = inputs.split(), outputs.split(), takes.split()

    def call(self, dy, inputs, start=0.0):
        """The gradients after the function has added to arrays that hold `start`."""
        y, one = self.forward(*inputs), len(self.outputs) == 1
        arrays = dict(zip(self.inputs, inputs))
        grads = {"d" + name: np.full_like(x, start) for name, x in arrays.items()
                 if x.dtype.kind == "f"}
        arrays.update(zip(self.outputs, [y] if one else y))
        arrays.update(zip(["d" + name for name in self.outputs], [dy] if one else dy))
        given = {name: np.array(x) for name, x in arrays.items()} | grads
        self.f(*[given[name] for name in self.takes])
        return [grads.get("d" + name) for name in self.inputs]

    def check(self, inputs, dtype):
        inputs = [x.astype(dtype) if x.dtype.kind == "f" else x for x in inputs]
        report = gradus.gradcheck(self.forward, inputs, raise_exception=False, names=self.inputs,
                                  backward=lambda dy, *x: tuple(self.call(dy, x)))
        said = [f"d{i['name']}: {i['finding'] or i['behaviour']}" for i in report.inputs
                if i["verdict"] != "PASS"]
        return None if report else "; ".join(said) or report.message or report.summary

    def judge(self):
        """The sentence of each column, None where all is right."""
        inputs = self.cases[0]
        y = self.forward(*inputs)
        one, two = ([real(*np.shape(v)) for v in (y if isinstance(y, tuple) else (y,))]
                    for _ in range(2))
        packed = (lambda d: tuple(d)) if isinstance(y, tuple) else (lambda d: d[0])
        both = self.call(packed([a + 2 * b for a, b in zip(one, two)]), inputs)
        plain, other = self.call(packed(one), inputs), self.call(packed(two), inputs)
        added = self.call(packed(one), inputs, 1.25)

        def close(got, wanted):
            return all(g is None or np.allclose(g, w) for g, w in zip(got, wanted))

        values = self.check(inputs, np.float64) or self.check(inputs, np.float32)
        if not any(g is not None and g.any() for g in plain):
            return [f"{self.name} adds nothing yet; begin here: one element of dx by hand"] * 4
        if len(self.cases) == 1:
            return [values] * 4
        return [values,
                None if close(added, [g if g is None else g + 1.25 for g in plain]) else
                "what was there before is not in the gradient any more",
                None if close(both, [g if g is None else g + 2 * h for g, h in zip(plain, other)])
                else "it is not linear in dy",
                next(filter(None, (self.check(x, np.float64) for x in self.cases[1:])), None)]


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in "23456":
        sys.exit(__doc__)
    spec = importlib.util.spec_from_file_location("backwards", sys.argv[2])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    got = of = 0
    for row in (Row(module, row) for row in ASSIGNMENTS[int(sys.argv[1])]):
        try:
            hints = row.judge()
        except Exception as error:  # whatever a student's function raises
            hints = [f"{type(error).__name__}: {error}"] * 4
        shares = [row.points * share // 100 for share in (60, 15, 10, 15)]
        points = sum(share for share, hint in zip(shares, hints) if not hint)
        got, of = got + points, of + row.points
        print(f"{row.name:28}{points:4}/{row.points}")
        for hint in dict.fromkeys(filter(None, hints)):
            print(f"    {hint}")
    print(f"{sys.argv[2]:28}{got:4}/{of}")
    sys.exit(got < of)


main()
