"""twin.py - what the programs here share, as twin.h in C: the same numbers, a cart with a pole, an
update, and the time of a step."""
import math
import time

import torch
from torch import nn

torch.set_num_threads(1)
MASK = 2**32 - 1


def numbers(seed, *shape):
    """From 0 to 1: a hash of a seed and a place."""
    h = (seed * 0x9E3779B9 + torch.arange(math.prod(shape)) * 0x85EBCA6B) & MASK
    h = (h ^ h >> 15) * 0x2C1B3C6D & MASK
    h = (h ^ h >> 12) * 0x297A2D39 & MASK
    return ((h ^ h >> 15).double() / 2**32).view(shape)


def floats(seed, scale, *shape):
    """Numbers from -scale to scale."""
    return ((2 * numbers(seed, *shape) - 1) * scale).float()


def ints(seed, n, *shape):
    """Whole numbers from 0 to n - 1."""
    return (numbers(seed, *shape) * n).long()


def init(net):
    """Numbers for all parameters but the weights of norms; the net."""
    with torch.no_grad():
        for i, (name, p) in enumerate(net.named_parameters()):
            if p.ndim > 1:
                p.copy_(floats(100 + i, (p.numel() / p.shape[0]) ** -0.5, *p.shape))
            elif "bias" in name:
                p.copy_(floats(100 + i, 0.1, *p.shape))
    return net


def mlp(*sizes, act=nn.ReLU):
    """Linear layers of these widths, with an activation between two."""
    layers = [layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b), act())]
    return nn.Sequential(*layers[:-1])


def adamw(net, rate):
    return torch.optim.AdamW(net.parameters(), rate, weight_decay=0)


def push(cart, right, seed):
    """Pushes a cart with a pole to the left or the right: (the cart, whether it is over and new)."""
    x, v, a, w = cart.double().tolist()
    c, s = math.cos(a), math.sin(a)
    force = ((10 if right else -10) + 0.05 * w * w * s) / 1.1
    turn = (9.8 * s - c * force) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
    x, v, a, w = x + 0.02 * v, v + 0.02 * (force - 0.05 * turn * c / 1.1), a + 0.02 * w, w + 0.02 * turn
    over = abs(x) > 2.4 or abs(a) > 0.2095
    return (0.1 * numbers(seed, 4) - 0.05).float() if over else torch.tensor([x, v, a, w]), over


times = []


def step(loss):
    """A step of that loss: prints it."""
    print(f"{loss.item():.7g}")
    times.append(time.process_time())


def update(optimizer, loss):
    """An update by that loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step(loss)


def end():
    print(f"{1000 * (time.process_time() - times[0]) / (len(times) - 1):.4f} ms a step")
