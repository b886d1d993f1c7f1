#!/usr/bin/env python3
"""A training step of gradus, of PyTorch and of JAX, on one GPU, on the same work.

    bench/compare_train.py [--models tiny,toy,small,shakespeare] [--precisions bf16,tf32,fp32]
                           [--modes eager,compile,graphs,whole,jax] [--rounds 5] [--json FILE]

The models are those of `gradus-bench step`: RMSNorm, RoPE, causal attention, SwiGLU, no biases,
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
named and left out. On a CPU there are no CUDA graphs: graphs and whole are left out, too.
"""

import argparse
import gc
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import train_jax
from common import adamw, count, records, rotary, rotate, steps_in, time_rounds

# name: vocab, dim, layers, heads, ffn, context, batch, dropout; as bench/step.c has them
MODELS = {
    "tiny": (96, 128, 2, 4, 352, 64, 32, 0.0),
    "toy": (256, 256, 4, 4, 704, 256, 64, 0.0),
    "small": (50304, 768, 12, 12, 2048, 1024, 16, 0.0),
    "small-50257": (50257, 768, 12, 12, 2048, 1024, 16, 0.0),
    "shakespeare": (65, 384, 6, 6, 1024, 256, 64, 0.2),
}
PRECISIONS = {"bf16": "bf16", "tf32": "tf32", "fp32": "f32"}  # our name: that of gradus-bench
MODES = ("eager", "compile", "graphs", "whole", "jax")
WARM_STEPS = 12


# ---- PyTorch --------------------------------------------------------------------------------


def build_model(name):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    vocab, dim, layers, heads, ffn, context, _, dropout = MODELS[name]
    width, eps = dim // heads, 1e-5

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.ones(dim))
            self.qkv = nn.Linear(dim, 3 * dim, bias=False)
            self.out = nn.Linear(dim, dim, bias=False)
            self.gate_up = nn.Linear(dim, 2 * ffn, bias=False)
            self.down = nn.Linear(ffn, dim, bias=False)

        def forward(self, x, cos, sin):
            b, t, _ = x.shape
            h = F.rms_norm(x, (dim,), self.norm1, eps)
            q, k, v = (p.view(b, t, heads, width).transpose(1, 2)
                       for p in self.qkv(h).split(dim, dim=2))
            q, k = (rotate(torch, p, cos, sin).to(v.dtype) for p in (q, k))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + F.dropout(self.out(a.transpose(1, 2).reshape(b, t, dim)), dropout)
            gate, up = self.gate_up(F.rms_norm(x, (dim,), self.norm2, eps)).chunk(2, dim=-1)
            return x + F.dropout(self.down(F.silu(gate) * up), dropout)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocab, dim)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.Parameter(torch.ones(dim))
            self.output = nn.Linear(dim, vocab, bias=False)
            cos, sin = rotary(torch, width, context)
            self.register_buffer("cos", cos)
            self.register_buffer("sin", sin)
            for p in self.parameters():
                if p.ndim == 2:
                    nn.init.normal_(p, std=0.02)

        def forward(self, tokens, targets):
            x = F.dropout(self.embedding(tokens), dropout)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            logits = self.output(F.rms_norm(x, (dim,), self.norm, eps))
            return F.cross_entropy(logits.view(-1, vocab), targets.view(-1))

    return Model()


class Trainer:
    """A model with its optimizer; step() queues one training step."""

    def __init__(self, name, precision, mode, device):
        import torch

        self.torch, self.device = torch, device
        vocab, _, _, _, _, context, batch, _ = MODELS[name]
        torch.manual_seed(1)
        torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
        torch.backends.cudnn.allow_tf32 = precision != "fp32"
        self.bf16, self.mode = precision == "bf16", mode
        self.model = build_model(name).to(device)
        self.parameters = list(self.model.parameters())
        self.call = self.model
        if mode in ("compile", "whole"):
            self.call = torch.compile(self.model)
        elif mode == "graphs":
            self.call = torch.compile(self.model, mode="reduce-overhead")
        self.optimizer = adamw(torch, self.parameters, 1e-4, 0.95, **self.capturable())
        self.tokens = torch.randint(vocab, (batch, context), device=device)
        self.targets = torch.randint(vocab, (batch, context), device=device)
        self.graph = None
        # A whole step is captured on the stream on which it has run before: what autograd made on
        # another, such as the nodes that accumulate gradients, would have to wait for that one.
        self.stream = torch.cuda.Stream() if mode == "whole" and device == "cuda" else None

    def capturable(self):
        return {"capturable": True} if self.mode == "whole" else {}

    def body(self):
        torch = self.torch
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.bf16):
            loss = self.call(self.tokens, self.targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        return loss.detach()  # the graph of a step ends with it

    def step(self):
        if self.graph:
            self.graph.replay()
            return self.loss
        if self.mode == "graphs":
            self.torch.compiler.cudagraph_mark_step_begin()
        return self.body()

    def warm_up(self):
        torch = self.torch
        self.wait()
        with torch.cuda.stream(self.stream):  # None: the current one
            for _ in range(WARM_STEPS):
                self.step()
        self.wait()
        if self.stream:
            gc.collect()
            self.graph = torch.cuda.CUDAGraph()
            # thread_local: the backward's own thread may load a module, say.
            with torch.cuda.graph(self.graph, stream=self.stream,
                                  capture_error_mode="thread_local"):
                self.loss = self.body()
            for _ in range(3):
                self.step()
            self.wait()

    def wait(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()


def measure_torch(name, precision, mode, device, rounds):
    """Runs in a process of its own; returns the figures that gradus-bench prints for a step."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    trainer = Trainer(name, precision, mode, device)
    trainer.warm_up()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    trainer.step()
    trainer.wait()
    steps = steps_in(0.3, time.perf_counter() - begin)
    figures, loss = time_rounds(trainer.step, trainer.wait, steps, rounds)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    return {**figures, "peak_bytes": peak, "loss": loss.item(), "torch": torch.__version__}


# ---- Taking turns -----------------------------------------------------------------------------


def why(text):
    """The line of a failed process's output that names the error: the last exception's, if any."""
    lines = text.strip().splitlines() or ["nothing"]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (errors or lines)[-1]


def run(command):
    """The first line of JSON that a process prints; None, with its error on stderr, if none."""
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    found = records(done.stdout)
    if found:
        return found[0]
    said = why(done.stderr.strip() or done.stdout)
    print(f"compare_train: {' '.join(map(str, command))}: {said}", file=sys.stderr, flush=True)
    return None


def measure(args, name, precision):
    """{side: figures} for one model in one precision."""
    ours = [str(args.bench), "step", "--model", name, "--dtype", PRECISIONS[precision],
            "--device", args.device, "--repeats", str(args.rounds), "--json"]
    theirs = [sys.executable, __file__, "--device", args.device, "--rounds", str(args.rounds),
              "--jax-cache", str(args.jax_cache)]
    sides = {"gradus": run(ours)}
    for mode in args.modes:
        sides[mode] = run(theirs + ["--one", f"{name},{precision},{mode}"])
    sides["gradus, again"] = run(ours)
    return {side: figures for side, figures in sides.items() if figures}


def print_table(name, precision, sides):
    vocab, dim, layers, heads, ffn, context, batch, dropout = MODELS[name]
    print(f"\n{name} {precision}: V {vocab}, d {dim}, L {layers}, h {heads}, ff {ffn}, "
          f"T {context}, B {batch}, dropout {dropout:g}")
    print(f"  {'':<14}{'ms a step':>11}{'tokens/s':>13}{'peak MiB':>11}{'loss':>8}{'ratio':>8}")
    own = [figures["ms"] for side, figures in sides.items() if side.startswith("gradus")]
    for side, figures in sides.items():
        ratio = f"{figures['ms'] / min(own):.2f}" if own else "-"
        print(f"  {side:<14}{figures['ms']:>11.3f}{batch * context / figures['ms'] * 1e3:>13.4g}"
              f"{figures['peak_bytes'] / 2**20:>11.0f}{figures['loss']:>8.3f}{ratio:>8}")
    best, peer = min(((f["ms"], s) for s, f in sides.items() if s in MODES), default=(None, None))
    if not best or not own:
        return None
    print(f"  the best peer ({peer}) over gradus: {best / min(own):.2f} "
          f"(of gradus' slower run: {best / max(own):.2f})", flush=True)
    return best / min(own), peer


def parse_arguments():
    p = argparse.ArgumentParser(
        description="A training step of gradus beside PyTorch's and JAX's, on one GPU, on the same "
                    "work.")

    def some_of(known):
        def read(text):
            names = text.split(",")
            for name in names:
                if name not in known:
                    raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(known)}")
            return names
        return read

    p.add_argument("--models", type=some_of(MODELS), default=list(MODELS))
    p.add_argument("--precisions", type=some_of(PRECISIONS), default=list(PRECISIONS))
    p.add_argument("--modes", type=some_of(MODES), default=list(MODES))
    p.add_argument("--rounds", type=count, default=5, help="of steps, each timed as a whole")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--bench", type=pathlib.Path, default=pathlib.Path("build/bin/gradus-bench"))
    p.add_argument("--jax-cache", type=pathlib.Path, default=pathlib.Path("build/jax-cache"),
                   help="the folder where JAX keeps its compilations")
    p.add_argument("--json", type=pathlib.Path, help="write the figures to this file, too")
    p.add_argument("--one", help=argparse.SUPPRESS)  # "toy,bf16,eager": one side, in this process
    args = p.parse_args()
    if args.device == "cpu":
        args.modes = [mode for mode in args.modes if mode not in ("graphs", "whole")]
    return args


def main():
    args = parse_arguments()
    if args.one:
        name, precision, mode = args.one.split(",")
        if mode == "jax":
            figures = train_jax.measure(MODELS[name], precision, args.device, args.rounds,
                                        args.jax_cache)
        else:
            figures = measure_torch(name, precision, mode, args.device, args.rounds)
        print(json.dumps(figures))
        return 0
    if not args.bench.is_file():
        sys.exit(f"compare_train: {args.bench} is not built (or name it: --bench)")
    results, ratios = {}, {}
    for name in args.models:
        for precision in args.precisions:
            if name == "shakespeare" and precision != "bf16":
                continue
            if args.device == "cpu" and precision == "tf32":
                continue
            sides = measure(args, name, precision)
            results[f"{name} {precision}"] = sides
            ratios[f"{name} {precision}"] = print_table(name, precision, sides)
    print("\nThe best peer over gradus:")
    for what, best in ratios.items():
        ratio, peer = best or (None, "no peer ran")
        print(f"  {what:<18}{f'{ratio:.2f}' if ratio else '-':>6}  {peer}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(ratios.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
