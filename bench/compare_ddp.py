#!/usr/bin/env python3
"""Training on several GPUs of one host: gradus and PyTorch's DDP and FSDP2, on the same work.

    bench/compare_ddp.py [--models small,toy] [--ranks 1,2,4] [--sides gradus,ddp,fsdp]
                         [--seconds 60] [--json FILE]

The models are those of compare_train.py, in bfloat16, with that batch size on each GPU. The sides:

  gradus  build/bin/gradus-train --gpus N on a file of random tokens
  ddp     torch.compile(DistributedDataParallel(model)), autocast, fused AdamW
  fsdp    fully_shard (FSDP2) of every block and of the whole, compiled, bfloat16 with float32 sums

All with NVLink multicast off (NCCL_NVLS_ENABLE=0). A step is forward, backward, clipping to 1 and
AdamW. The sides run one after the other, on 1, 2, ... GPUs. "efficiency" is tokens/s divided by N
times those on one GPU; "not hidden" is the additional time of a step compared with one GPU;
"optimizer" is the memory of AdamW's state on each GPU. The last table has the time of NCCL's
all-reduce of float32 alone. With --device cpu the sides run as processes on the CPU (gloo), as a
test of this script.
"""

import argparse
import array
import json
import os
import pathlib
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import compare_train
from common import adamw, counts, records, steps_in, time_rounds

SIDES = ("gradus", "ddp", "fsdp")
BANDWIDTH_MIB = (1, 64, 500)
WARM_STEPS = 15


# ---- gradus -----------------------------------------------------------------------------------


def write_tokens(folder, vocab, count):
    """Token files as nanoGPT has them: 16-bit ids, one after the other."""
    rng = random.Random(1)
    ids = array.array("H", (rng.randrange(vocab) for _ in range(1 << 16)))
    for name, length in (("train.bin", count), ("val.bin", 1 << 16)):
        with open(folder / name, "wb") as file:
            for _ in range(-(-length // len(ids))):
                ids.tofile(file)


def measure_gradus(args, name, ranks, folder):
    vocab, dim, layers, heads, ffn, context, batch, dropout = compare_train.MODELS[name]
    write_tokens(folder, vocab, max(1 << 20, 4 * ranks * batch * context))
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    where = ["--gpus" if args.device == "cuda" else "--processes", str(ranks)]
    command = [str(args.train), "--tokens", str(folder / "train.bin"), "--val-data",
               str(folder / "val.bin"), "--vocab", str(vocab), "--layers", str(layers),
               "--dim", str(dim), "--heads", str(heads), "--ffn", str(ffn), "--context",
               str(context), "--batch", str(batch), "--dropout", str(dropout), "--dtype", "bf16",
               "--lr", "1e-4", "--steps", "100000", "--max-seconds", str(args.seconds / 4),
               "--eval-every", "0", "--eval-batches", "1", "--sample-length", "0",
               "--log-every", "5", "--log", str(log), "--timeout", "60", *where]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode:
        print(f"compare_ddp: gradus-train: {done.stderr.strip()}", file=sys.stderr)
        return None
    lines = records(log.read_text())
    times = [line["ms"] for line in lines if "ms" in line and line["step"] > WARM_STEPS]
    if not times:
        print("compare_ddp: gradus-train made too few steps: raise --seconds", file=sys.stderr)
        return None
    optimizer = re.search(r"before the first step:.*optimizer ([0-9.]+)", done.stdout)
    return {"ms": statistics.median(times), "loss": lines[-1]["loss"],
            "optimizer_mib": float(optimizer.group(1)) if optimizer else 0.0}


# ---- PyTorch, one process for each GPU ----------------------------------------------------------


class Rank:
    """A model trained by all ranks; step() queues one step."""

    def __init__(self, name, side, device):
        import torch
        import torch.distributed as dist

        self.torch, self.device = torch, device
        vocab, _, _, _, _, context, batch, _ = compare_train.MODELS[name]
        local = int(os.environ["LOCAL_RANK"])
        self.place = torch.device("cuda", local) if device == "cuda" else torch.device("cpu")
        if device == "cuda":
            torch.cuda.set_device(self.place)
        dist.init_process_group("nccl" if device == "cuda" else "gloo")
        torch.manual_seed(1)
        model = compare_train.build_model(name).to(self.place)
        if side == "ddp":
            own = [local] if device == "cuda" else None
            self.model = torch.nn.parallel.DistributedDataParallel(
                model, device_ids=own, gradient_as_bucket_view=True)
        else:
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            for block in model.blocks:
                fully_shard(block, mp_policy=policy)
            self.model = fully_shard(model, mp_policy=policy)
        self.autocast = side == "ddp"
        self.parameters = list(self.model.parameters())
        self.call = torch.compile(self.model)
        self.optimizer = adamw(torch, self.parameters, 1e-4, 0.99)
        torch.manual_seed(2 + dist.get_rank())
        self.tokens = torch.randint(vocab, (batch, context), device=self.place)
        self.targets = torch.randint(vocab, (batch, context), device=self.place)

    def step(self):
        torch = self.torch
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.autocast):
            loss = self.call(self.tokens, self.targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        return loss

    def wait(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def optimizer_bytes(self):
        total = 0
        for state in self.optimizer.state.values():
            for value in state.values():
                if hasattr(value, "numel"):
                    local = value.to_local() if hasattr(value, "to_local") else value
                    total += local.numel() * local.element_size()
        return total


def measure_all_reduce(rank):
    """{MiB: ms} of an all-reduce of float32."""
    import torch.distributed as dist

    times = {}
    for mib in BANDWIDTH_MIB:
        data = rank.torch.zeros(mib << 18, device=rank.place)
        for turn in range(2):
            rank.wait()
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(10):
                dist.all_reduce(data)
            rank.wait()
            times[mib] = (time.perf_counter() - begin) / 10 * 1e3
    return times


def run_rank(name, side, device, seconds):
    """Runs in a process of its own; rank 0 prints the figures."""
    import torch.distributed as dist

    rank = Rank(name, side, device)
    for _ in range(WARM_STEPS):
        loss = rank.step()
    rank.wait()
    begin = time.perf_counter()
    rank.step()
    rank.wait()
    each = rank.torch.tensor([time.perf_counter() - begin], device=rank.place)
    dist.broadcast(each, 0)
    steps = steps_in(seconds / 40, each.item())
    figures, loss = time_rounds(rank.step, rank.wait, steps, 5)
    reduced = measure_all_reduce(rank) if side == "ddp" and dist.get_world_size() > 1 else {}
    if dist.get_rank() == 0:
        print(json.dumps({"ms": figures["ms"], "loss": loss.item(),
                          "optimizer_mib": rank.optimizer_bytes() / 2**20,
                          "all_reduce_ms": reduced, "torch": rank.torch.__version__}))
    dist.destroy_process_group()


def measure_torch(args, name, side, ranks):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(ranks):
        own = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank),
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        started.append(subprocess.Popen(
            [sys.executable, __file__, "--device", args.device, "--seconds", str(args.seconds),
             "--one", f"{name},{side}"], env=own, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE))
    figures = None
    for rank, process in enumerate(started):
        try:
            out, err = process.communicate(timeout=10 * args.seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        figures = (records(out) or [figures])[-1]
        if process.returncode:
            said = (err.strip() or "nothing").splitlines()[-1]
            print(f"compare_ddp: {side}, rank {rank}: {said}", file=sys.stderr)
    return figures


# ---- Taking turns -----------------------------------------------------------------------------


def measure(args, name, side, ranks):
    if side != "gradus":
        return measure_torch(args, name, side, ranks)
    with tempfile.TemporaryDirectory() as folder:
        return measure_gradus(args, name, ranks, pathlib.Path(folder))


def print_table(name, results):
    _, _, _, _, _, context, batch, _ = compare_train.MODELS[name]
    print(f"\n{name} bf16, a batch of {batch} x {context} on each GPU")
    print(f"  {'':<8}{'GPUs':>5}{'ms a step':>11}{'tokens/s':>12}{'efficiency':>16}"
          f"{'not hidden, ms':>16}{'optimizer, MiB':>16}{'loss':>8}")
    for side, by_ranks in results.items():
        one = by_ranks.get(1)
        for ranks, f in by_ranks.items():
            share = f"{one['ms'] / f['ms']:.3f}" if one else "-"
            more = f"{f['ms'] - one['ms']:.2f}" if one else "-"
            print(f"  {side:<8}{ranks:>5}{f['ms']:>11.3f}"
                  f"{ranks * batch * context / f['ms'] * 1e3:>12.4g}{share:>16}{more:>16}"
                  f"{f['optimizer_mib']:>16.1f}{f['loss']:>8.3f}", flush=True)
    for ranks, f in results.get("ddp", {}).items():
        for mib, ms in f["all_reduce_ms"].items():
            moved = 2 * (ranks - 1) / ranks * int(mib) / 1024 / ms * 1e3
            print(f"  all-reduce of {mib} MiB on {ranks}: {ms:.3f} ms, {moved:.0f} GiB/s a GPU")


def parse_arguments():
    p = argparse.ArgumentParser(
        description="Training on several GPUs: gradus beside PyTorch's DDP and FSDP2.")
    p.add_argument("--models", default="small,toy", help="of compare_train.py")
    p.add_argument("--ranks", type=counts, default=[1, 2, 4], help="how many GPUs, in turn")
    p.add_argument("--sides", default=",".join(SIDES))
    p.add_argument("--seconds", type=float, default=60, help="about, for one side on N GPUs")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--train", type=pathlib.Path, default=pathlib.Path("build/bin/gradus-train"))
    p.add_argument("--json", type=pathlib.Path, help="write the figures to this file, too")
    p.add_argument("--one", help=argparse.SUPPRESS)  # "toy,ddp": one rank, in this process
    args = p.parse_args()
    args.models, args.sides = args.models.split(","), args.sides.split(",")
    for name in args.models:
        if name not in compare_train.MODELS:
            p.error(f"{name} is none of {', '.join(compare_train.MODELS)}")
    for side in args.sides:
        if side not in SIDES:
            p.error(f"{side} is none of {', '.join(SIDES)}")
    return args


def main():
    args = parse_arguments()
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    if args.one:
        run_rank(*args.one.split(","), args.device, args.seconds)
        return 0
    if "gradus" in args.sides and not args.train.is_file():
        sys.exit(f"compare_ddp: {args.train} is not built (or name it: --train)")
    results, missing = {}, False
    for name in args.models:
        results[name] = {}
        for side in args.sides:
            found = {n: measure(args, name, side, n) for n in args.ranks}
            missing = missing or not all(found.values())
            results[name][side] = {n: f for n, f in found.items() if f}
        print_table(name, results[name])
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
