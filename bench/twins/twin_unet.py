"""twin_unet.py - twin_unet.c in PyTorch: a U-Net marks what is bright."""
import torch
from torch import nn
from torch.nn import functional as F

import twin

B, STEPS, SIDE, LEVELS = 16, 60, 16, 3


def conv(inputs, outputs):
    return nn.Conv2d(inputs, outputs, 3, padding=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        levels = range(LEVELS)
        self.down = nn.ModuleList(conv(8 << i if i else 1, 16 << i) for i in levels)
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(32 << i, 16 << i, 2, stride=2) for i in levels[:-1])
        self.join = nn.ModuleList(conv(32 << i, 16 << i) for i in levels[:-1])
        self.out = conv(16, 1)

    def forward(self, x):
        skip = []
        for i in range(LEVELS):
            x = F.relu(self.down[i](F.max_pool2d(x, 2) if i else x))
            skip.append(x)
        for i in reversed(range(LEVELS - 1)):
            x = F.relu(self.join[i](torch.cat([self.up[i](x), skip[i]], 1)))
        return self.out(x)


net = twin.init(Net())
optimizer = twin.adamw(net, 0.002)
images = twin.floats(1, 1, STEPS, B, 1, SIDE, SIDE)
for image in images:
    loss = F.binary_cross_entropy_with_logits(net(image), (image > 0).float())
    twin.update(optimizer, loss)
twin.end()
