"""twin_mlp.py - twin_mlp.c in PyTorch: two half moons, and the weights that were best."""
import math
import time

import torch
from torch import nn
from torch.nn import functional as F


def moons(n):
    turn, label = math.pi * torch.rand(n), torch.arange(n) % 2
    up = torch.stack([turn.cos(), turn.sin()], 1)
    down = torch.stack([1 - turn.cos(), 0.5 - turn.sin()], 1)
    return torch.where(label[:, None] == 0, up, down) + 0.1 * torch.randn(n, 2), label


torch.manual_seed(1)
torch.set_num_threads(1)
x, y = moons(1024)
vx, vy = moons(512)
net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.AdamW(net.parameters(), 0.01, weight_decay=0.01)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
best, bad, steps, start = math.inf, 0, 0, time.process_time()
for epoch in range(100):
    for batch in torch.randperm(1024).split(64):
        loss = F.cross_entropy(net(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    schedule.step()
    with torch.no_grad():
        loss = F.cross_entropy(net(vx), vy).item()
    bad = 0 if loss < best else bad + 1
    if bad == 0:
        best, kept = loss, {name: t.clone() for name, t in net.state_dict().items()}
    if bad == 20:
        break
seconds = time.process_time() - start
net.load_state_dict(kept)
with torch.no_grad():
    right = (net(vx).argmax(1) == vy).float().mean().item()
print(f"loss {best:.3f}, {100 * right:.1f}% right, {1000 * seconds / steps:.3f} ms a step")
