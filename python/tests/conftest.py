"""Everything runs on the CPU, and on a GPU where there is one: tests take `device`."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(params=DEVICES)
def device(request):
    torch.manual_seed(1)
    return request.param
