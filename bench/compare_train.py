#!/usr/bin/env python3
"""A training step of gradus, of PyTorch and of JAX, on one GPU or the CPU, on the same work.

    bench/compare_train.py [--models tiny,toy,small,shakespeare,chars] [--precisions bf16,tf32,fp32]
                           [--modes eager,compile,graphs,whole,jax] [--rounds 5] [--json FILE]
    bench/compare_train.py --device cpu --models chars --precisions fp32 --threads 2

The models are those of models.def: RMSNorm, RoPE, causal attention, SwiGLU, no biases,
untied output, cross-entropy. A step is forward, backward, clipping of the gradient's norm to 1, and
AdamW; the token ids are on the device, the same every time.

The sides:

  gradus   build/bin/gradus-bench step --device cuda
  eager    PyTorch as it is
  compile  torch.compile
  graphs   torch.compile(mode="reduce-overhead"): compiled, in CUDA graphs
  whole    torch.compile, the whole step (with clipping and AdamW) in one CUDA graph
  jax      JAX: the whole step one jit with donated buffers (bench/train_jax.py); its compilations
           are kept in --jax-cache. Of XLA's attention and cuDNN's, the faster

PyTorch gets its fast paths: fused AdamW, scaled_dot_product_attention, F.rms_norm, autocast for
bf16 (its weights stay float32, as nanoGPT's and JAX's here do; ours are bfloat16 with float32
masters), TF32 where the precision is tf32. Every side is a process of its own, so that peak memory
is measured separately; they run one after the other. gradus runs first and last, to detect a GPU
that slows down. A time is the median over rounds of steps without synchronization between them; all
compiling is done before. Peak memory counts tensors: torch.cuda.max_memory_allocated, the peak of
JAX's allocator, and gradus' own count. "ratio" is the side's time over ours, and the last line of a
table the ratio of the best peer, PyTorch's modes and JAX alike. A side whose package is missing is
named and left out. On a CPU there are no CUDA graphs: graphs and whole are left out, too; PyTorch's
allocator keeps freed memory there.
"""
import gc
import json
import os
import pathlib
import re
import sys
import time

import train_jax
from harness import (ROOT, Table, get_torch, left_out, of, options, records, run, steps_in, stop,
                     time_rounds)
from llama import Sizes, Trainer

MODELS = {name: Sizes(*eval(numbers)) for name, numbers in re.findall(
    r'^MODEL\("([\w-]+)", (.*?)\)', (ROOT / "bench/models.def").read_text(), re.M)}
PRECISIONS = {"bf16": "bf16", "tf32": "tf32", "fp32": "f32"}  # our name: that of gradus-bench
MODES = {"eager": None, "compile": "", "graphs": "reduce-overhead", "whole": "", "jax": None}
WARM_STEPS = 12
# Of PyTorch's allocator on a CPU: glibc takes large blocks from the heap and never gives it back, and large
# tensors are on huge pages. Otherwise each use of one would map its memory again.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 33),
               "MALLOC_TOP_PAD_": str(1 << 28), "THP_MEM_ALLOC_ENABLE": "1"}


def capture(torch, trainer, stream):
    """The whole step becomes one graph, captured on the stream on which it has run before: what autograd
    made on another, such as the nodes that accumulate gradients, would have to wait for that one."""
    gc.collect()
    graph = torch.cuda.CUDAGraph()
    # thread_local: the backward's own thread may load a module, say.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        trainer.step()
    for _ in range(3):
        graph.replay()
    trainer.wait()
    return graph.replay


def measure_torch(sizes, precision, mode, device, rounds, threads):
    """Runs in a process of its own; returns the figures that gradus-bench prints for a step."""
    torch = get_torch(device, threads)
    torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    whole = mode == "whole" and device == "cuda"
    trainer = Trainer(torch, sizes, device, precision == "bf16", MODES[mode],
                      **{"capturable": True} if mode == "whole" else {})
    step, stream = trainer.step, torch.cuda.Stream() if whole else None
    trainer.wait()
    with torch.cuda.stream(stream):  # None: the current one
        for _ in range(WARM_STEPS):
            step()
    trainer.wait()
    if whole:
        step = capture(torch, trainer, stream)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    step()
    trainer.wait()
    figures = time_rounds(step, trainer.wait, steps_in(0.3, time.perf_counter() - begin), rounds)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    return {**figures, "peak_bytes": peak, "loss": trainer.loss.item(), "torch": torch.__version__}


def measure(args, name, precision):
    """{side: figures} for one model in one precision, each side in a process of its own."""
    ours = [args.bench, "step", "--model", name, "--dtype", PRECISIONS[precision],
            "--device", args.device, "--threads", args.threads, "--repeats", args.rounds, "--json"]
    commands = {"gradus": ours}
    for mode in args.modes:
        commands[mode] = [sys.executable, __file__, "--device", args.device, "--rounds", args.rounds,
                          "--threads", args.threads, "--jax-cache", args.jax_cache,
                          "--one", f"{name},{precision},{mode}"]
    sides = {}
    for side, command in {**commands, "gradus, again": ours}.items():
        try:
            memory = KEEP_MEMORY if args.device == "cpu" and command is not ours else {}
            sides[side] = records(run(command, env={**os.environ, **memory}))[0]
        except (RuntimeError, IndexError) as error:
            left_out(f"{side}, {name}, {precision}", error)
    return sides


def print_table(name, precision, sides):
    """The figures; (the best peer's time over ours, its name), or None."""
    s = MODELS[name]
    print(f"\n{name} {precision}: V {s.vocab}, d {s.dim}, L {s.layers}, h {s.heads}, ff {s.ffn}, "
          f"T {s.context}, B {s.batch}, dropout {s.dropout:g}")
    table = Table(("", "<14"), ("ms a step", ">10.3f"), ("tokens/s", ">12.4g"), ("peak MiB", ">10.0f"),
                  ("loss", ">7.3f"), ("ratio", ">7.2f"), indent="  ")
    own = [figures["ms"] for side, figures in sides.items() if side.startswith("gradus")]
    for side, figures in sides.items():
        table.line(side, figures["ms"], s.batch * s.context / figures["ms"] * 1e3,
                   figures["peak_bytes"] / 2**20, figures["loss"],
                   figures["ms"] / min(own) if own else "-")
    best, peer = min(((f["ms"], s) for s, f in sides.items() if s in MODES), default=(None, None))
    if not best or not own:
        return None
    print(f"  the best peer ({peer}) over gradus: {best / min(own):.2f} "
          f"(of gradus' slower run: {best / max(own):.2f})", flush=True)
    return best / min(own), peer


def main():
    p = options(__doc__, "bench", "device", "threads", "rounds", "json", "one",
                threads=len(os.sched_getaffinity(0)))
    p.add_argument("--models", **of(MODELS))
    p.add_argument("--precisions", **of(PRECISIONS))
    p.add_argument("--modes", **of(MODES))
    p.add_argument("--jax-cache", type=pathlib.Path, default=pathlib.Path("build/jax-cache"),
                   help="the folder where JAX keeps its compilations")
    args = p.parse_args()
    if args.one:
        name, precision, mode = args.one.split(",")
        one = (MODELS[name], precision, args.device, args.rounds, args.jax_cache)
        print(json.dumps(train_jax.measure(*one) if mode == "jax" else
                         measure_torch(MODELS[name], precision, mode, args.device, args.rounds,
                                       args.threads)))
        return 0
    if not args.bench.is_file():
        stop(f"{args.bench} is not built (or name it: --bench)")
    if args.device == "cpu":
        args.modes = [mode for mode in args.modes if mode not in ("graphs", "whole")]
        args.precisions = [one for one in args.precisions if one != "tf32"]
    results, ratios = {}, {}
    for name in args.models:
        for precision in args.precisions:
            if name != "shakespeare" or precision == "bf16":
                what = f"{name} {precision}"
                results[what] = measure(args, name, precision)
                ratios[what] = print_table(name, precision, results[what])
    print("\nThe best peer over gradus:")
    for what, best in ratios.items():
        ratio, peer = best or (None, "no peer ran")
        print(f"  {what:<18}{f'{ratio:.2f}' if ratio else '-':>6}  {peer}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(ratios.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
