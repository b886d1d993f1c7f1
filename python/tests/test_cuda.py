"""GPU only: streams, devices, CUDA graphs, and which kernels run."""

import pytest
import torch

import gradus

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
EPS = 1e-6


def leaves(device="cuda", rows=512, cols=1024, dtype=torch.bfloat16):
    torch.manual_seed(1)
    x, r, dy = (torch.randn(rows, cols, device=device, dtype=dtype) for _ in range(3))
    return x.requires_grad_(), r.requires_grad_(), torch.ones(
        cols, device=device, dtype=dtype, requires_grad=True), dy


def both(x, r, w, dy):
    y, total = gradus.add_rms_norm(x, r, w, eps=EPS)
    return (y, total, *torch.autograd.grad((y, total), (x, r, w), (dy, dy)))


def test_the_current_stream_is_used():
    x, r, w, dy = leaves()
    want = both(x, r, w, dy)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = torch.empty_like(x)
        torch.cuda._sleep(200_000_000)  # the kernels must wait for what is queued before them
        late.copy_(x.detach())
        got = both(late.requires_grad_(), r, w, dy)
    stream.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(got, want))


def test_cuda_graph():
    x, r, w, dy = leaves()
    # Detached: a graph of autograd on the default stream would make the captured one wait for it.
    want = [t.detach().clone() for t in both(x, r, w, dy)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        both(x, r, w, dy)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = both(x, r, w, dy)
    for t in got:
        t.detach().zero_()
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(got, want))
    with torch.no_grad():
        x.mul_(2)
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(got, both(x, r, w, dy)))


def test_reduce_overhead():
    x, _, w, dy = leaves()
    f = torch.compile(lambda x, w: gradus.rms_norm(x * 2, w, eps=EPS), fullgraph=True,
                      mode="reduce-overhead")
    want = gradus.rms_norm(x * 2, w, eps=EPS)
    for _ in range(4):
        got = f(x, w)
        dx, dw = torch.autograd.grad(got, (x, w), dy)
        assert torch.equal(got, want)
    wanted = torch.autograd.grad(want, (x, w), dy)
    assert torch.allclose(dx, wanted[0], rtol=2e-2, atol=2e-2)
    assert torch.allclose(dw, wanted[1], rtol=2e-2, atol=0.5)


def test_nothing_is_copied():
    x, r, w, dy = leaves()
    both(x, r, w, dy)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        both(x, r, w, dy)
        torch.cuda.synchronize()
    host = torch.autograd.DeviceType.CPU
    names = [e.key for e in profile.key_averages() if e.device_type != host]
    assert names and all("gd_rms" in name for name in names if "cuda" not in name), names


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_another_device():
    want = [t.cpu() for t in both(*leaves("cuda:0"))]
    x, r, w, dy = (t.detach().to("cuda:1") for t in leaves("cuda:0"))
    got = both(x.requires_grad_(), r.requires_grad_(), w.requires_grad_(), dy)
    assert torch.cuda.current_device() == 0 and all(t.device.index == 1 for t in got)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(got, want))


def test_rows_of_a_fused_product():
    qkv = torch.randn(4, 64, 3, 8, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    w = torch.ones(128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    for cut in (lambda t: t[:, :, 1], lambda t: t[:, :, 1].transpose(1, 2)):
        y = gradus.rms_norm(cut(qkv), w, eps=EPS)
        want = gradus.rms_norm(cut(qkv).contiguous(), w, eps=EPS)
        dy = torch.randn_like(want)
        assert torch.equal(y, want)
        found = (torch.autograd.grad(t, (qkv, w), dy) for t in (y, want))
        for a, b in zip(*found):
            assert torch.allclose(a, b, rtol=2e-2, atol=0.25)
