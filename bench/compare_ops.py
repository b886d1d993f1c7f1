#!/usr/bin/env python3
"""Time the ops of layers.def beside PyTorch's.

Forward and backward with all gradients, in one run on one device. PyTorch runs its eager kernels
(cuDNN's autotuner on, TF32 off) and the same layer compiled; the faster one counts. Ours are run by
gradus-bench layers, which leaves out the copy of dy that a backward begins with if dy is given by the caller.
A figure is the median of several means, measured with events on a GPU. Losses have no gradient by their
targets.

"of the ceiling" is for layers limited by memory: the time that a copy of as many bytes as the layer
must move takes in the same run, over ours.

    bench/compare_ops.py
    bench/compare_ops.py --ops lstm,gru --dtypes bfloat16,float16
    bench/compare_ops.py --device cpu --threads 1 --dtypes float32
"""
import math
import re
import statistics

from harness import ROOT, Table, bench, device_us, get_torch, machine, of, options, several, stop

NAMES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def sizes():
    """name -> (kinds of the inputs, their shapes) of layers.def."""
    rows = (ROOT / "bench/layers.def").read_text().split("\nLAYER(")[1:]
    found = {}
    for name, kinds, rest in (re.match(r'(\w+), "(\w+)",(.*)', row, re.S).groups() for row in rows):
        shapes = re.findall(r"\{([\d <,]+)\}", rest)[-len(kinds):]
        found[name] = kinds, [tuple(map(eval, shape.split(","))) for shape in shapes]
    return found


def layers(torch, nn, functional):
    """name -> (function, tensors like x moved forward and backward, or None)."""
    quarter = 0.25  # a pooled plane

    def attention(*qkv):
        return functional.scaled_dot_product_attention(*(t.transpose(1, 2) for t in qkv),
                                                       is_causal=True)

    def rope(x):
        half = x.shape[-1] // 2
        angle = (torch.arange(x.shape[1], device=x.device)[:, None, None]
                 * 10000 ** (-torch.arange(half, device=x.device) / half))
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    def rope_attention(x):
        q, k, v = x.chunk(3, 2)
        return attention(rope(q), rope(k), v)

    def conv(function, **how):
        return lambda x, w, b: function(x, w, b, **{"padding": 1, **how}), None

    rows = {
        "attention": (attention, None),
        "attention_short": (attention, None),
        "attention_wide": (attention, None),
        "rope": (rope, (2, 2)),
        "rope_attention": (rope_attention, None),
        "conv2d": conv(functional.conv2d),
        "depthwise": (conv(functional.conv2d, groups=64)[0], (2, 3)),
        "conv1d": conv(functional.conv1d),
        "conv_transpose2d": conv(functional.conv_transpose2d, stride=2),
        "unfold": (lambda x: functional.unfold(x, 3, padding=1), (10, 10)),
        "fold": (lambda x: functional.fold(x, (56, 56), 3, padding=1), (10 / 9, 10 / 9)),
        "pad": (lambda x: functional.pad(x, (1, 1, 1, 1), mode="reflect"), (1 + (58 / 56) ** 2,) * 2),
        "upsample_nearest": (lambda x: functional.interpolate(x, scale_factor=2, mode="nearest"), (5, 5)),
        "max_pool2d": (lambda x: functional.max_pool2d(x, 2),
                       # y, dy and the places, of 4 bytes
                       lambda size: (1 + quarter * (1 + 4 / size),) * 2),
        "avg_pool2d": (lambda x: functional.avg_pool2d(x, 2), (1 + quarter,) * 2),
        "batch_norm": (lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True), (3, 5)),
        "batch_norm_fixed": (lambda x, w, b, mean, var: functional.batch_norm(x, mean, var, w, b), (2, 3)),
        "group_norm": (lambda x, w, b: functional.group_norm(x, 8, w, b), (2, 3)),
        "layer_norm": (lambda x, w, b: functional.layer_norm(x, (1024,), w, b), (2, 3)),
        "rms_norm": (lambda x, w: functional.rms_norm(x, (1024,), w), (2, 3)),
        "add_rms_norm": (lambda x, r, w: functional.rms_norm(x + r, (1024,), w), (4, None)),
        "linear": (functional.linear, None),
        "matmul": (torch.matmul, None),
        "embedding": (lambda x, at: functional.embedding(at, x), None),
        "lstm": (nn.LSTM(512, 512, batch_first=True), None),
        "gru": (nn.GRU(512, 512, batch_first=True), None),
        "huber_loss": (lambda x, t: functional.huber_loss(x, t, delta=0.5), (2, 3)),
        "smooth_l1_loss": (lambda x, t: functional.smooth_l1_loss(x, t, beta=0.5), (2, 3)),
        "bce_with_logits": (functional.binary_cross_entropy_with_logits, (2, 3)),
        "kl_div": (lambda x, t: functional.kl_div(x, t, reduction="batchmean"), (2, 2)),
        "nll_loss": (functional.nll_loss, (0, 1)),
        "cross_entropy": (functional.cross_entropy, (1, 2)),
        "linear_cross_entropy": (
            lambda x, w, at: functional.cross_entropy(functional.linear(x, w), at), None),
        "cosine_similarity": (functional.cosine_similarity, (2, 4)),
        "softmax": (lambda x: x.softmax(-1), (2, 3)),
        "log_softmax": (lambda x: x.log_softmax(-1), (2, 3)),
        "swiglu": (lambda x, up: functional.silu(x) * up, (3, 5)),
        "dropout": (lambda x: functional.dropout(x, 0.1), (2, 2)),
        "where": (lambda a, b, m: torch.where(m, a, b), None),
        "masked_fill": (lambda x, m: x.masked_fill(m, 0), None),
        "pow_tensor": (lambda x, t: torch.pow(t, x), (3, 4)),
        "scale": (lambda x: x * 0.5, (2, 2)),
        "add_scalar": (lambda x: x + 0.5, (2, None)),
        "pow": (lambda x: x.pow(3), (2, 3)),
        "gelu_tanh": (lambda x: functional.gelu(x, approximate="tanh"), (2, 3)),
        "clamp": (lambda x: x.clamp(-1, 1), (2, 3)),
        "cast": (lambda x: x.to(torch.bfloat16 if x.dtype == torch.float32 else torch.float32), None),
        "max": (lambda x: x.amax(-1), (1, 2)),
        "norm": (lambda x: torch.linalg.vector_norm(x, 2, -1), (1, 2)),
        "argmax": (lambda x: x.argmax(-1), (1, None)),
        "cumsum": (lambda x: x.cumsum(-1), (2, 2)),
        "sort": (lambda x: x.sort(dim=-1, stable=True)[0], None),
        "topk": (lambda x: x.topk(32)[0], (1, 1)),
        "gather": (lambda x, i: x.gather(-1, i), None),
        "gather_rows": (lambda x, i: x.gather(-1, i), None),
        "scatter_add": (lambda x, src, i: x.scatter_add(-1, i, src), None),
        "index_select": (lambda x, i: x.index_select(-1, i), None),
        "one_hot": (lambda x, at: functional.one_hot(at, x.shape[-1]).to(x.dtype), (1, None)),
        "flip": (lambda x: x.flip(-1), (2, 2)),
        "tril": (torch.tril, (2, 2)),
        "triu": (torch.triu, (2, 2)),
        "concat": (lambda *x: torch.cat(x, -1), (4, 4)),
        "contiguous": (lambda x: x.t().contiguous(), (2, None)),
    }
    for names, room, moved in (
            ("mse_loss l1_loss relu softplus gelu silu mish leaky_relu elu hardtanh", functional, (2, 3)),
            ("exp log log1p expm1 sqrt rsqrt reciprocal sin cos atan tanh sigmoid erf abs", torch, (2, 3)),
            ("neg", torch, (2, 2)), ("sign floor", torch, (2, None)), ("add sub", torch, (3, None)),
            ("mul div maximum minimum", torch, (3, 5)), ("lt", torch, None)):
        rows.update({name: (getattr(room, name), moved) for name in names.split()})
    for names, moved in (("sum mean", (1, 1)), ("logsumexp var std prod", (1, 2)), ("any all", (1, None))):
        rows.update({name: (lambda x, reduce=getattr(torch, name): reduce(x, -1), moved)
                     for name in names.split()})
    return rows


def median_us(torch, args, call):
    """Of a call: the median of rounds of four on a GPU, of one on the CPU."""
    for _ in range(3):
        call()
    calls = 4 if args.device == "cuda" else 1
    return statistics.median(device_us(torch, args.device, call, calls) for _ in range(args.rounds))


def make_inputs(torch, device, dtype, kinds, shapes):
    """The inputs of a layer."""
    inputs = []
    for kind, shape in zip(kinds, shapes):
        if device == "cpu" and kind not in "ws":
            shape = (shape[0] // 8,) + shape[1:]
        if kind == "c":
            inputs.append(torch.randint(inputs[0].shape[-1], shape, device=device))
        elif kind == "m":
            inputs.append(torch.randint(2, shape, device=device).bool())
        elif kind in "st":
            inputs.append(torch.rand(shape, device=device, dtype=dtype))
        else:
            x = torch.randn(shape, device=device, dtype=dtype)
            inputs.append(x.mul_(0.05 if kind == "w" else 1).requires_grad_())
    return inputs


def peer(torch, args, dtype, kinds, shapes, function):
    """(forward, backward) microseconds of the function; infinite without a backward that computes."""
    module = isinstance(function, torch.nn.Module)
    if module:  # with weights of its own
        function.to(args.device, dtype)
    inputs = make_inputs(torch, args.device, dtype, kinds[:1] if module else kinds, shapes)
    y = function(*inputs)
    y = y[0] if module else y
    forward = median_us(torch, args, lambda: function(*inputs))
    if not y.requires_grad:
        return forward, math.inf
    dy = torch.randn_like(y)
    wanted = [t for t in inputs if t.requires_grad] + (list(function.parameters()) if module else [])

    def backward():
        return torch.autograd.grad(y, wanted, dy, retain_graph=True)

    if all(g.untyped_storage().data_ptr() == dy.untyped_storage().data_ptr() for g in backward()):
        return forward, math.inf  # views of dy
    return forward, median_us(torch, args, backward)


def copy_time(torch, args, dtype, shape):
    """Microseconds to read and write a tensor."""
    [x] = make_inputs(torch, args.device, dtype, "x", [shape])
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
    inputs, known = sizes(), layers(torch, torch.nn, torch.nn.functional)
    if unknown := set(args.ops or ()) - set(known):
        stop(f"{', '.join(unknown)}: none of {', '.join(known)}")
    print(machine(torch, args.device))
    table = Table(("layer", "<17"), ("dtype", "<9"), ("pass", "<9"), ("PyTorch us", ">11.1f"),
                  ("gradus us", ">11.1f"), ("ratio", ">6.2f"), ("of the ceiling", ">15.2f"))
    for dtype in args.dtypes:
        kind = getattr(torch, dtype)
        for name in args.ops or inputs:
            kinds, shapes, (function, moved) = *inputs[name], known[name]
            [r] = bench(args, "layers", "--dtype", NAMES[dtype], "--repeats", args.rounds, "--op", name)
            functions = [function]
            if not args.no_compile and not isinstance(function, torch.nn.Module):
                functions.append(torch.compile(function))
            best = map(min, zip(*(peer(torch, args, kind, kinds, shapes, f) for f in functions)))
            moved = moved(kind.itemsize) if callable(moved) else moved or (None, None)
            copied = any(moved) and copy_time(torch, args, kind, shapes[0])
            for way, us, copies in zip(("forward", "backward"), best, moved):
                if us < math.inf:
                    own = r[way + "_us"]
                    table.line(name, dtype, way, us, own, us / own,
                               copied * copies / 2 / own if copies else "")


if __name__ == "__main__":
    main()
