"""twin_pinn.py - twin_pinn.c in PyTorch: Burgers' equation."""
import torch
from torch import nn

import twin

POINTS, STEPS = 512, 40

net = twin.init(twin.mlp(2, 64, 64, 64, 1, act=nn.Tanh))
optimizer = twin.adamw(net, 0.001)
x = twin.floats(1, 1, POINTS, 2).requires_grad_()
for step in range(STEPS):
    u = net(x)
    slope, = torch.autograd.grad(u.sum(), x, create_graph=True)
    second, = torch.autograd.grad(slope[:, 1].sum(), x, create_graph=True)
    residual = slope[:, :1] + u * slope[:, 1:] - second[:, 1:] / 100
    twin.update(optimizer, (residual * residual).mean())
twin.end()
