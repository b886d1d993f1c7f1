"""The C library's optimizers against those of torch.optim: 100 steps in float64, with gradients that depend
on the parameters, clipping, and two groups that differ in learning rate and weight decay."""

import inspect
from ctypes import Structure, c_bool, c_double, c_int, c_void_p

import numpy as np
import pytest
import torch

from calls import Group, c, gd, options, row

STEPS, RATE, MAX_NORM = 100, 0.01, 1.5
DECAY, MUON = 1, 2


def adam(weight_decay=0.0, beta2=0.999):
    return options(beta1=0.9, beta2=beta2, eps=1e-8, weight_decay=weight_decay, lazy=False)


AdamW = type(adam())


class Muon(Structure):
    _fields_ = [("momentum", c_double), ("weight_decay", c_double), ("plain", c_bool),
                ("match_adamw", c_bool), ("adamw", AdamW), ("adamw_rate", c_double)]


# name: (the library's function, its options, PyTorch's class, its options)
CASES = {
    "sgd": ("sgd", None, torch.optim.SGD, {}),
    "sgd, nesterov": (
        "sgd",
        options(momentum=0.9, dampening=0.0, nesterov=True, weight_decay=0.1),
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    ),
    "adamw": ("adamw", adam(0.1), torch.optim.AdamW, {"weight_decay": 0.1}),
    "adam": ("adam", None, torch.optim.Adam, {}),
    "adam, decay": (
        "adam", adam(0.1, 0.99), torch.optim.Adam, {"weight_decay": 0.1, "betas": (0.9, 0.99)}
    ),
    "rmsprop": ("rmsprop", None, torch.optim.RMSprop, {}),
    "rmsprop, momentum": (
        "rmsprop",
        options(alpha=0.95, eps=1e-6, momentum=0.9, weight_decay=0.1, centered=False),
        torch.optim.RMSprop,
        {"alpha": 0.95, "eps": 1e-6, "momentum": 0.9, "weight_decay": 0.1},
    ),
    "rmsprop, centered": (
        "rmsprop",
        options(alpha=0.9, eps=1e-3, momentum=0.0, weight_decay=0.1, centered=True),
        torch.optim.RMSprop,
        {"alpha": 0.9, "eps": 1e-3, "weight_decay": 0.1, "centered": True},
    ),
    "rmsprop, centered, momentum": (
        "rmsprop",
        options(alpha=0.9, eps=1e-3, momentum=0.5, weight_decay=0.0, centered=True),
        torch.optim.RMSprop,
        {"alpha": 0.9, "eps": 1e-3, "momentum": 0.5, "centered": True},
    ),
    "adagrad": ("adagrad", None, torch.optim.Adagrad, {}),
    "adagrad, decay": (
        "adagrad",
        options(rate_decay=0.05, eps=1e-6, initial=0.2, weight_decay=0.1),
        torch.optim.Adagrad,
        {"lr_decay": 0.05, "eps": 1e-6, "initial_accumulator_value": 0.2, "weight_decay": 0.1},
    ),
}

SHAPES = {"w": (9, 14), "v": (17, 5), "tall": (23, 3), "b": (31,), "c": (1,)}


def start():
    rng = np.random.default_rng(1)
    return {k: rng.normal(size=s) for k, s in SHAPES.items()}


def pull(value, step):
    """A gradient that depends on the parameter and on the step."""
    wave = np.sin(12.9898 * np.arange(value.size) + 78.233 * step).reshape(value.shape)
    return 0.3 * value + 0.2 * np.sin(3 * value) + wave


class Ours(Group):
    """The parameters, and an optimizer of the library."""

    def __init__(self, create, given, factors, flags):
        super().__init__(create, given)
        factor = c("gd_params_set_factors", c_int, c_void_p, c_void_p, c_double, c_double)
        for name, shape in SHAPES.items():
            self.add(name, shape, flags.get(name, DECAY))
            factor(self.params, self.t[name], *factors.get(name, (1, 1)))
        self.finish()
        for name, value in start().items():
            self.write(self.t[name], value)

    def step(self, gradients, rate):
        backward = c("gd_backward_from", c_int, c_void_p, c_int, c_void_p)
        for name, gradient in gradients.items():
            backward(row([self.t[name]]), 1, None)  # makes the gradient
            self.write(gd("grad", self.t[name]), gradient)
        c("gd_optimizer_set_rate", c_int, c_void_p, c_double)(self.optimizer, rate)
        c("gd_optimizer_update", c_int, c_void_p, c_double)(self.optimizer, MAX_NORM)
        self.clear()


def near(ours, theirs, tolerance, when=""):
    for name, p in theirs.items():
        np.testing.assert_allclose(ours.read(ours.t[name], p), p.detach().numpy(), rtol=0,
                                   atol=tolerance, err_msg=name + when)


def follow(ours, theirs, optimizers, tolerance):
    """Both for 100 steps with a rate that falls; the largest difference stays below tolerance."""
    base = [[group["lr"] for group in o.param_groups] for o in optimizers]
    for step in range(STEPS):
        fall = 1 - step / (2 * STEPS)
        gradients = {name: pull(p.detach().numpy(), step) for name, p in theirs.items()}
        for name, p in theirs.items():
            p.grad = torch.from_numpy(gradients[name].copy())
        torch.nn.utils.clip_grad_norm_(theirs.values(), MAX_NORM)
        for o, rates in zip(optimizers, base):
            for group, rate in zip(o.param_groups, rates):
                group["lr"] = rate * fall
            o.step()
        ours.step(gradients, RATE * fall)
        near(ours, theirs, tolerance, f" after step {step}")


@pytest.mark.parametrize("case", CASES)
def test_follows_torch(case):
    create, given, kind, theirs_options = CASES[case]
    factors = {"b": (0.25, 0.5), "v": (2.0, 0.0)}
    ours = Ours(create, given, factors, {"c": 0})
    theirs = {k: torch.from_numpy(v).requires_grad_() for k, v in start().items()}
    decay = theirs_options.get("weight_decay", 0.01 if kind is torch.optim.AdamW else 0.0)
    groups = []
    for name, p in theirs.items():
        rate, factor = factors.get(name, (1, 1))
        weight_decay = 0 if name == "c" else decay * factor
        groups.append({"params": [p], "lr": RATE * rate, "weight_decay": weight_decay})
    optimizer = kind(groups, lr=RATE, **theirs_options)
    follow(ours, theirs, [optimizer], 1e-11)
    ours.close()


@pytest.fixture
def muon_in_float64(monkeypatch):
    """PyTorch's Muon multiplies in bfloat16; here in float64, by the same code."""
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this PyTorch has no Muon")
    from torch.optim import _muon

    name = "_zeropower_via_newtonschulz"
    source = inspect.getsource(getattr(_muon, name))
    assert source.count("torch.bfloat16") == 1
    module = dict(_muon.__dict__)
    exec(source.replace("torch.bfloat16", "torch.float64"), module)
    monkeypatch.setattr(_muon, name, module[name])


@pytest.mark.parametrize("match", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_muon_follows_torch(muon_in_float64, match, plain):
    matrices = ("w", "v", "tall")
    given = Muon(0.9, 0.1, plain, match, AdamW(0.9, 0.99, 1e-8, 0.2), 0.5)
    flags = {name: DECAY | MUON for name in matrices}
    ours = Ours("muon", given, {}, flags)
    theirs = {k: torch.from_numpy(v).requires_grad_() for k, v in start().items()}
    muon = torch.optim.Muon(
        [theirs[name] for name in matrices], lr=RATE, momentum=0.9, weight_decay=0.1,
        nesterov=not plain, adjust_lr_fn="match_rms_adamw" if match else "original",
    )
    rest = [p for name, p in theirs.items() if name not in matrices]
    adamw = torch.optim.AdamW(rest, lr=RATE / 2, betas=(0.9, 0.99), weight_decay=0.2)
    follow(ours, theirs, [muon, adamw], 1e-9)
    ours.close()


def test_average_follows_torch():
    """The library's moving average of the parameters against torch.optim.swa_utils."""
    ours = Ours("adamw", None, {}, {})
    c("gd_optimizer_average", c_int, c_void_p, c_double)(ours.optimizer, 0.9)
    model = torch.nn.ParameterDict({k: torch.nn.Parameter(torch.from_numpy(v)) for k, v in
                                    start().items()})
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    optimizer = torch.optim.AdamW(model.values(), lr=RATE, weight_decay=0)
    theirs = dict(model.items())

    class Both:
        param_groups = optimizer.param_groups

        @staticmethod
        def step():
            optimizer.step()
            average.update_parameters(model)

    follow(ours, theirs, [Both], 1e-11)
    swap = c("gd_optimizer_swap_average", c_int, c_void_p)
    swap(ours.optimizer)
    ours.check()
    near(ours, average.module, 1e-11)
    swap(ours.optimizer)
    near(ours, theirs, 1e-11)
    ours.close()
