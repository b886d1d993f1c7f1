"""twin_wgan.py - twin_wgan.c in PyTorch: a critic with a penalty for its gradient."""
import torch
from torch import nn

import twin

B, STEPS = 128, 30

critic = twin.init(twin.mlp(2, 256, 256, 256, 1, act=nn.Softplus))
optimizer = twin.adamw(critic, 0.001)
real, made = twin.floats(1, 1, B, 2), twin.floats(2, 2, B, 2)
between = twin.floats(3, 1.5, B, 2).requires_grad_()
for step in range(STEPS):
    slope, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty = 10 * ((slope.norm(dim=1) - 1) ** 2).mean()
    twin.update(optimizer, critic(made).mean() - critic(real).mean() + penalty)
twin.end()
