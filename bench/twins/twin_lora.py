"""twin_lora.py - twin_lora.c in PyTorch: a network learns by a few numbers more."""
from torch import nn
from torch.nn import functional as F

import twin

B, RANK, STEPS = 128, 8, 100


class Adapted(nn.Linear):
    def __init__(self, fan_in, out):
        super().__init__(fan_in, out)
        self.a = nn.Linear(fan_in, RANK, bias=False)
        self.b = nn.Linear(RANK, out, bias=False)

    def forward(self, x):
        return super().forward(x) + self.b(self.a(x))


net = twin.init(nn.Sequential(
    *(Adapted(64, 128), nn.ReLU(), Adapted(128, 128), nn.ReLU(), Adapted(128, 10)),
))
for layer in net[::2]:
    layer.weight.requires_grad_(False)
    layer.bias.requires_grad_(False)
    nn.init.zeros_(layer.b.weight)
optimizer = twin.adamw(net, 0.004)
points = twin.floats(1, 1, STEPS, B, 64)
labels = twin.ints(2, 10, STEPS, B)
for step in range(STEPS):
    loss = F.cross_entropy(net(points[step]), labels[step])
    twin.update(optimizer, loss)
twin.end()
