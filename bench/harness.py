"""What the comparisons share: options, PyTorch as they use it, programs that print figures as JSON,
sides that take turns, clocks and tables."""
import argparse
import json
import logging
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = pathlib.Path(sys.argv[0]).stem


# ---- Options and messages -----------------------------------------------------------------------


def count(text):
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number of at least 1')
    return value


def several(one, known=()):
    """The type of an option: several of a type, or of the known names, with commas in between."""
    def read(text):
        values = [one(part) for part in text.split(",")]
        for value in values:
            if known and value not in known:
                raise argparse.ArgumentTypeError(f"{value} is none of {', '.join(known)}")
        return values
    return read


def of(known):
    """The option of some names, all by default."""
    return {"type": several(str, known), "default": list(known)}


SHARED = {
    "bench": {"type": pathlib.Path, "default": ROOT / "build/bin/gradus-bench"},
    "train": {"type": pathlib.Path, "default": ROOT / "build/bin/gradus-train"},
    "device": {"choices": ("cuda", "cpu"), "default": "cuda"},
    "threads": {"type": count, "help": "on the CPU, on all sides"},
    "rounds": {"type": count, "default": 5, "help": "turns of each side"},
    "kann": {"help": "a folder with kann's sources"},
    "no-compile": {"action": "store_true", "help": "leave torch.compile out"},
    "json": {"type": pathlib.Path, "help": "write the figures to this file, too"},
    "tsv": {"type": argparse.FileType("w"), "help": "a file for the figures"},
    "one": {"help": argparse.SUPPRESS},  # what the process that it starts is to measure
}


def options(doc, *shared, **defaults):
    """A parser with the shared options of those names."""
    parser = argparse.ArgumentParser(description=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in shared:
        parser.add_argument("--" + name, **SHARED[name])
    parser.set_defaults(**defaults)
    return parser


def say(text):
    print(f"{NAME}: {text}", file=sys.stderr, flush=True)


def left_out(name, error):
    """Says in one line why a side is not measured."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    say(f"{name} is left out: {text[:200]}")


def stop(text):
    sys.exit(f"{NAME}: {text}")


# ---- PyTorch and programs -----------------------------------------------------------------------


def get_torch(device="cpu", threads=None):
    """PyTorch, with products in float32 as such and cuDNN's choice by time."""
    try:
        import torch
    except ImportError:
        stop("PyTorch is missing")
    if device == "cuda" and not torch.cuda.is_available():
        stop("no GPU")
    if threads:
        torch.set_num_threads(threads)
    logging.getLogger("torch").setLevel(logging.ERROR)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return torch


def machine(torch, device):
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return f"{name}, PyTorch {torch.__version__}"


def records(text):
    """The objects of a text that has a JSON object in a line; other lines are skipped."""
    found = []
    for line in text.splitlines():
        if line.lstrip().startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def why(text):
    """The line of a failed process's output that names the error: the last exception's, if any."""
    lines = text.strip().splitlines() or ["nothing"]
    return ([line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)] or lines)[-1]


def run(command, **how):
    """What a program prints; RuntimeError, with what it says, if it fails."""
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    except OSError as error:
        raise RuntimeError(f"{command[0]} does not start: {error.strerror}") from error
    if done.returncode:
        raise RuntimeError(f"{command[0]} fails: {why(done.stderr.strip() or done.stdout)}")
    return done.stdout


def bench(args, what, *more, **how):
    """The figures of `gradus-bench WHAT --json`, which ends the comparison if it fails."""
    command = [args.bench, what, "--json", *more]
    for name in ("device", "threads"):
        if getattr(args, name, None):
            command += ["--" + name, getattr(args, name)]
    try:
        return records(run(command, **how))
    except RuntimeError as error:
        stop(error)


def train(program, folder, *arguments, warm, **how):
    """gradus-train, with a line of its log in `folder` for each step: (milliseconds of the steps after
    the warm ones, the last line, what it prints)."""
    log = pathlib.Path(folder) / "log.jsonl"
    log.unlink(missing_ok=True)
    said = run([program, *arguments, "--log", log], cwd=folder, **how)
    lines = [line for line in records(log.read_text()) if "ms" in line and line["step"] > warm]
    if not lines:
        raise RuntimeError("gradus-train made too few steps")
    return [line["ms"] for line in lines], lines[-1], said


def mib_before(said, what):
    """Of what gradus-train prints: the memory of a kind before the first step."""
    found = re.search(rf"memory \S+ ([MG])iB before the first step:.* {what} ([0-9.]+)", said)
    return float(found[2]) * (1024 if found[1] == "G" else 1) if found else 0.0


def compile_kann(sources, folder, figures):
    """Compile the program `figures` with kann's sources in `folder`; return its path."""
    program = pathlib.Path(folder) / "kann"
    try:
        run([*shlex.split(os.environ.get("CC", "cc")), "-O3", "-march=native", "-DHAVE_CBLAS",
             f"-I{sources}", ROOT / "bench/kann" / figures, f"{sources}/kann.c",
             f"{sources}/kautodiff.c", "-o", program, "-lopenblas", "-lm"])
    except RuntimeError as error:
        stop(f"kann in {sources} does not compile: {error}")
    return program


# ---- Clocks and turns ---------------------------------------------------------------------------


def mean_seconds(call, calls, wait=lambda: None):
    """Of a call, on the host's clock, with one wait after all."""
    wait()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    wait()
    return (time.perf_counter() - begin) / calls


def device_us(torch, device, call, calls):
    """Microseconds of a call on the device: by events on a GPU, with the host ahead."""
    if device == "cpu":
        return mean_seconds(call, calls) * 1e6
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(10_000_000)
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / calls


def steps_in(seconds, each):
    """How many steps of `each` seconds to time as one: 1 to 50."""
    return max(1, min(50, int(seconds / each)))


def spread(times):
    """(median, least, most)"""
    return statistics.median(times), min(times), max(times)


def time_rounds(step, wait, steps, rounds):
    """{"ms", "low", "high"} of a step, in rounds of `steps` without waiting in between."""
    times = [mean_seconds(step, steps, wait) * 1e3 for _ in range(rounds)]
    return dict(zip(("ms", "low", "high"), spread(times)))


def take_turns(sides, rounds, *arguments):
    """{name: [what its function returned in each round]}; one that fails is left out."""
    results = {name: [] for name in sides}
    for _ in range(rounds):
        for name in list(results):
            try:
                results[name].append(sides[name](*arguments))
            except Exception as error:  # one side must not stop the others
                left_out(name, error)
                del results[name]
    return results


def least(rounds):
    """{name: the least of its numbers} of several such dicts."""
    return {name: min(r[name] for r in rounds if name in r) for r in rounds for name in r}


# ---- Tables -------------------------------------------------------------------------------------


class Table:
    """Columns: pairs of a head and a format, of which text takes the width alone."""

    def __init__(self, *columns, indent=""):
        self.formats, self.indent = [column[1] for column in columns], indent
        self.line(*(column[0] for column in columns))

    def line(self, *cells):
        texts = (format(cell, f.split(".")[0] if isinstance(cell, str) else f)
                 for cell, f in zip(cells, self.formats))
        print(self.indent + " ".join(texts).rstrip(), flush=True)
