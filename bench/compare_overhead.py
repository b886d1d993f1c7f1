#!/usr/bin/env python3
"""Time what an op costs beside its arithmetic: gradus, PyTorch eager and kann.

On one thread: chains of 64 ops on four numbers, forward (recorded, and not)
and backward, and a whole step (forward, backward, update) of an MLP of widths
2, 16, 16 and 2 with tanh and a batch of 32.  gradus and PyTorch (fused) update
by AdamW, kann by RMSprop, its only optimizer; kann's graph of a chain is made
once, before it is timed, so its figures there are the arithmetic alone.

The sides take turns for several rounds, and a figure is the least of all: a
time can only be too long.

PyTorch is left out if it is not installed.  kann
(https://github.com/attractivechaos/kann) takes part if --kann names a folder
with its sources, which are compiled with bench/kann/overhead.c, by $CC, with
-O3 -march=native and CBLAS.

    python3 bench/compare_overhead.py
    python3 bench/compare_overhead.py --kann ~/kann --rounds 5
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from common import compile_kann, count, records

HERE = pathlib.Path(__file__).resolve().parent
CHAIN, NUMBERS, BATCH, WIDTHS = 64, 4, 32, (2, 16, 16, 2)
STEP = "mlp 2-16-16-2 step"


def run(command):
    """Run a program that prints figures as lines of JSON; return {name: ns}."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"compare_overhead: {command[0]} failed: {done.stderr.strip()}")
    return {record["name"]: record["ns"] for record in records(done.stdout)}


def least_times(torch, repeats=200):
    """The figures of PyTorch, eager: {name: ns}."""
    torch.set_num_threads(1)
    least = {}

    def note(name, start, end, parts):
        ns = (end - start) / parts
        least[name] = min(least.get(name, ns), ns)

    clock = time.perf_counter_ns
    x = torch.full((NUMBERS,), 0.5, requires_grad=True)
    w = torch.ones(NUMBERS, requires_grad=True)
    ones = torch.ones(NUMBERS)

    def chain(name):
        y = x
        for _ in range(CHAIN):
            y = y * w if name == "mul" else torch.tanh(y)
        return y

    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTHS[0], WIDTHS[1]), torch.nn.Tanh(),
        torch.nn.Linear(WIDTHS[1], WIDTHS[2]), torch.nn.Tanh(),
        torch.nn.Linear(WIDTHS[2], WIDTHS[3]))
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    points, targets = torch.randn(BATCH, WIDTHS[0]), torch.randint(WIDTHS[-1], (BATCH,))

    for _ in range(repeats):
        for name in ("tanh", "mul"):
            with torch.no_grad():
                start = clock()
                chain(name)
                note(f"{name} not recorded", start, clock(), CHAIN)
            start = clock()
            y = chain(name)
            forward = clock()
            y.backward(ones)
            note(f"{name} forward", start, forward, CHAIN)
            note(f"{name} backward", forward, clock(), CHAIN)
            x.grad = w.grad = None
        start = clock()
        adamw.zero_grad()
        torch.nn.functional.cross_entropy(model(points), targets).backward()
        adamw.step()
        note(STEP, start, clock(), 1)
    return least


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default=HERE.parent / "build/bin/gradus-bench",
                        help="our program (build/bin/gradus-bench)")
    parser.add_argument("--kann", help="a folder with kann's sources")
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument("--json", action="store_true", help="one line of JSON per figure")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        torch = None

    sides = {"gradus": {}}
    if torch:
        sides["PyTorch"] = {}
    if args.kann:
        sides["kann"] = {}
    with tempfile.TemporaryDirectory() as folder:
        ours = [str(args.bench), "overhead", "--threads", "1", "--repeats", "5", "--json"]
        kann = args.kann and [
            *compile_kann(args.kann, folder, HERE / "kann/overhead.c"), "2000"]
        for _ in range(args.rounds):
            for side, least in sides.items():
                figures = (run(ours) if side == "gradus" else
                           run(kann) if side == "kann" else least_times(torch))
                for name, ns in figures.items():
                    least[name] = min(least.get(name, ns), ns)

    if not args.json:
        print(f"{'ns':24}" + "".join(f"{side:>10}{'' if side == 'gradus' else '   ratio'}"
                                     for side in sides))
    for name, ns in sides["gradus"].items():
        if args.json:
            print(json.dumps({"name": name, **{s: f[name] for s, f in sides.items() if name in f}}))
            continue
        line = f"{name:24}{ns:10.0f}"
        for side, figures in list(sides.items())[1:]:
            line += (f"{figures[name]:10.0f} {figures[name] / ns:7.2f}" if name in figures
                     else " " * 18)
        print(line.rstrip())


if __name__ == "__main__":
    main()
