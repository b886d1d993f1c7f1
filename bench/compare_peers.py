#!/usr/bin/env python3
"""rms_norm and add_rms_norm of gradus compared with PyTorch, torch.compile and, if they are
installed, Liger, QuACK and FlashInfer (forward of add_rms_norm only).

    bench/compare_peers.py [--library build/lib/libgradus.so] [--op add_rms_norm] [--dtype float32]
                           [--shapes MxN,...] [--peers PyTorch,QuACK] [--rounds 5] [--budget 300]
                           [--compile some] [--tsv FILE]

All run in one process on the same data. The calls are captured in CUDA graphs of a millisecond or
more that cycle through several sets of buffers, larger than L2 together; outputs are allocated
during the capture and kept for one cycle, for gradus as for its peers. The graphs are replayed in
turns, in rounds: in each round a graph is warmed up and the median of its replays is taken. GB/s
are medians over the rounds, for the minimal traffic: rms_norm 2 M N elements forward and 3 M N
backward, add_rms_norm 4 M N both ways (x and residual in, sum and y out; dy, sum and dsum in, dx
out). "ours / best" is the median over the rounds of our speed divided by that of the best peer in
the same round, followed by its minimum and maximum.

Every forward returns y and rstd, and the sum; every backward computes dx and dweight, as autograd
would request it. PyTorch has no fused add: its column is the addition followed by the norm.
torch.compile compiles for each shape, which takes seconds: `--compile some` leaves it out at the
widths of models and in between. The most important shapes come first, and none is begun after
`--budget` seconds.
"""
import importlib
import itertools
import math
import os
import statistics
import sys
import time

import torch

from harness import ROOT, left_out, options, several, spread, take_turns

EPS = 1e-6
OPS = ("rms_norm", "add_rms_norm")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

# (op, dtypes, with torch.compile, shapes), in the order in which they run.
BOTH, BF16 = ("float32", "bfloat16"), ("bfloat16",)
PLAN = (
    ("add_rms_norm", ("bfloat16", "float32"), True,
     "16384x768 2048x8192 512x4096 4096x4096 32768x4096"),
    ("rms_norm", BF16, True, "2048x8192 512x4096 32768x256 64x4096"),
    ("rms_norm", BF16, False, "31744x4224 116480x1152 29952x4480 18048x7424 17472x7680 15872x8448 "
                              "14528x9216"),
    ("rms_norm", BOTH, True,
     "32768x256 32768x768 32768x1024 32768x2048 32768x4096 32768x8192 32768x16384 16384x32768 "
     "8192x65536 4096x131072 2048x262144 2048x8192 512x4096 64x4096 262144x128"),
    ("add_rms_norm", BOTH, True,
     "1048576x128 174720x768 131072x1024 65536x2048 16384x8192 8192x16384 4096x32768 2048x65536"),
    ("add_rms_norm", BOTH, False, "524288x256 262144x512 46592x2880 26176x5120 18688x7168 "
                                  "9344x14336"),
    ("rms_norm", BOTH, False, "52416x2560 46592x2880 43648x3072 37440x3584 26176x5120 18688x7168 "
                              "10880x12288 9344x14336 7232x18432"),
)


class Case:
    """The data of one op at one shape, in several sets of (branch, stream, dsum).

    The forward normalises stream, or branch + stream; the backward gets branch as dy, stream as the
    normalised input, and dsum.
    """

    def __init__(self, op, dtype, m, n):
        self.op, self.dtype, self.m, self.n = op, dtype, m, n
        self.torch_dtype = DTYPES[dtype]
        self.add = op == "add_rms_norm"
        self.label = f"{op} {dtype} {m}x{n}"
        self.one = m * n * self.torch_dtype.itemsize
        tensors = 3 if self.add else 2
        count = min(64, max(2, math.ceil(400e6 / ((tensors + 1) * self.one))))
        torch.manual_seed(0)
        self.sets = [[torch.randn(m, n, device="cuda", dtype=self.torch_dtype)
                      for _ in range(tensors)] for _ in range(count)]
        self.weight = torch.randn(n, device="cuda", dtype=self.torch_dtype)
        # Computed for set 0 and used for all sets: the values do not affect the time.
        self.rstd = torch.rsqrt(self.sets[0][1].float().square().mean(-1, keepdim=True) + EPS)


class Gradus:
    """The ops of the Python package, with the library of that path."""
    name = "gradus"

    def __init__(self, library):
        os.environ["GRADUS_LIBRARY"] = library
        sys.path.insert(0, str(ROOT / "python"))
        importlib.import_module("gradus")
        self.ops = torch.ops.gradus

    def calls(self, case):
        weight, rstd = case.weight, case.rstd.squeeze(-1)

        def forward(branch, stream, *_):
            if not case.add:
                return self.ops.rms_norm(stream, weight, None, EPS, 0.0, False, None)
            y, total, out = self.ops.add_rms_norm(branch, stream, weight, None, EPS, 0.0, False)
            return y, out, total

        def backward(dy, x, dsum=None):
            dx, _, dw, _ = self.ops.rms_norm_backward(dy, dsum, x, rstd, weight, None, 0.0, False,
                                                      [True, False, True, False])
            return dx, dw

        return forward, backward


class Fused:
    name = "PyTorch"

    def calls(self, case):
        size, weight, rstd = [case.n], case.weight, case.rstd

        def forward(branch, stream, *_):
            x = branch + stream if case.add else stream
            return (*torch.ops.aten._fused_rms_norm(x, size, weight, EPS), x)

        def backward(dy, x, dsum=None):
            dx, dw = torch.ops.aten._fused_rms_norm_backward(dy, x, size, rstd, weight,
                                                             [True, True])
            return (dx + dsum if case.add else dx), dw

        return forward, backward


def wide(x):
    return x if x.dtype == torch.float64 else x.float()


def norm_text(x, weight):
    xf = wide(x)
    rstd = torch.rsqrt(xf.square().mean(-1, keepdim=True) + EPS)
    return (xf * rstd * wide(weight)).to(x.dtype), rstd


def add_norm_text(x, residual, weight):
    total = x + residual
    return *norm_text(total, weight), total


def backward_text(x, dy, weight, rstd, dsum=None):
    xhat = wide(x) * rstd
    h = wide(dy) * wide(weight)
    dx = rstd * (h - xhat * (h * xhat).mean(-1, keepdim=True))
    if dsum is not None:
        dx = dx + wide(dsum)
    return dx.to(x.dtype), (wide(dy) * xhat).sum(0).to(weight.dtype)


class Compiled:
    name = "torch.compile"

    def calls(self, case):
        torch._dynamo.reset()
        rstd, weight = case.rstd, case.weight
        f = torch.compile(add_norm_text if case.add else norm_text, dynamic=False)
        b = torch.compile(backward_text, dynamic=False)

        def forward(branch, stream, *_):
            return f(branch, stream, weight) if case.add else f(stream, weight)

        return forward, lambda dy, x, *dsum: b(x, dy, weight, rstd, *dsum)


class Liger:
    name = "Liger"

    def __init__(self):
        self.ops = importlib.import_module("liger_kernel.ops.rms_norm")
        self.add_ops = importlib.import_module("liger_kernel.ops.fused_add_rms_norm")

    def calls(self, case):
        weight, (branch, stream) = case.weight, case.sets[0][:2]
        if case.add:
            run, back = self.add_ops.fused_add_rms_norm_forward, self.add_ops

            def forward(branch, stream, *_):
                return run(branch, stream, weight, EPS, 0.0, "llama")

            _, _, rstd, block, warps, stages, mode = forward(branch, stream)
            return forward, lambda dy, x, dsum: back.fused_add_rms_norm_backward(
                dy, dsum, x, weight, rstd, 0.0, mode, block, warps, stages, False)

        def forward(branch, stream, *_):
            return self.ops.rms_norm_forward(stream, weight, EPS, 0.0, "llama", None)

        _, _, rstd, block, warps, mode = forward(branch, stream)
        return forward, lambda dy, x: self.ops.rms_norm_backward(
            dy, x, weight, rstd, 0.0, mode, block, warps, False, None)


class Quack:
    name = "QuACK"

    def __init__(self):
        self.ops = importlib.import_module("quack.rmsnorm")  # quack.rmsnorm is a function too

    def calls(self, case):
        weight, rstd = case.weight, case.rstd.squeeze(-1)

        def forward(branch, stream, *_):
            if case.add:
                return self.ops.rmsnorm_fwd(branch, weight, residual=stream, eps=EPS,
                                            store_rstd=True)
            return self.ops.rmsnorm_fwd(stream, weight, eps=EPS, store_rstd=True)

        def backward(dy, x, dsum=None):
            return self.ops.rmsnorm_bwd(x, weight, dy, rstd, dresidual_out=dsum,
                                        has_residual=case.add)

        return forward, backward


class FlashInfer:
    """Works in place (y overwrites x, the sum the residual), so it has its own sets. No rstd."""
    name = "FlashInfer"

    def __init__(self):
        module = importlib.import_module("flashinfer.norm.kernels.fused_add_rmsnorm")
        self.run = module.fused_add_rmsnorm_cute

    def calls(self, case):
        if not case.add:
            return None, None
        own = {id(s[0]): (s[0].clone(), s[1].clone()) for s in case.sets}

        def forward(branch, *_):
            self.run(*own[id(branch)], case.weight, EPS, enable_pdl=True)

        return forward, None


def installed(names):
    """The peers whose packages are installed, restricted to `names` if there are any."""
    for peer in (Fused, Compiled, Liger, Quack, FlashInfer):
        if names and peer.name not in names:
            continue
        try:
            yield peer()
        except Exception as error:  # treat a broken installation as missing
            left_out(peer.name, error)


class Replay:
    """A graph of calls on the sets of a case; each call moves `size` bytes."""

    def __init__(self, call, sets, size):
        call(*sets[0]), torch.cuda.synchronize()
        self.size, self.results = size, [None] * len(sets)
        self.launches = len(sets) * max(1, math.ceil(max(8, 4e9 / size) / len(sets)))
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for i in range(self.launches):
                self.results[i % len(sets)] = call(*sets[i % len(sets)])

    def round(self):
        """The GB/s of one round."""
        events = [torch.cuda.Event(enable_timing=True) for _ in range(6)]
        warm = time.monotonic() + 0.005
        while time.monotonic() < warm:
            self.graph.replay(), torch.cuda.synchronize()
        events[0].record()
        for event in events[1:]:
            self.graph.replay(), event.record()
        torch.cuda.synchronize()
        times = [a.elapsed_time(b) * 1e-3 for a, b in zip(events, events[1:])]
        return self.size * self.launches / statistics.median(times) / 1e9


def attempt(peer, case, function, *arguments):
    """The function's result; None, after a message, if the peer fails on the case."""
    try:
        return function(*arguments)
    except Exception as error:
        left_out(f"{peer.name}, {case.label}", error)
        torch.cuda.synchronize()
        return None


def measure(everyone, case, calls, size, rounds):
    """Forward or backward: the GB/s of each, ours first, NaN if it failed; and the ratio of ours to
    the best peer's in each round."""
    replays = {p.name: attempt(p, case, Replay, call, case.sets, size)
               for p, call in zip(everyone, calls) if call}
    turns = take_turns({name: r.round for name, r in replays.items() if r}, rounds)
    speed = {name: spread(rounds)[0] for name, rounds in turns.items()}
    best = max((name for name in speed if name != "gradus"), key=speed.get, default=None)
    ratios = ([ours / theirs for ours, theirs in zip(turns["gradus"], turns[best])]
              if best and "gradus" in turns else [])
    return [speed.get(p.name, math.nan) if p else math.nan for p in everyone], ratios


def check(case, forward, backward):
    """The largest error of ours against float64, relative to the largest value."""
    def off(got, want):
        return ((got.double() - want).abs().max() / want.abs().max()).item()

    rows, cols, weight = slice(0, 64), slice(0, 16), case.weight.double()
    dy, x, *dsum = (t[rows].double() for t in case.sets[0])
    wanted = add_norm_text(dy, x, weight) if case.add else norm_text(x, weight)
    errors = [off(got[rows], want) for got, want in zip(forward(*case.sets[0])[::2], wanted[::2])]
    dx, dw = backward(*case.sets[0])
    errors.append(off(dx[rows], backward_text(x, dy, weight, norm_text(x, weight)[1], *dsum)[0]))
    dy, x = (t[:, cols].double() for t in case.sets[0][:2])  # a few columns of dw, over all rows
    errors.append(off(dw[cols], (dy * x * case.rstd.double()).sum(0)))
    assert max(errors) < (1e-2 if case.dtype == "bfloat16" else 1e-4), f"{case.label}: {errors}"
    return max(errors)


def run_case(case, ours, peers, rounds):
    """The cells of a row of the table, and the lines of the file: a list of lists for each way."""
    able = [attempt(p, case, p.calls, case) if p else None for p in peers]
    calls = [ours.calls(case)] + [c or (None, None) for c in able]
    error = check(case, *calls[0])
    cells, lines = [], []
    everyone = [ours] + peers
    for way, name in enumerate(("forward", "backward")):
        tensors = 4 if case.add else 2 + way
        speed, ratios = measure(everyone, case, [c[way] for c in calls], tensors * case.one,
                                rounds)
        cells += [f"{s:.0f}" if s == s else "-" for s in speed]
        ratio = spread(ratios) if ratios else (math.nan,) * 3
        cells.append("**{:.3f}** {:.3f}-{:.3f}".format(*ratio) if ratios else "-")
        lines.append([case.op, case.dtype, case.m, case.n, name] +
                     [f"{s:.1f}" for s in speed] + [f"{r:.4f}" for r in ratio])
    return cells + [f"{error:.1e}"], lines


def wanted(args):
    """(op, dtype, m, n, with torch.compile) of each case, once."""
    plan = PLAN
    if args.shapes:
        plan = [(op, BOTH, True, args.shapes.replace(",", " ")) for op in OPS]
    cases = {}
    for op, dtypes, compiled, shapes in plan:
        for dtype, shape in itertools.product(dtypes, shapes.split()):
            if op in (args.op or OPS) and dtype in (args.dtype or DTYPES):
                cases.setdefault((op, dtype, *map(int, shape.split("x"))),
                                 {"all": True, "none": False, "some": compiled}[args.compile])
    return [(*case, compiled) for case, compiled in cases.items()]


def main():
    p = options(__doc__, "rounds", "tsv")
    p.add_argument("--library", dest="path", default="build/lib/libgradus.so")
    p.add_argument("--op", choices=OPS, action="append")
    p.add_argument("--dtype", choices=DTYPES, action="append")
    p.add_argument("--shapes", default="", help="MxN,...; default: a built-in list")
    p.add_argument("--peers", type=several(str), help="of PyTorch,torch.compile,Liger,QuACK,FlashInfer; "
                                                      "all")
    p.add_argument("--compile", choices=("all", "some", "none"), default="some")
    p.add_argument("--budget", type=float, default=math.inf, help="seconds")
    args = p.parse_args()

    begin, last_op = time.monotonic(), None
    ours, peers = Gradus(args.path), list(installed(args.peers))
    names = [p.name for p in peers]
    if args.tsv:
        print("op", "dtype", "rows", "cols", "way", "gradus", *names, "ratio", "ratio_min", "ratio_max",
              sep="\t", file=args.tsv)
    cases = wanted(args)
    for done, (op, dtype, m, n, compiled) in enumerate(cases):
        if time.monotonic() - begin > args.budget:
            print(f"\nThe budget is spent: {done} of {len(cases)} cases are done.")
            break
        if op != last_op:
            heads = " | ".join(f"{way}: gradus | {' | '.join(names)} | ours / best"
                               for way in ("fwd", "bwd"))
            print(f"\n{op}\n\n| dtype | M x N | {heads} | error |")
            print("|---" * (2 * len(peers) + 7) + "|")
            last_op = op
        case = Case(op, dtype, m, n)
        some = [p if compiled or p.name != "torch.compile" else None for p in peers]
        cells, lines = run_case(case, ours, some, args.rounds)
        print(f"| {dtype} | {m} x {n} | " + " | ".join(cells) + " |", flush=True)
        for line in lines if args.tsv else []:
            print(*line, sep="\t", file=args.tsv, flush=True)
        del case
        torch.cuda.empty_cache()
    print(f"\n{time.monotonic() - begin:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
