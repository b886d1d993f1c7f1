"""twin_moe.py - twin_moe.c in PyTorch: a mixture of experts."""
import torch
from torch import nn
from torch.nn import functional as F

import twin

B, IN, OUT, EXPERTS, CHOSEN, STEPS = 128, 32, 10, 8, 2, 100


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(IN, EXPERTS)
        self.experts = nn.ModuleList(twin.mlp(IN, 64, OUT) for _ in range(EXPERTS))

    def forward(self, x):
        score, which = self.gate(x).topk(CHOSEN)
        part = torch.zeros(B, EXPERTS).scatter(1, which, F.softmax(score, -1))
        y = torch.stack([expert(x) for expert in self.experts], 1)
        return (part[:, None] @ y)[:, 0]


net = twin.init(Net())
optimizer = twin.adamw(net, 0.003)
points = twin.floats(1, 1, STEPS, B, IN)
labels = twin.ints(2, OUT, STEPS, B)
for step in range(STEPS):
    loss = F.cross_entropy(net(points[step]), labels[step])
    twin.update(optimizer, loss)
twin.end()
