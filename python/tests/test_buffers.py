"""A group with buffers, trained beside the same modules of PyTorch, and exchanged with them as a file."""

from ctypes import byref, c_char_p, c_double, c_int, c_int64, c_void_p

import numpy as np
import pytest
import torch
import torch.nn as nn

from calls import Group, c, gd, options

safetensors = pytest.importorskip("safetensors.torch")
WIDTH, RATE, MOMENTUM = 6, 0.05, 0.3


def module():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, WIDTH), nn.BatchNorm1d(WIDTH, momentum=MOMENTUM), nn.Tanh(),
                          nn.Linear(WIDTH, 1))
    model[1].weight.data.uniform_(0.5, 1.5)
    return model.double()


class Net(Group):
    """The same in a group of parameters, under PyTorch's names."""

    def __init__(self, state):
        super().__init__("sgd")
        for name, value in state.items():
            if "tracked" not in name:
                self.add(name, value.shape, buffer="running" in name)
        self.finish()

    def file(self, call, path, *more):
        c(f"gd_params_{call}", c_int, c_void_p, c_char_p, *[t for t, _ in more])(
            self.params, str(path).encode(), *[v for _, v in more])
        self.check()

    def forward(self, x, evaluate=False):
        t = self.t
        given = options(eps=0.0, momentum=MOMENTUM, mean=t["1.running_mean"],
                        var=t["1.running_var"], evaluate=evaluate)
        h = gd("linear", x, t["0.weight"], t["0.bias"])
        h = gd("batch_norm", h, t["1.weight"], t["1.bias"], byref(given))
        return gd("linear", gd("tanh", h), t["3.weight"], t["3.bias"])


def near(net, model, tolerance=1e-12):
    for name, value in model.state_dict().items():
        if "tracked" not in name:
            gap = np.abs(net.read(net.t[name], value) - value.numpy()).max()
            assert gap <= tolerance, f"{name} differs by {gap}"


@pytest.mark.parametrize("batches", [1, 3])
def test_statistics_and_files_are_torchs(batches, tmp_path):
    model, rng = module(), np.random.default_rng(batches)
    net, path = Net(model.state_dict()), tmp_path / "model.safetensors"
    safetensors.save_file(model.state_dict(), path)
    net.file("load", path)
    near(net, model, 0)
    sgd = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(20):
        for _ in range(batches):  # each forward moves the statistics
            x = rng.normal(1, 2, (7, 4))
            (model(torch.from_numpy(x)) ** 2).mean().div(batches).backward()
            given = net.tensor(x, False)
            y = net.forward(given)
            c("gd_optimizer_backward", c_int, c_void_p, c_void_p, c_double)(
                net.optimizer, gd("mean_all", gd("mul", y, y)), 1 / batches)
            c("gd_step_end", None, c_void_p)(net.ctx)
            c("gd_tensor_free", None, c_void_p)(given)
        sgd.step(), sgd.zero_grad()
        c("gd_optimizer_step", c_int, c_void_p, c_double)(net.optimizer, RATE)
        net.clear()
        near(net, model)
    net.file("save", path, (c_void_p, None), (c_int64, 0))
    other = module()
    other.load_state_dict(safetensors.load_file(path))
    x = rng.normal(1, 2, (5, 4))
    want = other.eval()(torch.from_numpy(x)).detach()
    got = net.read(net.forward(net.tensor(x, False), True), want)
    assert np.abs(got - want.numpy()).max() <= 1e-12
    net.close()
