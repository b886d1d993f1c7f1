"""twin_resnet.py - twin_resnet.c in PyTorch: a residual network on images of 8 x 8."""
from torch import nn
from torch.nn import functional as F

import twin

B, STEPS = 50, 60


def conv(inputs, outputs, side, stride):
    return nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False)


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.first = conv(inputs, outputs, 3, 2 if inputs < outputs else 1)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.second = conv(outputs, outputs, 3, 1)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.skip = nn.Sequential()
        if inputs < outputs:
            self.skip = nn.Sequential(conv(inputs, outputs, 1, 2), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.norm1(self.first(x)))
        return F.relu(self.norm2(self.second(y)) + self.skip(x))


net = twin.init(nn.Sequential(
    *(conv(1, 16, 3, 1), nn.BatchNorm2d(16), nn.ReLU()),
    *(Block(16, 16), Block(16, 32), Block(32, 64)),
    *(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 10)),
))
optimizer = twin.adamw(net, 0.001)
images = twin.floats(1, 1, STEPS, B, 1, 8, 8)
labels = twin.ints(2, 10, STEPS, B)
for step in range(STEPS):
    loss = F.cross_entropy(net(images[step]), labels[step])
    twin.update(optimizer, loss)
twin.end()
