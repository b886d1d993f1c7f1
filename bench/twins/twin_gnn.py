"""twin_gnn.py - twin_gnn.c in PyTorch: two graph convolutions."""
import torch
from torch import nn
from torch.nn import functional as F

import twin

NODES, EDGES, FEATURES, HIDDEN, CLASSES, STEPS = 500, 3000, 64, 64, 5, 100


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FEATURES, HIDDEN)
        self.second = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x):
        return self.second(mean_of_neighbours(F.relu(self.first(mean_of_neighbours(x)))))


def mean_of_neighbours(x):
    return torch.zeros_like(x).index_add(0, ends, x[sources]) / degree


net = twin.init(Net())
optimizer = twin.adamw(net, 0.01)
x = twin.floats(1, 1, NODES, FEATURES)
y = twin.ints(2, CLASSES, NODES)
sources, ends = twin.ints(3, NODES, EDGES), twin.ints(4, NODES, EDGES)
degree = 1 + torch.bincount(ends, minlength=NODES)[:, None]
for step in range(STEPS):
    loss = F.cross_entropy(net(x)[:100], y[:100])
    twin.update(optimizer, loss)
twin.end()
