#!/usr/bin/env python3
"""Time attention: gradus and the kernels of PyTorch's scaled_dot_product_attention.

Forward and backward, causal, in bfloat16 and float32, on one GPU. PyTorch's kernels are selected one
by one: flash, cuDNN, memory-efficient. Ours are run by build/bin/gradus-bench attention, in the same
minute on the same GPU (--bench names another program; without one only the peers are timed).

A figure is the minimum of several means of ten calls, measured with events on the device. FLOPs count
the half of the scores that a causal mask leaves: four per score and column in the forward, and 2.5
times as many in the backward.

    bench/compare_attention.py [--json FILE]
"""
import functools
import json

from harness import Table, bench, device_us, get_torch, machine, options

SHAPES = [  # B, H, T, D
    (16, 12, 1024, 64),
    (16, 12, 256, 64),
    (4, 16, 4096, 128),
    (4, 16, 256, 128),
    (16, 12, 1024, 128),
    (64, 4, 256, 64),
    (64, 6, 256, 64),
]
DTYPES = {"bfloat16": {"ours": "bf16"}, "float32": {"ours": "f32", "ours, TF32": "tf32"}}
KERNELS = {"flash": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}


def least_time(torch, call, rounds=5, calls=10):
    """Microseconds of a call: the minimum of several means."""
    device_us(torch, "cuda", call, 3)
    return min(device_us(torch, "cuda", call, calls) for _ in range(rounds))


def peers(torch, shape, dtype):
    """Yield (kernel, forward us, backward us) for each kernel that supports the shape."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    B, H, T, D = shape
    for name, backend in KERNELS.items():
        q, k, v, dy = (torch.randn(B, T, H, D, device="cuda", dtype=dtype).transpose(1, 2)
                       .requires_grad_(i < 3) for i in range(4))
        forward = functools.partial(torch.nn.functional.scaled_dot_product_attention, q, k, v,
                                    is_causal=True)
        try:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                backward = functools.partial(torch.autograd.grad, forward(), (q, k, v), dy,
                                             retain_graph=True)
                with torch.no_grad():
                    ahead = least_time(torch, forward)
                yield name, ahead, least_time(torch, backward)
        except RuntimeError:
            continue  # this kernel does not support the shape or the dtype


def ours(args, shape, dtype):
    """Forward and backward of gradus in microseconds."""
    found = bench(args, "attention", "--dtype", dtype, "--shape", "x".join(map(str, shape)))
    us = {record["name"]: record["ms"] * 1e3 for record in found}
    return us["attention_forward"], us["attention_backward"]


def main():
    """Print the table."""
    args = options(__doc__, "bench", "json").parse_args()
    args.device = "cuda"
    torch = get_torch("cuda")
    print(f"{machine(torch, 'cuda')}, causal")
    table = Table(("B, H, T, D", ">18"), ("dtype", ">9"), ("kernel", ">10"), ("forward us", ">11.1f"),
                  ("TFLOP/s", ">8.0f"), ("backward us", ">12.1f"), ("TFLOP/s", ">8.0f"))
    lines = []
    for shape in SHAPES:
        B, H, T, D = shape
        work = 2.0 * B * H * T * T * D
        for dtype, names in DTYPES.items():
            rows = list(peers(torch, shape, getattr(torch, dtype)))
            if args.bench.exists():
                rows += [(name, *ours(args, shape, own)) for name, own in names.items()]
            for name, ahead, back in rows:
                table.line(str(shape)[1:-1], dtype, name, ahead, work / ahead / 1e6, back,
                           2.5 * work / back / 1e6)
                lines.append({"shape": shape, "dtype": dtype, "kernel": name,
                              "forward_us": ahead, "backward_us": back})
    if args.json:
        args.json.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
