"""twin_dqn.py - twin_dqn.c in PyTorch: what a push of a cart is worth."""
import copy

import torch
from torch.nn import functional as F

import twin

B, SEEN, STEPS = 64, 500, 200
net = twin.init(twin.mlp(4, 64, 64, 2))
target = copy.deepcopy(net)  # as it was a while ago
optimizer = twin.adamw(net, 0.002)
x, after = torch.zeros(SEEN, 4), torch.zeros(SEEN, 4)
alive, push = torch.zeros(SEEN, 1), torch.zeros(SEEN, 1, dtype=torch.int64)
cart = torch.zeros(4)
guess, guessed = (twin.numbers(1, SEEN) < 0.2).tolist(), (twin.numbers(2, SEEN) < 0.5).tolist()
draws = [twin.numbers(1000 + k, B) for k in range(SEEN)]
for step in range(-B, STEPS):
    k = step + B
    x[k] = cart
    with torch.no_grad():
        value = net(cart).tolist()
    push[k] = guessed[k] if guess[k] else value[1] > value[0]
    cart, over = twin.push(cart, push[k], 3 + k)
    after[k], alive[k] = cart, not over
    if step < 0:
        continue
    at = (draws[k] * (k + 1)).long()
    if step % 20 == 0:
        target.load_state_dict(net.state_dict())
    with torch.no_grad():
        worth = 1 + 0.99 * target(after[at]).max(1, keepdim=True)[0] * alive[at]
    loss = F.huber_loss(net(x[at]).gather(1, push[at]), worth)
    twin.update(optimizer, loss)
twin.end()
