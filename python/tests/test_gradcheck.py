"""gradus.gradcheck on PyTorch functions: sixty planted bugs, and correct functions."""

import json
import math
import pathlib
import re

import planted
import pytest
import torch
import torch.nn.functional as F

import gradus
from gradus import _library

F64 = torch.float64


def leaf(*shape, dtype=F64, device="cpu"):
    return torch.randn(shape, dtype=dtype, device=device, requires_grad=True)


def failing(function, inputs, **options):
    report = gradus.gradcheck(function, inputs, raise_exception=False, **options)
    assert not report and report.verdict == "FAIL"
    return report


def test_there_are_sixty():
    assert len(planted.BUGS) == 60


@pytest.mark.parametrize("name", planted.BUGS)
def test_planted_bug(name):
    function, inputs = planted.BUGS[name]
    failing(function, planted.make(inputs))


def test_pytorchs_own_check_misses_some():
    missed = {n for n, (f, i) in planted.BUGS.items() if not planted.torch_catches(f, i)}
    assert missed <= {
        "softmax: all, by 0.01%", "square of tiny numbers: a factor", "sin: x kept outside of ctx",
        "product: no dw without dx", "sin: dy used as room"}


FINDINGS = {
    "sin: the sign": "the sign is flipped",
    "mean: as a sum": "a constant factor 20",
    "square by x * x: one of two": "a constant factor 1/2",
    "linear: the bias's gradient once too often": "a constant factor 2",
    "sin: one element, by 1%": "a single element is off",
    "roll: the same way": "the right values in the wrong places",
    "product: no dw without dx": "when only w requires a gradient",
    "sin: another result each time": "a second run gives different bits",
    "sin: dy used as room": "backward changes dy in place",
    "sin: x kept outside of ctx": "keeps state outside of ctx",
}


@pytest.mark.parametrize("name", FINDINGS)
def test_the_report_names_what_it_finds(name):
    function, inputs = planted.BUGS[name]
    with pytest.raises(gradus.GradcheckError) as error:
        gradus.gradcheck(function, planted.make(inputs), names=["x", "w", "b"][: len(inputs)])
    words = json.dumps(error.value.report.fields)
    assert FINDINGS[name] in words and FINDINGS[name] in str(error.value)


RIGHT = {
    "sin": (torch.sin, [planted.X]),
    "softmax": (planted.op(lambda x: x.softmax(-1), planted.softmax_backward), [planted.X]),
    "rms_norm": (planted.op(planted.rms, planted.rms_backward), [planted.X, planted.W]),
    "layer_norm": (
        planted.op(planted.layer, planted.layer_backward), [planted.X, planted.W, planted.W]),
    "attention": (planted.op(planted.attention, planted.attention_backward), [planted.X] * 3),
    "swiglu": (
        planted.op(lambda a, b: F.silu(a) * b, planted.swiglu_backward), [planted.X, planted.X]),
    "cross_entropy": (planted.op(lambda x: F.cross_entropy(x, planted.TARGETS),
                                 planted.cross_entropy_backward), [planted.X]),
    "relu": (torch.relu, [planted.X]),
    "several outputs": (lambda x: (x.sin(), x.sum(0), x.argmax(), x > 0), [planted.X]),
    "a view": (lambda x: x.t(), [planted.X]),
    "an output that does not depend on x": (lambda x, w: (x * 2, w.detach() * 3), [planted.X] * 2),
    "fused": (lambda x, w: gradus.rms_norm(x, w, eps=1e-5), [planted.X, planted.W]),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
def test_right_ones_pass(device, name, dtype):
    function, inputs = RIGHT[name]
    if name == "cross_entropy" and device == "cuda":
        pytest.skip("its targets are on the CPU")
    made = [t.detach().to(device, dtype).requires_grad_() for t in planted.make(inputs)]
    report = gradus.gradcheck(function, made)
    assert report and report.fields["device"] == device and len(report.inputs) == len(made)
    assert report.fields["dtype"] == str(dtype)[6:]


def test_float32_and_cuda_find_bugs_too(device):
    function, inputs = planted.BUGS["rms_norm: no mean term"]
    made = [t.detach().to(device, torch.float32).requires_grad_() for t in planted.make(inputs)]
    report = failing(function, made)
    assert report.inputs[0]["wrong"] > 0 and report.inputs[1]["verdict"] == "PASS"
    assert f" {device} f32" in report.text


def test_mixture_of_float32_and_float64():
    assert gradus.gradcheck(lambda x, w: x * w, (leaf(3, 4, dtype=torch.float32), leaf(4)))


def test_a_module_with_its_parameters(device):
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 5), torch.nn.Dropout(0.5), torch.nn.GELU(), torch.nn.BatchNorm1d(5)
    ).to(device, F64)
    state = {n: t.clone() for n, t in module.state_dict().items()}
    report = gradus.gradcheck(module, leaf(6, 4, device=device))
    names = [i["name"] for i in report.inputs]
    assert names == ["input", "0.weight", "0.bias", "3.weight", "3.bias"]
    assert all(torch.equal(t, state[n]) for n, t in module.state_dict().items())


def test_a_thousand_elements_are_sampled_and_the_bad_one_is_found():
    wrong = planted.op(torch.sin, lambda dy, x: planted.one_element(dy * x.cos(), -1, (17, 23)))
    report = failing(wrong, leaf(40, 40))
    assert report.inputs[0]["worst"] == 17 * 40 + 23
    assert "a single element is off" in report.inputs[0]["finding"]


def test_kinks_are_left_out():
    x = torch.tensor([-1.0, 0.0, 2.0], dtype=F64, requires_grad=True)
    report = gradus.gradcheck(torch.relu, x)
    assert report.inputs[0]["kinks"] == 1 and report.inputs[0]["compared"] == 2


def test_random_functions_repeat():
    assert gradus.gradcheck(lambda x: F.dropout(x, 0.5), leaf(6, 6))


def test_inputs_keep_their_values_and_gradients():
    x = leaf(3)
    before = x.detach().clone()
    gradus.gradcheck(torch.sin, x)
    assert torch.equal(x, before) and x.grad is None


def test_the_error_of_a_function_comes_through():
    class Odd(Exception):
        pass

    calls = []

    def odd(x):
        calls.append(x)
        if len(calls) > 9:
            raise Odd("the tenth time")
        return x * 1

    with pytest.raises(Odd, match="the tenth time"):
        gradus.gradcheck(odd, leaf(3))


def test_a_function_that_changes_its_input():
    def f(x):
        x.data.mul_(2)
        return x.sin()

    with pytest.raises(ValueError, match="gradcheck: the function changes x in place"):
        gradus.gradcheck(f, leaf(3))


def test_a_function_has_its_own_name():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x**3

        @staticmethod
        def backward(ctx, dy):
            return dy

    report = gradus.gradcheck(Cube.apply, leaf(3), raise_exception=False)
    assert str(report).startswith("Cube.apply ")
    with pytest.raises(ValueError, match="function is the class Cube, wanted Cube.apply"):
        gradus.gradcheck(Cube, leaf(3))


def test_wrong_calls():
    with pytest.raises(ValueError, match="gradcheck: no input requires a gradient"):
        gradus.gradcheck(torch.sin, torch.randn(3))
    with pytest.raises(TypeError, match="gradcheck: x is torch.bfloat16, wanted float32 or"):
        gradus.gradcheck(lambda x: x, leaf(3, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match="gradcheck: the function returned nothing that has"):
        gradus.gradcheck(lambda x: x > 0, leaf(3))
    with pytest.raises(ValueError, match="gradcheck: step is -1, wanted a finite number"):
        gradus.gradcheck(torch.sin, leaf(3), step=-1.0)


Z = torch.zeros
WRONG_TENSORS = [
    ("x is torch.sparse_coo, wanted a dense tensor", lambda x: x,
     lambda: torch.eye(3).double().to_sparse().requires_grad_()),
    ("x is nested, wanted a dense tensor", lambda x: x,
     lambda: torch.nested.nested_tensor([Z(3, 8)], layout=torch.jagged, requires_grad=True)),
    ("x is on meta, wanted the CPU or a GPU", lambda x: x,
     lambda: Z(3, device="meta", requires_grad=True)),
    ("x has 9 dimensions, wanted at most 8", lambda x: x, lambda: leaf(*[1] * 9)),
    ("the function returned torch.float8_e4m3fn", lambda x: x.to(torch.float8_e4m3fn),
     lambda: leaf(3)),
    ("the function returned a tensor that is torch.sparse_coo", lambda x: x.to_sparse(),
     lambda: leaf(3)),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", WRONG_TENSORS, ids=lambda c: c[0])
def test_wrong_tensors(case):
    sentence, function, make = case
    with pytest.raises(ValueError, match="^gradcheck: " + sentence):
        gradus.gradcheck(function, make())


def test_a_subclass_is_a_tensor():
    class Mine(torch.Tensor):
        pass

    assert gradus.gradcheck(torch.sin, leaf(3).detach().as_subclass(Mine).requires_grad_())


def test_a_gradient_of_another_shape():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sum(0)

        @staticmethod
        def backward(ctx, dy):
            return torch.ones(7, dtype=F64)

    with pytest.raises(RuntimeError, match="invalid gradient"):
        gradus.gradcheck(Wrong.apply, leaf(5, 4))


# ---- Misbehaviour that numbers do not show ------------------------------------------------------


def saving(backward, forward=lambda x: (x.sin(), x.cos()), materialize=True):
    """A function whose backward(x, *dy) gets the saved x, which it may change."""

    class Saving(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            ctx.x = x.clone(memory_format=torch.preserve_format)
            return forward(x)

        @staticmethod
        def backward(ctx, *dy):
            return backward(ctx.x, *dy)

    return Saving.apply


def packed(t):
    """The elements in the order of memory, as a kernel sees them that takes no strides."""
    return torch.as_strided(t, t.shape, (4, 1))


def first_ever(memory):
    def backward(x, dy):
        memory.setdefault("x", x)
        return dy * memory["x"].cos()

    return saving(backward, torch.sin)


MISBEHAVE = {
    "the first backward changes what was saved": (
        lambda: saving(lambda x, dy: dy * x.cos_(), torch.sin), "in a second backward"),
    "dy as if it were packed": (
        lambda: saving(lambda x, dy: packed(dy) * x.cos(), torch.sin), "if dy is not contiguous"),
    "a view of dy": (
        lambda: saving(lambda x, dy: (dy.view(-1) * x.cos().view(-1)).view(5, 4), torch.sin),
        "from a dy that is not contiguous raises RuntimeError: view size"),
    "x as if it were packed": (
        lambda: saving(lambda x, dy: dy * packed(x).cos(), torch.sin),
        "if the inputs are not contiguous"),
    "nothing if a dy is missing": (
        lambda: saving(lambda x, a, b: None if b is None else a * x.cos() - b * x.sin(),
                       materialize=False), "for output 0 alone"),
    "an error if a dy is missing": (
        lambda: saving(lambda x, a, b: a * x.cos() - b * x.sin(), materialize=False),
        "from output 0 alone, without the others, raises TypeError"),
    "the first call's x for ever": (lambda: first_ever({}), "values of an earlier call"),
    "float32 inside": (
        lambda: saving(lambda x, dy: (dy.float() * x.float().cos()).double(), torch.sin),
        "it was rounded"),
}


@pytest.mark.parametrize("name", MISBEHAVE)
def test_misbehaviour(name):
    function, words = MISBEHAVE[name]
    report = failing(function(), planted.make([planted.X]))
    assert words in report.text


def test_kinks_at_the_inputs_are_no_news():
    def clamp(x):  # torch.clamp, with a gradient of 1 at both ends in all its versions
        return torch.where(x.abs() <= 1, x, x.detach().sign())

    x = torch.tensor([-2.0, -1, 0, 1, 2, 1, 3, -1], dtype=torch.float64, requires_grad=True)
    assert gradus.gradcheck(clamp, (x,))


class AloneWithOne(torch.autograd.Function):
    """(a b, a + b), whose db is wrong if it is wanted alone, and only the first dy comes."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(a, b)
        return a * b, a + b

    @staticmethod
    def backward(ctx, dp, ds):
        a, b = ctx.saved_tensors
        both = torch.zeros_like(a) if ds is None else ds
        if dp is None:
            return both, both
        if not ctx.needs_input_grad[0] and ds is None:
            return None, 2 * dp * a
        return dp * b + both, dp * a + both


def test_a_subset_of_gradients_with_a_missing_dy():
    report = failing(AloneWithOne.apply, (leaf(3), leaf(3)))
    assert ("the gradient of input 1 with a dy for output 0 alone changes if it is the only one"
            in report.text)


@pytest.mark.parametrize("other", [lambda y: (y, y), lambda y: y.reshape(2, 3),
                                   lambda y: y.float()])
@pytest.mark.parametrize("after", [1, 2, 3, 10, 20, 32])
def test_outputs_that_change(after, other):
    calls = []

    def changing(x):
        calls.append(x)
        return other(x.sin()) if len(calls) > after else x.sin()

    report = failing(changing, leaf(6))
    assert "the function returned (float64 [6]) in an earlier call and (float" in report.message


def test_right_functions_that_misbehave_in_no_way():
    """Not every function takes strided inputs, other data, or a second backward."""
    def only_these(x):
        assert x.is_contiguous() and x.mean() > 0.9
        return x.log()

    def once(ctx_x, dy):
        found = dy / ctx_x
        ctx_x.resize_(0)
        return found

    x = torch.rand(5, 4, dtype=F64) + 0.5
    assert gradus.gradcheck(only_these, x.requires_grad_())
    assert gradus.gradcheck(saving(once, torch.log), x)
    assert gradus.gradcheck(lambda t: F.dropout(t, 0.5), x)  # another mask if strided
    assert gradus.gradcheck(lambda t: (t.relu(), t.round(), t * 2), leaf(5, 4))


@pytest.mark.parametrize("seed", range(3))
def test_gradients_that_are_zero_but_for_rounding(seed):
    """Their noise has as few digits as float32 numbers, and was once taken for rounded gradients."""
    torch.manual_seed(seed)
    assert gradus.gradcheck(lambda x: F.normalize(x, dim=1), leaf(6, 1), seed=seed)
    assert gradus.gradcheck(torch.corrcoef, leaf(6, 2), seed=seed)
    assert gradus.gradcheck(lambda x, b: F.batch_norm(x + b, None, None, training=True),
                            (leaf(6, 4), leaf(4)), seed=seed)


def test_scalars():
    assert gradus.gradcheck(torch.exp, leaf())
    assert gradus.gradcheck(lambda x, y: x * y, (leaf(), leaf(3, 4)))
    report = failing(planted.op(torch.exp, lambda dy, x: dy * x.exp() / 2), leaf())
    assert "a constant factor 1/2" in report.text


FINDINGS_OF_ONE_OUTPUT = {
    "dy[1, :] is left out": (
        lambda x: x[[0, 2, 2, 1]],
        lambda dy, x: torch.zeros_like(x).index_copy_(0, torch.tensor([0, 2, 2, 1]), dy)),
    "input 0[0, 0] does not use dy[0, 0]": (
        lambda x: x.cumsum(0), lambda dy, x: dy.flip(0).cumsum(0).flip(0) - dy),
    "it is not linear in dy": (torch.sin, lambda dy, x: dy.abs() * x.cos()),
    "the true gradient is zero throughout, this one is not": (torch.round, lambda dy, x: dy + x),
}


@pytest.mark.parametrize("words", FINDINGS_OF_ONE_OUTPUT)
def test_findings_of_one_output(words):
    report = failing(planted.op(*FINDINGS_OF_ONE_OUTPUT[words]), planted.make([planted.X]))
    assert words in report.inputs[0]["finding"]


def test_wrong_options():
    for options, words in {
        "seed=-1": "seed is -1, wanted 0 to",
        "seed=2**64": "wanted 0 to 2^64 - 1",
        "max_elements=2**64 + 2": "max_elements is",
        "directions=2**32": "directions is",
        "names=['a', 'b']": "names has length 2, wanted 1",
        "names='x'": "names is 'x', wanted a list of strings",
        "names=[3]": "wanted a list of strings",
        "backward=torch.sin": "backward is for NumPy functions",
    }.items():
        with pytest.raises((TypeError, ValueError), match="gradcheck: ") as error:
            gradus.gradcheck(torch.sin, leaf(3), **eval(f"dict({options})"))
        assert words in str(error.value)
    with pytest.raises(TypeError, match="returned NoneType, wanted a tensor"):
        gradus.gradcheck(lambda x: None, leaf(3))
    report = gradus.gradcheck(torch.sin, leaf(3), names=["a" + "\u00e9" * 40])
    assert report.inputs[0]["name"] == "a" + "\u00e9" * 31


def test_the_structs_are_the_librarys():
    """The struct layouts of _library.py agree with the library's own records."""
    record = _library.find_op(None, b"add_rms_norm").contents
    assert record.name == b"add_rms_norm" and record.signature.startswith(b"x[..., N] residual:real")
    assert record.args_size == len(_library.rms_norm_args(1.0, 0.0))
    assert record.same_bits and record.strided and record.mixed and not record.random
    assert record.case_count >= 11 and record.forward[0] and record.backward[0]
    report = gradus.gradcheck(torch.sin, leaf(2), seed=7, step=1e-4, rtol=1e-3, atol=1e-4)
    assert report.fields["seed"] == 7 and math.isclose(report.fields["step"], 1e-4)
    assert math.isclose(report.fields["rtol"], 1e-3) and math.isclose(report.fields["atol"], 1e-4)


@pytest.mark.parametrize("name, mirror", [
    ("gd_spec", _library.Spec), ("gd_shapes", _library.Shapes), ("gd_call", _library.Call),
    ("gd_op", _library.Op)])
def test_struct_has_the_members_of_the_header(name, mirror):
    header = pathlib.Path(__file__).parents[2] / "include/gradus/autograd.h"
    body = re.search(r"struct " + name + r" \{\n(.*?)\n\}", header.read_text(), re.S).group(1)
    members = []
    for declaration in re.sub(r"/\*.*?\*/", "", body, flags=re.S).split(";"):
        pointer = re.search(r"\(\*(\w+)\)", declaration)
        words = re.sub(r"\[[^]]*\]", "", declaration).split(",")
        members += [pointer.group(1)] if pointer else [
            re.findall(r"\w+", word)[-1] for word in words if word.strip()]
    assert members == [field for field, *_ in mirror._fields_]
