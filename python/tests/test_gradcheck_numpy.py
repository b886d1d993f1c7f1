"""gradus.gradcheck on NumPy functions with a hand-written backward."""

import copy
import os
import pickle
import re
import signal
import sys
import threading
import time

import numpy as np
import pytest

import gradus
from gradus.checking import _Check

R = np.random.RandomState(1)
X, W = R.randn(5, 4), R.randn(4, 3)


def matmul(x, w):
    return x @ w


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_right_ones_pass():
    assert gradus.gradcheck(matmul, (X, W), backward=lambda dy, x, w: (dy @ w.T, x.T @ dy))
    small = X.astype(np.float32), W.astype(np.float32)
    report = gradus.gradcheck(matmul, small, backward=lambda dy, x, w: (dy @ w.T, x.T @ dy))
    assert report.fields["dtype"] == "float32"
    assert [i["name"] for i in report.inputs] == ["x", "w"]


def test_findings():
    wrong = {
        "the sign is flipped": lambda dy, x, w: (-dy @ w.T, x.T @ dy),
        "a constant factor 2": lambda dy, x, w: (dy @ w.T, 2 * x.T @ dy),
        "the gradient is zero throughout": lambda dy, x, w: (None, x.T @ dy),
        "the gradient of w has shape [3, 4], wanted that of w, [4, 3]":
            lambda dy, x, w: (dy @ w.T, dy.T @ x),
        "backward returned 1 gradients, wanted 2": lambda dy, x, w: (dy @ w.T,),
        "backward changes w in place": lambda dy, x, w: (dy @ w.T, np.matmul(x.T, dy, out=w)),
        "backward changes dy in place": lambda dy, x, w: (np.multiply(dy, 1.5, out=dy) @ w.T / 1.5,
                                                          x.T @ dy / 1.5),
    }
    for words, backward in wrong.items():
        with pytest.raises(gradus.GradcheckError) as error:
            gradus.gradcheck(matmul, (X, W), backward=backward)
        assert words in str(error.value)


def test_integers_and_numbers_are_passed_on():
    at = np.array([0, 2, 2])

    def take(x, at, scale):
        return x[at] * scale

    def backward(dy, x, at, scale):
        dx = np.zeros_like(x)
        np.add.at(dx, at, dy * scale)
        return dx, None, None

    assert gradus.gradcheck(take, (X, at, 3.0), backward=backward)

    def overwrites(dy, x, at, scale):  # a row that is taken twice gets only one of its gradients
        dx = np.zeros_like(x)
        dx[at] = dy * scale
        return dx, None, None

    assert not gradus.gradcheck(take, (X, at, 3.0), backward=overwrites, raise_exception=False)


def test_several_outputs_and_a_cache():
    def forward(x):
        return np.sin(x), x.sum(0)

    assert gradus.gradcheck(forward, X, backward=lambda dy, x: dy[0] * np.cos(x) + dy[1])

    def with_cache(x):
        y = softmax(x)
        return y, (y,)

    def from_cache(dy, cache):
        (y,) = cache
        return y * (dy - (dy * y).sum(-1, keepdims=True))

    assert gradus.gradcheck(
        lambda x: with_cache(x)[0], X, backward=lambda dy, x: from_cache(dy, with_cache(x)[1]))


def test_wrong_calls():
    with pytest.raises(TypeError, match="gradcheck: backward is missing"):
        gradus.gradcheck(softmax, X)
    with pytest.raises(TypeError, match="gradcheck: x is float16, wanted float32 or float64"):
        gradus.gradcheck(softmax, X.astype(np.float16), backward=lambda dy, x: dy)


def cosine(dy, x):
    return dy * np.cos(x)


WRONG = [
    ("function is None, wanted a function", {"function": None}),
    ("backward is 3, wanted a function", {"backward": 3}),
    ("inputs has dict, wanted at least one tensor or array", {"inputs": {"x": X}}),
    ("inputs has nothing, wanted at least one tensor or array", {"inputs": ()}),
    ("inputs has float, float, wanted at least one tensor or array", {"inputs": [1.0, 2.0]}),
    ("no input requires a gradient", {"inputs": np.arange(3)}),
    ("x is float128, wanted float32 or float64", {"inputs": X.astype(np.longdouble)}),
    ("x is complex128, wanted float32 or float64", {"inputs": X.astype(complex)}),
    ("x has 9 dimensions, wanted at most 8", {"inputs": X.reshape((1,) * 7 + X.shape)}),
    ("seed is 'a', wanted 0 to 2^64 - 1, a whole number", {"seed": "a"}),
    ("seed is 1.5, wanted 0 to", {"seed": 1.5}),
    ("max_elements is None, wanted 0 to", {"max_elements": None}),
    ("directions is -1, wanted 0 to 2^31 - 1", {"directions": -1}),
    ("step is None, wanted a finite number of at least 0", {"step": None}),
    ("rtol is of type int, wanted a finite number", {"rtol": 10**400}),
    ("atol is nan, wanted a finite number", {"atol": float("nan")}),
    ("names is 3, wanted a list of strings", {"names": 3}),
    ("names is [None], wanted a list of strings", {"names": [None]}),
    ("names has length 2, wanted 1", {"names": ["a", "b"]}),
    ("only_numbers is 'no', wanted True or False", {"only_numbers": "no"}),
    ("the function returned object, wanted", {"function": lambda x: None}),
    ("the function returned int64, wanted float16", {"function": lambda x: x.astype(np.int64)}),
    ("the function returned complex128, wanted", {"function": lambda x: x * 1j}),
    ("the function returned float128, wanted", {"function": lambda x: x.astype(np.longdouble)}),
    ("the function returned nothing", {"function": lambda x: ()}),
]


@pytest.mark.parametrize("sentence, change", WRONG, ids=lambda v: v if isinstance(v, str) else "")
def test_wrong_calls_raise_one_sentence(sentence, change):
    call = {"function": np.sin, "inputs": X, "backward": cosine, **change}
    with pytest.raises(ValueError, match="^gradcheck: " + re.escape(sentence)):
        gradus.gradcheck(call.pop("function"), call.pop("inputs"), **call)


def test_a_gradient_that_is_not_real():
    for wrong, words in ((lambda dy, x: dy * 1j, "the gradient of x is complex128, wanted real"),
                         (lambda dy, x: dy.astype(object), "the gradient of x is object, wanted")):
        with pytest.raises(gradus.GradcheckError, match=words):
            gradus.gradcheck(np.sin, X, backward=wrong)


def test_the_error_can_be_pickled_and_copied():
    with pytest.raises(gradus.GradcheckError) as caught:
        gradus.gradcheck(np.sin, X, backward=lambda dy, x: -cosine(dy, x))
    error = caught.value
    for other in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error), copy.copy(error)):
        assert type(other) is gradus.GradcheckError and str(other) == str(error)
        assert "the sign is flipped" in str(other) and not other.report
        assert other.report.fields == error.report.fields


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_exception_outside_the_users_function(kind, monkeypatch):
    """It arrives in a callback, where ctypes cannot let it through."""
    def interrupted(*_):
        raise kind

    monkeypatch.setattr(_Check, "_shape", interrupted)
    before = sys.unraisablehook
    with pytest.raises(kind):
        gradus.gradcheck(np.sin, X, backward=cosine)
    assert sys.unraisablehook is before


def test_an_interrupt_at_any_time_stays_one():
    """Most of the time is the library's own, in which Python only notes the signal."""
    x = R.randn(40, 40)
    start = time.monotonic()
    assert gradus.gradcheck(np.sin, x, backward=cosine)
    duration = time.monotonic() - start
    stopped = 0
    for i in range(60):
        timer = threading.Timer(duration * i / 60, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            report = gradus.gradcheck(np.sin, x, backward=cosine, raise_exception=False)
            assert report.verdict == "PASS"  # done before the signal
            timer.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            stopped += 1
        timer.join()
    assert stopped >= 50


def test_an_exception_of_the_users_function_stays_one():
    with pytest.raises(ZeroDivisionError):
        gradus.gradcheck(lambda x: 1 / 0, X, backward=cosine)
    with pytest.raises(IndexError):
        gradus.gradcheck(np.sin, X, backward=lambda dy, x: dy[9])


@pytest.mark.parametrize("other", [lambda y: (y, y), lambda y: y.T, lambda y: y.astype("float32")])
def test_outputs_that_change(other):
    calls = []

    def changing(x):
        calls.append(x)
        return other(np.sin(x)) if len(calls) > 2 else np.sin(x)

    report = gradus.gradcheck(changing, X, backward=lambda dy, x: dy * np.cos(x),
                              raise_exception=False)
    assert report.verdict == "FAIL"
    assert "the function returned (float64 [5, 4]) in an earlier call and (float" in report.message
