"""twin_seq2seq.py - twin_seq2seq.c in PyTorch: a GRU reads letters, another writes."""
import torch
from torch import nn
from torch.nn import functional as F

import twin

B, IN, OUT, H, LETTERS, STEPS = 64, 20, 10, 64, 128, 60


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, H)
        self.reader = nn.GRU(H, H, batch_first=True)
        self.writer = nn.GRU(H, H, batch_first=True)
        self.key = nn.Linear(H, H, bias=False)
        self.mix = nn.Linear(2 * H, H)
        self.out = nn.Linear(H, LETTERS)

    def forward(self, text, old):
        read, last = self.reader(self.letters(text))
        h, _ = self.writer(self.letters(old), last)
        at = F.softmax(self.key(h) @ read.transpose(1, 2), -1)
        return self.out(torch.tanh(self.mix(torch.cat([h, at @ read], -1))))


net = twin.init(Net())
optimizer = twin.adamw(net, 0.005)
texts = twin.ints(1, LETTERS, STEPS, B, IN)
wanted = twin.ints(2, LETTERS, STEPS, B, OUT + 1)
for step in range(STEPS):
    logits = net(texts[step], wanted[step, :, :-1])
    loss = F.cross_entropy(logits.transpose(1, 2), wanted[step, :, 1:])
    twin.update(optimizer, loss)
twin.end()
