"""twin_llama.py - twin_llama.c in PyTorch: a transformer of Llama's form, by its formulas."""
import torch
from torch import nn
from torch.nn import functional as F

import twin

B, T, V, C, H, KV, D, FFN, LAYERS, STEPS = 8, 24, 64, 48, 4, 2, 12, 128, 2, 60

rate = 10000.0 ** (-torch.arange(D // 2).double() / (D // 2))
angle = torch.outer(torch.arange(T).double(), rate)
cos, sin = angle.cos().float(), angle.sin().float()


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def rope(x):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.RMSNorm(C, 1e-5)
        self.q, self.k, self.v = linear(C, H * D), linear(C, KV * D), linear(C, KV * D)
        self.o = linear(H * D, C)
        self.norm2 = nn.RMSNorm(C, 1e-5)
        self.gate, self.up, self.down = linear(C, FFN), linear(C, FFN), linear(FFN, C)

    def forward(self, x):
        h = self.norm1(x)
        q, k, v = (m(h).view(B, T, -1, D).transpose(1, 2) for m in (self.q, self.k, self.v))
        k, v = (t.repeat_interleave(H // KV, 1) for t in (rope(k), v))
        after = torch.ones(T, T, dtype=torch.bool).triu(1)
        scores = (rope(q) @ k.transpose(-1, -2) / D ** 0.5).masked_fill(after, -torch.inf)
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, H * D))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


layers = [Layer() for _ in range(LAYERS)]
net = twin.init(nn.Sequential(nn.Embedding(V, C), *layers, nn.RMSNorm(C, 1e-5), linear(C, V)))
optimizer = twin.adamw(net, 0.003)
letters, following = (twin.ints(seed, V, STEPS, B, T) for seed in (1, 2))
following[:, 0, 0] = -100
for step in range(STEPS):
    twin.update(optimizer, F.cross_entropy(net(letters[step]).transpose(1, 2), following[step]))
twin.end()
