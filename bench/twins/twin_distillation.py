"""twin_distillation.py - twin_distillation.c in PyTorch: a small network learns from a large one."""
import torch
from torch.nn import functional as F

import twin

B, IN, OUT, STEPS, WARM = 128, 64, 10, 100, 4

teacher, student = twin.init(twin.mlp(IN, 256, 256, OUT)), twin.init(twin.mlp(IN, 32, OUT))
optimizer = twin.adamw(student, 0.003)
points = twin.floats(1, 1, STEPS, B, IN)
labels = twin.ints(2, OUT, STEPS, B)
for step in range(STEPS):
    with torch.no_grad():
        wanted = F.softmax(teacher(points[step]) / WARM, -1)
    y = student(points[step])
    off = F.kl_div(F.log_softmax(y / WARM, -1), wanted, reduction="batchmean") * WARM**2
    loss = off + F.cross_entropy(y, labels[step])
    twin.update(optimizer, loss)
twin.end()
