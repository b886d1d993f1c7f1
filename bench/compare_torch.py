#!/usr/bin/env python3
"""Time gradus and PyTorch on the CPU, on the same work.

Two comparisons, both in float32 and with the same number of threads:

  train     one whole training step of a small Llama-style character model:
            zero the gradients, forward, backward, clip the gradient norm,
            AdamW.  PyTorch runs it eagerly and through torch.compile;
            gradus runs it as build/bin/gradus-train.
  rms_norm  RMSNorm of a square matrix, forward and backward (the gradients
            of the input and of the weight), again eager and compiled;
            gradus runs it as build/bin/gradus-bench.

How the measurement is kept fair:

  * The sides take turns for several rounds (ours, eager, compiled, ours, ...)
    so that a machine that slows down or speeds up does so for all of them.
  * Every number is a median, followed by the smallest and largest median of a
    single round: a wide span means a noisy machine.
  * PyTorch is given its fast paths: the fused AdamW, fused attention, fused
    RMSNorm.  Its allocator is set to keep freed memory and to use huge pages;
    otherwise large results are returned to the system after each use, and the
    time to map them again counts against PyTorch (--plain-malloc leaves the
    allocator unchanged).
  * The result is compared with the better of the two PyTorch modes.

Needs PyTorch; torch.compile needs a C++ compiler too (without one the
compiled mode is left out).  A gradus program that has not been built is
left out with one line saying so.

    python3 bench/compare_torch.py
    python3 bench/compare_torch.py --data text.txt --rounds 5 --steps 300
    python3 bench/compare_torch.py --only rms_norm
"""

import argparse
import json
import os
import pathlib
import random
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

from common import adamw, count, records, rotary, rotate

WARM_STEPS = 20  # steps that are run but not counted, on every side

# ---------------------------------------------------------------------------
# The text.  Both sides see the same bytes, so both have the same vocabulary:
# the distinct bytes of the text.
# ---------------------------------------------------------------------------


def synthetic_text(size, vocab, seed=1):
    """Return `size` bytes that look a little like prose, of `vocab` kinds."""
    if not 3 <= vocab <= 96:
        sys.exit("compare_torch: --vocab must lie between 3 and 96")
    # A space, a newline, then letters and other printable bytes as needed.
    order = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,;:'!?-&$3"
    order += bytes(b for b in range(33, 127) if b not in order)
    letters = order[: vocab - 2]
    rng = random.Random(seed)
    words = ["".join(chr(rng.choice(letters)) for _ in range(rng.randint(1, 9)))
             for _ in range(400)]
    out = bytearray(letters) + b" \n"  # every byte occurs at least once
    while len(out) < size:
        line = " ".join(rng.choice(words) for _ in range(rng.randint(3, 12)))
        out += line.encode() + b"\n"
    return bytes(out)


def encode(text):
    """Turn bytes into token numbers 0..V-1; return (list of ints, V)."""
    kinds = sorted(set(text))
    number = {byte: i for i, byte in enumerate(kinds)}
    return [number[byte] for byte in text], len(kinds)


# ---------------------------------------------------------------------------
# The PyTorch side.
# ---------------------------------------------------------------------------


def build_model(args, vocab):
    """The model: embedding, blocks, final RMSNorm, untied output, loss."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    dim, heads, kv_heads, context = args.dim, args.heads, args.kv_heads, args.context
    head_dim = dim // heads
    eps = 1e-5

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1 = nn.Parameter(torch.ones(dim))
            self.norm2 = nn.Parameter(torch.ones(dim))
            self.wq = nn.Linear(dim, heads * head_dim, bias=False)
            self.wk = nn.Linear(dim, kv_heads * head_dim, bias=False)
            self.wv = nn.Linear(dim, kv_heads * head_dim, bias=False)
            self.wo = nn.Linear(heads * head_dim, dim, bias=False)
            self.w_gate = nn.Linear(dim, args.ffn, bias=False)
            self.w_up = nn.Linear(dim, args.ffn, bias=False)
            self.w_down = nn.Linear(args.ffn, dim, bias=False)

        def forward(self, x, cos, sin):
            b, t, _ = x.shape
            h = F.rms_norm(x, (dim,), self.norm1, eps)
            q = self.wq(h).view(b, t, heads, head_dim).transpose(1, 2)
            k = self.wk(h).view(b, t, kv_heads, head_dim).transpose(1, 2)
            v = self.wv(h).view(b, t, kv_heads, head_dim).transpose(1, 2)
            a = F.scaled_dot_product_attention(
                rotate(torch, q, cos, sin), rotate(torch, k, cos, sin), v,
                is_causal=True, enable_gqa=kv_heads != heads)
            x = x + self.wo(a.transpose(1, 2).reshape(b, t, heads * head_dim))
            h = F.rms_norm(x, (dim,), self.norm2, eps)
            return x + self.w_down(F.silu(self.w_gate(h)) * self.w_up(h))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocab, dim)
            self.layers = nn.ModuleList(Block() for _ in range(args.layers))
            self.norm_final = nn.Parameter(torch.ones(dim))
            self.output = nn.Linear(dim, vocab, bias=False)
            cos, sin = rotary(torch, head_dim, context)
            self.register_buffer("cos", cos)
            self.register_buffer("sin", sin)
            for p in self.parameters():
                if p.ndim == 2:
                    nn.init.normal_(p, std=0.02)

        def forward(self, tokens, targets):
            x = self.embedding(tokens)
            for layer in self.layers:
                x = layer(x, self.cos, self.sin)
            x = F.rms_norm(x, (dim,), self.norm_final, eps)
            logits = self.output(x)
            return F.cross_entropy(logits.view(-1, vocab), targets.view(-1))

    torch.manual_seed(args.seed)
    return Model()


class TorchTrainer:
    """One PyTorch model with its optimiser; run(n) measures n training steps."""

    def __init__(self, args, tokens, vocab, compiled):
        import torch

        self.torch = torch
        self.args = args
        self.tokens = torch.tensor(tokens)
        self.model = build_model(args, vocab)
        self.parameters = list(self.model.parameters())
        self.call = torch.compile(self.model) if compiled else self.model
        self.optimizer = adamw(torch, self.parameters, 1e-3, 0.95)
        self.generator = torch.Generator().manual_seed(args.seed)

    def batch(self):
        """Random windows of the text, and the same windows one byte later."""
        torch, context = self.torch, self.args.context
        start = torch.randint(len(self.tokens) - context, (self.args.batch, 1),
                              generator=self.generator)
        at = start + torch.arange(context)
        return self.tokens[at], self.tokens[at + 1]

    def step(self, tokens, targets):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.call(tokens, targets)
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        return loss

    def run(self, steps):
        """Run warm-up steps and then `steps` more; milliseconds of the latter."""
        times = []
        for i in range(WARM_STEPS + steps):
            tokens, targets = self.batch()
            begin = time.perf_counter()
            self.step(tokens, targets)
            end = time.perf_counter()
            if i >= WARM_STEPS:
                times.append((end - begin) * 1e3)
        return times


class NormInputs:
    """The matrices that all PyTorch sides share, so that as few as possible
    compete for the caches."""

    def __init__(self, args):
        import torch

        torch.manual_seed(args.seed)
        self.x = torch.randn(args.rows, args.cols, requires_grad=True)
        self.w = torch.randn(args.cols, requires_grad=True)
        self.g = torch.randn(args.rows, args.cols)


class TorchNorm:
    """RMSNorm in PyTorch; run(n) measures n forward and n backward passes."""

    def __init__(self, inputs, compiled):
        import torch
        import torch.nn.functional as F

        self.torch = torch
        self.x, self.w, self.g = inputs.x, inputs.w, inputs.g

        def norm(x, w):
            return F.rms_norm(x, w.shape, w, 1e-5)

        self.norm = torch.compile(norm) if compiled else norm

    def forward(self):
        # As in training, the graph is recorded and keeps what backward needs.
        return self.norm(self.x, self.w)

    def run(self, count):
        y = self.forward()

        def backward():
            return self.torch.autograd.grad(y, (self.x, self.w), self.g, retain_graph=True)

        return {"rms_norm_forward": time_calls(self.forward, count),
                "rms_norm_backward": time_calls(backward, count)}


class TorchCopy:
    """Copying the same matrix: the upper bound set by memory bandwidth."""

    def __init__(self, inputs):
        self.source = inputs.g
        self.target = inputs.g.clone()

    def run(self, count):
        return {"copy": time_calls(lambda: self.target.copy_(self.source), count)}


def time_calls(function, count, warm=4):
    """Milliseconds of each of `count` calls, after `warm` uncounted ones."""
    times = []
    for i in range(warm + count):
        begin = time.perf_counter()
        result = function()
        end = time.perf_counter()
        del result  # freeing the result is not part of the work
        if i >= warm:
            times.append((end - begin) * 1e3)
    return times


# ---------------------------------------------------------------------------
# The gradus side: run the programs and parse their output.
# ---------------------------------------------------------------------------

# A line of gradus-train, whose ms is the mean since the line before (--log-every 1: of one step):
#   step 40/40 | loss 3.4724 | eta 0:00 | 2.6 ms | 24.7k tok/s | norm 0.90 | lr 2.0e-04 | mem 1 MiB
STEP = re.compile(r"\bstep\s+(\d+)(?:/\d+)?\s*\|")
MILLISECONDS = re.compile(r"\|\s*([0-9]*\.?[0-9]+(?:[eE][-+]?\d+)?)\s*ms\b")
TERMINAL_CODE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def read_train_output(text):
    """Return the ms column of every step line after the warm-up steps."""
    times = []
    # A progress line may be rewritten in place, so a carriage return ends it too.
    for line in re.split(r"[\r\n]+", TERMINAL_CODE.sub("", text)):
        step, took = STEP.search(line), MILLISECONDS.search(line)
        if step and took and int(step.group(1)) > WARM_STEPS:
            times.append(float(took.group(1)))
    return times


class Missing(Exception):
    """A side that cannot be measured; the text says why, in one line."""


def run_program(command, environment):
    """Run a program in a temporary folder and return its output."""
    path = pathlib.Path(command[0])
    if not path.is_file():
        raise Missing(f"{path} is not built: gradus left out")
    with tempfile.TemporaryDirectory(prefix="gradus-compare-") as folder:
        try:
            done = subprocess.run(command, cwd=folder, env=environment, text=True,
                                  errors="replace", stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False)
        except OSError as error:
            raise Missing(f"{path} does not start ({error.strerror}): gradus left out") from error
    if done.returncode != 0:
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        raise Missing(f"{path.name} ended with status {done.returncode} ({last}): gradus left out")
    return done.stdout


class GradusTrainer:
    def __init__(self, args, data, environment):
        self.environment = environment
        self.args = args
        self.data = data

    def run(self, steps):
        a = self.args
        command = [str(a.train_program), "--device", "cpu", "--data", str(self.data),
                   "--layers", a.layers, "--dim", a.dim, "--heads", a.heads,
                   "--kv-heads", a.kv_heads, "--ffn", a.ffn, "--context", a.context,
                   "--batch", a.batch, "--steps", steps + WARM_STEPS,
                   "--threads", a.threads, "--seed", a.seed, "--log-every", 1,
                   *shlex.split(a.train_args)]
        times = read_train_output(run_program([str(c) for c in command], self.environment))
        if not times:
            raise Missing(f"{a.train_program.name} printed no step line after step "
                          f"{WARM_STEPS}: gradus left out")
        return times


class GradusBench:
    def __init__(self, args, environment):
        self.environment = environment
        self.args = args

    def run(self, _count):
        a = self.args
        command = [str(a.bench_program), "rms_norm", "--rows", str(a.rows), "--cols", str(a.cols),
                   "--dtype", "f32", "--json", *shlex.split(a.bench_args)]
        found = {r["name"]: float(r["ms"]) for r in records(run_program(command, self.environment))}
        if not found:
            raise Missing(f"{a.bench_program.name} printed no JSON record: gradus left out")
        return {name: [ms] for name, ms in found.items()}


# ---------------------------------------------------------------------------
# Taking turns, and the tables.
# ---------------------------------------------------------------------------


def take_turns(sides, rounds, count):
    """Run every side once per round.  Return {name: [result of each round]}.

    `sides` maps a name to a function that builds the side.  A side that
    cannot be measured is dropped, with one line on the standard error.
    """
    ready, results = {}, {}

    def drop(name, error):
        text = str(error).strip() or type(error).__name__
        if not isinstance(error, Missing):
            text = f"{name} left out: {text.splitlines()[0]}"
        print(f"compare_torch: {text}", file=sys.stderr, flush=True)
        ready.pop(name, None)
        results.pop(name, None)

    for name, build in sides.items():
        try:
            ready[name] = build()
            if name != "gradus":
                ready[name].run(1)  # compile and warm up outside the rounds
        except Exception as error:  # one side must not stop the others
            drop(name, error)
    for _ in range(rounds):
        for name in list(ready):
            try:
                results.setdefault(name, []).append(ready[name].run(count))
            except Exception as error:
                drop(name, error)
    return results


def summary(rounds):
    """(median of all times, smallest and largest median of a round)."""
    medians = [statistics.median(times) for times in rounds]
    return (statistics.median(t for times in rounds for t in times),
            min(medians), max(medians))


def best_torch(table):
    """The smaller PyTorch median, or None when PyTorch was not measured."""
    times = [table[name][0] for name in ("eager", "compiled") if name in table]
    return min(times) if times else None


def ratio_text(best, ms):
    return f"{best / ms:.2f}x" if best else "-"


def compare_training(args, data, text, environment):
    """Measure the training step on all sides, print a table, return it."""
    tokens, vocab = encode(text)
    if len(tokens) <= args.context + 1:
        sys.exit("compare_torch: the text is shorter than the context")
    if vocab != args.vocab:
        print(f"compare_torch: the text has {vocab} distinct bytes; "
              f"the vocabulary is {vocab}", file=sys.stderr)
    head_dim = args.dim // args.heads
    per_layer = args.dim * (2 + 2 * (args.heads + args.kv_heads) * head_dim + 3 * args.ffn)
    size = 2 * vocab * args.dim + args.dim + args.layers * per_layer
    print(f"training step: {args.layers} layers, dim {args.dim}, heads {args.heads}, "
          f"kv heads {args.kv_heads}, ffn {args.ffn}, vocab {vocab}, "
          f"context {args.context}, batch {args.batch}")
    print(f"{size} parameters, float32, {args.threads} threads, "
          f"{args.rounds} rounds of {args.steps} steps")

    sides = {"gradus": lambda: GradusTrainer(args, data, environment),
             "eager": lambda: TorchTrainer(args, tokens, vocab, compiled=False),
             "compiled": lambda: TorchTrainer(args, tokens, vocab, compiled=True)}
    if args.no_compile:
        del sides["compiled"]
    results = take_turns(sides, args.rounds, args.steps)
    table = {name: summary(rounds) for name, rounds in results.items()}
    best = best_torch(table)
    tokens_a_step = args.batch * args.context

    print(f"\n{'side':<18}{'ms/step':>9}{'of rounds':>17}{'tokens/s':>11}{'speed':>9}")
    for name, (ms, low, high) in table.items():
        label = name if name == "gradus" else f"PyTorch {name}"
        print(f"{label:<18}{ms:>9.2f}{f'{low:.2f}-{high:.2f}':>17}"
              f"{tokens_a_step / ms * 1e3:>11.0f}{ratio_text(best, ms):>9}")
    print("speed: against the better PyTorch mode; above 1 is faster than it\n")
    return {name: {"ms": ms, "low": low, "high": high,
                   "tokens_per_second": tokens_a_step / ms * 1e3}
            for name, (ms, low, high) in table.items()}


def compare_rms_norm(args, environment):
    """Measure RMSNorm on all sides, print a table, return it."""
    size = args.rows * args.cols * 4
    # The least traffic: forward reads x and writes y; backward reads x and
    # the gradient of y and writes the gradient of x; a copy reads and writes.
    traffic = {"rms_norm_forward": 2 * size, "rms_norm_backward": 3 * size, "copy": 2 * size}
    print(f"rms_norm: {args.rows} x {args.cols}, float32, {args.threads} threads, "
          f"{args.rounds} rounds of {args.calls} calls")

    inputs = NormInputs(args)
    sides = {"gradus": lambda: GradusBench(args, environment),
             "eager": lambda: TorchNorm(inputs, compiled=False),
             "compiled": lambda: TorchNorm(inputs, compiled=True),
             "copy_": lambda: TorchCopy(inputs)}
    if args.no_compile:
        del sides["compiled"]
    results = take_turns(sides, args.rounds, args.calls)

    print(f"\n{'work':<19}{'side':<18}{'ms':>9}{'of rounds':>17}{'GB/s':>8}{'speed':>9}")
    out = {}
    for work in traffic:
        table = {name: summary([r[work] for r in rounds if work in r])
                 for name, rounds in results.items() if any(work in r for r in rounds)}
        best = best_torch(table)
        if work == "copy" and "copy_" in table:
            best = table["copy_"][0]
        for name, (ms, low, high) in table.items():
            label = name if name == "gradus" else f"PyTorch {name}"
            print(f"{work:<19}{label:<18}{ms:>9.2f}{f'{low:.2f}-{high:.2f}':>17}"
                  f"{traffic[work] / ms / 1e6:>8.1f}{ratio_text(best, ms):>9}")
            out.setdefault(work, {})[name] = {"ms": ms, "low": low, "high": high,
                                              "gbps": traffic[work] / ms / 1e6}
    print("GB/s: the least memory traffic the work needs, over the time it took\n")
    return out


# ---------------------------------------------------------------------------


def parse_arguments():
    p = argparse.ArgumentParser(
        description="Time gradus next to PyTorch on the CPU, on the same work.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--only", choices=("train", "rms_norm"), help="run one comparison only")
    model = p.add_argument_group("the model")
    model.add_argument("--layers", type=count, default=4, help="blocks")
    model.add_argument("--dim", type=count, default=128, help="width")
    model.add_argument("--heads", type=count, default=4, help="query heads")
    model.add_argument("--kv-heads", type=count, default=4, help="key and value heads")
    model.add_argument("--ffn", type=count, default=352, help="hidden width of the MLP")
    model.add_argument("--vocab", type=count, default=65,
                       help="distinct bytes of the made-up text; a text given by "
                            "--data brings its own")
    model.add_argument("--context", type=count, default=64, help="tokens a row")
    model.add_argument("--batch", type=count, default=12, help="rows a step")
    model.add_argument("--data", type=pathlib.Path,
                       help="text to train on, in place of a made-up one")
    norm = p.add_argument_group("RMSNorm")
    norm.add_argument("--rows", type=count, default=4096, help="rows of the matrix")
    norm.add_argument("--cols", type=count, default=4096, help="columns of the matrix")
    norm.add_argument("--calls", type=count, default=20, help="timed calls a round")
    how = p.add_argument_group("the measurement")
    how.add_argument("--threads", type=count, default=2, help="threads on every side")
    how.add_argument("--steps", type=count, default=100, help="timed steps a round")
    how.add_argument("--rounds", type=count, default=3, help="turns of every side")
    how.add_argument("--seed", type=int, default=1, help="seed of all random numbers")
    how.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    how.add_argument("--plain-malloc", action="store_true",
                     help="do not tell PyTorch's allocator to keep freed memory")
    ours = p.add_argument_group("the gradus programs")
    ours.add_argument("--train-program", type=pathlib.Path,
                      default=pathlib.Path("build/bin/gradus-train"), help="training program")
    ours.add_argument("--bench-program", type=pathlib.Path,
                      default=pathlib.Path("build/bin/gradus-bench"), help="kernel benchmark")
    ours.add_argument("--train-args", default="", help="more flags for the training program")
    ours.add_argument("--bench-args", default="", help="more flags for the kernel benchmark")
    p.add_argument("--json", type=pathlib.Path, help="write the numbers to this file as well")
    args = p.parse_args()
    if args.dim % args.heads or args.heads % args.kv_heads:
        p.error("--dim must be a multiple of --heads, and --heads of --kv-heads")
    if args.dim // args.heads % 2:
        p.error("the width of a head (--dim over --heads) must be even")
    args.train_program = args.train_program.resolve()
    args.bench_program = args.bench_program.resolve()
    return args


# Read when the process starts.  The first three tell glibc to take large
# blocks from the heap rather than from the system, and never to give the heap
# back; the last asks PyTorch to put large tensors on huge pages.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32),
               "MALLOC_TRIM_THRESHOLD_": str(1 << 33),
               "MALLOC_TOP_PAD_": str(1 << 28),
               "THP_MEM_ALLOC_ENABLE": "1"}


def main():
    args = parse_arguments()
    # The allocator reads these when the process starts, so start it again.
    if not args.plain_malloc and not all(name in os.environ for name in KEEP_MEMORY):
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})
    # The gradus programs run in the plain environment.
    environment = {k: v for k, v in os.environ.items() if k not in KEEP_MEMORY}

    try:
        import torch
    except ImportError as error:
        sys.exit(f"compare_torch: PyTorch is needed ({error})")
    import logging
    logging.getLogger("torch").setLevel(logging.ERROR)
    torch.set_num_threads(args.threads)
    print(f"PyTorch {torch.__version__}\n")

    numbers = {"torch": torch.__version__, "threads": args.threads}
    if args.only != "rms_norm":
        with tempfile.TemporaryDirectory(prefix="gradus-text-") as folder:
            if args.data:
                try:
                    data = args.data.resolve()
                    text = data.read_bytes()
                except OSError as error:
                    sys.exit(f"compare_torch: {args.data}: {error.strerror}")
            else:
                data = pathlib.Path(folder) / "text.txt"
                text = synthetic_text(1 << 20, args.vocab)
                data.write_bytes(text)
            numbers["train"] = compare_training(args, data, text, environment)
    if args.only != "train":
        numbers["rms_norm"] = compare_rms_norm(args, environment)
    if args.json:
        args.json.write_text(json.dumps(numbers, indent=2) + "\n")


if __name__ == "__main__":
    main()
