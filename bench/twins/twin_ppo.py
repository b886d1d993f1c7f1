"""twin_ppo.py - twin_ppo.c in PyTorch: a policy pushes carts, and a critic tells what that is worth."""
import torch
from torch import nn
from torch.nn import functional as F

import twin

CARTS, TIMES, ALL, B, EPOCHS, ROUNDS = 8, 64, 512, 64, 4, 5

policy, critic = net = twin.init(
    nn.ModuleList([twin.mlp(4, 64, 64, out, act=nn.Tanh) for out in (2, 1)]))
optimizer = twin.adamw(net, 0.002)
carts = torch.zeros(CARTS, 4)
draws = twin.numbers(1, ROUNDS, TIMES, CARTS)
for round in range(ROUNDS):
    seen, pushes, logp, alive, values = [], [], [], [], []
    for t in range(TIMES + 1):
        with torch.no_grad():
            chance = F.softmax(policy(carts), -1)
            values.append(critic(carts))
        if t == TIMES:
            break
        push = (draws[round, t] < chance[:, 1]).long()
        seen.append(carts)
        pushes.append(push)
        logp.append(chance.gather(1, push[:, None])[:, 0].log())
        seed = 3 + round * ALL + t * CARTS
        pairs = [twin.push(c, right, seed + i) for i, (c, right) in enumerate(zip(carts, push))]
        carts = torch.stack([cart for cart, _ in pairs])
        alive.append(torch.tensor([[0.0 if over else 0.99] for _, over in pairs]))
    gains, later = [], 0
    for t in reversed(range(TIMES)):  # generalized advantages
        later = 1 + alive[t] * values[t + 1] - values[t] + alive[t] * 0.95 * later
        gains.insert(0, later)
    seen, pushes, logp, gains = map(torch.cat, (seen, pushes, logp, gains))
    worth = gains + torch.cat(values[:-1])
    for i in range(0, EPOCHS * ALL, B):
        part = slice(i % ALL, i % ALL + B)
        better = gains[part, 0]
        less = F.cross_entropy(policy(seen[part]), pushes[part], reduction="none")
        ratio = (-less - logp[part]).exp()
        moved = torch.minimum(ratio * better, ratio.clamp(0.8, 1.2) * better).mean()
        loss = 0.001 * F.mse_loss(critic(seen[part]), worth[part]) - moved
        twin.update(optimizer, loss)
twin.end()
