#!/usr/bin/env python3
"""compare_twins.py - the programs of bench/twins/ in C and in PyTorch: their lines of at most 100
columns, without comments, blank ones and what twin.h and twin.py share; with --time the CPU time of
a step on one thread, the least of three runs that take turns, beside JAX's where it is installed and
twins/ has a program for it, and beside kann's where --kann names a folder with its sources. --check compares the losses of those
in C with PyTorch's, which --record writes to bench/twins/losses.txt.
    bench/compare_twins.py [--time BUILD_DIR] [--kann DIR] [--check BUILD_DIR] [--record] [NAME...]
Status 1 if one in C has too many lines, or other losses.
"""
import importlib.util
import os
import re
import sys
import tempfile

from harness import ROOT, compile_kann, options, run, take_turns

TWINS = ROOT / "bench/twins"
LOSSES = TWINS / "losses.txt"
MOST = {"mlp": 1.6, "char_lstm": 2.0, "cnn": 2.5}  # times PyTorch's lines
COMPARED = 8  # losses, from the first
ALONE = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
         "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_PLATFORMS": "cpu"}


def lines_of(path):
    comments = r'/\*.*?\*/|\A""".*?"""|^ *#(?!include).*$'
    text = re.sub(comments, "", path.read_text(), flags=re.S | re.M)
    lines = [line for line in text.splitlines() if line.strip()]
    if max(map(len, lines)) > 100:
        sys.exit(f"{path} has lines of more than 100 columns")
    return len(lines)


def sides(name, build):
    """The commands that run a program in C, and its twins."""
    commands = {"C": [build.resolve() / f"bin/examples/twin_{name}"],
                "PyTorch": [sys.executable, TWINS / f"twin_{name}.py"]}
    if (jax := TWINS / f"twin_{name}_jax.py").exists() and importlib.util.find_spec("jax"):
        commands["JAX"] = [sys.executable, jax]
    return commands


def step_times(name, build, kann):
    """{side: milliseconds}"""
    def measure(command):
        return float(re.search(r"([\d.]+) ms a step", run(command, cwd=folder, env=ALONE))[1])

    with tempfile.TemporaryDirectory() as folder:
        commands = sides(name, build)
        if kann and (ROOT / f"bench/kann/twin_{name}.c").exists():
            commands["kann"] = [compile_kann(kann, folder, f"twin_{name}.c")]
        calls = {side: lambda command=command: measure(command) for side, command in commands.items()}
        return {side: min(times) for side, times in take_turns(calls, 3).items()}


def losses(command):
    return [float(line) for line in run(command).splitlines()[:COMPARED]]


def check(build):
    """Whether the losses are PyTorch's to 1e-4 of the largest."""
    same = True
    for name, *recorded in map(str.split, LOSSES.read_text().splitlines()):
        recorded = [float(loss) for loss in recorded]
        off = max(abs(a - b) for a, b in zip(losses(sides(name, build)["C"]), recorded, strict=True))
        good = off <= 1e-4 * max(map(abs, recorded))
        same = same and good
        print(f"{name:14}losses {off:.1e} from PyTorch's{'' if good else ': too far'}")
    return same


def main():
    p = options(__doc__, "kann")
    p.add_argument("--time", metavar="BUILD_DIR", type=type(ROOT))
    p.add_argument("--check", metavar="BUILD_DIR", type=type(ROOT))
    p.add_argument("--record", action="store_true")
    p.add_argument("names", nargs="*", default=sorted(f.stem[5:] for f in TWINS.glob("twin_*.c")))
    args = p.parse_args()
    if args.record:
        LOSSES.write_text("".join(
            " ".join([name, *(f"{loss:.7g}" for loss in losses(sides(name, ROOT)["PyTorch"]))]) + "\n"
            for name in args.names if "import twin" in (TWINS / f"twin_{name}.py").read_text()))
    failed = bool(args.check) and not check(args.check)
    for name in args.names:
        ours, theirs = (lines_of(TWINS / f"twin_{name}.{kind}") for kind in ("c", "py"))
        row = f"{name:14}{ours:3} lines, PyTorch {theirs}: {ours / theirs:.2f}"
        if name in MOST:
            row += f", at most {MOST[name]}"
            failed = failed or ours / theirs > MOST[name]
        if args.time:
            ms = step_times(name, args.time, args.kann)
            own = ms.pop("C")
            row += f"; {own:.3g} ms a step" + "".join(
                f", {side} {theirs:.3g}: {own / theirs:.2f} times" for side, theirs in ms.items())
        print(row, flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
