"""twin_vae.py - twin_vae.c in PyTorch: a variational autoencoder."""
from torch import nn
from torch.nn import functional as F

import twin

B, IN, HIDDEN, CODE, STEPS = 64, 64, 128, 8, 100
encoder, decoder = net = twin.init(nn.ModuleList([
    twin.mlp(IN, HIDDEN, 2 * CODE), twin.mlp(CODE, HIDDEN, IN)]))
optimizer = twin.adamw(net, 0.002)
images = twin.ints(1, 2, STEPS, B, IN)
noise = twin.floats(2, 1.7, STEPS, B, CODE)
for step in range(STEPS):
    x = images[step].float()
    mean, log_var = encoder(x).chunk(2, 1)
    code = mean + (0.5 * log_var).exp() * noise[step]
    pixels = F.binary_cross_entropy_with_logits(decoder(code), x, reduction="sum")
    off = 0.5 * (mean**2 + log_var.exp() - log_var - 1).sum()
    loss = (pixels + off) / B
    twin.update(optimizer, loss)
twin.end()
