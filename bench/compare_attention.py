#!/usr/bin/env python3
"""Time attention: gradus and the kernels of PyTorch's scaled_dot_product_attention.

Forward and backward, causal, in bfloat16 and float32, on one GPU.  PyTorch's
kernels are selected one by one: flash, cuDNN, memory-efficient.  Ours are run
by build/bin/gradus-bench attention, in the same minute on the same GPU
(--bench names another program; without one only the peers are timed).

A figure is the minimum of several means of ten calls, measured with events
on the device.  FLOPs count the half of the scores that a causal mask leaves:
four per score and column in the forward, and 2.5 times as many in the
backward.

    python3 bench/compare_attention.py
    python3 bench/compare_attention.py --json figures.jsonl
"""

import argparse
import json
import pathlib
import subprocess
import sys

from common import records

SHAPES = [  # B, H, T, D
    (16, 12, 1024, 64),
    (16, 12, 256, 64),
    (4, 16, 4096, 128),
    (4, 16, 256, 128),
    (16, 12, 1024, 128),
    (64, 4, 256, 64),
    (64, 6, 256, 64),
]
DTYPES = ["bfloat16", "float32"]


def least_time(torch, run, rounds=5, calls=10):
    """Microseconds of one call of `run`: the minimum of several means."""
    for _ in range(3):
        run()
    best = float("inf")
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        best = min(best, 1e3 * start.elapsed_time(end) / calls)
    return best


def peers(torch, shape, dtype):
    """Yield (kernel, forward us, backward us) for each kernel that supports the shape."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    B, H, T, D = shape
    backends = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "cuDNN": SDPBackend.CUDNN_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
    }
    for name, backend in backends.items():
        q, k, v = (torch.randn(B, T, H, D, device="cuda", dtype=dtype).transpose(1, 2)
                   .requires_grad_() for _ in range(3))
        dy = torch.randn(B, T, H, D, device="cuda", dtype=dtype).transpose(1, 2)

        def forward():
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

        try:
            with sdpa_kernel(backend):
                y = forward()

                def backward():
                    torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)

                with torch.no_grad():
                    ahead = least_time(torch, forward)
                yield name, ahead, least_time(torch, backward)
        except RuntimeError:
            continue  # this kernel does not support the shape or the dtype


def ours(program, shape, dtype, tf32):
    """Forward and backward of gradus in microseconds, or None without the program."""
    if not program.exists():
        return None
    name = "tf32" if tf32 else {"bfloat16": "bf16"}.get(dtype, "f32")
    command = [str(program), "attention", "--device", "cuda", "--json", "--dtype", name,
               "--shape", "x".join(str(n) for n in shape)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"compare_attention: {done.stderr.strip()}", file=sys.stderr)
        return None
    times = {record["name"]: record["ms"] * 1e3 for record in records(done.stdout)}
    return times["attention_forward"], times["attention_backward"]


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", type=pathlib.Path, default=pathlib.Path("build/bin/gradus-bench"))
    parser.add_argument("--json", type=pathlib.Path, help="write the figures there, a line each")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("compare_attention: PyTorch is missing")
    if not torch.cuda.is_available():
        sys.exit("compare_attention: no GPU")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, causal")
    print(f"{'B, H, T, D':>18} {'dtype':>9} {'kernel':>10} {'forward us':>11} {'TFLOP/s':>8} "
          f"{'backward us':>12} {'TFLOP/s':>8}")
    lines = []
    for shape in SHAPES:
        B, H, T, D = shape
        work = 2.0 * B * H * T * T * D
        for dtype in DTYPES:
            rows = list(peers(torch, shape, getattr(torch, dtype)))
            for tf32 in [False] if dtype == "bfloat16" else [False, True]:
                figures = ours(args.bench, shape, dtype, tf32)
                if figures:
                    rows.append(("ours, TF32" if tf32 else "ours", *figures))
            for name, ahead, back in rows:
                print(f"{str(shape)[1:-1]:>18} {dtype:>9} {name:>10} {ahead:11.1f} "
                      f"{work / ahead / 1e6:8.0f} {back:12.1f} {2.5 * work / back / 1e6:8.0f}",
                      flush=True)
                lines.append({"shape": shape, "dtype": dtype, "kernel": name,
                              "forward_us": ahead, "backward_us": back})
    if args.json:
        args.json.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
