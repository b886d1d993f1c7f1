#!/usr/bin/env python3
"""compare_twins.py - the programs of bench/twins/ in C and in PyTorch: their lines of at most 100
columns, without comments and blank ones; with --time the CPU time of a step on one thread,
the least of three runs.
    bench/compare_twins.py [--time BUILD_DIR]        status 1 if one in C has too many lines
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

TWINS = pathlib.Path(__file__).resolve().parent / "twins"
MOST = {"mlp": 1.6, "char_lstm": 2.0, "cnn": 2.5}  # times PyTorch's lines


def lines_of(path):
    comments = r'/\*.*?\*/|\A""".*?"""|^ *#(?!include).*$'
    text = re.sub(comments, "", path.read_text(), flags=re.S | re.M)
    lines = [line for line in text.splitlines() if line.strip()]
    if max(map(len, lines)) > 100:
        sys.exit(f"{path} has lines of more than 100 columns")
    return len(lines)


def step_time(command):
    with tempfile.TemporaryDirectory() as folder:
        runs = [subprocess.run(command, cwd=folder, capture_output=True, text=True)
                for _ in range(3)]
    times = [re.search(r"([\d.]+) ms a step", run.stdout) for run in runs]
    if not all(times):
        sys.exit(f"{command[-1]}: {runs[0].stdout}{runs[0].stderr}")
    return min(float(time[1]) for time in times)


parser = argparse.ArgumentParser()
parser.add_argument("--time", metavar="BUILD_DIR", type=pathlib.Path)
build = parser.parse_args().time
too_many = False
for name, most in MOST.items():
    c, py = TWINS / f"twin_{name}.c", TWINS / f"twin_{name}.py"
    ratio = lines_of(c) / lines_of(py)
    too_many = too_many or ratio > most
    row = f"{name:10}{lines_of(c):3} lines, PyTorch {lines_of(py)}: {ratio:.2f}, at most {most}"
    if build:
        ours = step_time([build.resolve() / f"bin/examples/twin_{name}"])
        theirs = step_time([sys.executable, py])
        row += f"; {ours:.3g} ms a step, PyTorch {theirs:.3g}: {ours / theirs:.2f} times"
    print(row)
sys.exit(too_many)
