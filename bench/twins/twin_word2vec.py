"""twin_word2vec.py - twin_word2vec.c in PyTorch: vectors of words from their neighbours."""
import torch
from torch import nn
from torch.nn import functional as F

import twin

V, C, B, OTHERS, STEPS = 5000, 64, 512, 6, 50


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(V, C)
        self.context = nn.Embedding(V, C)

    def forward(self, words, others):
        return self.word(words) @ self.context(others).transpose(1, 2)


net = twin.init(Net())
optimizer = twin.adamw(net, 0.01)
words = twin.ints(1, V, STEPS, B, 1)
others = twin.ints(2, V, STEPS, B, OTHERS)  # the first is near
near = torch.zeros(B, 1, OTHERS)
near[..., 0] = 1
for step in range(STEPS):
    loss = F.binary_cross_entropy_with_logits(net(words[step], others[step]), near)
    twin.update(optimizer, loss)
twin.end()
