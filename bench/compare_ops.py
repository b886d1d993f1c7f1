#!/usr/bin/env python3
"""Time layers beside PyTorch's: convolution, pooling, norms, LSTM and GRU, losses, indices.

Forward and backward with all gradients, in one run on one device.  PyTorch
runs its eager kernels (cuDNN's autotuner on, TF32 off) and the same layer
compiled; the faster one counts.  Ours are run by gradus-bench layers, whose
sizes are repeated here, and which leaves out the copy of dy that a backward
begins with if dy is given by the caller.  A figure is the median of several means, measured
with events on a GPU.

Losses have no gradient by their targets, but for cosine_similarity.

"of the ceiling" is for layers limited by memory: the time that a copy of as
many bytes as the layer must move takes in the same run, over ours.

    python3 bench/compare_ops.py
    python3 bench/compare_ops.py --ops lstm,gru --dtypes bfloat16,float16
    python3 bench/compare_ops.py --device cpu --threads 1 --dtypes float32
"""

import argparse
import math
import pathlib
import statistics
import subprocess
import sys
import time

from common import count, records

NAMES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
PAIR = [(32768, 1024), (32768, 1024)]
ROWS = [(32768, 1024), (32768,)]
IMAGE = [(32, 64, 56, 56)]
MATRIX = [(32768, 1024)]
# What the second input is, with x's batch: numbers from 0 to 1, classes, or like x. Others: weights.
TARGETS = dict.fromkeys(("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "bce_with_logits",
                         "kl_div"), "real")
TARGETS |= dict.fromkeys(("nll_loss", "cross_entropy", "gather", "gather_rows",
                          "index_select", "one_hot"), "class")
TARGETS |= {"cosine_similarity": "like x", "batch_norm_fixed": "statistics"}


def layers(torch, nn, functional):
    """name -> (shapes of the inputs, function, tensors like x moved forward and backward)."""
    quarter = 0.25  # a pooled plane
    return {
        "conv2d": ([(32, 64, 56, 56), (64, 64, 3, 3), (64,)],
                   lambda x, w, b: functional.conv2d(x, w, b, padding=1), None),
        "depthwise": ([(32, 64, 56, 56), (64, 1, 3, 3), (64,)],
                      lambda x, w, b: functional.conv2d(x, w, b, padding=1, groups=64), (2, 3)),
        "conv1d": ([(32, 64, 3136), (64, 64, 3), (64,)],
                   lambda x, w, b: functional.conv1d(x, w, b, padding=1), None),
        "conv_transpose2d": ([(32, 64, 28, 28), (64, 64, 4, 4), (64,)],
                             lambda x, w, b: functional.conv_transpose2d(
                                 x, w, b, stride=2, padding=1), None),
        "unfold": (IMAGE, lambda x: functional.unfold(x, 3, padding=1), (10, 10)),
        "fold": ([(32, 576, 3136)], lambda x: functional.fold(x, (56, 56), 3, padding=1),
                 (10 / 9, 10 / 9)),
        "pad": ([(256, 64, 56, 56)],
                lambda x: functional.pad(x, (1, 1, 1, 1), mode="reflect"),
                (1 + (58 / 56) ** 2,) * 2),
        "upsample_nearest": ([(256, 64, 28, 28)],
                             lambda x: functional.interpolate(x, scale_factor=2, mode="nearest"),
                             (5, 5)),
        "max_pool2d": ([(256, 64, 56, 56)], lambda x: functional.max_pool2d(x, 2),
                       # y, dy and the places, of 4 bytes
                       lambda size: (1 + quarter * (1 + 4 / size),) * 2),
        "avg_pool2d": ([(256, 64, 56, 56)], lambda x: functional.avg_pool2d(x, 2),
                       (1 + quarter,) * 2),
        "batch_norm": ([(256, 64, 56, 56), (64,), (64,)],
                       lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
                       (3, 5)),
        "batch_norm_fixed": ([(256, 64, 56, 56), (64,), (64,), (64,), (64,)],
                             lambda x, w, b, mean, var: functional.batch_norm(x, mean, var, w, b),
                             (2, 3)),
        "group_norm": ([(256, 64, 56, 56), (64,), (64,)],
                       lambda x, w, b: functional.group_norm(x, 8, w, b), (2, 3)),
        "lstm": ([(64, 128, 512)], nn.LSTM(512, 512, batch_first=True), None),
        "gru": ([(64, 128, 512)], nn.GRU(512, 512, batch_first=True), None),
        "mse_loss": (PAIR, functional.mse_loss, (2, 3)),
        "l1_loss": (PAIR, functional.l1_loss, (2, 3)),
        "huber_loss": (PAIR, lambda x, t: functional.huber_loss(x, t, delta=0.5), (2, 3)),
        "smooth_l1_loss": (PAIR, lambda x, t: functional.smooth_l1_loss(x, t, beta=0.5), (2, 3)),
        "bce_with_logits": (PAIR, functional.binary_cross_entropy_with_logits, (2, 3)),
        "kl_div": (PAIR, lambda x, t: functional.kl_div(x, t, reduction="batchmean"), (2, 2)),
        "nll_loss": (ROWS, functional.nll_loss, (0, 1)),
        "cross_entropy": (ROWS, functional.cross_entropy, (1, 2)),
        "cosine_similarity": (PAIR, functional.cosine_similarity, (2, 4)),
        "leaky_relu": (MATRIX, functional.leaky_relu, (2, 3)),
        "mish": (MATRIX, functional.mish, (2, 3)),
        "prod": (MATRIX, lambda x: x.prod(-1), (1, 2)),
        "norm": (MATRIX, lambda x: torch.linalg.vector_norm(x, 2, -1), (1, 2)),
        "sort": (MATRIX, lambda x: x.sort(dim=-1, stable=True)[0], None),
        "gather": ([(1 << 20,)] * 2, lambda x, i: x.gather(-1, i), None),
        "gather_rows": (MATRIX * 2, lambda x, i: x.gather(-1, i), None),
        "index_select": ([(4096, 8192), (8192,)], lambda x, i: x.index_select(-1, i), None),
        "topk": (MATRIX, lambda x: x.topk(32)[0], (1, 1)),
        "any": (MATRIX, lambda x: x.any(-1), (1, None)),
        "all": (MATRIX, lambda x: x.all(-1), (1, None)),
        "one_hot": (ROWS, lambda x, at: functional.one_hot(at, x.shape[-1]).to(x.dtype), (1, None)),
        "flip": (MATRIX, lambda x: x.flip(-1), (2, 2)),
        "tril": ([(32, 1024, 1024)], torch.tril, (2, 2)),
    }


class Clock:
    """Means of consecutive calls, in microseconds."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.calls = 4 if device == "cuda" else 1

    def mean(self, run):
        if self.device == "cpu":
            begin = time.perf_counter()
            for _ in range(self.calls):
                run()
            return (time.perf_counter() - begin) * 1e6 / self.calls
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.torch.cuda._sleep(10_000_000)  # the host runs ahead, as in gradus-bench
        start.record()
        for _ in range(self.calls):
            run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / self.calls

    def median(self, run, rounds):
        for _ in range(3):
            run()
        return statistics.median(self.mean(run) for _ in range(rounds))


def make_inputs(torch, device, dtype, shapes, second):
    """x, and weights, or with `second` what it says."""
    if second == "statistics":
        return (make_inputs(torch, device, dtype, shapes[:3], None)
                + [torch.rand(s, device=device, dtype=dtype) for s in shapes[3:]])
    if device == "cpu":
        shapes = [(s[0] // 8,) + s[1:] if second or not k else s for k, s in enumerate(shapes)]
    if second == "class":
        other = torch.randint(shapes[0][-1], shapes[1], device=device)
    elif second == "real":
        other = torch.rand(shapes[1], device=device, dtype=dtype)
    else:
        return [torch.randn(s, device=device, dtype=dtype).mul_(0.05 if k and not second else 1)
                .requires_grad_() for k, s in enumerate(shapes)]
    return [torch.randn(shapes[0], device=device, dtype=dtype).requires_grad_(), other]


def peer(torch, clock, rounds, dtype, shapes, function, second):
    """(forward, backward) microseconds of the function; infinite without a backward."""
    module = isinstance(function, torch.nn.Module)
    if module:  # with weights of its own
        function.to(clock.device, dtype)
    inputs = make_inputs(torch, clock.device, dtype, shapes, second)
    y = function(*inputs)
    y = y[0] if module else y
    forward = clock.median(lambda: function(*inputs), rounds)
    if not y.requires_grad:
        return forward, math.inf
    dy = torch.randn_like(y)
    wanted = [t for t in inputs if t.requires_grad] + (list(function.parameters()) if module else [])
    backward = clock.median(
        lambda: torch.autograd.grad(y, wanted, dy, retain_graph=True), rounds)
    return forward, backward


def ours(args, dtype, name):
    """(forward, backward) microseconds of gradus."""
    command = [str(args.bench), "layers", "--device", args.device, "--dtype", NAMES[dtype], "--json",
               "--repeats", str(args.rounds), "--op", name]
    command += ["--threads", str(args.threads)] if args.threads else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"compare_ops: {done.stderr.strip()}")
    [r] = records(done.stdout)
    return r["forward_us"], r["backward_us"]


def copy_time(torch, clock, rounds, dtype, shape):
    """Microseconds to read and write a tensor."""
    if clock.device == "cpu":
        shape = (shape[0] // 8,) + shape[1:]
    x = torch.randn(shape, device=clock.device, dtype=dtype)
    to = torch.empty_like(x)
    return clock.median(lambda: to.copy_(x), rounds)


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--bench", type=pathlib.Path, default=pathlib.Path("build/bin/gradus-bench"))
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--dtypes", type=lambda text: text.split(","), default=list(NAMES))
    p.add_argument("--ops", type=lambda text: text.split(","), help="only these")
    p.add_argument("--threads", type=count, default=0, help="on the CPU, on both sides")
    p.add_argument("--rounds", type=count, default=9)
    p.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    args = p.parse_args()
    for dtype in args.dtypes:
        if dtype not in NAMES:
            p.error(f"{dtype} is none of {', '.join(NAMES)}")
    return args


def main():
    """Print the table."""
    args = parse_arguments()
    try:
        import torch
    except ImportError:
        sys.exit("compare_ops: PyTorch is missing")
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("compare_ops: no GPU")
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    clock = Clock(torch, args.device)
    table = layers(torch, torch.nn, torch.nn.functional)
    if unknown := set(args.ops or ()) - set(table):
        sys.exit(f"compare_ops: {', '.join(unknown)}: none of {', '.join(table)}")
    where = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    print(f"{where}, PyTorch {torch.__version__}")
    print(f"{'layer':<17} {'dtype':<9} {'pass':<9} {'PyTorch us':>11} {'gradus us':>11} "
          f"{'ratio':>6} {'of the ceiling':>15}")
    for dtype in args.dtypes:
        kind = getattr(torch, dtype)
        for name in args.ops or table:
            shapes, function, moved = table[name]
            own = ours(args, dtype, name)
            second = TARGETS.get(name)
            best = peer(torch, clock, args.rounds, kind, shapes, function, second)
            if not args.no_compile and not isinstance(function, torch.nn.Module):
                compiled = peer(torch, clock, args.rounds, kind, shapes, torch.compile(function),
                                second)
                best = tuple(map(min, best, compiled))
            if callable(moved):
                moved = moved(kind.itemsize)
            copied = moved and copy_time(torch, clock, args.rounds, kind, shapes[0])
            for k, what in enumerate(("forward", "backward")):
                if math.isinf(best[k]):
                    continue
                share = f"{copied * moved[k] / 2 / own[k]:.2f}" if moved and moved[k] else ""
                print(f"{name:<17} {dtype:<9} {what:<9} {best[k]:>11.1f} {own[k]:>11.1f} "
                      f"{best[k] / own[k]:>6.2f} {share:>15}", flush=True)


if __name__ == "__main__":
    main()
