#!/usr/bin/env python3
"""A training step of gradus and of PyTorch, on one GPU, on the same work.

    bench/compare_train.py [--models tiny,toy,small,shakespeare] [--precisions bf16,tf32,fp32]
                           [--modes eager,compile,graphs] [--rounds 5] [--json FILE]

The models are those of `gradus-bench step`: RMSNorm, RoPE, causal attention, SwiGLU, no biases,
untied output, cross-entropy. A step is forward, backward, clipping of the gradient's norm to 1, and
AdamW; the token ids are on the device, the same every time.

The sides:

  gradus   build/bin/gradus-bench step --device cuda
  eager    PyTorch as it is
  compile  torch.compile
  graphs   torch.compile(mode="reduce-overhead"): compiled, in CUDA graphs
  whole    torch.compile, the whole step (with clipping and AdamW) in one CUDA graph; only if named

PyTorch gets its fast paths: fused AdamW, scaled_dot_product_attention, F.rms_norm, autocast for
bf16 (its weights stay float32, as nanoGPT's do; ours are bfloat16 with float32 masters), TF32 where
the precision is tf32. Every side is a process of its own, so that peak memory is measured
separately; they run one after the other. gradus runs first and last, to detect a GPU that slows
down. A time is the median over rounds of steps without synchronization between them. Peak memory
counts tensors: torch.cuda.max_memory_allocated, and gradus' own count. "ratio" is PyTorch's time
over ours, and the last column the ratio of the best mode.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

# name: vocab, dim, layers, heads, ffn, context, batch, dropout; as bench/step.c has them
MODELS = {
    "tiny": (96, 128, 2, 4, 352, 64, 32, 0.0),
    "toy": (256, 256, 4, 4, 704, 256, 64, 0.0),
    "small": (50304, 768, 12, 12, 2048, 1024, 16, 0.0),
    "small-50257": (50257, 768, 12, 12, 2048, 1024, 16, 0.0),
    "shakespeare": (65, 384, 6, 6, 1024, 256, 64, 0.2),
}
PRECISIONS = {"bf16": "bf16", "tf32": "tf32", "fp32": "f32"}  # our name: that of gradus-bench
MODES = ("eager", "compile", "graphs", "whole")
WARM_STEPS = 12


# ---- PyTorch --------------------------------------------------------------------------------


def build_model(name):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    vocab, dim, layers, heads, ffn, context, _, dropout = MODELS[name]
    width, eps = dim // heads, 1e-5

    def rotate(x, cos, sin):
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin

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
            q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
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
            rate = 10000.0 ** (-torch.arange(0, width, 2).float() / width)
            angle = torch.outer(torch.arange(context).float(), rate)
            angle = torch.cat((angle, angle), dim=-1)
            self.register_buffer("cos", angle.cos())
            self.register_buffer("sin", angle.sin())
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
        self.optimizer = torch.optim.AdamW(
            [{"params": [p for p in self.parameters if p.ndim >= 2], "weight_decay": 0.1},
             {"params": [p for p in self.parameters if p.ndim < 2], "weight_decay": 0.0}],
            lr=1e-4, betas=(0.9, 0.95), fused=True, **self.capturable())
        self.tokens = torch.randint(vocab, (batch, context), device=device)
        self.targets = torch.randint(vocab, (batch, context), device=device)
        self.graph = None

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
        return loss

    def step(self):
        if self.graph:
            self.graph.replay()
            return self.loss
        if self.mode == "graphs":
            self.torch.compiler.cudagraph_mark_step_begin()
        return self.body()

    def warm_up(self):
        for _ in range(WARM_STEPS):
            loss = self.step()
        if self.mode == "whole":
            torch = self.torch
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.body()
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.loss = self.body()
        self.wait()
        return loss

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
    steps = max(1, min(50, int(0.3 / (time.perf_counter() - begin))))
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(steps):
            loss = trainer.step()
        trainer.wait()
        times.append((time.perf_counter() - begin) / steps * 1e3)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    return {"ms": statistics.median(times), "low": min(times), "high": max(times),
            "peak_bytes": peak, "loss": loss.item(), "torch": torch.__version__}


# ---- Taking turns -----------------------------------------------------------------------------


def run(command):
    """The first line of JSON that a process prints; None, with its last line on stderr, if none."""
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            return json.loads(line)
    said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
    print(f"compare_train: {' '.join(command[:4])} ...: {said}", file=sys.stderr, flush=True)
    return None


def measure(args, name, precision):
    """{side: figures} for one model in one precision."""
    ours = [str(args.bench), "step", "--model", name, "--dtype", PRECISIONS[precision],
            "--device", args.device, "--repeats", str(args.rounds), "--json"]
    theirs = [sys.executable, __file__, "--device", args.device, "--rounds", str(args.rounds)]
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
    best = min((f["ms"] for s, f in sides.items() if s in MODES), default=None)
    if best and own:
        print(f"  PyTorch's best mode over gradus: {best / min(own):.2f} "
              f"(of gradus' slower run: {best / max(own):.2f})", flush=True)
    return best / min(own) if best and own else None


def parse_arguments():
    p = argparse.ArgumentParser(
        description="A training step of gradus beside PyTorch's, on one GPU, on the same work.")

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
    p.add_argument("--modes", type=some_of(MODES), default=list(MODES[:3]))
    p.add_argument("--rounds", type=int, default=5, help="of steps, each timed as a whole")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--bench", type=pathlib.Path, default=pathlib.Path("build/bin/gradus-bench"))
    p.add_argument("--json", type=pathlib.Path, help="write the figures to this file, too")
    p.add_argument("--one", help=argparse.SUPPRESS)  # "toy,bf16,eager": one side, in this process
    args = p.parse_args()
    if args.rounds < 1:
        p.error("--rounds must be at least 1")
    return args


def main():
    args = parse_arguments()
    if args.one:
        print(json.dumps(measure_torch(*args.one.split(","), args.device, args.rounds)))
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
    print("\nPyTorch's best mode over gradus:")
    for what, ratio in ratios.items():
        print(f"  {what:<18}{f'{ratio:.2f}' if ratio else '-':>6}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(ratios.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
