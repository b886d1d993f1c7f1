#!/usr/bin/env python3
"""Time a step of small models beside PyTorch, JAX and kann: forward, backward and update.

  cnn     two convolutions of 32 channels, 3 x 3, max pooling 2 x 2, 128 hidden
          units, 10 classes; batch 64, 28 x 28, no padding
  digits  the net of docs/examples/digits.c: twice a convolution 5 x 5 (16 and
          32 channels), batch norm, relu and max pooling, then a linear layer;
          batch 128, 28 x 28
  gru     64 letters as vectors with a single 1, a GRU of 128 units, a linear
          layer, and the loss at each step; batch 32, 50 steps
  pinn    tanh MLP 2-64-64-64-1 at 2048 points, Burgers' equation: u_t, u_x, u_xx
  wgan    softplus MLP 2-512-512-512-1, a critic of twice 256 points, with a
          penalty for the gradient at 256 others
  hvp     a Hessian of the block of docs/examples/transformer_block.c, times a
          vector

gradus and PyTorch (fused) update by AdamW.  PyTorch has two ways for pinn: by
reverse mode twice, and by torch.func.jvp twice, forwards.  JAX's jit, which
takes part where it is installed, has forward over reverse and forward over
forward in the same places.  PyTorch runs eager and compiled,
on a GPU with CUDA graphs (TF32 off, cuDNN's autotuner on); the faster one
counts.  The sides take turns; a figure is the least of all rounds.

kann (https://github.com/attractivechaos/kann) takes part on the CPU, on one
thread, if --kann names a folder with its sources, which are compiled with
bench/kann/toys.c, by $CC, with -O3 -march=native and CBLAS.

    python3 bench/compare_toys.py
    python3 bench/compare_toys.py --device cpu --threads 1 --kann ~/kann
"""

import argparse
import math
import pathlib
import subprocess
import sys
import tempfile
import time

from common import compile_kann, count, records, rotary, rotate

HERE = pathlib.Path(__file__).resolve().parent


def images(torch):
    """name -> (the shape of x, how many targets, classes, model)"""
    nn = torch.nn

    class Letters(nn.Module):
        """A GRU and what it says of the next letter."""

        def __init__(self):
            super().__init__()
            self.gru, self.out = nn.GRU(64, 128, batch_first=True), nn.Linear(128, 64)

        def forward(self, x):
            return self.out(self.gru(x)[0]).flatten(0, 1)

    def stage(channels, outputs):
        return (nn.Conv2d(channels, outputs, 5, padding=2, bias=False), nn.BatchNorm2d(outputs),
                nn.ReLU(), nn.MaxPool2d(2))

    return {
        "cnn": ((64, 1, 28, 28), 64, 10, nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * 12 * 12, 128), nn.ReLU(), nn.Linear(128, 10))),
        "digits": ((128, 1, 28, 28), 128, 10, nn.Sequential(
            *stage(1, 16), *stage(16, 32), nn.Flatten(), nn.Linear(32 * 7 * 7, 10))),
        "gru": ((32, 50, 64), 32 * 50, 64, Letters()),
    }


def mlp(torch, units, activation):
    """2 - units - units - units - 1"""
    nn, layers, size = torch.nn, [], [2, units, units, units, 1]
    for i in range(4):
        layers += [nn.Linear(size[i], size[i + 1])] + [activation()] * (i < 3)
    return nn.Sequential(*layers)


def residual(u, u_t, u_x, u_xx):
    """Burgers' equation, squared."""
    return ((u_t + u * u_x - 0.01 * u_xx) ** 2).mean()


def pinn_in_reverse(torch, device):
    """(parameters, loss): u_x by a backward, u_xx by another."""
    model = mlp(torch, 64, torch.nn.Tanh).to(device)
    x = (2 * torch.rand(2048, 2, device=device) - 1).requires_grad_()

    def loss():
        u = model(x)
        slope, = torch.autograd.grad(u.sum(), x, create_graph=True)
        second, = torch.autograd.grad(slope[:, 1].sum(), x, create_graph=True)
        return residual(u, slope[:, :1], slope[:, 1:], second[:, 1:])

    return list(model.parameters()), loss


def pinn_forwards(torch, device):
    """(parameters, loss): u_xx as a derivative in a direction, twice."""
    model = mlp(torch, 64, torch.nn.Tanh).to(device)
    x = 2 * torch.rand(2048, 2, device=device) - 1
    t_way, x_way = torch.zeros_like(x), torch.zeros_like(x)
    t_way[:, 0], x_way[:, 1] = 1, 1

    def loss():
        jvp = torch.func.jvp
        u, u_t = jvp(model, (x,), (t_way,))
        u_x, u_xx = jvp(lambda z: jvp(model, (z,), (x_way,))[1], (x,), (x_way,))
        return residual(u, u_t, u_x, u_xx)

    return list(model.parameters()), loss


def wgan(torch, device):
    """(parameters, loss) of a critic."""
    model = mlp(torch, 512, torch.nn.Softplus).to(device)
    real, made, between = torch.randn(3, 256, 2, device=device)
    between.requires_grad_()

    def loss():
        slope, = torch.autograd.grad(model(between).sum(), between, create_graph=True)
        off = slope.norm(dim=1) - 1
        return model(made).mean() - model(real).mean() + 10 * (off * off).mean()

    return list(model.parameters()), loss


def block(torch, device):
    """(parameters, loss) of docs/examples/transformer_block.c."""
    functional = torch.nn.functional
    sizes = [(11, 16), (16, 16), (8, 16), (8, 16), (16, 16), (40, 16), (40, 16), (16, 40)]
    w = [torch.randn(size, device=device) * size[1] ** -0.5 for size in sizes]
    w = [t.requires_grad_() for t in w + [torch.ones(16, device=device) for _ in range(3)]]
    tokens, targets = torch.randint(11, (2, 2, 8), device=device)
    cos, sin = (t.to(device) for t in rotary(torch, 4, 8))

    def heads(x, weight, n):
        return (x @ weight.T).view(2, 8, n, 4).transpose(1, 2)

    def loss():
        stream = w[0][tokens]
        x = functional.rms_norm(stream, (16,), w[8], 1e-5)
        q, k = (rotate(torch, heads(x, w[i], n), cos, sin) for i, n in ((1, 4), (2, 2)))
        k, v = (t.repeat_interleave(2, 1) for t in (k, heads(x, w[3], 2)))
        hidden = torch.full((8, 8), -math.inf, device=device).triu(1)
        y = torch.softmax(q @ k.transpose(-1, -2) * 0.5 + hidden, -1) @ v
        stream = stream + y.transpose(1, 2).reshape(2, 8, 16) @ w[4].T
        x = functional.rms_norm(stream, (16,), w[9], 1e-5)
        stream = stream + (functional.silu(x @ w[5].T) * (x @ w[6].T)) @ w[7].T
        x = functional.rms_norm(stream, (16,), w[10], 1e-5)
        return functional.cross_entropy((x @ w[0].T).flatten(0, 1), targets.flatten())

    return w, loss


def image_toy(torch, device, name):
    """(parameters, loss) of one of images()."""
    shape, rows, classes, model = images(torch)[name]
    model = model.to(device)
    x = torch.randn(shape, device=device)
    if len(shape) == 3:  # a single 1 in each vector
        x = torch.nn.functional.one_hot(x.argmax(-1), shape[-1]).to(x.dtype)
    targets = torch.randint(classes, (rows,), device=device)
    return (list(model.parameters()),
            lambda: torch.nn.functional.cross_entropy(model(x), targets))


# the ways of PyTorch to compute each
TOYS = {"cnn": [], "digits": [], "gru": [], "pinn": [pinn_in_reverse, pinn_forwards],
        "wgan": [wgan], "hvp": [block]}


class Peer:
    """Steps of a model in PyTorch, eager or compiled."""

    def __init__(self, torch, device, name, way, compiled):
        self.wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        parameters, loss = way(torch, device) if way else image_toy(torch, device, name)
        mode = "reduce-overhead" if device == "cuda" else None
        if name == "hvp":
            direction = [torch.randn_like(t) for t in parameters]

            def step():
                slope = torch.autograd.grad(loss(), parameters, create_graph=True)
                return torch.autograd.grad(slope, parameters, direction)
        else:
            optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
            if compiled:
                loss = torch.compile(loss, mode=mode)

            def step():
                loss().backward()
                optimizer.step()
                optimizer.zero_grad()

        self.step = step
        for _ in range(5):
            step()

    def microseconds(self, steps):
        self.wait()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        self.wait()
        return (time.perf_counter() - begin) * 1e6 / steps


def jax_steps(jax):
    """name -> a step of JAX, jitted: forward or update, which returns what it waits for."""
    jnp, random = jax.numpy, jax.random.PRNGKey(0)

    def weights(units):
        size = [2, units, units, units, 1]
        return [(jax.random.normal(random, (size[i], size[i + 1])) * size[i] ** -0.5,
                 jnp.zeros(size[i + 1])) for i in range(4)]

    def net(w, x, activation):
        for a, b in w[:-1]:
            x = activation(x @ a + b)
        return x @ w[-1][0] + w[-1][1]

    points = jax.random.uniform(random, (2048, 2), minval=-1, maxval=1)

    def pinn(w):
        t_way, x_way = jnp.zeros_like(points).at[:, 0].set(1), jnp.zeros_like(points).at[:, 1].set(1)
        u, u_t = jax.jvp(lambda z: net(w, z, jnp.tanh), (points,), (t_way,))
        u_x, u_xx = jax.jvp(
            lambda z: jax.jvp(lambda y: net(w, y, jnp.tanh), (z,), (x_way,))[1], (points,), (x_way,))
        return residual(u, u_t, u_x, u_xx)

    real, made, between = jax.random.normal(random, (3, 256, 2))

    def critic(w):
        slope = jax.grad(lambda z: net(w, z, jax.nn.softplus).sum())(between)
        off = jnp.linalg.norm(slope, axis=1) - 1
        return (net(w, made, jax.nn.softplus).mean() - net(w, real, jax.nn.softplus).mean()
                + 10 * (off * off).mean())

    def adamw(loss):
        """w, first and second moments -> those after a step."""
        def step(state):
            w, m, v, n = state
            g = jax.grad(loss)(w)
            m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
            v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
            w = jax.tree.map(
                lambda p, a, b: p * (1 - 1e-5) - 1e-3 * (a / (1 - 0.9 ** n))
                / (jnp.sqrt(b / (1 - 0.999 ** n)) + 1e-8), w, m, v)
            return w, m, v, n + 1
        return jax.jit(step, donate_argnums=0)

    def begin(units):
        w = weights(units)
        zeros = jax.tree.map(jnp.zeros_like, w)
        return w, zeros, jax.tree.map(jnp.zeros_like, w), jnp.float32(1)

    return {"pinn": (adamw(pinn), begin(64)), "wgan": (adamw(critic), begin(512))}


class JaxPeer:
    """Steps of a model in JAX."""

    def __init__(self, jax, step, state):
        self.jax, self.step, self.state = jax, step, state
        self.microseconds(5)

    def microseconds(self, steps):
        begin = time.perf_counter()
        for _ in range(steps):
            self.state = self.step(self.state)
        self.jax.block_until_ready(self.state)
        return (time.perf_counter() - begin) * 1e6 / steps


def run(command):
    """name -> microseconds, from a program that prints JSON."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"compare_toys: {command[0]} failed: {done.stderr.strip()}")
    return {r["name"]: r["us"] for r in records(done.stdout)}


def parse_arguments():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bench", type=pathlib.Path, default=HERE.parent / "build/bin/gradus-bench")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--threads", type=count, default=0, help="on the CPU, on both sides")
    p.add_argument("--rounds", type=count, default=5)
    p.add_argument("--kann", help="a folder with kann's sources")
    p.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    p.add_argument("--toys", type=lambda text: text.split(","), default=list(TOYS),
                   help="some of them, with commas in between")
    return p.parse_args()


def main():
    """Print the table."""
    args = parse_arguments()
    try:
        import torch
    except ImportError:
        sys.exit("compare_toys: PyTorch is missing")
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("compare_toys: no GPU")
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    ours = [str(args.bench), "toys", "--device", args.device, "--json", "--repeats", "3"]
    ours += ["--threads", str(args.threads)] if args.threads else []
    peers = []
    for compiled in [False] if args.no_compile else [False, True]:
        for name in args.toys:
            if compiled and name in ("wgan", "hvp"):
                continue  # a compiled function has no gradient of its gradient
            peers += [("PyTorch", name, Peer(torch, args.device, name, way, compiled))
                      for way in TOYS[name] or [None]
                      if not (compiled and way is pinn_in_reverse)]
    try:
        import jax
        jax.config.update("jax_default_matmul_precision", "highest")  # no TF32, as on the other sides
        peers += [("JAX", name, JaxPeer(jax, *one)) for name, one in jax_steps(jax).items()
                  if name in args.toys]
    except ImportError:
        pass
    steps = 50 if args.device == "cuda" else 5
    best = {}

    def note(side, name, us):
        best[side, name] = min(best.get((side, name), us), us)

    with tempfile.TemporaryDirectory() as folder:
        kann = args.kann and compile_kann(args.kann, folder, HERE / "kann/toys.c")
        for _ in range(args.rounds):
            for name, us in run(ours).items():
                note("gradus", name, us)
            for side, name, one in peers:
                note(side, name, one.microseconds(steps))
            for name, us in run(kann).items() if kann else ():
                note("kann", name, us)

    where = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    print(f"{where}, PyTorch {torch.__version__}; microseconds a step")
    others = [side for side in ("PyTorch", "JAX", "kann") if any(s == side for s, _ in best)]
    print(f"{'model':<8} {'gradus':>10}" + "".join(f" {side:>10}  ratio" for side in others))
    for name in args.toys:
        own = best["gradus", name]
        line = f"{name:<8} {own:>10.1f}"
        for side in others:
            other = best.get((side, name))
            line += f" {other:>10.1f} {other / own:>6.2f}" if other else " " * 18
        print(line.rstrip())


if __name__ == "__main__":
    main()
