#!/usr/bin/env python3
"""Time layers beside PyTorch's: causal attention, convolution, pooling, norms, LSTM and GRU, losses, indices.

Forward and backward with all gradients, in one run on one device. PyTorch runs its eager kernels
(cuDNN's autotuner on, TF32 off) and the same layer compiled; the faster one counts. Ours are run by
gradus-bench layers, whose sizes are repeated here, and which leaves out the copy of dy that a backward
begins with if dy is given by the caller. A figure is the median of several means, measured with events
on a GPU. Losses have no gradient by their targets, but for cosine_similarity.

"of the ceiling" is for layers limited by memory: the time that a copy of as many bytes as the layer
must move takes in the same run, over ours.

    bench/compare_ops.py
    bench/compare_ops.py --ops lstm,gru --dtypes bfloat16,float16
    bench/compare_ops.py --device cpu --threads 1 --dtypes float32
"""
import math
import statistics

from harness import Table, bench, device_us, get_torch, machine, of, options, several, stop

NAMES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
PAIR = [(32768, 1024), (32768, 1024)]
ROWS = [(32768, 1024), (32768,)]
IMAGE = [(32, 64, 56, 56)]
MATRIX = [(32768, 1024)]
# What the second input is, with x's batch: numbers from 0 to 1, classes, or like x. Others: weights.
TARGETS = dict.fromkeys(("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "bce_with_logits",
                         "kl_div"), "real")
TARGETS |= dict.fromkeys(("nll_loss", "cross_entropy", "gather", "gather_rows",
                          "index_select", "one_hot"), "class")
TARGETS |= dict.fromkeys(("attention", "attention_short", "attention_wide",
                          "cosine_similarity"), "like x")
TARGETS |= {"batch_norm_fixed": "statistics"}


def layers(torch, nn, functional):
    """name -> (shapes of the inputs, function, tensors like x moved forward and backward)."""
    quarter = 0.25  # a pooled plane

    def attention(*qkv):
        return functional.scaled_dot_product_attention(*(t.transpose(1, 2) for t in qkv),
                                                       is_causal=True)

    return {
        "attention": ([(16, 1024, 12, 64)] * 3, attention, None),
        "attention_short": ([(16, 256, 12, 64)] * 3, attention, None),
        "attention_wide": ([(16, 1024, 12, 128)] * 3, attention, None),
        "conv2d": ([(32, 64, 56, 56), (64, 64, 3, 3), (64,)],
                   lambda x, w, b: functional.conv2d(x, w, b, padding=1), None),
        "depthwise": ([(32, 64, 56, 56), (64, 1, 3, 3), (64,)],
                      lambda x, w, b: functional.conv2d(x, w, b, padding=1, groups=64), (2, 3)),
        "conv1d": ([(32, 64, 3136), (64, 64, 3), (64,)],
                   lambda x, w, b: functional.conv1d(x, w, b, padding=1), None),
        "conv_transpose2d": ([(32, 64, 28, 28), (64, 64, 4, 4), (64,)],
                             lambda x, w, b: functional.conv_transpose2d(
                                 x, w, b, stride=2, padding=1), None),
        "unfold": (IMAGE, lambda x: functional.unfold(x, 3, padding=1), (10, 10)),
        "fold": ([(32, 576, 3136)], lambda x: functional.fold(x, (56, 56), 3, padding=1),
                 (10 / 9, 10 / 9)),
        "pad": ([(256, 64, 56, 56)],
                lambda x: functional.pad(x, (1, 1, 1, 1), mode="reflect"),
                (1 + (58 / 56) ** 2,) * 2),
        "upsample_nearest": ([(256, 64, 28, 28)],
                             lambda x: functional.interpolate(x, scale_factor=2, mode="nearest"),
                             (5, 5)),
        "max_pool2d": ([(256, 64, 56, 56)], lambda x: functional.max_pool2d(x, 2),
                       # y, dy and the places, of 4 bytes
                       lambda size: (1 + quarter * (1 + 4 / size),) * 2),
        "avg_pool2d": ([(256, 64, 56, 56)], lambda x: functional.avg_pool2d(x, 2),
                       (1 + quarter,) * 2),
        "batch_norm": ([(256, 64, 56, 56), (64,), (64,)],
                       lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
                       (3, 5)),
        "batch_norm_fixed": ([(256, 64, 56, 56), (64,), (64,), (64,), (64,)],
                             lambda x, w, b, mean, var: functional.batch_norm(x, mean, var, w, b),
                             (2, 3)),
        "group_norm": ([(256, 64, 56, 56), (64,), (64,)],
                       lambda x, w, b: functional.group_norm(x, 8, w, b), (2, 3)),
        "lstm": ([(64, 128, 512)], nn.LSTM(512, 512, batch_first=True), None),
        "gru": ([(64, 128, 512)], nn.GRU(512, 512, batch_first=True), None),
        "mse_loss": (PAIR, functional.mse_loss, (2, 3)),
        "l1_loss": (PAIR, functional.l1_loss, (2, 3)),
        "huber_loss": (PAIR, lambda x, t: functional.huber_loss(x, t, delta=0.5), (2, 3)),
        "smooth_l1_loss": (PAIR, lambda x, t: functional.smooth_l1_loss(x, t, beta=0.5), (2, 3)),
        "bce_with_logits": (PAIR, functional.binary_cross_entropy_with_logits, (2, 3)),
        "kl_div": (PAIR, lambda x, t: functional.kl_div(x, t, reduction="batchmean"), (2, 2)),
        "nll_loss": (ROWS, functional.nll_loss, (0, 1)),
        "cross_entropy": (ROWS, functional.cross_entropy, (1, 2)),
        "cosine_similarity": (PAIR, functional.cosine_similarity, (2, 4)),
        "leaky_relu": (MATRIX, functional.leaky_relu, (2, 3)),
        "mish": (MATRIX, functional.mish, (2, 3)),
        "prod": (MATRIX, lambda x: x.prod(-1), (1, 2)),
        "norm": (MATRIX, lambda x: torch.linalg.vector_norm(x, 2, -1), (1, 2)),
        "sort": (MATRIX, lambda x: x.sort(dim=-1, stable=True)[0], None),
        "gather": ([(1 << 20,)] * 2, lambda x, i: x.gather(-1, i), None),
        "gather_rows": (MATRIX * 2, lambda x, i: x.gather(-1, i), None),
        "index_select": ([(4096, 8192), (8192,)], lambda x, i: x.index_select(-1, i), None),
        "topk": (MATRIX, lambda x: x.topk(32)[0], (1, 1)),
        "any": (MATRIX, lambda x: x.any(-1), (1, None)),
        "all": (MATRIX, lambda x: x.all(-1), (1, None)),
        "one_hot": (ROWS, lambda x, at: functional.one_hot(at, x.shape[-1]).to(x.dtype), (1, None)),
        "flip": (MATRIX, lambda x: x.flip(-1), (2, 2)),
        "tril": ([(32, 1024, 1024)], torch.tril, (2, 2)),
    }


def median_us(torch, args, call):
    """Of a call: the median of rounds of four on a GPU, of one on the CPU."""
    for _ in range(3):
        call()
    calls = 4 if args.device == "cuda" else 1
    return statistics.median(device_us(torch, args.device, call, calls) for _ in range(args.rounds))


def make_inputs(torch, device, dtype, shapes, second):
    """x, and weights, or with `second` what it says."""
    how = {"device": device, "dtype": dtype}
    if second == "statistics":
        return (make_inputs(torch, device, dtype, shapes[:3], None)
                + [torch.rand(s, **how) for s in shapes[3:]])
    if device == "cpu":
        shapes = [(s[0] // 8,) + s[1:] if second or not k else s for k, s in enumerate(shapes)]
    x = torch.randn(shapes[0], **how).requires_grad_()
    if second == "class":
        return [x, torch.randint(shapes[0][-1], shapes[1], device=device)]
    if second == "real":
        return [x, torch.rand(shapes[1], **how)]
    return [x] + [torch.randn(s, **how).mul_(1 if second else 0.05).requires_grad_()
                  for s in shapes[1:]]


def peer(torch, args, dtype, shapes, function, second):
    """(forward, backward) microseconds of the function; infinite without a backward."""
    module = isinstance(function, torch.nn.Module)
    if module:  # with weights of its own
        function.to(args.device, dtype)
    inputs = make_inputs(torch, args.device, dtype, shapes, second)
    y = function(*inputs)
    y = y[0] if module else y
    forward = median_us(torch, args, lambda: function(*inputs))
    if not y.requires_grad:
        return forward, math.inf
    dy = torch.randn_like(y)
    wanted = [t for t in inputs if t.requires_grad] + (list(function.parameters()) if module else [])
    return forward, median_us(
        torch, args, lambda: torch.autograd.grad(y, wanted, dy, retain_graph=True))


def copy_time(torch, args, dtype, shape):
    """Microseconds to read and write a tensor."""
    [x] = make_inputs(torch, args.device, dtype, [shape], None)
    to = torch.empty_like(x)
    x = x.detach()
    return median_us(torch, args, lambda: to.copy_(x))


def main():
    """Print the table."""
    p = options(__doc__, "bench", "device", "threads", "rounds", "no-compile", rounds=9)
    p.add_argument("--dtypes", **of(NAMES))
    p.add_argument("--ops", type=several(str), help="only these")
    args = p.parse_args()
    torch = get_torch(args.device, args.threads)
    known = layers(torch, torch.nn, torch.nn.functional)
    if unknown := set(args.ops or ()) - set(known):
        stop(f"{', '.join(unknown)}: none of {', '.join(known)}")
    print(machine(torch, args.device))
    table = Table(("layer", "<17"), ("dtype", "<9"), ("pass", "<9"), ("PyTorch us", ">11.1f"),
                  ("gradus us", ">11.1f"), ("ratio", ">6.2f"), ("of the ceiling", ">15.2f"))
    for dtype in args.dtypes:
        kind = getattr(torch, dtype)
        for name in args.ops or known:
            shapes, function, moved = known[name]
            [r] = bench(args, "layers", "--dtype", NAMES[dtype], "--repeats", args.rounds, "--op", name)
            functions = [function]
            if not args.no_compile and not isinstance(function, torch.nn.Module):
                functions.append(torch.compile(function))
            best = map(min, zip(*(peer(torch, args, kind, shapes, f, TARGETS.get(name))
                                  for f in functions)))
            moved = moved(kind.itemsize) if callable(moved) else moved or (None, None)
            copied = any(moved) and copy_time(torch, args, kind, shapes[0])
            for way, us, copies in zip(("forward", "backward"), best, moved):
                if us < math.inf:
                    own = r[way + "_us"]
                    table.line(name, dtype, way, us, own, us / own,
                               copied * copies / 2 / own if copies else "")


if __name__ == "__main__":
    main()
