"""twin_cnn.py - twin_cnn.c in PyTorch: ten patterns in noise, and going on from a file."""
import time

import torch
from torch import nn
from torch.nn import functional as F


def make():
    net = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)),
        *(nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)),
    )
    return net, torch.optim.AdamW(net.parameters(), 0.003)


def train(net, optimizer, epochs):
    for _ in range(epochs):
        for batch in torch.randperm(1000).split(50):
            loss = F.cross_entropy(net(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


torch.manual_seed(1)
torch.set_num_threads(1)
y = torch.arange(1500) % 10
x = torch.randn(10, 1, 8, 8)[y] + 1.5 * torch.randn(1500, 1, 8, 8)
net, optimizer = make()
start = time.process_time()
train(net, optimizer, 3)
ms = 1000 * (time.process_time() - start) / 60
torch.save([net.state_dict(), optimizer.state_dict(), torch.get_rng_state()], "twin_cnn.pt")
train(net, optimizer, 3)
again, optimizer = make()
model, state, random = torch.load("twin_cnn.pt")
again.load_state_dict(model)
optimizer.load_state_dict(state)
torch.set_rng_state(random)
train(again, optimizer, 3)
same = all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters()))
again.eval()
with torch.no_grad():
    right = (again(x[1000:]).argmax(1) == y[1000:]).float().mean().item()
print(f"{100 * right:.1f}% right, {'the same' if same else 'other'} weights, {ms:.2f} ms a step")
