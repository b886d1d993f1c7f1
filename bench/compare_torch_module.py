#!/usr/bin/env python3
"""RMSNorm of the Python package compared with torch.nn.RMSNorm, torch.compile and, if they are
installed, Liger and QuACK: forward and backward as a model calls them, through autograd.

    bench/compare_torch_module.py [--device cuda] [--only host,widths,compiled,model] [--quick]
                                  [--rounds 5] [--threads N] [--tsv FILE]

host      Host time of a call in eager mode, in a chain of 64 norms of 64 rows of 256, each with a
          weight of its own.
widths    Device time at the widths of real models, bfloat16 with float32 and bfloat16 weights on a
          GPU, float32 on the CPU; GB/s for the minimal traffic, 2 M N forward, 3 M N backward.
          With float32 weights PyTorch's results are float32, all others' bfloat16.
compiled  At the first three widths, inside a compiled function: y = norm(x * 2) + x.
model     A training step of a transformers Llama of 1 B parameters' shapes with random weights, in
          bfloat16 with AdamW: milliseconds and peak memory, before and after gradus.patch.

All sides take turns in each round; the figures are medians over the rounds, followed by minimum and
maximum. A side that fails is left out with a line on stderr. Needs the package (pip install
./python, or PYTHONPATH=python and GRADUS_LIBRARY).
"""

import argparse
import functools
import importlib
import statistics
import sys
import time

import torch

import gradus
from common import count

EPS = 1e-6
WIDTHS = [(16384, 2048), (8192, 4096), (8192, 5120), (8192, 8192), (32768, 4096), (262144, 128)]
CPU_WIDTHS = [(2048, 768), (2048, 2048), (2048, 4096)]


class Norm:
    """A named norm, as a function of x and weight."""

    def __init__(self, name, function):
        self.name, self.function = name, function


def left_out(name, error):
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    print(f"{name} is left out: {text[:160]}", file=sys.stderr, flush=True)


def compiled(x, weight):
    return torch.nn.functional.rms_norm(x, weight.shape, weight, EPS)


@functools.cache
def norms(device):
    """Our norm, PyTorch's, and the other installed ones."""
    found = [
        Norm("gradus", lambda x, w: gradus.rms_norm(x, w, eps=EPS)),
        Norm("torch", lambda x, w: torch.nn.functional.rms_norm(x, w.shape, w, EPS)),
        Norm("torch.compile", torch.compile(compiled, dynamic=False)),
    ]
    if device == "cpu":
        return found
    try:
        liger = importlib.import_module("liger_kernel.ops.rms_norm").LigerRMSNormFunction
        found.append(Norm("Liger", lambda x, w: liger.apply(x, w, EPS, 0.0, "llama", False)))
    except Exception as error:
        left_out("Liger", error)
    try:
        quack = importlib.import_module("quack.rmsnorm").rmsnorm
        found.append(Norm("QuACK", lambda x, w: quack(x, w, eps=EPS)))
    except Exception as error:
        left_out("QuACK", error)
    return found


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def mean_seconds(call, device, count):
    wait(device)
    begin = time.perf_counter()
    for _ in range(count):
        call()
    wait(device)
    return (time.perf_counter() - begin) / count


def calls_in(call, device, least):
    """How many calls take about `least` seconds."""
    call()
    count = 1
    while (taken := count * mean_seconds(call, device, count)) < least / 2:
        count = int(count * min(10.0, 1 + least / max(taken, 1e-9)))
    return max(1, int(count * least / taken))


class Sides:
    """Calls that take turns. times[name]: one number per round."""

    def __init__(self, args):
        self.args, self.calls, self.times = args, {}, {}

    def add(self, name, call):
        try:
            self.calls[name] = call, self.args.device, calls_in(call, self.args.device, 0.02)
            self.times[name] = []
        except Exception as error:
            left_out(name, error)

    def run(self):
        for _ in range(self.args.rounds):
            for name in list(self.times):
                try:
                    self.times[name].append(mean_seconds(*self.calls[name]))
                except Exception as error:
                    left_out(name, error)
                    del self.times[name]
        return {name: (statistics.median(t), min(t), max(t)) for name, t in self.times.items()}


def inputs(rows, cols, dtype, weight_dtype, device, sets):
    """Several sets of x and dy, so that none is still in a cache when it is used again."""
    weight = torch.randn(cols, device=device, dtype=weight_dtype, requires_grad=True)
    return weight, [
        (torch.randn(rows, cols, device=device, dtype=dtype, requires_grad=True),
         torch.randn(rows, cols, device=device, dtype=dtype)) for _ in range(sets)
    ]


def ways(norm, weight, sets):
    """(forward, backward), each of which cycles through the sets."""
    at = {"forward": 0, "backward": 0}
    results = [norm(x, weight) for x, _ in sets]
    cotangents = [dy.to(y.dtype) for y, (_, dy) in zip(results, sets)]

    def forward():
        at["forward"] = (at["forward"] + 1) % len(sets)
        return norm(sets[at["forward"]][0], weight)

    def backward():
        at["backward"] = i = (at["backward"] + 1) % len(sets)
        return torch.autograd.grad(results[i], (sets[i][0], weight), cotangents[i],
                                   retain_graph=True)

    return forward, backward


class Table:
    def __init__(self, file):
        self.file = file

    def line(self, what, size, way, side, unit, triple, more=""):
        text = [what, size, way, side, *(f"{t:.6g}" for t in triple), unit, more]
        print(f"{what:9} {size:28} {way:9} {side:14} " + "{:>9} ({}-{}) {}  {}".format(*text[4:]),
              flush=True)
        if self.file:
            print("\t".join(text), file=self.file, flush=True)


def chain(norm, x, weights, dy):
    """Host seconds of a forward and of a backward of one norm among many in a row."""
    wait(x.device.type)
    begin = time.perf_counter()
    y = x
    for weight in weights:
        y = norm(y, weight)
    middle = time.perf_counter()
    torch.autograd.grad(y, (x, *weights), dy)
    end = time.perf_counter()
    return (middle - begin) / len(weights), (end - middle) / len(weights)


def host(args, table):
    """Few rows, so that a GPU finishes a call before the host has queued the next one. The cost of
    starting a backward is spread over 64 norms."""
    gpu = args.device == "cuda"
    dtype = torch.bfloat16 if gpu else torch.float32
    rows, cols = (64, 256) if gpu else (2, 8)
    weight, ((x, dy),) = inputs(rows, cols, dtype, dtype, args.device, 1)
    weights = [weight.detach().clone().requires_grad_() for _ in range(64)]
    times = {norm.name: [] for norm in norms(args.device)}
    for _ in range(args.rounds):
        for norm in norms(args.device):
            if norm.name not in times:
                continue
            try:
                chain(norm.function, x, weights, dy)
                several = [chain(norm.function, x, weights, dy) for _ in range(20)]
                times[norm.name].append([statistics.median(t) for t in zip(*several)])
            except Exception as error:
                left_out(norm.name, error)
                del times[norm.name]
    for way in (0, 1):
        for name, rounds in times.items():
            t = [1e6 * r[way] for r in rounds]
            table.line("host", f"{rows}x{cols} {str(dtype)[6:]}", ("forward", "backward")[way],
                       name, "us", (statistics.median(t), min(t), max(t)))


def widths(args, table, what="widths", inside=lambda norm: norm):
    gpu = args.device == "cuda"
    shapes = (WIDTHS if gpu else CPU_WIDTHS)[: 2 if args.quick else 3 if what == "compiled" else 6]
    weights = (torch.bfloat16, torch.float32) if gpu and what == "widths" else (None,)
    for rows, cols in shapes:
        for weight_dtype in weights:
            dtype = torch.bfloat16 if gpu else torch.float32
            one = rows * cols * dtype.itemsize
            count = min(16, max(2, int(4e8 / (2 * one)) + 1)) if gpu else 2
            weight, sets = inputs(rows, cols, dtype, weight_dtype or dtype, args.device, count)
            forwards, backwards = Sides(args), Sides(args)
            torch._dynamo.reset()
            for norm in norms(args.device):
                try:
                    forward, backward = ways(inside(norm.function), weight, sets)
                except Exception as error:
                    left_out(norm.name, error)
                    continue
                forwards.add(norm.name, forward)
                backwards.add(norm.name, backward)
            size = f"{rows}x{cols} {str(dtype)[6:]}"
            if weight_dtype not in (None, dtype):
                size += " float32 w"
            for way, sides, passes in (("forward", forwards, 2), ("backward", backwards, 3)):
                for name, triple in sides.run().items():
                    table.line(what, size, way, name, "us", [t * 1e6 for t in triple],
                               f"{passes * one / triple[0] / 1e9:.4g} GB/s")


def compiled_widths(args, table):
    def inside(norm):
        return torch.compile(lambda x, w: norm(x * 2, w) + x, dynamic=False)

    widths(args, table, "compiled", inside)


def model(args, table):
    try:
        import transformers
    except ImportError as error:
        return left_out("model", error)
    gpu = args.device == "cuda"
    config = transformers.LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
        num_attention_heads=32, num_key_value_heads=8, head_dim=64, tie_word_embeddings=True)
    if args.quick:
        config.num_hidden_layers = 4
    if not gpu:  # to see that it runs
        config = transformers.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=64,
                                          num_hidden_layers=2, num_attention_heads=4)
    batch, length = (4, 2048) if gpu else (1, 64)
    torch.manual_seed(1)
    with torch.device(args.device):
        network = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    count = sum(p.numel() for p in network.parameters())
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5, fused=gpu)
    tokens = torch.randint(config.vocab_size, (batch, length), device=args.device)

    def step():
        loss = network(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def forward():
        with torch.no_grad():
            return network(input_ids=tokens, use_cache=False)

    times, peaks, forwards = {}, {}, {}
    for side in ("before", "patched") * args.rounds:
        gradus.unpatch(network)
        if side == "patched":
            said = gradus.patch(network)
        step()
        wait(args.device)
        if gpu:
            torch.cuda.reset_peak_memory_stats()
        times.setdefault(side, []).append(mean_seconds(step, args.device, 5))
        peaks[side] = torch.cuda.max_memory_allocated() if gpu else 0
        forward()
        forwards.setdefault(side, []).append(mean_seconds(forward, args.device, 5))
    print(f"model: {count / 1e9:.2f} B parameters, {batch} x {length} tokens; {said}")
    size = f"Llama {count / 1e9:.2f} B bfloat16"
    for side, t in times.items():
        table.line("model", size, "step", side, "ms", [1e3 * f(t) for f in
                                                       (statistics.median, min, max)])
        f = forwards[side]
        table.line("model", size, "forward", side, "ms", [1e3 * statistics.median(f), 1e3 * min(f),
                                                          1e3 * max(f)])
        table.line("model", size, "memory", side, "GB", [peaks[side] / 1e9] * 3)


PARTS = {"host": host, "widths": widths, "compiled": compiled_widths, "model": model}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"),
                        default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default=None, help="parts, separated by commas")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, a smaller model")
    parser.add_argument("--rounds", type=count, default=5)
    parser.add_argument("--threads", type=count, help="on the CPU; PyTorch's default")
    parser.add_argument("--tsv", help="a file for the figures")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    table = Table(open(args.tsv, "w") if args.tsv else None)
    name = torch.cuda.get_device_name() if args.device == "cuda" else \
        f"cpu, {torch.get_num_threads()} threads"
    print(f"gradus {gradus.__version__}, PyTorch {torch.__version__}, {name}")
    parts = args.only.split(",") if args.only else [p for p in PARTS
                                                    if args.device == "cuda" or p != "model"]
    for part in parts:
        PARTS[part](args, table)


if __name__ == "__main__":
    main()
