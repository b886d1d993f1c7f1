"""DDP and FSDP: two processes over gloo on the CPU compute the same gradients as one."""

import os
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import gradus

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="PyTorch without distributed")
ROWS = 6


class Model(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(8, 16), norm(16), torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


def build(norm):
    torch.manual_seed(1)
    model = Model(norm)
    torch.nn.init.normal_(model.norm.weight)
    return model


def data():
    return torch.randn(ROWS, 8, generator=torch.Generator().manual_seed(2))


def whole():
    """The gradients of one process that has all rows, with PyTorch's own norm."""
    model = build(torch.nn.RMSNorm)
    model(data()).square().mean().backward()
    return {name: p.grad for name, p in model.named_parameters()}


def wrapped(kind):
    model = build(gradus.nn.RMSNorm)
    if kind == "DDP":
        return torch.nn.parallel.DistributedDataParallel(model)
    if kind == "DDP, checkpointed":
        from torch.distributed.algorithms._checkpoint import checkpoint_wrapper

        model.norm = checkpoint_wrapper.checkpoint_wrapper(model.norm)
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    fully_shard(model.norm)
    return fully_shard(model)


def one_process(rank, kinds, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # fully_shard takes a GPU if there is one
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    want = whole()
    rows = data()[rank * ROWS // 2 : (rank + 1) * ROWS // 2]
    for kind in kinds:
        model = wrapped(kind)
        model(rows).square().mean().backward()
        for name, p in model.named_parameters():
            name = name.replace("_checkpoint_wrapped_module.", "").replace("module.", "")
            got = p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
            assert torch.allclose(got, want[name], atol=1e-6), (kind, name)
    dist.destroy_process_group()


def test_two_processes():
    from torch.distributed import fsdp

    kinds = ["DDP", "DDP, checkpointed"]
    if hasattr(fsdp, "fully_shard"):  # PyTorch 2.6
        kinds.append("FSDP")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(one_process, (kinds, port), nprocs=2)
