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
  words20k, words100k  word2vec: 512 pairs of 20,000 or 100,000 words, each with
          five words that are drawn, other ones in each step; embeddings of 64
          numbers (in PyTorch sparse=True) and Adagrad

gradus and PyTorch (fused) update the others by AdamW. PyTorch has two ways for pinn: by reverse mode twice, and by
torch.func.jvp twice, forwards. JAX's jit, which takes part where it is installed, has forward over
reverse and forward over forward in the same places. PyTorch runs eager and compiled, on a GPU with CUDA
graphs (TF32 off, cuDNN's autotuner on); the faster one counts. The sides take turns; a figure is the
least of all rounds.

kann (https://github.com/attractivechaos/kann) takes part on the CPU, on one thread, if --kann names a
folder with its sources, which are compiled with bench/kann/toys.c, by $CC, with -O3 -march=native and
CBLAS.

    bench/compare_toys.py
    bench/compare_toys.py --device cpu --threads 1 --kann ~/kann
"""
import functools
import math
import tempfile

import train_jax
from harness import (Table, bench, compile_kann, get_torch, least, machine, mean_seconds, of, options,
                     records, run, take_turns)
from llama import rotary, rotate


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


def words(count):
    """word2vec of so many words."""
    def make(torch, device):
        """(parameters, loss)"""
        table = [torch.nn.Embedding(count, 64, sparse=True, device=device) for _ in range(2)]
        sign = torch.tensor([-1.0] + 5 * [1.0], device=device)

        def loss():
            a = table[0](torch.randint(count, (512, 1), device=device))
            b = table[1](torch.randint(count, (512, 6), device=device))
            return torch.nn.functional.softplus((a * b).sum(2) * sign).mean()

        return [t.weight for t in table], loss

    return make


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
TOYS = {**{name: [functools.partial(image_toy, name=name)] for name in ("cnn", "digits", "gru")},
        "pinn": [pinn_in_reverse, pinn_forwards], "wgan": [wgan], "hvp": [block],
        "words20k": [words(20000)], "words100k": [words(100000)]}


def torch_step(torch, device, name, way, compiled):
    """A step of a model in PyTorch, eager or compiled."""
    parameters, loss = way(torch, device)
    if name == "hvp":
        direction = [torch.randn_like(t) for t in parameters]

        def step():
            slope = torch.autograd.grad(loss(), parameters, create_graph=True)
            return torch.autograd.grad(slope, parameters, direction)
    else:
        optimizer = (torch.optim.Adagrad(parameters, lr=1e-3) if name.startswith("words")
                     else torch.optim.AdamW(parameters, lr=1e-3, fused=True))
        if compiled:
            loss = torch.compile(loss, mode="reduce-overhead" if device == "cuda" else None)

        def step():
            loss().backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


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

    def adamw(loss, units):
        """A step, and what it begins with."""
        def step(state):
            w, moments, n = state
            return *train_jax.update(jax, w, moments, n, jax.grad(loss)(w), clip=False), n + 1

        w = weights(units)
        return jax.jit(step, donate_argnums=0), (w, train_jax.no_moments(jax, w), jnp.float32(1))

    return {"pinn": adamw(pinn, 64), "wgan": adamw(critic, 512)}


def torch_sides(torch, args, steps):
    """(name, what times it, in microseconds) of the ways of PyTorch."""
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    for compiled in [False] if args.no_compile else [False, True]:
        for name in args.toys:
            for way in TOYS[name]:
                # A compiled function has no gradient of its gradient, and no sparse one.
                if not compiled or not (way in (pinn_in_reverse, wgan, block) or "words" in name):
                    step = torch_step(torch, args.device, name, way, compiled)
                    mean_seconds(step, 5)
                    yield name, lambda step=step: mean_seconds(step, steps, wait) * 1e6


def jax_sides(args, steps):
    """The same of JAX."""
    try:
        import jax
    except ImportError:
        return
    jax.config.update("jax_default_matmul_precision", "highest")  # no TF32, as on the other sides
    for name, (update, begin) in jax_steps(jax).items():
        if name in args.toys:
            state = [begin]

            def step(update=update, state=state):
                state[0] = update(state[0])

            wait = functools.partial(lambda state: jax.block_until_ready(state), state)
            mean_seconds(step, 5, wait)
            yield name, lambda step=step, wait=wait: mean_seconds(step, steps, wait) * 1e6


def main():
    """Print the table."""
    p = options(__doc__, "bench", "device", "threads", "rounds", "kann", "no-compile")
    p.add_argument("--toys", **of(TOYS))
    args = p.parse_args()
    torch = get_torch(args.device, args.threads)
    steps = 50 if args.device == "cuda" else 5
    with tempfile.TemporaryDirectory() as folder:
        sides = {"gradus": lambda: {r["name"]: r["us"] for r in bench(args, "toys", "--repeats", 3)}}
        for side, some in (("PyTorch", torch_sides(torch, args, steps)), ("JAX", jax_sides(args, steps))):
            for i, (name, us) in enumerate(some):
                sides[side, i] = lambda name=name, us=us: {name: us()}
        if args.kann:
            kann = compile_kann(args.kann, folder, "toys.c")
            sides["kann"] = lambda: {r["name"]: r["us"] for r in records(run([kann]))}
        turns = take_turns(sides, args.rounds)
    best = {}
    for side, rounds in turns.items():
        best.setdefault(side if isinstance(side, str) else side[0], []).extend(rounds)
    best = {side: least(rounds) for side, rounds in best.items()}

    print(f"{machine(torch, args.device)}; microseconds a step")
    own = best.pop("gradus")
    table = Table(("model", "<9"), ("gradus", ">10.1f"),
                  *(column for side in best for column in ((side, ">10.1f"), ("ratio", ">6.2f"))))
    for name in args.toys:
        cells = [(figures[name], figures[name] / own[name]) if name in figures else ("", "")
                 for figures in best.values()]
        table.line(name, own[name], *(cell for pair in cells for cell in pair))


if __name__ == "__main__":
    main()
