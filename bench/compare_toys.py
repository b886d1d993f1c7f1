#!/usr/bin/env python3
"""Time a step of small models beside PyTorch and kann: forward, backward and update.

  cnn     two convolutions of 32 channels, 3 x 3, max pooling 2 x 2, 128 hidden
          units, 10 classes; batch 64, 28 x 28, no padding
  digits  the net of docs/examples/digits.c: twice a convolution 5 x 5 (16 and
          32 channels), batch norm, relu and max pooling, then a linear layer;
          batch 128, 28 x 28
  gru     64 letters as vectors with a single 1, a GRU of 128 units, a linear
          layer, and the loss at each step; batch 32, 50 steps

gradus and PyTorch (fused) update by AdamW.  PyTorch runs eager and compiled,
on a GPU with CUDA graphs (TF32 off, cuDNN's autotuner on); the faster one
counts.  The sides take turns; a figure is the least of all rounds.

kann (https://github.com/attractivechaos/kann) takes part on the CPU, on one
thread, if --kann names a folder with its sources, which are compiled with
bench/kann/toys.c, by $CC, with -O3 -march=native and CBLAS.

    python3 bench/compare_toys.py
    python3 bench/compare_toys.py --device cpu --threads 1 --kann ~/kann
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

from common import compile_kann, count, records

HERE = pathlib.Path(__file__).resolve().parent


def models(torch):
    """name -> (the shape of x, how many targets, classes, model)"""
    nn = torch.nn

    class Letters(nn.Module):
        """A GRU and what it says of the next letter."""

        def __init__(self):
            super().__init__()
            self.gru, self.out = nn.GRU(64, 128, batch_first=True), nn.Linear(128, 64)

        def forward(self, x):
            return self.out(self.gru(x)[0]).flatten(0, 1)

    def stage(channels, outputs):
        return (nn.Conv2d(channels, outputs, 5, padding=2, bias=False), nn.BatchNorm2d(outputs),
                nn.ReLU(), nn.MaxPool2d(2))

    return {
        "cnn": ((64, 1, 28, 28), 64, 10, nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * 12 * 12, 128), nn.ReLU(), nn.Linear(128, 10))),
        "digits": ((128, 1, 28, 28), 128, 10, nn.Sequential(
            *stage(1, 16), *stage(16, 32), nn.Flatten(), nn.Linear(32 * 7 * 7, 10))),
        "gru": ((32, 50, 64), 32 * 50, 64, Letters()),
    }


class Peer:
    """Steps of a model in PyTorch, eager or compiled."""

    def __init__(self, torch, device, toy, compiled):
        shape, rows, classes, model = toy
        self.wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        model = model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        x = torch.randn(shape, device=device)
        if len(shape) == 3:  # a single 1 in each vector
            x = torch.nn.functional.one_hot(x.argmax(-1), shape[-1]).to(x.dtype)
        targets = torch.randint(classes, (rows,), device=device)

        def loss():
            return torch.nn.functional.cross_entropy(model(x), targets)

        if compiled:
            mode = "reduce-overhead" if device == "cuda" else None
            loss = torch.compile(loss, mode=mode)

        def step():
            loss().backward()
            optimizer.step()
            optimizer.zero_grad()

        self.step = step
        for _ in range(5):
            step()

    def microseconds(self, steps):
        self.wait()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        self.wait()
        return (time.perf_counter() - begin) * 1e6 / steps


def run(command):
    """name -> microseconds, from a program that prints JSON."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"compare_toys: {command[0]} failed: {done.stderr.strip()}")
    return {r["name"]: r["us"] for r in records(done.stdout)}


def parse_arguments():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bench", type=pathlib.Path, default=HERE.parent / "build/bin/gradus-bench")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--threads", type=count, default=0, help="on the CPU, on both sides")
    p.add_argument("--rounds", type=count, default=5)
    p.add_argument("--kann", help="a folder with kann's sources")
    p.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    return p.parse_args()


def main():
    """Print the table."""
    args = parse_arguments()
    try:
        import torch
    except ImportError:
        sys.exit("compare_toys: PyTorch is missing")
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("compare_toys: no GPU")
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    ours = [str(args.bench), "toys", "--device", args.device, "--json", "--repeats", "3"]
    ours += ["--threads", str(args.threads)] if args.threads else []
    peers = {}
    for compiled in [False] if args.no_compile else [False, True]:
        for name, toy in models(torch).items():
            peers[name, compiled] = Peer(torch, args.device, toy, compiled)
    steps = 50 if args.device == "cuda" else 5
    best = {}

    def note(side, name, us):
        best[side, name] = min(best.get((side, name), us), us)

    with tempfile.TemporaryDirectory() as folder:
        kann = args.kann and compile_kann(args.kann, folder, HERE / "kann/toys.c")
        for _ in range(args.rounds):
            for name, us in run(ours).items():
                note("gradus", name, us)
            for (name, _), one in peers.items():
                note("PyTorch", name, one.microseconds(steps))
            for name, us in run(kann).items() if kann else ():
                note("kann", name, us)

    where = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    print(f"{where}, PyTorch {torch.__version__}; microseconds a step")
    print(f"{'model':<8} {'gradus':>10} {'PyTorch':>10} {'ratio':>6}" + " kann, ratio" * bool(kann))
    for name in models(torch):
        own, other = best["gradus", name], best["PyTorch", name]
        line = f"{name:<8} {own:>10.1f} {other:>10.1f} {other / own:>6.2f}"
        if ("kann", name) in best:
            line += f" {best['kann', name]:>10.1f} {best['kann', name] / own:>6.2f}"
        print(line)


if __name__ == "__main__":
    main()
