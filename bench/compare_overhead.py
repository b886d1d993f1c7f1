#!/usr/bin/env python3
"""Time what an op costs beside its arithmetic: gradus, PyTorch eager and kann.

On one thread: chains of 64 ops on four numbers, forward (recorded, and not) and backward, and a whole
step (forward, backward, update) of an MLP of widths 2, 16, 16 and 2 with tanh and a batch of 32. gradus
and PyTorch (fused) update by AdamW, kann by RMSprop, its only optimizer; kann's graph of a chain is made
once, before it is timed, so its figures there are the arithmetic alone.

The sides take turns for several rounds, and a figure is the least of all: a time can only be too long.

PyTorch is left out if it is not installed. kann (https://github.com/attractivechaos/kann) takes part if
--kann names a folder with its sources, which are compiled with bench/kann/overhead.c, by $CC, with -O3
-march=native and CBLAS.

    bench/compare_overhead.py
    bench/compare_overhead.py --kann ~/kann --rounds 5
"""
import functools
import importlib.util
import json
import os
import tempfile
import time

from harness import Table, bench, compile_kann, get_torch, least, options, records, run, take_turns

CHAIN, NUMBERS, BATCH, WIDTHS = 64, 4, 32, (2, 16, 16, 2)


def by_name(found):
    return {record["name"]: record["ns"] for record in found}


def torch_times(torch, repeats=200):
    """The figures of PyTorch, eager: {name: ns}."""
    clock, rounds = time.perf_counter_ns, []
    x, w = (torch.full((NUMBERS,), value, requires_grad=True) for value in (0.5, 1.0))
    ones = torch.ones(NUMBERS)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(*WIDTHS[:2]), nn.Tanh(), nn.Linear(*WIDTHS[1:3]), nn.Tanh(),
                          nn.Linear(*WIDTHS[2:]))
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    points, targets = torch.randn(BATCH, WIDTHS[0]), torch.randint(WIDTHS[-1], (BATCH,))

    def chain(name):
        y = x
        for _ in range(CHAIN):
            y = y * w if name == "mul" else torch.tanh(y)
        return y

    for _ in range(repeats):
        ns = {}
        for name in ("tanh", "mul"):
            with torch.no_grad():
                start = clock()
                chain(name)
                ns[f"{name} not recorded"] = (clock() - start) / CHAIN
            start = clock()
            y = chain(name)
            forward = clock()
            y.backward(ones)
            ns[f"{name} backward"] = (clock() - forward) / CHAIN
            ns[f"{name} forward"] = (forward - start) / CHAIN
            x.grad = w.grad = None
        start = clock()
        adamw.zero_grad()
        nn.functional.cross_entropy(model(points), targets).backward()
        adamw.step()
        rounds.append({**ns, "mlp 2-16-16-2 step": clock() - start})
    return least(rounds)


def main():
    p = options(__doc__, "bench", "rounds", "kann", rounds=3)
    p.add_argument("--json", action="store_true", help="one line of JSON per figure")
    args = p.parse_args()
    args.threads = 1
    alone = {"env": {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}}
    sides = {"gradus": lambda: by_name(bench(args, "overhead", "--repeats", 5, **alone))}
    if importlib.util.find_spec("torch"):
        sides["PyTorch"] = functools.partial(torch_times, get_torch(threads=1))
    with tempfile.TemporaryDirectory() as folder:
        if args.kann:
            kann = compile_kann(args.kann, folder, "overhead.c")
            sides["kann"] = lambda: by_name(records(run([kann, 2000], **alone)))
        best = {side: least(rounds) for side, rounds in take_turns(sides, args.rounds).items()}

    if args.json:
        for name in best["gradus"]:
            print(json.dumps({"name": name, **{s: f[name] for s, f in best.items() if name in f}}))
        return
    own = best.pop("gradus")
    table = Table(("ns", "<23"), ("gradus", ">10.0f"),
                  *(column for side in best for column in ((side, ">9.0f"), ("ratio", ">7.2f"))))
    for name, ns in own.items():
        cells = [(f[name], f[name] / ns) if name in f else ("", "") for f in best.values()]
        table.line(name, ns, *(cell for pair in cells for cell in pair))


if __name__ == "__main__":
    main()
