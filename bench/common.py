"""What the comparisons share: options that are counts, programs that print figures as JSON, and
PyTorch's part of a training step. torch is an argument, since it may be missing."""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time


def count(text):
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f'"{text}" is not a whole number of at least 1')
    return value


def counts(text):
    """Several of them, with commas in between."""
    return [count(one) for one in text.split(",")]


def records(text):
    """The objects of a program's output that has a JSON object in a line; other lines are skipped."""
    found = []
    for line in text.splitlines():
        if line.lstrip().startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def adamw(torch, parameters, lr, beta2, **more):
    """The fused AdamW, with weight decay of matrices only, not of the RMSNorm weights."""
    parameters = list(parameters)
    return torch.optim.AdamW(
        [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.1},
         {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}],
        lr=lr, betas=(0.9, beta2), fused=True, **more)


def rotary(torch, width, context):
    """The cosines and sines of rotary positions, [context, width]."""
    rate = 10000.0 ** (-torch.arange(0, width, 2).float() / width)
    angle = torch.outer(torch.arange(context).float(), rate)
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def rotate(torch, x, cos, sin):
    """Rotary positions: the two halves of a head are the two axes of a rotation."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def steps_in(seconds, each):
    """How many steps of `each` seconds to time as one: 1 to 50."""
    return max(1, min(50, int(seconds / each)))


def time_rounds(step, wait, steps, rounds):
    """{"ms", "low", "high"} of a step: the median, least and most of rounds of `steps` without
    waiting in between; and what the last step returned."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(steps):
            result = step()
        wait()
        times.append((time.perf_counter() - begin) / steps * 1e3)
    return {"ms": statistics.median(times), "low": min(times), "high": max(times)}, result


def compile_kann(sources, folder, figures):
    """Compile the program `figures` with kann's sources in `folder`; return the command that runs it."""
    program = pathlib.Path(folder) / "kann"
    command = [*shlex.split(os.environ.get("CC", "cc")), "-O3", "-march=native", "-DHAVE_CBLAS",
               f"-I{sources}", str(figures), f"{sources}/kann.c", f"{sources}/kautodiff.c", "-o",
               str(program), "-lopenblas", "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"kann in {sources} does not compile: {done.stderr.strip()}")
    return [str(program)]
