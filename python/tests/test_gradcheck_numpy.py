"""gradus.gradcheck on NumPy functions with a hand-written backward."""

import numpy as np
import pytest

import gradus

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
