"""Tests with the parameter `device` run on the CPU, and on a GPU if there is one."""

import pytest

try:
    import torch
except ImportError:
    torch = None
    collect_ignore = ["test_cuda.py", "test_distributed.py", "test_gradcheck.py", "test_ops.py",
                      "test_patch.py", "test_transforms.py"]

DEVICES = ["cpu"] + (["cuda"] if torch is not None and torch.cuda.is_available() else [])


@pytest.fixture(params=DEVICES)
def device(request):
    torch.manual_seed(1)
    return request.param
