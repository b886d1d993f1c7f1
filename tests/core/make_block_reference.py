#!/usr/bin/env python3
"""Write block_reference.txt: a small transformer, its loss and its gradients.

The file is the truth that a test of gradus compares with.  A two-layer
Llama-style transformer is built in float64 from elementary operations only
(mean, rsqrt, matrix product, softmax under a mask that is spelled out), so
that it shares no shortcut with the code it tests; PyTorch's automatic
differentiation then gives the gradient of the loss in every parameter.

The model:

  x = embedding[tokens]
  in every layer
      x = x + attention(rms_norm(x, norm1))
      x = x + mlp(rms_norm(x, norm2))
  logits = rms_norm(x, norm_final) @ output.T
  loss = mean cross-entropy over the targets that are not IGNORE

  * rms_norm(x, w) = x / sqrt(mean(x^2) + 1e-5) * w
  * attention is causal, with 4 query heads that share 2 key and value heads
    (query head h uses key head h // 2), and RoPE in the rotate-half form of
    Hugging Face's Llama, base 10000
  * mlp(h) = (silu(h @ w_gate.T) * (h @ w_up.T)) @ w_down.T
  * a matrix is stored [out, in] and used as x @ W.T, like nn.Linear

The file holds records separated by white space; lines that begin with '#'
are comments:

  tensor NAME f64 NDIM D0 D1 ...    then the values, row by row, in C99
                                    hexadecimal floating point: every bit
                                    survives, and strtod reads them back
  int NAME NDIM D0 D1 ...           then the values, in decimal

    python3 tests/core/make_block_reference.py [--out FILE]
"""

import argparse
import math
import pathlib

import torch

LAYERS = 2
DIM = 24
HEADS = 4
KV_HEADS = 2
HEAD_DIM = 6
FFN = 20
VOCAB = 13
BATCH = 2
CONTEXT = 7
EPS = 1e-5
ROPE_BASE = 10000.0
IGNORE = -100
SEED = 20240
SCALE = 0.4


def make_parameters(generator):
    """Return {name: float64 tensor}, in the order in which they are written."""

    def matrix(rows, cols):
        return SCALE * torch.randn(rows, cols, generator=generator, dtype=torch.float64)

    def norm_weight():
        # Around one but never one, so that a forgotten weight is noticed.
        return 1.0 + SCALE * torch.randn(DIM, generator=generator, dtype=torch.float64)

    parameters = {"embedding": matrix(VOCAB, DIM)}
    for i in range(LAYERS):
        layer = f"layers.{i}."
        parameters[layer + "norm1"] = norm_weight()
        parameters[layer + "wq"] = matrix(HEADS * HEAD_DIM, DIM)
        parameters[layer + "wk"] = matrix(KV_HEADS * HEAD_DIM, DIM)
        parameters[layer + "wv"] = matrix(KV_HEADS * HEAD_DIM, DIM)
        parameters[layer + "wo"] = matrix(DIM, HEADS * HEAD_DIM)
        parameters[layer + "norm2"] = norm_weight()
        parameters[layer + "w_gate"] = matrix(FFN, DIM)
        parameters[layer + "w_up"] = matrix(FFN, DIM)
        parameters[layer + "w_down"] = matrix(DIM, FFN)
    parameters["norm_final"] = norm_weight()
    parameters["output"] = matrix(VOCAB, DIM)
    for p in parameters.values():
        p.requires_grad_(True)
    return parameters


def rms_norm(x, weight):
    """Divide each row by its root mean square, then scale by the weight."""
    return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + EPS) * weight


def rope_tables():
    """Cosines and sines [CONTEXT, HEAD_DIM]; both halves hold the same angles."""
    pair = torch.arange(0, HEAD_DIM, 2, dtype=torch.float64)
    rate = torch.pow(torch.tensor(ROPE_BASE, dtype=torch.float64), -pair / HEAD_DIM)
    position = torch.arange(CONTEXT, dtype=torch.float64)
    angle = position[:, None] * rate[None, :]
    angle = torch.cat((angle, angle), dim=-1)
    return torch.cos(angle), torch.sin(angle)


def rope(x, cos, sin):
    """Rotate element j together with element j + HEAD_DIM / 2.

    x is [BATCH, heads, CONTEXT, HEAD_DIM]; the tables apply to its last two
    dimensions.
    """
    half = HEAD_DIM // 2
    first, second = x[..., :half], x[..., half:]
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def split_heads(x, heads):
    """[BATCH, CONTEXT, heads * HEAD_DIM] -> [BATCH, heads, CONTEXT, HEAD_DIM]"""
    return x.reshape(BATCH, CONTEXT, heads, HEAD_DIM).transpose(1, 2)


def softmax(x):
    """Softmax along the last dimension, from its definition."""
    e = torch.exp(x - x.max(dim=-1, keepdim=True).values.detach())
    return e / e.sum(dim=-1, keepdim=True)


def attention(h, wq, wk, wv, wo, cos, sin):
    q = rope(split_heads(h @ wq.T, HEADS), cos, sin)
    k = rope(split_heads(h @ wk.T, KV_HEADS), cos, sin)
    v = split_heads(h @ wv.T, KV_HEADS)
    # Query head i uses key and value head i // group.
    group = HEADS // KV_HEADS
    shared = torch.tensor([i // group for i in range(HEADS)])
    k, v = k[:, shared], v[:, shared]
    scores = q @ k.transpose(-1, -2) / math.sqrt(HEAD_DIM)
    # A token sees itself and what came before it, never what comes after.
    after = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(diagonal=1)
    scores = scores.masked_fill(after, -math.inf)
    mixed = softmax(scores) @ v
    return mixed.transpose(1, 2).reshape(BATCH, CONTEXT, HEADS * HEAD_DIM) @ wo.T


def mlp(h, w_gate, w_up, w_down):
    gate = h @ w_gate.T
    silu = gate / (1.0 + torch.exp(-gate))
    return (silu * (h @ w_up.T)) @ w_down.T


def cross_entropy(logits, targets):
    """Mean of -log softmax(logits)[target] over the targets that count."""
    logits, targets = logits.reshape(-1, VOCAB), targets.reshape(-1)
    counted = targets != IGNORE
    logits, targets = logits[counted], targets[counted]
    top = logits.max(dim=-1, keepdim=True).values.detach()
    log_sum = torch.log(torch.exp(logits - top).sum(dim=-1)) + top[:, 0]
    right = logits[torch.arange(len(targets)), targets]
    return (log_sum - right).mean()


def forward(p, tokens, targets):
    """Return (logits [BATCH, CONTEXT, VOCAB], loss)."""
    cos, sin = rope_tables()
    x = p["embedding"][tokens]
    for i in range(LAYERS):
        w = {name: p[f"layers.{i}.{name}"] for name in
             ("norm1", "wq", "wk", "wv", "wo", "norm2", "w_gate", "w_up", "w_down")}
        x = x + attention(rms_norm(x, w["norm1"]), w["wq"], w["wk"], w["wv"], w["wo"], cos, sin)
        x = x + mlp(rms_norm(x, w["norm2"]), w["w_gate"], w["w_up"], w["w_down"])
    logits = rms_norm(x, p["norm_final"]) @ p["output"].T
    return logits, cross_entropy(logits, targets)


def write_values(file, values, text):
    for start in range(0, len(values), 8):
        file.write(" ".join(text(v) for v in values[start:start + 8]) + "\n")


def write_tensor(file, name, t):
    dims = "".join(f" {d}" for d in t.shape)
    file.write(f"tensor {name} f64 {t.ndim}{dims}\n")
    write_values(file, t.detach().reshape(-1).tolist(), float.hex)


def write_int(file, name, t):
    dims = "".join(f" {d}" for d in t.shape)
    file.write(f"int {name} {t.ndim}{dims}\n")
    write_values(file, t.reshape(-1).tolist(), str)


def main():
    parser = argparse.ArgumentParser(
        description="Write a small transformer with its loss and its gradients.")
    parser.add_argument("--out", type=pathlib.Path,
                        default=pathlib.Path(__file__).with_name("block_reference.txt"),
                        help="file to write (default: block_reference.txt beside this script)")
    args = parser.parse_args()

    torch.set_num_threads(1)  # one order of summation
    generator = torch.Generator().manual_seed(SEED)
    parameters = make_parameters(generator)
    tokens = torch.randint(VOCAB, (BATCH, CONTEXT), generator=generator)
    targets = torch.randint(VOCAB, (BATCH, CONTEXT), generator=generator)
    targets[1, 3] = IGNORE

    logits, loss = forward(parameters, tokens, targets)
    loss.backward()

    version = torch.__version__.split("+")[0]
    with open(args.out, "w", encoding="ascii", newline="\n") as file:
        file.write(
            "# A two-layer Llama-style transformer with its loss and gradients, in float64.\n"
            f"# Made by make_block_reference.py with PyTorch {version}, seed {SEED}.\n"
            f"# layers {LAYERS}, dim {DIM}, heads {HEADS}, kv heads {KV_HEADS}, "
            f"head dim {HEAD_DIM}, ffn {FFN}, vocab {VOCAB}\n"
            f"# batch {BATCH}, context {CONTEXT}, eps {EPS:g}, RoPE base {ROPE_BASE:g} "
            f"(rotate-half), ignored target {IGNORE}\n"
            "# Matrices are [out, in] and used as x @ W.T; loss is the mean over the other"
            " targets.\n"
            "# Records: 'tensor NAME f64 NDIM DIMS...' or 'int NAME NDIM DIMS...', then the"
            " values.\n")
        write_int(file, "tokens", tokens)
        write_int(file, "targets", targets)
        for name, p in parameters.items():
            write_tensor(file, name, p)
        write_tensor(file, "loss", loss)
        write_tensor(file, "logits", logits)
        for name, p in parameters.items():
            write_tensor(file, "grad." + name, p.grad)
    print(f"{args.out}: loss {loss.item():.12f}, {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
