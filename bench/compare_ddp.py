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
import array
import json
import os
import pathlib
import random
import sys
import tempfile
import time

from compare_train import MODELS
from harness import (Table, count, get_torch, left_out, mib_before, of, options, records, run,
                     several, spread, steps_in, stop, time_rounds, train)
from llama import Trainer

SIDES = ("gradus", "ddp", "fsdp")
BANDWIDTH_MIB = (1, 64, 500)
WARM_STEPS = 15


def write_tokens(folder, vocab, length):
    """Token files as nanoGPT has them: 16-bit ids, one after the other."""
    rng = random.Random(1)
    ids = array.array("H", (rng.randrange(vocab) for _ in range(1 << 16)))
    for name, wanted in (("train.bin", length), ("val.bin", 1 << 16)):
        with open(folder / name, "wb") as file:
            for _ in range(-(-wanted // len(ids))):
                ids.tofile(file)


def measure_gradus(args, name, ranks):
    s = MODELS[name]
    with tempfile.TemporaryDirectory() as folder:
        write_tokens(pathlib.Path(folder), s.vocab, max(1 << 20, 4 * ranks * s.batch * s.context))
        sizes = [word for key in ("vocab", "layers", "dim", "heads", "ffn", "context", "batch", "dropout")
                 for word in ("--" + key, getattr(s, key))]
        times, last, said = train(
            args.train.resolve(), folder, "--tokens", "train.bin", "--val-data", "val.bin", *sizes,
            "--dtype", "bf16", "--lr", "1e-4", "--steps", 100000, "--max-seconds", args.seconds / 4,
            "--eval-every", 0, "--eval-batches", 1, "--sample-length", 0, "--log-every", 5,
            "--timeout", 60, "--gpus" if args.device == "cuda" else "--processes", ranks,
            warm=WARM_STEPS)
    return {"ms": spread(times)[0], "loss": last["loss"], "optimizer_mib": mib_before(said, "optimizer")}


def start_rank(torch, name, side, device):
    """A model that all ranks train."""
    local = int(os.environ["LOCAL_RANK"])
    place = torch.device(device, local) if device == "cuda" else torch.device("cpu")
    if device == "cuda":
        torch.cuda.set_device(place)
    torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo")

    def ddp(model):
        return torch.nn.parallel.DistributedDataParallel(
            model, device_ids=[local] if device == "cuda" else None, gradient_as_bucket_view=True)

    def fsdp(model):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for part in (*model.blocks, model):
            fully_shard(part, mp_policy=policy)
        return model

    rank = Trainer(torch, MODELS[name], place, side == "ddp", "", beta2=0.99,
                   wrap=ddp if side == "ddp" else fsdp)
    torch.manual_seed(2 + local)  # each has its own data
    for ids in (rank.tokens, rank.targets):
        ids.random_(MODELS[name].vocab)
    return rank


def optimizer_bytes(optimizer):
    values = [value for state in optimizer.state.values() for value in state.values()
              if hasattr(value, "numel")]
    values = [value.to_local() if hasattr(value, "to_local") else value for value in values]
    return sum(value.numel() * value.element_size() for value in values)


def measure_all_reduce(torch, rank):
    """{MiB: ms} of an all-reduce of float32."""
    times = {}
    for mib in BANDWIDTH_MIB:
        data = torch.zeros(mib << 18, device=rank.place)
        for _ in range(2):
            rank.wait()
            torch.distributed.barrier()
            reduce = lambda: torch.distributed.all_reduce(data)
            times[mib] = time_rounds(reduce, rank.wait, 10, 1)["ms"]
    return times


def run_rank(name, side, device, seconds):
    """Runs in a process of its own; rank 0 prints the figures."""
    torch = get_torch(device)
    import torch.distributed as dist

    rank = start_rank(torch, name, side, device)
    for _ in range(WARM_STEPS):
        rank.step()
    rank.wait()
    begin = time.perf_counter()
    rank.step()
    rank.wait()
    each = torch.tensor([time.perf_counter() - begin], device=rank.place)
    dist.broadcast(each, 0)
    figures = time_rounds(rank.step, rank.wait, steps_in(seconds / 40, each.item()), 5)
    loss = rank.loss.item()
    reduced = measure_all_reduce(torch, rank) if side == "ddp" and dist.get_world_size() > 1 else {}
    if dist.get_rank() == 0:
        print(json.dumps({"ms": figures["ms"], "loss": loss,
                          "optimizer_mib": optimizer_bytes(rank.optimizer) / 2**20,
                          "all_reduce_ms": reduced, "torch": torch.__version__}))
    dist.destroy_process_group()


def measure_torch(args, name, side, ranks):
    said = run(["timeout", 10 * args.seconds, sys.executable, "-m", "torch.distributed.run", "--standalone",
                "--nproc-per-node", ranks, __file__, "--device", args.device,
                "--seconds", args.seconds, "--one", f"{name},{side}"])
    return records(said)[-1]


def measure(args, name, side, ranks):
    """The figures of a side, or None with a message."""
    try:
        return (measure_gradus(args, name, ranks) if side == "gradus" else
                measure_torch(args, name, side, ranks))
    except (RuntimeError, IndexError) as error:
        left_out(f"{side} on {ranks}", error)
        return None


def print_table(name, results):
    s = MODELS[name]
    print(f"\n{name} bf16, a batch of {s.batch} x {s.context} on each GPU")
    table = Table(("", "<8"), ("GPUs", ">4"), ("ms a step", ">10.3f"), ("tokens/s", ">11.4g"),
                  ("efficiency", ">15.3f"), ("not hidden, ms", ">15.2f"),
                  ("optimizer, MiB", ">15.1f"), ("loss", ">7.3f"), indent="  ")
    for side, by_ranks in results.items():
        one = by_ranks.get(1)
        for ranks, f in by_ranks.items():
            beside = (one["ms"] / f["ms"], f["ms"] - one["ms"]) if one else ("-", "-")
            table.line(side, ranks, f["ms"], ranks * s.batch * s.context / f["ms"] * 1e3, *beside,
                       f["optimizer_mib"], f["loss"])
    for ranks, f in results.get("ddp", {}).items():
        for mib, ms in f["all_reduce_ms"].items():
            moved = 2 * (ranks - 1) / ranks * int(mib) / 1024 / ms * 1e3
            print(f"  all-reduce of {mib} MiB on {ranks}: {ms:.3f} ms, {moved:.0f} GiB/s a GPU")


def main():
    p = options(__doc__, "train", "device", "json", "one")
    p.add_argument("--models", type=several(str, MODELS), default=["small", "toy"],
                   help="of compare_train.py")
    p.add_argument("--ranks", type=several(count), default=[1, 2, 4], help="how many GPUs, in turn")
    p.add_argument("--sides", **of(SIDES))
    p.add_argument("--seconds", type=float, default=60, help="about, for one side on N GPUs")
    args = p.parse_args()
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    if args.one:
        run_rank(*args.one.split(","), args.device, args.seconds)
        return 0
    if "gradus" in args.sides and not args.train.is_file():
        stop(f"{args.train} is not built (or name it: --train)")
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
