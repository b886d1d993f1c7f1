#!/usr/bin/env python3
"""Time RMSNorm of a matrix in float32 on the CPU: gradus (build/bin/gradus-bench) and PyTorch, eager and
compiled; forward, and backward with the gradients of the input and of the weight.

The sides take turns for several rounds, so that a machine that slows down does so for all of them. A
figure is the median of a round's calls, and of these the median, the least and the largest. PyTorch's
allocator keeps freed memory and uses huge pages: otherwise large results are returned to the system
after each use, and mapping them again counts against PyTorch. "speed" is against the better of its
modes. compare_train.py --device cpu has whole training steps.

    bench/compare_torch.py --rounds 5 --threads 1
"""
import os
import statistics
import sys
import time

from harness import KEEP_MEMORY, Table, bench, count, get_torch, options, spread, take_turns


def milliseconds(call, calls, warm=4):
    """The median of some calls, after uncounted ones."""
    times = []
    for _ in range(warm + calls):
        begin = time.perf_counter()
        result = call()
        times.append((time.perf_counter() - begin) * 1e3)
        del result  # freeing the result is not part of the work
    return statistics.median(times[warm:])


def torch_norm(torch, args, x, weight, dy, compiled):
    """The figures of a round, {pass: ms}."""
    def norm(x, weight):
        return torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-5)

    call = torch.compile(norm) if compiled else norm

    def measure():
        y = call(x, weight)  # as in training, the graph is recorded and keeps what the backward needs
        return {"rms_norm_forward": milliseconds(lambda: call(x, weight), args.calls),
                "rms_norm_backward": milliseconds(
                    lambda: torch.autograd.grad(y, (x, weight), dy, retain_graph=True), args.calls)}

    return measure


def main():
    p = options(__doc__, "bench", "rounds", "threads", "no-compile", rounds=3, threads=2, device="cpu")
    for name, default in (("rows", 4096), ("cols", 4096), ("calls", 20)):
        p.add_argument("--" + name, type=count, default=default)
    args = p.parse_args()
    if not all(name in os.environ for name in KEEP_MEMORY):  # it reads them when the process starts
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})
    torch = get_torch(threads=args.threads)
    x, dy = torch.randn(2, args.rows, args.cols)
    weight, to = torch.randn(args.cols, requires_grad=True), dy.clone()
    x.requires_grad_()
    own = {"env": {name: word for name, word in os.environ.items() if name not in KEEP_MEMORY}}
    shape = ("--rows", args.rows, "--cols", args.cols, "--dtype", "f32")
    sides = {"gradus": lambda: {r["name"]: r["ms"] for r in bench(args, "rms_norm", *shape, **own)},
             "eager": torch_norm(torch, args, x, weight, dy, False),
             "compiled": torch_norm(torch, args, x, weight, dy, True),
             "copy_": lambda: {"copy": milliseconds(lambda: to.copy_(dy), args.calls)}}
    if args.no_compile:
        del sides["compiled"]
    print(f"rms_norm: {args.rows} x {args.cols}, float32, {args.threads} threads, "
          f"PyTorch {torch.__version__}")
    results = take_turns(sides, args.rounds)
    table = Table(("work", "<18"), ("side", "<9"), ("ms", ">9.2f"), ("of rounds", ">16"),
                  ("GB/s", ">7.1f"), ("speed", ">6.2f"))
    # The least traffic: forward reads x and writes y; backward reads x and dy and writes dx.
    for work, arrays in {"rms_norm_forward": 2, "rms_norm_backward": 3, "copy": 2}.items():
        rounds = {side: spread([r[work] for r in all]) for side, all in results.items() if work in all[0]}
        best = min((f[0] for side, f in rounds.items() if side != "gradus"), default=float("nan"))
        for side, (ms, low, high) in rounds.items():
            table.line(work, side, ms, f"{low:.2f}-{high:.2f}",
                       arrays * args.rows * args.cols * 4 / ms / 1e6, best / ms)


if __name__ == "__main__":
    main()
