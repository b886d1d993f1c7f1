"""twin_gru.py - twin_gru.c in PyTorch: what letter comes next."""
from torch import nn
from torch.nn import functional as F

import twin

B, T, H, LETTERS, STEPS = 32, 50, 128, 64, 20


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(LETTERS, H, batch_first=True)
        self.out = nn.Linear(H, LETTERS)

    def forward(self, x):
        return self.out(self.gru(x)[0])


net = twin.init(Net())
optimizer = twin.adamw(net, 0.005)
letters, following = (twin.ints(seed, LETTERS, STEPS, B, T) for seed in (1, 2))
for step in range(STEPS):
    logits = net(F.one_hot(letters[step], LETTERS).float())
    twin.update(optimizer, F.cross_entropy(logits.transpose(1, 2), following[step]))
twin.end()
