"""twin_encoder.py - twin_encoder.c in PyTorch: sentences whose padding nobody sees."""
import torch
from torch import nn
from torch.nn import functional as F

import twin

B, T, V, E, HEADS, BLOCKS, CLASSES, STEPS = 32, 24, 100, 64, 4, 2, 4, 60


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(E)
        self.attention = nn.MultiheadAttention(E, HEADS, batch_first=True)
        self.norm2 = nn.LayerNorm(E)
        self.mlp = nn.Sequential(nn.Linear(E, 4 * E), nn.GELU(), nn.Linear(4 * E, E))

    def forward(self, x, seen):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, key_padding_mask=~seen, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(V, E)
        self.places = nn.Embedding(T, E)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.out = nn.Linear(E, CLASSES)

    def forward(self, ids, seen):
        x = self.words(ids) + self.places(place)
        for block in self.blocks:
            x = block(x, seen)
        kept = seen[:, None].float()
        return self.out((kept @ x)[:, 0] / kept.sum(2))


net = twin.init(Net())
optimizer = twin.adamw(net, 0.001)
ids = twin.ints(1, V, STEPS, B, T)
lengths = twin.ints(2, T, STEPS, B, 1)
labels = twin.ints(3, CLASSES, STEPS, B)
place = torch.arange(T)
for step in range(STEPS):
    loss = F.cross_entropy(net(ids[step], place <= lengths[step]), labels[step])
    twin.update(optimizer, loss)
twin.end()
