"""gradcheck(): the C library's gradient check (include/gradus/gradcheck.h) for functions of PyTorch
and NumPy.

The library does the check; this module provides an op whose kernels call the function. The library
perturbs the inputs in host memory, and each call copies them to the function's device.
"""

import contextlib
import ctypes
import inspect
import json
import operator
import sys

import numpy as np

from . import _library as c
from ._messages import shown

_REAL = {np.dtype(np.float32): c.FLOAT32, np.dtype(np.float64): c.FLOAT64}


class GradcheckError(AssertionError):
    """The gradients are wrong, or could not be judged. `report` has the details, as has the
    message."""

    def __init__(self, report):
        super().__init__(report)  # what pickle and copy pass to the constructor
        self.report = report

    def __str__(self):
        return "\n" + self.report.text


class BadArgument(ValueError, TypeError):
    """A wrong call; a TypeError, too, since most wrong arguments have a wrong type."""

    def __init__(self, sentence):
        super().__init__(f"gradcheck: {sentence}")


class Report:
    """The result of a check. True if it passed. str() gives one line per input, `text` the details.

    verdict   "PASS", "FAIL", "KINK", "VACUOUS", "INCONCLUSIVE" or "UNSUPPORTED"
    inputs    a dict for each input: name, shape, verdict, finding, behaviour, wrong, worst,
              analytic, numeric ...: the fields of gd_gradcheck_input
    message   the function's error, if there was one
    """

    def __init__(self, report):
        self.summary, self.text, text = (text.strip() for text in c.report_texts(report))
        self.fields = json.loads(text)
        self.verdict, self.message = self.fields["verdict"], self.fields["message"]
        self.inputs = self.fields["inputs"]

    def __bool__(self):
        return self.verdict == "PASS"

    def __str__(self):
        return self.summary


class _Wrong(Exception):
    """The function misbehaves; reported as a finding, not as an error."""


def _same_kinds(before, now):
    """What a function returned; raises _Wrong if that differs from an earlier call."""
    if before is not None and now != before:
        raise _Wrong(f"the function returned ({', '.join(before)}) in an earlier call and "
                     f"({', '.join(now)}) now, wanted the same in each")
    return now


def _names_of(function, count):
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = ()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return names[:count] + [f"input {i}" for i in range(len(names), count)]


# ---- Functions of NumPy -------------------------------------------------------------------------


class _NumPy:
    """A function of arrays with a hand-written backward."""

    device = 0

    def __init__(self, function, inputs, names, backward):
        if backward is None:
            raise BadArgument("backward is missing, wanted one for a NumPy function")
        if not callable(backward):
            raise BadArgument(f"backward is {shown(backward)}, wanted a function")
        self.function, self.by_hand, self.inputs = function, backward, list(inputs)
        self.names = names or _names_of(function, len(self.inputs))
        arrays = [i for i, x in enumerate(inputs) if isinstance(x, np.ndarray)]
        self.checked = [i for i in arrays if inputs[i].dtype.kind in "fc"]
        for i in self.checked:
            if inputs[i].dtype not in _REAL:
                raise BadArgument(
                    f"{self.names[i]} is {inputs[i].dtype}, wanted float32 or float64")
        self.values = [inputs[i] for i in self.checked]
        self.checked_names = [self.names[i] for i in self.checked]
        self.random, self.kinds = np.random.get_state(), None

    def _arguments(self, values):
        arguments = list(self.inputs)
        for i, value in zip(self.checked, values):
            arguments[i] = value.astype(self.inputs[i].dtype)
        return arguments

    def _unchanged(self, arguments, values, who):
        for i, value in zip(self.checked, values):
            if not np.array_equal(arguments[i], value, equal_nan=True):
                raise _Wrong(f"{who} changes {self.names[i]} in place")

    def forward(self, values):
        np.random.set_state(self.random)
        arguments = self._arguments(values)
        y = self.function(*arguments)
        self._unchanged(arguments, values, "the function")
        self.single = not isinstance(y, (tuple, list))
        outputs = [np.asarray(part) for part in ([y] if self.single else y)]
        for part in outputs:
            if part.dtype.kind != "f" or part.dtype.itemsize > 8:
                raise BadArgument(f"the function returned {part.dtype}, wanted float16, float32 or "
                                  "float64")
        self.kinds = _same_kinds(self.kinds, [f"{y.dtype} {list(y.shape)}" for y in outputs])
        self.precision = max((np.finfo(part.dtype).eps for part in outputs), default=0)
        return outputs

    def backward(self, values, cotangents, wanted):
        np.random.set_state(self.random)
        arguments = self._arguments(values)
        dy = [cotangent.copy() for cotangent in cotangents]
        gradients = self.by_hand(dy[0] if self.single else tuple(dy), *arguments)
        self._unchanged(arguments, values, "backward")
        if not all(np.array_equal(*pair, equal_nan=True) for pair in zip(dy, cotangents)):
            raise _Wrong("backward changes dy in place")
        if not isinstance(gradients, (tuple, list)):
            gradients = [gradients]
        if len(gradients) == len(self.inputs):
            gradients = [gradients[i] for i in self.checked]
        if len(gradients) != len(self.checked):
            raise _Wrong(f"backward returned {len(gradients)} gradients, wanted {len(self.inputs)}:"
                         " one for each input")
        gradients = [None if g is None else np.asarray(g) for g in gradients]
        for i, g in zip(self.checked, gradients):
            if g is not None and g.dtype.kind not in "fiu":
                raise _Wrong(f"the gradient of {self.names[i]} is {g.dtype}, wanted real numbers")
        return gradients

    def ask_more(self, values, rtol, atol):
        """Does nothing: backward() gets all it needs as arguments."""


# ---- Functions of PyTorch -----------------------------------------------------------------------


class _Torch:
    """A function or module that autograd differentiates."""

    def __init__(self, function, inputs, names):
        import torch

        self.torch, self.function, self.inputs = torch, function, list(inputs)
        self.count = len(self.inputs)  # without a module's parameters
        module = isinstance(function, torch.nn.Module)
        called = function.forward if module else function
        self.names = list(names or _names_of(called, len(self.inputs)))
        if module:
            self.module = function
            self.parameters = [n for n, p in function.named_parameters() if p.requires_grad]
            self.inputs += [function.get_parameter(name) for name in self.parameters]
            self.names += self.parameters
            self.function = self._call_module
        self.checked = [
            i for i, x in enumerate(self.inputs)
            if isinstance(x, torch.Tensor) and x.requires_grad
        ]
        for i in self.checked:
            self._look_at(self.names[i], self.inputs[i])
        tensors = [self.inputs[i] for i in self.checked]
        self.values = [x.detach().cpu().numpy() for x in tensors]
        self.checked_names = [self.names[i] for i in self.checked]
        self.device = int(any(x.is_cuda for x in tensors))
        self.outputs, self.way, self.kinds = None, None, None
        self.random = torch.get_rng_state()
        self.random_cuda = torch.cuda.get_rng_state_all() if self.device else None

    def _look_at(self, name, x):
        if x.dtype not in (self.torch.float32, self.torch.float64):
            raise BadArgument(f"{name} is {x.dtype}, wanted float32 or float64")
        if x.is_nested or x.layout != self.torch.strided:
            kind = "nested" if x.is_nested else x.layout
            raise BadArgument(f"{name} is {kind}, wanted a dense tensor (torch.strided)")
        if not (x.is_cpu or x.is_cuda):
            raise BadArgument(f"{name} is on {x.device}, wanted the CPU or a GPU")

    def _call_module(self, *inputs):
        state = dict(zip(self.parameters, inputs[self.count :]))
        state.update({name: b.clone() for name, b in self.module.named_buffers()})
        return self.torch.func.functional_call(self.module, state, inputs[: self.count])

    def _unchanged(self, leaves, values, who):
        for name, leaf, value in zip(self.checked_names, leaves, values):
            if not np.array_equal(_host(leaf), value.astype(str(leaf.dtype)[6:]), equal_nan=True):
                raise _Wrong(f"{who} changes {name} in place")

    def _call(self, values, wanted):
        """The leaves, and the outputs that have a gradient."""
        torch = self.torch
        torch.set_rng_state(self.random)
        if self.random_cuda is not None:
            torch.cuda.set_rng_state_all(self.random_cuda)
        arguments, leaves = list(self.inputs), []
        for i, value, want in zip(self.checked, values, wanted):
            leaf = torch.empty_like(self.inputs[i].detach()).copy_(torch.from_numpy(value))
            if self.way == "strided inputs" and i < self.count:
                leaf = _strided(leaf)
            arguments[i] = leaf.requires_grad_(want)
            leaves.append(leaf)
        y = self.function(*arguments)
        self._unchanged(leaves, values, "the function")
        if not isinstance(y, (torch.Tensor, tuple, list)):
            raise BadArgument(f"the function returned {type(y).__name__}, wanted a tensor, or a "
                              "tuple or list of them")
        outputs = [y] if isinstance(y, torch.Tensor) else list(y)
        if self.way not in ("interrupted", "other data"):  # which may give other shapes
            self.kinds = _same_kinds(self.kinds, [
                f"{str(t.dtype)[6:]} {list(t.shape)}" if isinstance(t, torch.Tensor)
                else type(t).__name__ for t in outputs])
        if self.outputs is None:  # determined once
            self.outputs = [
                i for i, t in enumerate(outputs)
                if isinstance(t, torch.Tensor) and t.is_floating_point() and t.requires_grad
            ]
            self._look_at_outputs([outputs[i] for i in self.outputs])
        return leaves, [outputs[i] for i in self.outputs]

    def _look_at_outputs(self, outputs):
        torch = self.torch
        for t in outputs:
            if t.dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
                raise BadArgument(f"the function returned {t.dtype}, wanted float32, float64, "
                                  "bfloat16 or float16")
            if t.is_nested or t.layout != torch.strided:
                kind = "nested" if t.is_nested else t.layout
                raise BadArgument(f"the function returned a tensor that is {kind}, wanted a dense "
                                  "one (torch.strided)")

    def forward(self, values):
        with self.torch.set_grad_enabled(self.outputs is None):
            outputs = self._call(values, [self.outputs is None] * len(values))[1]
        self.precision = max((self.torch.finfo(t.dtype).eps for t in outputs), default=0)
        return [_host(t) for t in outputs]

    def backward(self, values, cotangents, wanted):
        torch = self.torch
        with torch.enable_grad():
            leaves, outputs = self._call(values, wanted)
            if self.way == "interrupted":
                self._interrupt(values)
        mine = [leaf for leaf in leaves if leaf.requires_grad]
        given = [(y, torch.from_numpy(u).to(y.device, y.dtype))
                 for k, (y, u) in enumerate(zip(outputs, cotangents))
                 if y.requires_grad and (self.way != "alone" or k == self.alone)]
        if not given or not mine:
            return [None] * len(leaves)
        heads, dy = zip(*given)
        if self.way == "strided dy":
            dy = [_strided(u) for u in dy]
        before = [u.clone() for u in dy]
        found = torch.autograd.grad(heads, mine, dy, retain_graph=self.way == "twice",
                                    allow_unused=True)
        self._unchanged(leaves, values, "backward")
        if not all(torch.equal(u, b) for u, b in zip(dy, before)):
            raise _Wrong("backward changes dy in place")
        if self.way == "twice":
            found = torch.autograd.grad(heads, mine, dy, allow_unused=True)
        found = iter(found)
        gradients = [next(found) if leaf.requires_grad else None for leaf in leaves]
        return [None if g is None else _host(g) for g in gradients]

    def _interrupt(self, values):
        """Runs the function on other data, if it takes them."""
        try:
            self._call([np.asarray(value * 0.75) for value in values], [True] * len(values))
        except _Wrong:
            raise
        except Exception:
            pass

    def _ask(self, way, values, cotangents, error=None, wanted=None):
        """The gradients, computed in another way. An exception is a mistake if `error` says so;
        without it, the function does not support this way: None."""
        self.way = way
        try:
            return self.backward(values, cotangents, wanted or [True] * len(values))
        except (_Wrong, MemoryError):
            raise
        except Exception as problem:
            if error is None:
                return None
            raise _Wrong(f"{error} raises {type(problem).__name__}: {problem}") from None
        finally:
            self.way = None

    def ask_more(self, values, rtol, atol):
        """Checks that the library cannot do, as it sees only the function's inputs and outputs."""
        def expect(found, wanted, slack, words):
            for name, a, b, s in zip(self.checked_names, found, wanted, slack):
                a, b = (np.asarray(0.0) if g is None else g for g in (a, b))
                with np.errstate(invalid="ignore"):
                    if np.any(np.isfinite(b) & ~(np.abs(a - b) <= s)):
                        raise _Wrong(f"the gradient of {name} {words}")

        outputs = self.forward(values)
        draw = np.random.RandomState(1)
        dy = [np.asarray(draw.standard_normal(y.shape)) for y in outputs]
        plain = self._ask(None, values, dy, "a backward")
        exact, size = [0.0] * len(values), _rms(outputs)
        slack = [2 * (rtol * _largest(g) + atol * size / (_rms([v - v.mean()]) or _rms([v]) or 1))
                 if v.size else 0.0 for g, v in zip(plain, values)]

        expect(self._ask("interrupted", values, dy, "a backward after another forward"), plain,
               exact, "changes if the function runs on other data before the backward: it keeps "
               "state outside of ctx")
        expect(self._ask("twice", values, dy) or plain, plain, exact,
               "changes in a second backward over the same graph: the first one changed what was "
               "saved")
        expect(self._ask("strided dy", values, dy, "a backward from a dy that is not contiguous"),
               plain, slack, "changes if dy is not contiguous")
        found = self._ask("strided inputs", values, dy)
        if found and self._same_outputs(values, outputs, rtol):
            expect(found, plain, slack, "changes if the inputs are not contiguous")
        for self.alone, output in enumerate(self.outputs if len(dy) > 1 else ()):
            only = [u if k == self.alone else np.zeros_like(u) for k, u in enumerate(dy)]
            wanted = self._ask(None, values, only, "a backward")
            found = self._ask("alone", values, only,
                              f"a backward from output {output} alone, without the others,")
            expect(found, wanted, slack, f"with a dy for output {output} alone is not that with "
                   "zeros for the others")
            for i, name in enumerate(self.checked_names if len(values) > 1 else ()):
                some = [k == i for k in range(len(values))]
                found = self._ask("alone", values, only, f"a backward for {name} alone from output "
                                  f"{output} alone", some)
                expect([g if k == i else w for k, (g, w) in enumerate(zip(found, wanted))], wanted,
                       slack, f"with a dy for output {output} alone changes if it is the only "
                       "one wanted")
        self._expect_news(values, outputs, dy, plain)
        self.outputs = None

    def _expect_news(self, values, outputs, dy, plain):
        """If the gradients are the same for other inputs, so must be the function's slopes."""
        others = [np.asarray(v * 0.75) for v in values]
        found = self._ask("other data", others, dy)  # None: it does not take them
        if found is None:
            return
        if any(a is not None and not np.array_equal(a, b) for a, b in zip(plain, found)):
            return
        draw = np.random.RandomState(2)
        move = [draw.choice([-1.0, 1.0], v.shape) * (_rms([v]) or 1) for v in values]

        def slope(at, h):
            plus = self.forward([np.asarray(v + h * d) for v, d in zip(at, move)])
            minus = self.forward([np.asarray(v - h * d) for v, d in zip(at, move)])
            base = self.forward(at)
            with np.errstate(invalid="ignore"):
                right, left = (sum(np.sum(u * (p - m)) for u, p, m in zip(dy, *two)) / h
                               for two in ((plus, base), (base, minus)))
            return (left + right) / 2, abs(right - left)

        ((a, _), (a2, bend)), ((b, _), (b2, bend2)) = [
            [slope(at, h) for h in (1e-2, 2.5e-3)] for at in (values, others)]
        # At a kink the slope is between those of its sides.
        slack = 20 * (abs(a - a2) + abs(b - b2)) + bend + bend2
        if abs(a2 - b2) > max(slack, 0.05 * max(abs(a), abs(b))):
            raise _Wrong("the gradients are the same for other inputs, but the function's slope is "
                         "not: backward uses values of an earlier call")

    def _same_outputs(self, values, outputs, rtol):
        """Whether the function gives the same for strided inputs: not if it draws numbers in the
        order of memory."""
        self.way = "strided inputs"
        try:
            found = self.forward(values)
        finally:
            self.way = None
        return all(np.allclose(a, b, rtol, rtol * _largest(b), equal_nan=True)
                   for a, b in zip(found, outputs))


def _largest(g):
    return 0.0 if g is None else float(np.max(np.abs(g), where=np.isfinite(g), initial=0.0))


def _rms(arrays):
    squares = [np.square(a[np.isfinite(a)]) for a in map(np.asarray, arrays)]
    count = sum(s.size for s in squares)
    return float(np.sqrt(sum(s.sum() for s in squares) / count)) if count else 0.0


def _strided(t):
    """The same values with gaps between them, the first dimension fastest in memory."""
    if t.dim() == 0 or t.numel() < 2:
        return t
    room = t.new_full((*reversed(t.shape[1:]), 2 * t.shape[0] + 1), float("nan"))
    return room.permute(*reversed(range(t.dim())))[1::2].copy_(t).detach()


def _host(t):
    return t.detach().cpu().double().numpy()


# ---- The op whose kernels call the function -----------------------------------------------------


class _Check:
    def __init__(self, target):
        self.target, self.error = target, None
        self.shapes = [v.shape for v in target.values]
        for shape, label in zip(self.shapes, target.checked_names):
            if len(shape) > 8:
                raise BadArgument(f"{label} has {len(shape)} dimensions, wanted at most 8")
        double = all(v.dtype == np.float64 for v in target.values)
        self.dtype = c.FLOAT64 if double else c.FLOAT32
        try:
            outputs = target.forward([np.array(v) for v in target.values])
        except _Wrong as wrong:
            raise BadArgument(wrong) from None
        if not outputs:
            raise BadArgument("the function returned nothing that has a gradient")
        self.outputs = [y.shape for y in outputs]
        self.count = sum(y.size for y in outputs)
        # That of a single output, so that reports have its indices; several are one list.
        single = len(outputs) == 1 and outputs[0].ndim <= 8
        self.shape = outputs[0].shape if single else (self.count,)
        self.output_dtype = self._coarser(target.precision)
        self.op = c.Op(
            name=b"function", formula=b"", inputs=-1, outputs=1, backward_reads_inputs=2**32 - 1,
            shape=c.SHAPE_RULE(self._shape))
        self.op.input_names[0] = b"input"
        self.op.forward[0] = self._forward = c.KERNEL(self._guarded(self._forward))
        self.op.backward[0] = self._backward = c.KERNEL(self._guarded(self._backward))

    def _coarser(self, precision):
        by_precision = {2.0**-7: c.BFLOAT16, 2.0**-10: c.FLOAT16, 2.0**-23: c.FLOAT32}
        if precision == 2.0**-52:
            return self.dtype
        return by_precision[float(precision)]

    def _guarded(self, kernel):
        def call(call):
            if self.error is not None:
                return c.ERROR_STATE
            try:
                kernel(call.contents)
                return c.OK
            except _Wrong as wrong:
                return c.call_fail(call, c.ERROR_STATE, b"%s", _bytes(wrong))
            except BaseException as error:  # no exception may propagate through C
                self.error = error
                return c.call_fail(call, c.ERROR_STATE, b"%s", b"the function raised an exception")

        return call

    @contextlib.contextmanager
    def _escaped(self):
        """Keeps what is raised in a callback but outside of _guarded's `try`, such as an interrupt
        that arrived during the library's own work: ctypes would only print it."""
        before = sys.unraisablehook

        def hook(unraisable):
            if self.error is None and "ctypes callback" in (unraisable.err_msg or ""):
                self.error = unraisable.exc_value
            else:
                before(unraisable)

        sys.unraisablehook = hook
        try:
            yield
        finally:
            sys.unraisablehook = before

    def _shape(self, call, out):
        y = out.contents.output[0]
        y.dtype, y.ndim = self.output_dtype, len(self.shape)
        y.shape[: len(self.shape)] = self.shape
        return c.OK

    def _view(self, call, tensor, shape):
        """The memory of a C tensor as an array."""
        kind = np.dtype(np.float64 if call.kernel_dtype == c.FLOAT64 else np.float32)
        count = int(np.prod(shape, dtype=np.int64))
        if count == 0:
            return np.empty(shape, kind)
        memory = (ctypes.c_char * (count * kind.itemsize)).from_address(c.tensor_data(tensor))
        return np.frombuffer(memory, kind).reshape(shape)

    def _values(self, call):
        return [np.array(self._view(call, call.input[i], s)) for i, s in enumerate(self.shapes)]

    def _forward(self, call):
        outputs = self.target.forward(self._values(call))
        flat = np.concatenate([y.ravel() for y in outputs])
        self._view(call, call.output[0], (self.count,))[...] = flat

    def _backward(self, call):
        wanted = [bool(call.dinput[i]) for i in range(len(self.shapes))]
        flat = np.zeros(self.count)
        if call.doutput[0]:
            flat[...] = self._view(call, call.doutput[0], (self.count,))
        sizes = [int(np.prod(s, dtype=np.int64)) for s in self.outputs]
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        cotangents = [u.reshape(s) for u, s in zip(parts, self.outputs)]
        gradients = self.target.backward(self._values(call), cotangents, wanted)
        for i, (g, name) in enumerate(zip(gradients, self.target.checked_names)):
            if not wanted[i]:
                continue
            shape = self.shapes[i]
            if g is not None and g.shape != shape:
                raise _Wrong(f"the gradient of {name} has shape {list(g.shape)}, wanted that of "
                             f"{name}, {list(shape)}")
            to = self._view(call, call.dinput[i], shape)
            if call.accumulate[i]:
                to += 0 if g is None else g
            else:
                to[...] = 0 if g is None else g

    def run(self, name, options):
        """The library's report."""
        values = [np.array(v, np.float64 if self.dtype == c.FLOAT64 else np.float32, order="C")
                  for v in self.target.values]
        function = c.FUNCTION(c.apply)
        context, report = c.context_create(None), c.Report()
        status = c.ERROR_STATE
        try:
            tensors = (c.TENSOR * len(values))()
            for i, (value, label) in enumerate(zip(values, self.target.checked_names)):
                tensors[i] = c.wrap(context, self.dtype, value.shape, value.ctypes.data)
                c.tensor_set_name(tensors[i], _bytes(label))
                c.tensor_set_requires_grad(tensors[i], True)
            if not c.error(context):
                with self._escaped():
                    status = c.gradcheck_function(context, _bytes(name), function,
                                                  ctypes.addressof(self.op), tensors, len(values),
                                                  options, report)
            if self.error is not None:
                raise self.error
            if status != c.OK:
                raise ValueError(c.error(context).decode())
            report.device = self.target.device
            if report.verdict == c.PASS and not options.only_numbers:
                try:
                    self.target.ask_more(values, report.rtol, report.atol)
                except _Wrong as wrong:
                    report.verdict, report.message = c.FAIL, _bytes(wrong)[:511]
            return Report(report)
        finally:
            if status == c.OK:
                c.gradcheck_report_free(report)
            c.context_free(context)


def _bytes(text):
    return str(text).encode(errors="backslashreplace")


def gradcheck(function, inputs, *, backward=None, names=None, raise_exception=True, seed=0,
              step=0.0, rtol=0.0, atol=0.0, max_elements=0, directions=0, only_numbers=False):
    """Checks a backward against finite differences, and describes what is wrong with it.

    PyTorch: `function` takes tensors and returns one or several. It may be a module, whose
    parameters are then checked too, or the apply of a torch.autograd.Function. Inputs of float32 or
    float64 that require a gradient are checked, on any device.

    NumPy: `function` takes arrays and returns one or a tuple; `backward(dy, *inputs)` returns a
    gradient for each input, None for inputs without one. dy is a tuple if the function returns one.
    Inputs that are arrays of float32 or float64 are checked.

    The generators of PyTorch and NumPy are reset before each call, so functions may draw random
    numbers. Returns a Report; raises GradcheckError if the check did not pass, unless
    `raise_exception` is false. The numeric options are those of gradus/gradcheck.h; 0 is the
    default for the dtype.
    """
    if not isinstance(inputs, (tuple, list)):
        inputs = (inputs,)
    _look_at_numbers({"seed": (seed, 64), "max_elements": (max_elements, 63),
                      "directions": (directions, 31)}, {"step": step, "rtol": rtol, "atol": atol})
    for flag, value in ("raise_exception", raise_exception), ("only_numbers", only_numbers):
        if not isinstance(value, (bool, np.bool_)):
            raise BadArgument(f"{flag} is {shown(value)}, wanted True or False")
    if not callable(function):
        raise BadArgument(f"function is {shown(function)}, wanted a function")
    if isinstance(function, type) and callable(getattr(function, "apply", None)):
        raise BadArgument(f"function is the class {function.__name__}, wanted "
                          f"{function.__name__}.apply")
    names = None if names is None else _list_of_names(names, len(inputs))
    options = c.Options(seed=seed, step=step, rtol=rtol, atol=atol, max_elements=max_elements,
                        directions=directions, only_numbers=only_numbers)
    target = _target(function, inputs, names, backward)
    if not target.checked:
        raise BadArgument("no input requires a gradient")
    name = getattr(function, "__qualname__", type(function).__name__).rpartition(">.")[2]
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type):  # or its base would be named, such as Function.apply
        name = f"{owner.__name__}.{function.__name__}"
    report = _Check(target).run(name, options)
    if raise_exception and not report:
        raise GradcheckError(report)
    return report


def _target(function, inputs, names, backward):
    torch = sys.modules.get("torch")  # without it no input is a tensor
    tensors = torch is not None and any(isinstance(x, torch.Tensor) for x in inputs)
    if tensors and backward is not None:
        raise BadArgument("backward is for NumPy functions, but an input is a tensor; wrap both in "
                          "a torch.autograd.Function")
    if tensors or (torch is not None and isinstance(function, torch.nn.Module)):
        return _Torch(function, inputs, names)
    if not any(isinstance(x, np.ndarray) for x in inputs):
        kinds = ", ".join(type(x).__name__ for x in inputs) or "nothing"
        raise BadArgument(f"inputs has {kinds}, wanted at least one tensor or array")
    return _NumPy(function, inputs, names, backward)


def _look_at_numbers(whole, real):
    for name, (value, bits) in whole.items():
        try:
            good = 0 <= operator.index(value) < 2**bits
        except TypeError:
            good = False
        if not good:
            raise BadArgument(f"{name} is {shown(value)}, wanted 0 to 2^{bits} - 1, a whole number")
    for name, value in real.items():
        try:
            ctypes.c_double(value)  # the library looks at its size
        except (TypeError, OverflowError):
            raise BadArgument(f"{name} is {shown(value)}, wanted a finite number of at least 0") \
                from None


def _list_of_names(names, count):
    try:
        found = [] if isinstance(names, (str, bytes)) else list(names)
    except TypeError:
        found = []
    if not found or not all(isinstance(name, str) for name in found):
        raise BadArgument(f"names is {shown(names)}, wanted a list of strings")
    if len(found) != count:
        raise BadArgument(f"names has length {len(found)}, wanted {count}: a name for each input")
    return found
