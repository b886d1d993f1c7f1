#!/usr/bin/env python3
"""Prints which lines and branches of src/ and kernels/ have run, from gcov's files.

    coverage_table.py ROOT BUILD

A file that is compiled twice (for float and for double) counts once: a line or branch is reached if
either of the two reached it.
"""
import collections
import json
import pathlib
import subprocess
import sys
from itertools import zip_longest


def gcov_files(build):
    """gcov's output for every object of the library: one dict per source or header in it."""
    for notes in sorted(build.glob("CMakeFiles/gradus_objects*/**/*.gcno")):
        result = subprocess.run(
            ["gcov", "--json-format", "--stdout", "--branch-probabilities", str(notes)],
            cwd=build, check=True, capture_output=True, text=True)
        for document in result.stdout.splitlines():
            yield from json.loads(document)["files"]


def ranges(numbers):
    """[1, 2, 3, 7] as "1-3 7"."""
    spans = []
    for n in numbers:
        if spans and spans[-1][1] == n - 1:
            spans[-1][1] = n
        else:
            spans.append([n, n])
    return " ".join(f"{a}-{b}" if b > a else f"{a}" for a, b in spans)


def share(reached, total):
    return f"{reached:5d} of {total:5d} {100 * reached / total if total else 100:6.1f}%"


def main():
    root, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    lines = collections.defaultdict(dict)  # file -> line -> execution count
    branches = collections.defaultdict(dict)  # file -> line -> count of each branch
    for file in gcov_files(build):
        path = (build / file["file"]).resolve()
        if not any(path.is_relative_to(root / room) for room in ("src", "kernels")):
            continue
        if path.name.startswith(("test", "planted")):  # of an op, in its folder
            continue
        name = str(path.relative_to(root))
        for line in file["lines"]:
            n = line["line_number"]
            lines[name][n] = lines[name].get(n, 0) + line["count"]
            taken = [branch["count"] for branch in line["branches"] if not branch["throw"]]
            before = branches[name].get(n, [])
            branches[name][n] = [a + b for a, b in zip_longest(before, taken, fillvalue=0)]

    total = [0, 0, 0, 0]
    print(f"{'file':42} {'lines':>22} {'branches':>22}  lines that never ran")
    for name in sorted(lines):
        taken = [count for counts in branches[name].values() for count in counts]
        row = [sum(c > 0 for c in lines[name].values()), len(lines[name]),
               sum(c > 0 for c in taken), len(taken)]
        total = [a + b for a, b in zip(total, row)]
        never = ranges(sorted(n for n, count in lines[name].items() if count == 0))
        print(f"{name:42} {share(*row[:2])} {share(*row[2:])}  {never}")
    print(f"{'total':42} {share(*total[:2])} {share(*total[2:])}")


main()
