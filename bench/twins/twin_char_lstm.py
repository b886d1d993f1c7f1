"""twin_char_lstm.py - twin_char_lstm.c in PyTorch: sums, letter by letter."""
import time

import torch
from torch import nn
from torch.nn import functional as F

B, T, H, STEPS = 16, 64, 128, 150


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(128, H)
        self.lstm = nn.LSTM(H, H, 2, batch_first=True)
        self.out = nn.Linear(H, 128)

    def forward(self, ids, state):
        y, state = self.lstm(self.table(ids), state)
        return self.out(y), state


torch.manual_seed(1)
torch.set_num_threads(1)
pairs = torch.randint(0, 20, (STEPS * B * T // 6, 2)).tolist()
text = "".join(f"{a}+{b}={a + b}\n" for a, b in pairs)
rows = torch.tensor(list(text.encode())[: B * (STEPS * T + 1)]).view(B, -1)
net, state = Net(), None
optimizer = torch.optim.AdamW(net.parameters(), 0.005)
start = time.process_time()
for step in range(STEPS):
    part = rows[:, step * T : step * T + T + 1]
    logits, (h, c) = net(part[:, :-1], state)
    loss = F.cross_entropy(logits.transpose(1, 2), part[:, 1:])
    state = h.detach(), c.detach()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1)
    optimizer.step()
seconds = time.process_time() - start
with torch.no_grad():
    ids, state, made = torch.tensor([[10]]), None, ""
    for _ in range(60):
        logits, state = net(ids, state)
        ids = torch.multinomial(F.softmax(logits[:, -1], -1), 1)
        made += chr(ids.item())
print(made)
print(f"{loss.item():.3f} nats a letter, {1000 * seconds / STEPS:.2f} ms a step")
