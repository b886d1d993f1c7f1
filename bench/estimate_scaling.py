#!/usr/bin/env python3
"""Estimates the speed of training on many hosts: the table and the formula of docs/scaling.md.

    bench/estimate_scaling.py [--tokens 16384] [--host-gbits 400] [--buckets 20]

No figure is measured on more than four GPUs.
"""

import argparse

from harness import count

FLOPS = 0.42 * 790e12  # one H200 in bfloat16: PyTorch's best step of 124 M parameters
NVLINK = 2 * 3 / 4 * 500 * 2**20 / 2.29e-3  # bytes/s per GPU: NCCL's all-reduce of 500 MiB on four
HOST_GPUS = 8
OF_WIRE = 0.9  # the share of a network card's bandwidth that NCCL reaches
HOP_INSIDE, HOP_BETWEEN = 3e-6, 10e-6  # assumed seconds between neighbouring ranks
MODELS = {"124 M": 124e6, "1 B": 1e9, "7 B": 7e9}


def estimate(parameters, gpus, args):
    """Seconds (of computing, of reduce-scatter, of all-gather, not hidden)."""
    compute = 6 * parameters * args.tokens / FLOPS
    hosts = gpus / HOST_GPUS
    wire = min(NVLINK, OF_WIRE * args.host_gbits * 1e9 / 8) if hosts > 1 else NVLINK
    latency = (gpus - hosts) * HOP_INSIDE + (hosts if hosts > 1 else 0) * HOP_BETWEEN
    share = (gpus - 1) / gpus
    reduce = 4 * parameters * share / wire + args.buckets * latency
    gather = 2 * parameters * share / wire + args.buckets * latency
    last = reduce / args.buckets  # no computation is left to overlap with
    hidden = (1 - 1 / args.buckets) * compute * 2 / 3  # behind the backward
    return compute, reduce, gather, max(reduce - last - hidden, 0) + last + gather


def main():
    p = argparse.ArgumentParser(description="Estimates the speed of training on many hosts.")
    p.add_argument("--tokens", type=count, default=16384, help="of a step on each GPU")
    p.add_argument("--host-gbits", type=float, default=400, help="of a host's network, Gb/s")
    p.add_argument("--buckets", type=count, default=20)
    args = p.parse_args()
    print("| parameters | GPUs | computing, ms | reduce-scatter | all-gather | not hidden | "
          "of ideal | tokens/s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, parameters in MODELS.items():
        for gpus in (8, 64, 1024):
            compute, reduce, gather, extra = estimate(parameters, gpus, args)
            step = compute + extra
            print(f"| {name} | {gpus} | {compute * 1e3:.0f} | {reduce * 1e3:.0f} | "
                  f"{gather * 1e3:.0f} | {extra * 1e3:.0f} | {compute / step:.2f} | "
                  f"{gpus * args.tokens / step / 1e6:.3g} M |")


if __name__ == "__main__":
    main()
