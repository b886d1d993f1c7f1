"""twin_reinforce.py - twin_reinforce.c in PyTorch: pushes of a cart."""
import torch
from torch import nn
from torch.nn import functional as F

import twin

N, STEPS = 200, 20
net = twin.init(twin.mlp(4, 64, 2, act=nn.Tanh))
optimizer = twin.adamw(net, 0.01)
cart = torch.zeros(4)
draws = twin.numbers(1, STEPS * N).tolist()
for step in range(STEPS):
    carts, pushes, overs, gain = [], [], [], []
    for t in range(N):
        at = step * N + t
        carts.append(cart)
        with torch.no_grad():
            pushes.append(draws[at] < F.softmax(net(cart), -1)[1].item())
        cart, over = twin.push(cart, pushes[-1], 3 + at)
        overs.append(over)
    after = 0
    for over in reversed(overs):
        after = 1 + (0 if over else 0.97 * after)
        gain.insert(0, after)
    worth = torch.tensor(gain)
    push = torch.tensor(pushes).long()
    unlikely = F.cross_entropy(net(torch.stack(carts)), push, reduction="none")
    loss = (unlikely * (worth - worth.mean())).mean()
    twin.update(optimizer, loss)
twin.end()
