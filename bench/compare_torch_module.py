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
import functools
import importlib
import itertools
import time

import torch

import gradus
from harness import left_out, mean_seconds, options, several, spread, take_turns

EPS = 1e-6
WIDTHS = [(16384, 2048), (8192, 4096), (8192, 5120), (8192, 8192), (32768, 4096), (262144, 128)]
CPU_WIDTHS = [(2048, 768), (2048, 2048), (2048, 4096), (4096, 4096)]
WAYS = ("forward", "backward")


def compiled(x, weight):
    return torch.nn.functional.rms_norm(x, weight.shape, weight, EPS)


def liger():
    apply = importlib.import_module("liger_kernel.ops.rms_norm").LigerRMSNormFunction.apply
    return lambda x, w: apply(x, w, EPS, 0.0, "llama", False)


def quack():
    rmsnorm = importlib.import_module("quack.rmsnorm").rmsnorm
    return lambda x, w: rmsnorm(x, w, eps=EPS)


@functools.cache
def norms(device):
    """{name: a function of x and weight}: our norm, PyTorch's, and the other installed ones."""
    found = {
        "gradus": lambda x, w: gradus.rms_norm(x, w, eps=EPS),
        "torch": lambda x, w: torch.nn.functional.rms_norm(x, w.shape, w, EPS),
        "torch.compile": torch.compile(compiled, dynamic=False),
    }
    for name, peer in {"Liger": liger, "QuACK": quack}.items() if device == "cuda" else ():
        try:
            found[name] = peer()
        except Exception as error:
            left_out(name, error)
    return found


def wait_for(device):
    return torch.cuda.synchronize if device == "cuda" else lambda: None


def calls_in(call, wait, least):
    """How many calls take about `least` seconds."""
    call()
    calls = 1
    while (taken := calls * mean_seconds(call, calls, wait)) < least / 2:
        calls = int(calls * min(10.0, 1 + least / max(taken, 1e-9)))
    return max(1, int(calls * least / taken))


def inputs(rows, cols, dtype, weight_dtype, device, sets):
    """Several sets of x and dy, so that none is still in a cache when it is used again."""
    weight = torch.randn(cols, device=device, dtype=weight_dtype, requires_grad=True)
    return weight, [
        (torch.randn(rows, cols, device=device, dtype=dtype, requires_grad=True),
         torch.randn(rows, cols, device=device, dtype=dtype)) for _ in range(sets)
    ]


def ways(norm, weight, sets):
    """(forward, backward), each of which cycles through the sets."""
    results = [(norm(x, weight), (x, weight), dy) for x, dy in sets]
    ahead = itertools.cycle(x for x, _ in sets)
    back = itertools.cycle([(y, of, dy.to(y.dtype)) for y, of, dy in results])
    return (lambda: norm(next(ahead), weight),
            lambda: torch.autograd.grad(*next(back), retain_graph=True))


def line(args, what, size, way, side, unit, times, more=""):
    """One of the table: the median of times, least and most."""
    text = [what, size, way, side, *(f"{t:.6g}" for t in spread(times)), unit, more]
    print("{:9} {:28} {:9} {:14} {:>9} ({}-{}) {}  {}".format(*text), flush=True)
    if args.tsv:
        print("\t".join(text), file=args.tsv, flush=True)


def chain(norm, x, weights, dy):
    """Host seconds of a forward and of a backward of one norm among many in a row."""
    wait_for(x.device.type)()
    begin = time.perf_counter()
    y = x
    for weight in weights:
        y = norm(y, weight)
    middle = time.perf_counter()
    torch.autograd.grad(y, (x, *weights), dy)
    return (middle - begin) / len(weights), (time.perf_counter() - middle) / len(weights)


def host(args):
    """Few rows, so that a GPU finishes a call before the host has queued the next one. The cost of
    starting a backward is spread over 64 norms."""
    gpu = args.device == "cuda"
    dtype = torch.bfloat16 if gpu else torch.float32
    rows, cols = (64, 256) if gpu else (2, 8)
    weight, ((x, dy),) = inputs(rows, cols, dtype, dtype, args.device, 1)
    weights = [weight.detach().clone().requires_grad_() for _ in range(64)]

    def round_of(norm):
        several = [chain(norm, x, weights, dy) for _ in range(21)][1:]
        return [spread(times)[0] for times in zip(*several)]

    turns = take_turns({name: functools.partial(round_of, norm)
                        for name, norm in norms(args.device).items()}, args.rounds)
    for way in (0, 1):
        for name, rounds in turns.items():
            line(args, "host", f"{rows}x{cols} {str(dtype)[6:]}", WAYS[way], name, "us",
                 [1e6 * r[way] for r in rounds])


def widths(args, what="widths", inside=lambda norm: norm):
    gpu = args.device == "cuda"
    dtype = torch.bfloat16 if gpu else torch.float32
    wait = wait_for(args.device)
    shapes = (WIDTHS if gpu else CPU_WIDTHS)[: 2 if args.quick else 3 if what == "compiled" else 6]
    for rows, cols in shapes:
        for weight_dtype in (dtype, torch.float32) if gpu and what == "widths" else (dtype,):
            one = rows * cols * dtype.itemsize
            sets = min(16, max(2, int(4e8 / (2 * one)) + 1)) if gpu else 2
            weight, sets = inputs(rows, cols, dtype, weight_dtype, args.device, sets)
            sides = {way: {} for way in WAYS}
            torch._dynamo.reset()
            for name, norm in norms(args.device).items():
                try:
                    for way, call in zip(WAYS, ways(inside(norm), weight, sets)):
                        sides[way][name] = functools.partial(
                            mean_seconds, call, calls_in(call, wait, 0.02), wait)
                except Exception as error:
                    left_out(name, error)
            size = f"{rows}x{cols} {str(dtype)[6:]}" + " float32 w" * (weight_dtype != dtype)
            for passes, way in enumerate(WAYS, 2):
                for name, times in take_turns(sides[way], args.rounds).items():
                    line(args, what, size, way, name, "us", [t * 1e6 for t in times],
                         f"{passes * one / spread(times)[0] / 1e9:.4g} GB/s")


def compiled_widths(args):
    widths(args, "compiled",
           lambda norm: torch.compile(lambda x, w: norm(x * 2, w) + x, dynamic=False))


def model(args):
    try:
        import transformers
    except ImportError as error:
        return left_out("model", error)
    gpu, wait = args.device == "cuda", wait_for(args.device)
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
    parameters = sum(p.numel() for p in network.parameters()) / 1e9
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

    times, said = {}, ""
    for side in ("before", "patched") * args.rounds:
        gradus.unpatch(network)
        if side == "patched":
            said = gradus.patch(network)
        step()
        wait()
        if gpu:
            torch.cuda.reset_peak_memory_stats()
        found = {"step": 1e3 * mean_seconds(step, 5, wait)}
        found["memory"] = torch.cuda.max_memory_allocated() / 1e9 if gpu else 0
        forward()
        found["forward"] = 1e3 * mean_seconds(forward, 5, wait)
        times.setdefault(side, []).append(found)
    print(f"model: {parameters:.2f} B parameters, {batch} x {length} tokens; {said}")
    for side, rounds in times.items():
        for way, unit in (("step", "ms"), ("forward", "ms"), ("memory", "GB")):
            line(args, "model", f"Llama {parameters:.2f} B bfloat16", way, side, unit,
                 [r[way] for r in rounds])


PARTS = {"host": host, "widths": widths, "compiled": compiled_widths, "model": model}


def main():
    p = options(__doc__, "device", "rounds", "threads", "tsv",
                device="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--only", type=several(str, PARTS))
    p.add_argument("--quick", action="store_true", help="fewer sizes, a smaller model")
    args = p.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    name = torch.cuda.get_device_name() if args.device == "cuda" else \
        f"cpu, {torch.get_num_threads()} threads"
    print(f"gradus {gradus.__version__}, PyTorch {torch.__version__}, {name}")
    for part in args.only or [p for p in PARTS if args.device == "cuda" or p != "model"]:
        PARTS[part](args)


if __name__ == "__main__":
    main()
