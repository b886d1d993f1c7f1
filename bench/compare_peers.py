#!/usr/bin/env python3
"""RMSNorm of gradus beside PyTorch's, torch.compile's and, where installed, Liger's and QuACK's.

    bench/compare_peers.py [--library build/lib/libgradus.so] [--dtype float32] [--shapes MxN,...]
                           [--peers PyTorch,QuACK] [--rounds 7]

All in one process and on the same x, dy and weight. Each is captured in a CUDA graph of a
millisecond or more that goes round several sets of buffers, more than L2 holds; what a call writes
is allocated in the capture and kept as long as there are sets, for gradus as for its peers. Then
the graphs are replayed in turns, in rounds: a round brings each out of its rest and takes the
median of its replays. GB/s are medians over the rounds, of the bytes that must move: 2 M N for a
forward, 3 M N for a backward. "ours / best" is the median over the rounds of our speed in a round
over that of the best peer in the same round, with the least and the most of it behind.

Every forward returns y and rstd; every backward is called with dx and dweight wanted, as autograd
would call it.
"""
import argparse
import ctypes
import importlib
import math
import statistics
import sys
import time

import torch

SHAPES = ("32768x256 32768x768 32768x1024 32768x2048 32768x4096 32768x8192 32768x16384 16384x32768 "
          "8192x65536 4096x131072 2048x262144 2048x8192 512x4096 64x4096 262144x128")
DTYPES = {"float32": (torch.float32, 0), "bfloat16": (torch.bfloat16, 2)}


class Problem(ctypes.Structure):
    _fields_ = [("rows", ctypes.c_int64), ("cols", ctypes.c_int64), ("dtype", ctypes.c_int),
                ("weight_dtype", ctypes.c_int), ("dweight_dtype", ctypes.c_int),
                ("eps", ctypes.c_double), ("offset", ctypes.c_double), ("round", ctypes.c_bool)]


class Gradients(ctypes.Structure):
    _fields_ = [("dx", ctypes.c_void_p), ("dx_stride", ctypes.c_int64),
                ("dweight", ctypes.c_void_p), ("dbias", ctypes.c_void_p),
                ("accumulate_dweight", ctypes.c_bool), ("accumulate_dbias", ctypes.c_bool),
                ("dy", ctypes.c_void_p), ("dy_stride", ctypes.c_int64),
                ("x", ctypes.c_void_p), ("x_stride", ctypes.c_int64),
                ("rstd", ctypes.c_void_p), ("weight", ctypes.c_void_p),
                ("workspace", ctypes.c_void_p), ("overlap", ctypes.c_bool)]


class Gradus:
    name = "gradus"

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.gd_cuda_rms_norm_workspace.restype = ctypes.c_size_t
        self.lib.gd_cuda_rms_norm_forward.argtypes = (
            [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64] + [ctypes.c_void_p] * 2 +
            [ctypes.c_int64] + [ctypes.c_void_p] * 3)

    def prepare(self, x, weight, code):
        m, n = x.shape
        self.problem = Problem(m, n, code, code, code, 1e-6, 0, False)
        size = self.lib.gd_cuda_rms_norm_workspace(ctypes.byref(self.problem))
        self.workspace = torch.empty(max(size, 16), dtype=torch.uint8, device="cuda")
        _, self.rstd = self.forward(x, weight)

    def stream(self):
        return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def forward(self, x, weight):
        m, n = x.shape
        y, rstd = torch.empty_like(x), torch.empty(m, dtype=torch.float32, device="cuda")
        status = self.lib.gd_cuda_rms_norm_forward(
            ctypes.addressof(self.problem), y.data_ptr(), n, rstd.data_ptr(), x.data_ptr(), n,
            weight.data_ptr(), None, self.stream())
        assert status == 0, status
        return y, rstd

    def backward(self, x, dy, weight):
        n = x.shape[1]
        dx, dw = torch.empty_like(x), torch.empty_like(weight)
        g = Gradients(dx.data_ptr(), n, dw.data_ptr(), None, False, False, dy.data_ptr(), n,
                      x.data_ptr(), n, self.rstd.data_ptr(), weight.data_ptr(),
                      self.workspace.data_ptr())
        status = self.lib.gd_cuda_rms_norm_backward(ctypes.byref(self.problem), ctypes.byref(g),
                                                    self.stream())
        assert status == 0, status
        return dx, dw


class Fused:
    name = "PyTorch"

    def prepare(self, x, weight, code):
        self.n = [x.shape[1]]
        _, self.rstd = torch.ops.aten._fused_rms_norm(x, self.n, weight, 1e-6)

    def forward(self, x, weight):
        return torch.ops.aten._fused_rms_norm(x, self.n, weight, 1e-6)

    def backward(self, x, dy, weight):
        return torch.ops.aten._fused_rms_norm_backward(dy, x, self.n, self.rstd, weight,
                                                       [True, True])


def forward_text(x, weight):
    xf = x.float()
    rstd = torch.rsqrt(xf.square().mean(-1, keepdim=True) + 1e-6)
    return (xf * rstd * weight.float()).to(x.dtype), rstd


def backward_text(x, dy, weight, rstd):
    xhat = x.float() * rstd
    h = dy.float() * weight.float()
    dx = rstd * (h - xhat * (h * xhat).mean(-1, keepdim=True))
    return dx.to(x.dtype), (dy.float() * xhat).sum(0).to(weight.dtype)


class Compiled:
    name = "torch.compile"

    def prepare(self, x, weight, code):
        torch._dynamo.reset()
        self.rstd = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
        self.f = torch.compile(forward_text, dynamic=False)
        self.b = torch.compile(backward_text, dynamic=False)

    def forward(self, x, weight):
        return self.f(x, weight)

    def backward(self, x, dy, weight):
        return self.b(x, dy, weight, self.rstd)


class Liger:
    name = "Liger"

    def __init__(self):
        from liger_kernel.ops import rms_norm
        self.ops = rms_norm

    def prepare(self, x, weight, code):
        self.saved = self.ops.rms_norm_forward(x, weight, 1e-6, 0.0, "llama", None)

    def forward(self, x, weight):
        return self.ops.rms_norm_forward(x, weight, 1e-6, 0.0, "llama", None)

    def backward(self, x, dy, weight):
        _, _, rstd, block, warps, mode = self.saved
        return self.ops.rms_norm_backward(dy, x, weight, rstd, 0.0, mode, block, warps, False, None)


class Quack:
    name = "QuACK"

    def __init__(self):
        self.ops = importlib.import_module("quack.rmsnorm")  # quack.rmsnorm is a function too

    def prepare(self, x, weight, code):
        self.rstd = self.ops.rmsnorm_fwd(x, weight, eps=1e-6, store_rstd=True)[2]

    def forward(self, x, weight):
        return self.ops.rmsnorm_fwd(x, weight, eps=1e-6, store_rstd=True)

    def backward(self, x, dy, weight):
        return self.ops.rmsnorm_bwd(x, weight, dy, self.rstd)


def installed(names):
    """Those of the peers whose packages are there, and which are in names if that says any."""
    for peer in (Fused, Compiled, Liger, Quack):
        if names and peer.name not in names:
            continue
        try:
            yield peer()
        except Exception as error:  # a broken install is a missing one
            print(f"{peer.name} is left out: {str(error).splitlines()[0][:100]}", file=sys.stderr)


class Replay:
    """A graph of calls to call(set), which moves `size` bytes each time."""

    def __init__(self, call, sets, size):
        call(0), torch.cuda.synchronize()
        self.size, self.rounds, self.results = size, [], [None] * sets
        self.launches = sets * max(1, math.ceil(max(8, 4e9 / size) / sets))
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for i in range(self.launches):
                self.results[i % sets] = call(i % sets)

    def round(self):
        """Adds the GB/s of one round."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        times, warm = [], time.monotonic() + 0.02
        while time.monotonic() < warm:
            self.graph.replay(), torch.cuda.synchronize()
        for _ in range(7):
            begin.record(), self.graph.replay(), end.record(), torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1e-3)
        self.rounds.append(self.size * self.launches / statistics.median(times) / 1e9)


def attempt(peer, shape, function, *arguments):
    """What it returns, or True; None for a peer that cannot do the shape, which is told of."""
    try:
        result = function(*arguments)
    except Exception as error:
        print(f"{peer.name} {shape}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
        torch.cuda.synchronize()
        return None
    return True if result is None else result


def measure(everyone, shape, rounds, calls, sets, size):
    """The cells of one way: GB/s of each, ours first, and ours over the best peer's.

    calls(peer) is what to time; None for one that cannot do the shape, a dash in the table.
    """
    replays = [attempt(p, shape, Replay, calls(p), sets, size) if p else None for p in everyone]
    for _ in range(rounds):
        for replay in filter(None, replays):
            replay.round()
    speed = [statistics.median(r.rounds) if r else math.nan for r in replays]
    cells = [f"{s:.0f}" if s == s else "-" for s in speed]
    peers = [i for i in range(1, len(speed)) if speed[i] == speed[i]]
    if not peers:
        return cells + ["-"]
    best = max(peers, key=lambda i: speed[i])
    ratios = [a / b for a, b in zip(replays[0].rounds, replays[best].rounds)]
    return cells + [f"**{statistics.median(ratios):.3f}** {min(ratios):.3f}-{max(ratios):.3f}"]


def check(ours, x, dy, weight):
    """The largest difference from float64, as a share of the largest value."""
    rows = slice(0, min(len(x), 64))
    rstd = torch.rsqrt(x[rows].double().square().mean(-1, keepdim=True) + 1e-6)
    xhat = x[rows].double() * rstd
    y = ours.forward(x, weight)[0][rows].double()
    want = xhat * weight.double()
    worst = ((y - want).abs().max() / want.abs().max()).item()
    h = dy[rows].double() * weight.double()
    want = rstd * (h - xhat * (h * xhat).mean(-1, keepdim=True))
    dx = ours.backward(x, dy, weight)[0][rows].double()
    return max(worst, ((dx - want).abs().max() / want.abs().max()).item())


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--library", dest="path", default="build/lib/libgradus.so")
    options.add_argument("--dtype", choices=DTYPES, action="append")
    options.add_argument("--shapes", default=SHAPES.replace(" ", ","))
    options.add_argument("--peers", default="", help="of PyTorch,torch.compile,Liger,QuACK; all")
    options.add_argument("--rounds", type=int, default=7)
    options = options.parse_args()

    names = options.peers.split(",") if options.peers else []
    ours, peers = Gradus(options.path), list(installed(names))
    names = " | ".join(p.name for p in peers)
    print(f"| dtype | M x N | fwd: gradus | {names} | ours / best | bwd: gradus | {names} "
          f"| ours / best | error |")
    print("|---" * (2 * len(peers) + 7) + "|")
    for name in options.dtype or DTYPES:
        dtype, code = DTYPES[name]
        for shape in options.shapes.split(","):
            m, n = map(int, shape.split("x"))
            one = m * n * dtype.itemsize
            sets = min(64, max(2, math.ceil(400e6 / (3 * one))))
            torch.manual_seed(0)
            data = [[torch.randn(m, n, device="cuda", dtype=dtype) for _ in range(2)]
                    for _ in range(sets)]
            weight = torch.randn(n, device="cuda", dtype=dtype)
            ours.prepare(data[0][0], weight, code)
            error = check(ours, *data[0], weight)
            able = {ours} | {p for p in peers
                             if attempt(p, shape, p.prepare, data[0][0], weight, code)}

            def forward(peer):
                return lambda s: peer.forward(data[s][0], weight)

            def backward(peer):  # rstd of set 0 serves all sets: the values do not change the time
                return lambda s: peer.backward(*data[s], weight)

            everyone = [p if p in able else None for p in [ours] + peers]
            cells = measure(everyone, shape, options.rounds, forward, sets, 2 * one)
            cells += measure(everyone, shape, options.rounds, backward, sets, 3 * one)
            print(f"| {name} | {m} x {n} | " + " | ".join(cells) + f" | {error:.1e} |", flush=True)
            del data
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
