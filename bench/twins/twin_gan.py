"""twin_gan.py - twin_gan.c in PyTorch: points of a ring."""
import torch
from torch.nn import functional as F

import twin

B, STEPS = 64, 200

generator, critic = twin.init(twin.mlp(8, 64, 64, 2)), twin.init(twin.mlp(2, 64, 64, 1))
optimizers = twin.adamw(generator, 0.002), twin.adamw(critic, 0.002)
noise = twin.floats(1, 1, STEPS, B, 8)
at = twin.floats(2, 3.14159, STEPS, B, 1)
zero, one = torch.zeros(B, 1), torch.ones(B, 1)
for step in range(STEPS):
    real = torch.cat([at[step].cos(), at[step].sin()], 1)
    fake = generator(noise[step])
    loss = F.binary_cross_entropy_with_logits(critic(real), one)
    loss = loss + F.binary_cross_entropy_with_logits(critic(fake.detach()), zero)
    optimizers[1].zero_grad()
    loss.backward()
    optimizers[1].step()
    optimizers[0].zero_grad()
    F.binary_cross_entropy_with_logits(critic(fake), one).backward()
    optimizers[0].step()
    twin.step(loss)
twin.end()
