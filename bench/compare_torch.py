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

torch.compile needs a C++ compiler (without one the compiled mode is left out).
A gradus program that has not been built is left out with one line saying so.

    bench/compare_torch.py
    bench/compare_torch.py --data text.txt --rounds 5 --steps 300
    bench/compare_torch.py --only rms_norm
"""
import json
import os
import pathlib
import random
import shlex
import statistics
import sys
import tempfile
import time

from harness import (Table, count, get_torch, left_out, options, records, run, say, stop, take_turns,
                     train)
from llama import Sizes, Trainer

WARM_STEPS = 20  # steps that are run but not counted, on every side
MODES = {"PyTorch eager": None, "PyTorch compiled": ""}

# Read when the process starts. The first three tell glibc to take large blocks from the heap rather than
# from the system, and never to give the heap back; the last asks PyTorch to put large tensors on huge
# pages. The gradus programs run without them.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 33),
               "MALLOC_TOP_PAD_": str(1 << 28), "THP_MEM_ALLOC_ENABLE": "1"}


def milliseconds(call, calls, warm, prepare=lambda: None):
    """Of each of `calls` calls, after the uncounted ones."""
    times = []
    for _ in range(warm + calls):
        prepare()
        begin = time.perf_counter()
        result = call()
        times.append((time.perf_counter() - begin) * 1e3)
        del result  # freeing the result is not part of the work
    return times[warm:]


def make_text(size, vocab, seed):
    """Bytes of `vocab` kinds, each at least once."""
    if vocab > 96:
        stop("--vocab is at most 96")
    kinds = b"\n" + bytes(range(32, 127))
    return kinds[:vocab] + bytes(random.Random(seed).choices(kinds[:vocab], k=size))


def text_trainer(torch, args, sizes, tokens, mode):
    """What times training steps on windows of the text."""
    trainer = Trainer(torch, sizes, mode=mode, lr=1e-3, seed=args.seed)
    generator = torch.Generator().manual_seed(args.seed)

    def next_batch():
        """Random windows of the text, and the same windows one byte later."""
        start = torch.randint(len(tokens) - sizes.context, (sizes.batch, 1), generator=generator)
        at = start + torch.arange(sizes.context)
        trainer.tokens, trainer.targets = tokens[at], tokens[at + 1]

    return lambda steps: milliseconds(trainer.step, steps, WARM_STEPS, next_batch)


def gradus_trainer(args, data, environment, folder):
    sizes = [word for key in ("layers", "dim", "heads", "kv_heads", "ffn", "context", "batch", "threads",
                              "seed") for word in ("--" + key.replace("_", "-"), getattr(args, key))]
    return lambda steps: train(
        args.train_program, folder, "--device", "cpu", "--data", data, *sizes,
        "--steps", steps + WARM_STEPS, "--log-every", 1, *shlex.split(args.train_args),
        warm=WARM_STEPS, env=environment)[0]


def torch_norm(torch, x, weight, dy, compiled):
    """What times RMSNorm forward and backward."""
    def norm(x, weight):
        return torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-5)

    call = torch.compile(norm) if compiled else norm

    def measure(calls):
        y = call(x, weight)
        ways = {  # as in training, the graph is recorded and keeps what the backward needs
            "rms_norm_forward": lambda: call(x, weight),
            "rms_norm_backward": lambda: torch.autograd.grad(y, (x, weight), dy, retain_graph=True)}
        return {name: milliseconds(way, calls, 4) for name, way in ways.items()}

    return measure


def gradus_norm(args, environment):
    command = [args.bench_program, "rms_norm", "--rows", args.rows, "--cols", args.cols, "--dtype", "f32",
               "--json", *shlex.split(args.bench_args)]
    return lambda _: {r["name"]: [r["ms"]] for r in records(run(command, env=environment))}


def turns_of(args, sides, calls):
    """take_turns, for which PyTorch has compiled and warmed up before."""
    if args.no_compile:
        del sides["PyTorch compiled"]
    for name in [name for name in sides if name != "gradus"]:
        try:
            sides[name](1)
        except Exception as error:
            left_out(name, error)
            del sides[name]
    return take_turns(sides, args.rounds, calls)


def figures(sides, amount, per, best=None):
    """{side: {"ms", "low", "high", per}} of its times in each round; their lines, with the speed against
    the side `best`, or the better mode of PyTorch."""
    table = {}
    for side, rounds in sides.items():
        medians = [statistics.median(times) for times in rounds]
        ms = statistics.median(time for times in rounds for time in times)
        table[side] = {"ms": ms, "low": min(medians), "high": max(medians), per: amount / ms}
    peers = [table[side]["ms"] for side in ([best] if best else MODES) if side in table]
    lines = [(side, f["ms"], f"{f['low']:.2f}-{f['high']:.2f}", f[per],
              f"{min(peers) / f['ms']:.2f}x" if peers else "-") for side, f in table.items()]
    return {side.removeprefix("PyTorch "): f for side, f in table.items()}, lines


def compare_training(torch, args, data, text, environment, folder):
    """Measure the training step on all sides, print a table, return it."""
    kinds = sorted(set(text))  # the vocabulary of both sides
    number = {byte: i for i, byte in enumerate(kinds)}
    tokens, vocab = torch.tensor([number[byte] for byte in text]), len(kinds)
    if len(tokens) <= args.context + 1:
        stop("the text is shorter than the context")
    if vocab != args.vocab:
        say(f"the text has {vocab} distinct bytes; the vocabulary is {vocab}")
    sizes = Sizes(vocab, args.dim, args.layers, args.heads, args.ffn, args.context, args.batch, 0.0,
                  args.kv_heads)
    width = args.dim // args.heads
    per_layer = args.dim * (2 + 2 * (args.heads + args.kv_heads) * width + 3 * args.ffn)
    print(f"training step: {args.layers} layers, dim {args.dim}, heads {args.heads}, "
          f"kv heads {args.kv_heads}, ffn {args.ffn}, vocab {vocab}, "
          f"context {args.context}, batch {args.batch}")
    print(f"{2 * vocab * args.dim + args.dim + args.layers * per_layer} parameters, float32, "
          f"{args.threads} threads, {args.rounds} rounds of {args.steps} steps")
    sides = {"gradus": gradus_trainer(args, data, environment, folder)}
    for side, mode in MODES.items():
        sides[side] = text_trainer(torch, args, sizes, tokens, mode)
    found, lines = figures(turns_of(args, sides, args.steps), args.batch * args.context * 1e3,
                           "tokens_per_second")
    print()
    table = Table(("side", "<17"), ("ms/step", ">9.2f"), ("of rounds", ">16"), ("tokens/s", ">10.0f"),
                  ("speed", ">8"))
    for line in lines:
        table.line(*line)
    print("speed: against the better PyTorch mode; above 1 is faster than it\n")
    return found


def compare_rms_norm(torch, args, environment):
    """Measure RMSNorm on all sides, print a table, return it."""
    size = args.rows * args.cols * 4
    # The least traffic: forward reads x and writes y; backward reads x and
    # the gradient of y and writes the gradient of x; a copy reads and writes.
    traffic = {"rms_norm_forward": 2 * size, "rms_norm_backward": 3 * size, "copy": 2 * size}
    print(f"rms_norm: {args.rows} x {args.cols}, float32, {args.threads} threads, "
          f"{args.rounds} rounds of {args.calls} calls\n")
    torch.manual_seed(args.seed)
    x, dy = torch.randn(2, args.rows, args.cols)
    weight = torch.randn(args.cols, requires_grad=True)
    x.requires_grad_()
    to = dy.clone()
    sides = {"gradus": gradus_norm(args, environment)}
    for side, mode in MODES.items():
        sides[side] = torch_norm(torch, x, weight, dy, mode is not None)
    sides["PyTorch copy_"] = lambda calls: {"copy": milliseconds(lambda: to.copy_(dy), calls, 4)}
    results = turns_of(args, sides, args.calls)

    table = Table(("work", "<18"), ("side", "<17"), ("ms", ">9.2f"), ("of rounds", ">16"),
                  ("GB/s", ">7.1f"), ("speed", ">8"))
    out = {}
    for work, moved in traffic.items():
        of_work = {side: [r[work] for r in rounds] for side, rounds in results.items()
                   if rounds and work in rounds[0]}
        out[work], lines = figures(of_work, moved / 1e6, "gbps",
                                   "PyTorch copy_" if work == "copy" else None)
        for line in lines:
            table.line(work, *line)
    print("GB/s: the least memory traffic the work needs, over the time it took\n")
    return out


def parse_arguments():
    p = options("Time gradus next to PyTorch on the CPU, on the same work.", "no-compile", "rounds",
                "json", rounds=3)
    p.add_argument("--only", choices=("train", "rms_norm"), help="run one comparison only")
    for name, default, text in (
            ("layers", 4, "blocks"), ("dim", 128, "width"), ("heads", 4, "query heads"),
            ("kv-heads", 4, "key and value heads"), ("ffn", 352, "hidden width of the MLP"),
            ("vocab", 65, "distinct bytes of the made-up text; --data brings its own"),
            ("context", 64, "tokens a row"), ("batch", 12, "rows a step"),
            ("rows", 4096, "of RMSNorm's matrix"), ("cols", 4096, "of RMSNorm's matrix"),
            ("calls", 20, "timed calls of RMSNorm a round"), ("steps", 100, "timed steps a round"),
            ("threads", 2, "threads on every side"), ("seed", 1, "seed of all random numbers")):
        p.add_argument("--" + name, type=int if name == "seed" else count, default=default,
                       help=f"{text} (default: {default})")
    p.add_argument("--data", type=pathlib.Path, help="text to train on, in place of a made-up one")
    p.add_argument("--plain-malloc", action="store_true",
                   help="do not tell PyTorch's allocator to keep freed memory")
    for kind, name in (("train", "gradus-train"), ("bench", "gradus-bench")):
        p.add_argument(f"--{kind}-program", type=pathlib.Path,
                       default=pathlib.Path("build/bin") / name, help=f"in place of {name}")
        p.add_argument(f"--{kind}-args", default="", help=f"more flags for {name}")
    args = p.parse_args()
    if args.dim % args.heads or args.heads % args.kv_heads:
        p.error("--dim must be a multiple of --heads, and --heads of --kv-heads")
    if args.dim // args.heads % 2:
        p.error("the width of a head (--dim over --heads) must be even")
    args.train_program = args.train_program.resolve()
    args.bench_program = args.bench_program.resolve()
    return args


def main():
    args = parse_arguments()
    # The allocator reads these when the process starts, so start it again.
    if not args.plain_malloc and not all(name in os.environ for name in KEEP_MEMORY):
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})
    environment = {k: v for k, v in os.environ.items() if k not in KEEP_MEMORY}
    torch = get_torch(threads=args.threads)
    print(f"PyTorch {torch.__version__}\n")
    numbers = {"torch": torch.__version__, "threads": args.threads}
    if args.only != "rms_norm":
        with tempfile.TemporaryDirectory(prefix="gradus-text-") as folder:
            data = args.data and args.data.resolve()
            if not data:
                data = pathlib.Path(folder) / "text.txt"
                data.write_bytes(make_text(1 << 20, args.vocab, args.seed))
            try:
                text = data.read_bytes()
            except OSError as error:
                stop(f"{args.data}: {error.strerror}")
            numbers["train"] = compare_training(torch, args, data, text, environment, folder)
    if args.only != "train":
        numbers["rms_norm"] = compare_rms_norm(torch, args, environment)
    if args.json:
        args.json.write_text(json.dumps(numbers, indent=2) + "\n")


if __name__ == "__main__":
    main()
