"""twin_pinn_jax.py - twin_pinn.c in JAX: each step is one jit, with forward over forward derivatives."""
import pathlib
import sys
import time

import jax
import jax.numpy as jnp

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import train_jax

POINTS, STEPS = 512, 40
SIZES = 2, 64, 64, 64, 1

key = jax.random.PRNGKey(0)
w = [(jax.random.normal(key, pair) * pair[0] ** -0.5, jnp.zeros(pair[1])) for pair in zip(SIZES, SIZES[1:])]
x = jax.random.uniform(key, (POINTS, 2), minval=-1, maxval=1)
along = [jnp.zeros_like(x).at[:, i].set(1) for i in range(2)]


def net(w, x):
    for a, b in w[:-1]:
        x = jnp.tanh(x @ a + b)
    return x @ w[-1][0] + w[-1][1]


def loss(w):
    def slope(z, i):
        return jax.jvp(lambda y: net(w, y), (z,), (along[i],))

    u, u_t = slope(x, 0)
    u_x, u_xx = jax.jvp(lambda z: slope(z, 1)[1], (x,), (along[1],))
    return jnp.mean((u_t + u * u_x - u_xx / 100) ** 2)


@jax.jit
def update(w, moments, n):
    value, slope = jax.value_and_grad(loss)(w)
    return *train_jax.update(jax, w, moments, n, slope, clip=False), value


moments, times = train_jax.no_moments(jax, w), []
for n in range(STEPS):
    w, moments, value = update(w, moments, jnp.float32(n + 1))
    print(f"{value.item():.7g}")
    times.append(time.process_time())
print(f"{1000 * (times[-1] - times[0]) / (STEPS - 1):.4f} ms a step")
