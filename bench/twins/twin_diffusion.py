"""twin_diffusion.py - twin_diffusion.c in PyTorch: noise in the points of a spiral."""
from math import pi

import torch
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import twin

B, WIDE, STEPS = 256, 128, 100
net = twin.init(twin.mlp(10, WIDE, WIDE, WIDE, 2))
average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.995))
optimizer = twin.adamw(net, 0.003)
places = twin.floats(1, 1, STEPS, B, 1)
noises = twin.floats(2, 1.7, STEPS, B, 2)
times = twin.ints(3, 100, STEPS, B, 1)
octaves = torch.tensor([1, 2, 4, 8])
for step in range(STEPS):
    u = 0.5 * places[step] + 0.5
    angle, noise, t = 3 * pi * u, noises[step], (times[step].float() + 1) * (pi / 200)
    way = torch.cat([angle.cos(), angle.sin()], 1)
    noisy = t.cos() * ((1.5 * u + 0.3) * way) + t.sin() * noise
    fast = t * octaves
    loss = F.mse_loss(net(torch.cat([noisy, fast.sin(), fast.cos()], 1)), noise)
    twin.update(optimizer, loss)
    average.update_parameters(net)
twin.end()
